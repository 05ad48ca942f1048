//! In what element types a pass computes.

use backend_api::{Capabilities, DType};

/// The element types of activations. Weights are in the formats of their file, and products are summed in f32, either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Precision {
    /// All activations are f32.
    #[default]
    F32,
    /// What products multiply and attention reads is f16, as tensor cores take it. The residual stream, to which each block adds
    /// what it has made, is f32, so that sums lose no digits and may pass f16's 65504, as they do in some models.
    Mixed,
    /// All activations are f16, which takes the least time and memory, for models whose residual stream stays below 65504.
    F16,
}

impl Precision {
    /// What is fast on a device and works with every model: [`Mixed`](Self::Mixed) where tensor cores take f16, else
    /// [`F32`](Self::F32).
    #[must_use]
    pub const fn of_device(device: &Capabilities) -> Self {
        if device.f16 && device.cooperative_matrix { Self::Mixed } else { Self::F32 }
    }

    /// As `llama --precision` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Mixed => "mixed",
            Self::F16 => "f16",
        }
    }

    /// The type of the residual stream.
    pub(crate) const fn residual(self) -> DType {
        match self {
            Self::F16 => DType::F16,
            Self::F32 | Self::Mixed => DType::F32,
        }
    }

    /// The type of all other activations.
    pub(crate) const fn operands(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Mixed | Self::F16 => DType::F16,
        }
    }
}
