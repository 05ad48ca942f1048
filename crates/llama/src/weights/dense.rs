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

/// What each expert has of several tensors, one after the other.
pub(super) fn by_expert(parts: &[&[u8]], experts: usize) -> Vec<u8> {
    let mut all = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
    for expert in 0..experts {
        for part in parts {
            let each = part.len() / experts;
            all.extend_from_slice(&part[expert * each..][..each]);
        }
    }
    all
}
