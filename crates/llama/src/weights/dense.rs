//! Matrices of plain numbers on the device, and plain numbers of a file as f32.

use std::borrow::Cow;

use backend_api::owned::Buffer;
use backend_api::{DType, quant};
use half::{bf16, f16};

use super::{NeighbouringPairs, unsupported};
use crate::Result;
use crate::gguf::{Tensor, TensorType};

/// Uploads stacked matrices of `columns` columns, in an order as [`Loader::stacked_matrices`](super::Loader::stacked_matrices) has
/// them.
pub(super) fn fill(
    buffer: &Buffer,
    tensors: &[&Tensor<'_>],
    dtype: DType,
    columns: usize,
    order: Option<(NeighbouringPairs, usize)>,
) -> Result<()> {
    let mut before = 0;
    for tensor in tensors {
        let rows = tensor.shape.first().copied().unwrap_or(0);
        let slot = buffer.view(before * columns * dtype.size(), rows * columns * dtype.size())?;
        let data = match order {
            // Rows are whole blocks.
            Some((order, first)) => {
                Cow::Owned(order.arranged(first + before, tensor.data.len() / rows.max(1), tensor.data))
            }
            None => Cow::Borrowed(tensor.data),
        };
        let tensor = &Tensor { kind: tensor.kind, shape: tensor.shape.clone(), data: &data };
        let stored = if dtype == DType::F16 { TensorType::F16 } else { TensorType::F32 };
        if tensor.kind == stored {
            slot.upload(tensor.data)?;
        } else if let Some(format) = tensor.kind.quant_format() {
            let mut planes = vec![0; format.bytes(rows, columns)?];
            quant::repack(format, rows, columns, tensor.data, &mut planes)?;
            let mut numbers = vec![0.0; rows * columns];
            quant::dequantize(format, rows, columns, &planes, &mut numbers)?;
            upload(&slot, dtype, &numbers)?;
        } else {
            let numbers = to_f32(tensor).ok_or_else(|| unsupported("a matrix", tensor))?;
            upload(&slot, dtype, &numbers)?;
        }
        before += rows;
    }
    Ok(())
}

/// Uploads numbers as `dtype`.
pub(crate) fn upload(buffer: &Buffer, dtype: DType, numbers: &[f32]) -> Result<()> {
    match dtype {
        DType::F16 => buffer.upload(&halves(numbers))?,
        _ => buffer.upload(numbers)?,
    }
    Ok(())
}

/// Whether [`to_f32`] reads a type.
pub(super) const fn is_read(kind: TensorType) -> bool {
    matches!(kind, TensorType::F32 | TensorType::F16 | TensorType::Bf16)
}

/// The numbers of an F32, F16 or BF16 tensor; `None` for one in blocks.
pub(super) fn to_f32(tensor: &Tensor<'_>) -> Option<Vec<f32>> {
    let halves = tensor.data.as_chunks().0;
    Some(match tensor.kind {
        TensorType::F32 => tensor.data.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
        TensorType::F16 => halves.iter().map(|&bytes| f16::from_le_bytes(bytes).to_f32()).collect(),
        TensorType::Bf16 => halves.iter().map(|&bytes| bf16::from_le_bytes(bytes).to_f32()).collect(),
        _ => return None,
    })
}

/// Numbers rounded to f16.
fn halves(numbers: &[f32]) -> Vec<f16> {
    numbers.iter().map(|&x| f16::from_f32(x)).collect()
}
