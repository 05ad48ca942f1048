//! Mapped buffers through which bytes pass between the host and the device.

mod bytes;
mod readback;
mod staging;

pub(crate) use readback::Readback;
pub(crate) use staging::StagingRing;

/// The most bytes to move at a time, a power of two of which the device's buffers have room for two: a read that begins
/// within a word takes a buffer of twice the size.
fn most_bytes(limits: &wgpu::Limits, wanted: usize) -> usize {
    let largest = usize::try_from(limits.max_buffer_size).unwrap_or(usize::MAX);
    wanted.min(1 << (largest / 2).max(1).ilog2())
}
