//! Random numbers.

use crate::operand::{Access, Operand};
use crate::{BackendResult, DType};

use super::require_float;

/// A distribution of random numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Distribution {
    /// `low + (high − low) · u` with u uniform in [0, 1). Rounding may give `high` itself, but not with `low`
    /// 0 and `high` 1 in f32.
    Uniform {
        /// The smallest number.
        low: f64,
        /// The upper bound, which numbers are below before they are rounded.
        high: f64,
    },
    /// `mean + std · z` with z normally distributed.
    Normal {
        /// The expected value.
        mean: f64,
        /// The standard deviation.
        std: f64,
    },
}

impl Distribution {
    /// The offset and the scale of the stream's numbers, in f32.
    #[must_use]
    pub const fn affine(self) -> [f32; 2] {
        match self {
            Self::Uniform { low, high } => [low as f32, (high - low) as f32],
            Self::Normal { mean, std } => [mean as f32, std as f32],
        }
    }
}

/// `n` packed random numbers, f32 or f16: those from number `offset` on of the stream that `seed` names. The
/// same numbers on every device: [`random`](crate::random) defines their bits. Calls that use up `n` numbers
/// and add `n` to `offset` see one stream.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RandomDesc {
    /// Handle of the output.
    pub output: u64,
    /// Its element type, floating-point.
    pub dtype: DType,
    /// Number of elements.
    pub n: usize,
    /// Which stream.
    pub seed: u64,
    /// The first random number to use, counted from the start of the stream.
    pub offset: u64,
    /// Handle of a u64 that is added to `offset` when the call runs, modulo 2⁶⁴: two u32, the lower half first.
    pub offset_ptr: Option<u64>,
    /// What distribution they have.
    pub distribution: Distribution,
}

handles!(RandomDesc: output, offset_ptr);

impl RandomDesc {
    /// The first numbers of a stream.
    #[must_use]
    pub const fn new(output: u64, dtype: DType, n: usize, seed: u64, distribution: Distribution) -> Self {
        Self { output, dtype, n, seed, offset: 0, offset_ptr: None, distribution }
    }

    setters! {
        /// Begins at another number of the stream.
        pub fn with_offset(offset: u64);

        /// Begins at a number of the stream that device memory names, so that replays of a
        /// [captured](crate::ComputeBackend::capture) call needn't give the same numbers.
        pub fn with_offset_ptr(Some(offset_ptr): u64);
    }

    /// Checks the type. Returns the output and the offset.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 2]> {
        require_float(op, "output", self.dtype)?;
        // Without numbers, nothing is looked at.
        let words = if self.n == 0 { 0 } else { 2 };
        Ok([
            Operand::new(op, "output", self.output, self.dtype, self.n, Access::Write)?,
            Operand::optional(op, "offset_ptr", self.offset_ptr, DType::U32, words, Access::Read)?,
        ])
    }
}
