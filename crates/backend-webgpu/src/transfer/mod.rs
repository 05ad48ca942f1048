//! Bytes between the host and the device.

mod bytes;
mod host;
mod readback;
mod signal;
mod staging;

pub(crate) use host::{copy_dtoh, copy_dtoh_async, copy_htod, read_buffer};
pub(crate) use readback::{Mapped, Readback};
pub(crate) use signal::Signal;
pub(crate) use staging::StagingRing;
