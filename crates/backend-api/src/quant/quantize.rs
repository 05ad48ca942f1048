//! Quantisation of f32 weights by GGUF's reference rounding.

use half::f16;

use super::QuantFormat;
use crate::desc::{require_eq, require_multiple};
use crate::{BackendError, BackendResult, checked_product};

/// Weights in a block of Q8_0 and Q4_0.
const BLOCK: usize = 32;

/// Quantises rows of `columns` weights to the blocks of a GGUF file, with the rounding of ggml's
/// `quantize_row_q8_0_ref` and `quantize_row_q4_0_ref`. For Q8_0 and Q4_0.
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
        _ => return Err(BackendError::Unsupported { op, need: "the format q8_0 or q4_0".to_owned() }),
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
