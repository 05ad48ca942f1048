//! What cases of `batch_norm` and `group_norm` have in common.

use backend_api::DType;

use crate::data::uniform;
use crate::rng::Rng;

/// A normalisation of channels, with or without weight and bias.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChannelNorm {
    pub(super) dtype: DType,
    pub(super) weight_dtype: DType,
    pub(super) eps: f64,
    weight: bool,
    bias: bool,
    pub(super) in_place: bool,
}

impl ChannelNorm {
    /// The alternatives for types, eps, weight, bias and place.
    pub(super) const GRID: [usize; 5] = [3, 2, 2, 2, 2];

    /// One of each of the alternatives.
    pub(super) fn drawn([types, eps, weight, bias, place]: [usize; 5]) -> Self {
        Self {
            dtype: [DType::F32, DType::F16, DType::F16][types],
            weight_dtype: [DType::F32, DType::F16, DType::F32][types],
            eps: [1e-5, 0.1][eps],
            weight: weight == 1,
            bias: bias == 1,
            in_place: place == 1,
        }
    }

    /// The normalisation with another eps.
    pub(super) fn with_eps(self, eps: f64) -> Self {
        Self { eps, ..self }
    }

    /// For names: eps, which vectors there are, and where the output is.
    pub(super) fn name(&self) -> String {
        let (w, b) = (super::flag(self.weight, "w", ""), super::flag(self.bias, "b", ""));
        format!("eps{}_with{w}{b}_{}", self.eps, super::flag(self.in_place, "in_place", "apart"))
    }

    /// For names: weights of another type.
    pub(super) fn weights(&self) -> &'static str {
        super::flag(self.weight_dtype != self.dtype, "_weights_f32", "")
    }

    /// The handles of weight and bias, `None` where there is none.
    pub(super) fn handles(&self, [weight, bias]: [u64; 2]) -> [Option<u64>; 2] {
        [self.weight.then_some(weight), self.bias.then_some(bias)]
    }

    /// Weight and bias, without elements if there is none.
    pub(super) fn vectors(&self, rng: &mut Rng, channels: usize) -> [Vec<f64>; 2] {
        [self.weight, self.bias]
            .map(|on| if on { uniform(rng, self.weight_dtype, channels, -2.0, 2.0) } else { Vec::new() })
    }
}
