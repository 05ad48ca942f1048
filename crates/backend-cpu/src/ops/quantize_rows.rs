//! Blocks of Q8_0: rows into a cache, and their elements.

use backend_api::BackendResult;
use backend_api::desc::QuantizeRowsDesc;
use backend_api::kv::{KvFormat, dequantize_q8_0, quantize_q8_0};

use super::gather::inside;
use crate::access::{Call, Input};
use crate::element::{widen, with_float};
use crate::parallel::Cores;
use crate::room::{NoRoom, zeros};

/// Elements in the share of one thread.
const GRAIN: usize = 1 << 14;

/// `cache[indices[i], ..] = source[i, ..]` in blocks of Q8_0.
pub(crate) fn quantize_rows(call: Call<'_>, desc: &QuantizeRowsDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    let QuantizeRowsDesc { source: matrix, rows, columns, count, stride, .. } = *desc;
    // A stride that leads nowhere may be any number.
    let ld = if count > 1 { matrix.ld } else { 0 };
    let named = if desc.indices.is_some() { rows } else { count };
    let stride = if named > 1 { stride } else { 0 };
    call.try_access(&operands, |[source, _, indices], cache| {
        let mut blocks = zeros(count * bytes(columns))?;
        Cores::try_run(count * columns, |cores| {
            let source = with_float!(matrix.dtype, T => widen::<T>(cores, source)?);
            let row_bytes = bytes(columns).max(1);
            let grain = (GRAIN / columns.max(1)).max(1) * row_bytes;
            cores.chunks(&mut blocks, row_bytes, grain, &|first, blocks| {
                for (i, row) in (first / row_bytes..).zip(blocks.chunks_exact_mut(row_bytes)) {
                    // The sizes agree.
                    let _ = quantize_q8_0(&source[i * ld..][..columns], row);
                }
            });
            Ok(())
        })?;
        let indices: &[u32] = indices.elements();
        // Of equal indices, the last one stays.
        for (i, row) in blocks.chunks_exact(bytes(columns).max(1)).enumerate() {
            let target = if desc.indices.is_some() { inside(indices[i], rows) } else { Some(i) };
            if let Some(target) = target {
                cache[target * bytes(stride)..][..row.len()].copy_from_slice(row);
            }
        }
        Ok(())
    })
}

const fn bytes(elements: usize) -> usize {
    elements / KvFormat::BLOCK * KvFormat::BLOCK_BYTES
}

/// The elements of blocks.
pub(super) fn dequantized(cores: Cores, blocks: Input<'_>) -> Result<Vec<f32>, NoRoom> {
    let blocks: &[u8] = blocks.elements();
    let mut numbers = zeros(blocks.len() / KvFormat::BLOCK_BYTES * KvFormat::BLOCK)?;
    cores.chunks(&mut numbers, KvFormat::BLOCK, GRAIN, &|first, numbers| {
        let blocks = &blocks[bytes(first)..][..bytes(numbers.len())];
        // The sizes agree.
        let _ = dequantize_q8_0(blocks, numbers);
    });
    Ok(numbers)
}
