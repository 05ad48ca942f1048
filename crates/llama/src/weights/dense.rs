//! Plain numbers of a file as f32.

use half::{bf16, f16};

use crate::gguf::{Tensor, TensorType};

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
pub(super) fn halves(numbers: &[f32]) -> Vec<f16> {
    numbers.iter().map(|&x| f16::from_f32(x)).collect()
}
