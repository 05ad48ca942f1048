//! Mapped buffers through which bytes pass between the host and the device.

mod bytes;
mod readback;
mod staging;

pub(crate) use bytes::Copier;
pub(crate) use readback::Readback;
pub(crate) use staging::StagingRing;

/// The most bytes to move at a time, a power of two of which the device's buffers have room for two: a read that begins
/// within a word takes a buffer of twice the size.
fn most_bytes(limits: &wgpu::Limits, wanted: usize) -> usize {
    let largest = usize::try_from(limits.max_buffer_size).unwrap_or(usize::MAX);
    wanted.min(1 << (largest / 2).max(1).ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_powers_of_two_of_which_a_buffer_has_room_for_two() {
        let most = |max_buffer_size| {
            most_bytes(&wgpu::Limits { max_buffer_size, ..wgpu::Limits::default() }, 1 << 20)
        };
        assert_eq!(
            [1, 2, 3, 1000, 1 << 20, (1 << 21) - 1, 1 << 21, u64::MAX].map(most),
            [1, 1, 1, 256, 1 << 19, 1 << 19, 1 << 20, 1 << 20]
        );
    }
}
