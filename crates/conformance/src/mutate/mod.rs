//! Valid inputs made invalid, for whatever parses bytes.

mod wgsl;

use crate::rng::Rng;

pub use wgsl::mutated_wgsl;

/// What parsers stumble over.
const SNIPPETS: [&str; 22] = [
    "0",
    "-1",
    "00",
    "1e999",
    "18446744073709551615",
    "18446744073709551616",
    "4294967296",
    "9223372036854775807",
    "+split0",
    "+split",
    "/",
    ":",
    "x",
    "=",
    "\"",
    "{",
    "}",
    "[",
    ",",
    "\n",
    "\0",
    "é",
];

/// The bytes of `valid` with a few changes that depend on nothing but `seed`; now and then nothing but random
/// bytes.
#[must_use]
pub fn mutated(seed: &str, valid: &[u8]) -> Vec<u8> {
    let mut rng = Rng::from_name(seed);
    if rng.one_in(20) {
        let len = rng.below(64);
        return rng.bytes(len);
    }
    let mut bytes = valid.to_vec();
    for _ in 0..=rng.below(5) {
        change(&mut rng, &mut bytes);
    }
    bytes
}

fn change(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let at = rng.below(bytes.len() + 1);
    let end = (at + 1 + rng.below(16)).min(bytes.len());
    match rng.below(8) {
        0 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
        1 if at < bytes.len() => bytes[at] = rng.next_u64() as u8,
        2 => drop(bytes.drain(at..end)),
        3 => {
            let copied = bytes[at..end].to_vec();
            let to = rng.below(bytes.len() + 1);
            bytes.splice(to..to, copied);
        }
        4 => bytes.truncate(at),
        5 => {
            // A whole number becomes another.
            let digits = |byte: &u8| byte.is_ascii_digit();
            if let Some(first) = bytes[at..].iter().position(digits).map(|first| at + first) {
                let end =
                    bytes[first..].iter().position(|byte| !digits(byte)).map_or(bytes.len(), |n| first + n);
                bytes.splice(first..end, rng.pick(&SNIPPETS).bytes());
            }
        }
        6 => {
            let to = end.min(bytes.len());
            bytes.splice(at..to, rng.pick(&SNIPPETS).bytes());
        }
        _ => {
            bytes.splice(at..at, rng.pick(&SNIPPETS).bytes());
        }
    }
}

/// A few sizes, small ones most of the time.
#[must_use]
pub fn sizes(seed: &str) -> Vec<usize> {
    let mut rng = Rng::from_name(seed);
    let count = if rng.one_in(3) { rng.below(7) } else { 4 - 2 * rng.below(2) };
    // Where a size has 32 bits, these are the largest.
    let shifted = |bits| 1usize.checked_shl(bits).unwrap_or(usize::MAX);
    let extremes = [1 << 31, shifted(32), usize::MAX, usize::MAX / 2 + 1, shifted(62)];
    (0..count).map(|_| if rng.one_in(9) { rng.pick(&extremes) } else { rng.below(5) }).collect()
}
