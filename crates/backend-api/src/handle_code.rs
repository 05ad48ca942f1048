//! How the key of a slot becomes the number that a caller holds.
//!
//! A handle is no address, but whoever comes from pointers may add to it. Keys of slots lie side by side, so
//! that handles which were keys would make another live one of such a sum. A product with an odd number has an
//! inverse modulo 2⁶⁴, and moves neighbours far apart (Fibonacci hashing).

/// The odd number that keys are multiplied with.
///
/// It and its inverse were searched for by their continued fractions. A step of up to 2²⁰ from a handle is a
/// step of 2⁴³ or more from its key, and of 2,633 or more in the key's lower half, which counts slots: in
/// tables of up to 2,633 slots no sum is live, whatever the slots' generations, and in larger ones none of a
/// generation less than 2¹¹ away.
const SPREAD: u64 = 0x5e47_7360_f7d5_3887;

/// `SPREAD · GATHER` is 1 modulo 2⁶⁴.
const GATHER: u64 = 0xe527_03a8_269e_0d37;

/// The handle of a key. Handles of neighbouring keys differ by more than 2²⁰.
#[must_use]
pub const fn encode_handle(key: u64) -> u64 {
    key.wrapping_mul(SPREAD)
}

/// The key of a handle: every number has one.
#[must_use]
pub const fn decode_handle(handle: u64) -> u64 {
    handle.wrapping_mul(GATHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_are_inverse() {
        for number in [0, 1, 2, 0x1234_5678, 1 << 32, u64::MAX] {
            assert_eq!(decode_handle(encode_handle(number)), number);
            assert_eq!(encode_handle(decode_handle(number)), number);
        }
    }

    #[test]
    fn small_steps_of_a_handle_are_large_ones_of_its_key() {
        let (mut whole, mut slots) = (u64::MAX, u32::MAX);
        for step in 1..=1_u64 << 20 {
            let moved = decode_handle(step);
            whole = whole.min(moved).min(moved.wrapping_neg());
            let low = moved as u32;
            slots = slots.min(low).min(low.wrapping_neg());
        }
        assert!(whole >= 1 << 43, "{whole:#x}");
        assert_eq!(slots, 2633);
    }

    #[test]
    fn keys_of_one_generation_lie_far_apart() {
        // The smallest distance of multiples is that of one of the first to 0.
        let near = (1..1_u64 << 24).map(encode_handle).map(|step| step.min(step.wrapping_neg())).min();
        assert!(near >= Some(1 << 39), "{near:?}");
    }
}
