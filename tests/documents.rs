//! The code in the documents, compiled and run as documentation tests.

#[doc = include_str!("../README.md")]
struct Readme;

#[doc = include_str!("../docs/linking.md")]
struct Linking;

#[doc = include_str!("../docs/kernels.md")]
struct Kernels;
