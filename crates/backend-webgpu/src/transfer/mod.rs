//! Mapped buffers through which bytes pass between the host and the device.

mod bytes;
mod readback;
mod staging;

pub(crate) use readback::Readback;
pub(crate) use staging::StagingRing;
