//! Blocks of Q8_0, as keys and values are stored.

use half::f16;

const BLOCK: usize = 32;
const BYTES: usize = 36;

/// The bytes of a block: ggml's `quantize_row_q8_0_ref`, whose every step is rounded to f32. Exact.
fn block(numbers: &[f64]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let largest = numbers.iter().map(|x| x.abs()).fold(0.0, f64::max);
    if numbers.iter().any(|x| x.is_nan()) || largest > 127.0 * 65504.0 {
        bytes[..2].copy_from_slice(&0x7e00u16.to_le_bytes());
        return bytes;
    }
    let d = f64::from((largest / 127.0) as f32);
    let stored = f16::from_f64(d);
    if stored == f16::ZERO {
        return bytes;
    }
    bytes[..2].copy_from_slice(&stored.to_le_bytes());
    let inverse = f64::from((1.0 / d) as f32);
    for (byte, x) in bytes[4..].iter_mut().zip(numbers) {
        let scaled = f64::from((x * inverse) as f32);
        *byte = ((scaled.abs() + 0.5).floor().copysign(scaled) as i8) as u8;
    }
    bytes
}

/// The words of the blocks of numbers.
pub(crate) fn words(numbers: &[f64]) -> Vec<f64> {
    let bytes = numbers.chunks_exact(BLOCK).flat_map(block).collect::<Vec<u8>>();
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|&word| f64::from(u32::from_le_bytes(word))).collect()
}

/// The numbers of blocks.
pub(crate) fn numbers(bytes: &[u8]) -> Vec<f64> {
    let number = |block: &[u8; BYTES], i: usize| {
        f16::from_le_bytes([block[0], block[1]]).to_f64() * f64::from(block[4 + i] as i8)
    };
    let (blocks, _) = bytes.as_chunks::<BYTES>();
    blocks.iter().flat_map(|block| (0..BLOCK).map(move |i| number(block, i))).collect()
}
