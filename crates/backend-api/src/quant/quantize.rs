//! Quantisation of f32 weights by GGUF's reference rounding.

use half::f16;

use super::QuantFormat;
use super::decode::half_of_e8m0;
use crate::desc::{require_eq, require_multiple};
use crate::{BackendError, BackendResult, checked_product};

/// Weights in a block of Q8_0, Q4_0 and Mxfp4.
const BLOCK: usize = 32;

/// Twice the values of E2M1, and the largest exponent of a scale by which all of them are finite.
const DOUBLED: [f32; 16] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0];
const LARGEST_EXPONENT: u8 = 252;

/// Quantises rows of `columns` weights to the blocks of a GGUF file, with the rounding of ggml's
/// `quantize_row_q8_0_ref`, `quantize_row_q4_0_ref` and `quantize_row_mxfp4_ref`. For Q8_0, Q4_0 and Mxfp4, whose scale is
/// that of OCP's specification: 2^(⌊log₂ max |x|⌋ − 2), the logarithm exact.
///
/// # Errors
/// [`Shape`](BackendError::Shape) if `columns` is no multiple of the block, or `weights` or `blocks` don't
/// have exactly the size; [`Unsupported`](BackendError::Unsupported) for other formats;
/// [`Overflow`](BackendError::Overflow).
pub fn quantize(
    format: QuantFormat,
    rows: usize,
    columns: usize,
    weights: &[f32],
    blocks: &mut [u8],
) -> BackendResult<()> {
    let op = "quantize";
    let quantize: fn(&[f32; BLOCK], &mut [u8]) = match format {
        QuantFormat::Q8_0 => q8_0,
        QuantFormat::Q4_0 => q4_0,
        QuantFormat::Mxfp4 => mxfp4,
        _ => {
            return Err(BackendError::Unsupported { op, need: "the format q8_0, q4_0 or mxfp4".to_owned() });
        }
    };
    let block_bytes = format.block_bytes().unwrap_or_default();
    require_multiple(op, "columns", BLOCK, columns)?;
    let elements = checked_product(op, "weights", &[rows, columns])?;
    require_eq(op, "number of weights", elements, weights.len())?;
    let bytes = checked_product(op, "blocks", &[rows, columns / BLOCK, block_bytes])?;
    require_eq(op, "bytes of the blocks", bytes, blocks.len())?;
    let (weights, _) = weights.as_chunks::<BLOCK>();
    for (weights, block) in weights.iter().zip(blocks.chunks_exact_mut(block_bytes)) {
        quantize(weights, block);
    }
    Ok(())
}

fn q8_0(weights: &[f32; BLOCK], block: &mut [u8]) {
    let largest = weights.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    let d = largest / 127.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let (scale, quants) = block.split_at_mut(2);
    scale.copy_from_slice(&f16::from_f32(d).to_le_bytes());
    for (quant, x) in quants.iter_mut().zip(weights) {
        // Half away from zero; the conversion saturates.
        *quant = (x * inverse).round() as i8 as u8;
    }
}

fn q4_0(weights: &[f32; BLOCK], block: &mut [u8]) {
    // The first of the largest magnitude, with its sign.
    let largest =
        weights.iter().fold(0.0f32, |largest, &x| if x.abs() > largest.abs() { x } else { largest });
    let d = largest / -8.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let (scale, quants) = block.split_at_mut(2);
    scale.copy_from_slice(&f16::from_f32(d).to_le_bytes());
    let quant = |x: f32| ((x * inverse + 8.5) as u8).min(15);
    let (low, high) = weights.split_at(BLOCK / 2);
    for (byte, (&low, &high)) in quants.iter_mut().zip(low.iter().zip(high)) {
        *byte = quant(low) | quant(high) << 4;
    }
}

fn mxfp4(weights: &[f32; BLOCK], block: &mut [u8]) {
    let largest = weights.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    // The bits of f32's exponent, which are 0 for subnormal numbers.
    let exponent = ((largest.to_bits() >> 23) as u8).saturating_sub(2).min(LARGEST_EXPONENT);
    let d = half_of_e8m0(exponent);
    // The first of the nearest; of NaN, the first of all.
    let nearest = |x: f32| {
        let x = x.clamp(f32::MIN, f32::MAX);
        let mut best = (0, f32::INFINITY);
        for (code, doubled) in (0..).zip(DOUBLED) {
            let error = (d * doubled - x).abs();
            if error < best.1 {
                best = (code, error);
            }
        }
        best.0
    };
    let (scale, quants) = block.split_at_mut(1);
    scale.copy_from_slice(&[exponent]);
    let (low, high) = weights.split_at(BLOCK / 2);
    for (byte, (&low, &high)) in quants.iter_mut().zip(low.iter().zip(high)) {
        *byte = nearest(low) | nearest(high) << 4;
    }
}
