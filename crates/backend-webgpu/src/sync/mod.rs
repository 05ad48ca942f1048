//! Locks, threads, time and the callbacks of wgpu, as everything here uses them.
//!
//! They are parking_lot's, the standard library's and wgpu's own. With the feature `shuttle`, a test decides
//! which thread runs at each of their steps, what the time is, and when the device has finished: see
//! [`model`].

#[cfg(feature = "shuttle")]
mod model;
#[cfg(not(feature = "shuttle"))]
mod real;

#[cfg(feature = "shuttle")]
pub(crate) use model::*;
#[cfg(not(feature = "shuttle"))]
pub(crate) use real::*;

/// A bound of a queue, a ring or a batch. Tests of interleavings have small ones, which few steps reach.
pub(crate) const fn bound(usual: usize, in_tests: usize) -> usize {
    if cfg!(feature = "shuttle") { in_tests } else { usual }
}
