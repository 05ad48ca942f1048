//! In what element types a pass computes.

use backend_api::{Capabilities, DType};

use crate::gguf::{Gguf, TensorType};

/// The type of the residual stream, to which each block adds what it has made: sums lose no digits there, and may pass f16's
/// 65504, as they do in some models.
pub(crate) const RESIDUAL: DType = DType::F32;

/// The element type of what products multiply and attention reads. The residual stream is f32, quantised weights are in the
/// formats of their file, and products are summed in f32, either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Precision {
    /// f32.
    #[default]
    F32,
    /// f16, as tensor cores take it, where numbers above 65504 are infinite. Matrices that the file has as F32 or BF16, a router
    /// of experts among them, are rounded to f16, too.
    Mixed,
}

impl Precision {
    /// What is fast on a device and leaves the weights as they are: [`Mixed`](Self::Mixed) where tensor cores take f16 and no
    /// more than a tenth of the file is matrices of F32 and BF16, else [`F32`](Self::F32).
    #[must_use]
    pub fn suited(device: &Capabilities, file: &Gguf<'_>) -> Self {
        let (mut dense, mut all) = (0usize, 0usize);
        for (_, tensor) in file.tensors() {
            let is_dense =
                matches!(tensor.kind, TensorType::F32 | TensorType::Bf16) && tensor.shape.len() > 1;
            dense = dense.saturating_add(if is_dense { tensor.data.len() } else { 0 });
            all = all.saturating_add(tensor.data.len());
        }
        if device.f16 && device.cooperative_matrix && dense <= all / 10 { Self::Mixed } else { Self::F32 }
    }

    /// As `llama --precision` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Mixed => "mixed",
        }
    }

    /// The element type.
    pub(crate) const fn operands(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Mixed => DType::F16,
        }
    }
}
