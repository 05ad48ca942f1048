//! The device of a page: how modules for browsers open one, describe it to scripts and throw its errors. On other
//! targets there is nothing here.
#![cfg(target_family = "wasm")]

mod class;
mod device;
mod script;

pub use device::{Device, Report};
pub use script::{json, on_progress, parsed, show_panics, thrown, thrown_by_backend};
