//! Normalisations of channels.

use crate::operand::{Access, Operand};
use crate::{BackendResult, DType, checked_product};

use super::norm::{bias_option, norm_options, require_weight_dtype};
use super::{require_at_least, require_float, require_multiple};

/// The extents of a tensor `[batch, channels, spatial]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelShape {
    /// Number of tensors.
    pub batch: usize,
    /// Channels of each.
    pub channels: usize,
    /// Elements in a channel: the product of the extents behind it.
    pub spatial: usize,
}

/// `output = (x − mean) / √(var + eps) · weight + bias` with mean and biased variance over each group of
/// channels of each of a batch: channels are divided into `groups` groups of neighbours. The output may be
/// exactly the input. (Wu and He, "Group Normalization", 2018.) With as many groups as channels this is
/// instance normalisation.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GroupNormDesc {
    /// Handle of the input, `[batch, channels, spatial]`.
    pub input: u64,
    /// Handle of the output, of the input's shape.
    pub output: u64,
    /// Element type of input and output.
    pub dtype: DType,
    /// Number of tensors normalised each by itself.
    pub batch: usize,
    /// Channels, a multiple of `groups`.
    pub channels: usize,
    /// Elements in a channel: the product of the extents behind it.
    pub spatial: usize,
    /// Groups of channels.
    pub groups: usize,
    /// Added to the variance.
    pub eps: f64,
    /// Handle of the weight, `[channels]`; 1 if `None`.
    pub weight: Option<u64>,
    /// Handle of `channels` summands; 0 if `None`.
    pub bias: Option<u64>,
    /// Element type of weight and bias: `dtype`, or f32 beside f16.
    pub weight_dtype: DType,
}

handles!(GroupNormDesc: input, output, weight, bias);

impl GroupNormDesc {
    /// Over `[batch, channels, spatial]` in `groups` groups, without weight and bias, with an `eps` of 1e-5.
    #[must_use]
    pub const fn new(dtype: DType, input: u64, output: u64, shape: ChannelShape, groups: usize) -> Self {
        let ChannelShape { batch, channels, spatial } = shape;
        let (eps, weight, bias, weight_dtype) = (1e-5, None, None, dtype);
        Self { input, output, dtype, batch, channels, spatial, groups, eps, weight, bias, weight_dtype }
    }

    norm_options!();
    bias_option!();

    /// Checks the shapes. Returns input, output, weight and bias.
    ///
    /// # Errors
    /// [`Shape`](crate::BackendError::Shape) if the channels can't be divided into the groups.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 4]> {
        let &Self { dtype, weight_dtype, batch, channels, spatial, groups, .. } = self;
        require_float(op, "dtype", dtype)?;
        require_weight_dtype(op, dtype, weight_dtype)?;
        require_at_least(op, "groups", 1, groups)?;
        require_multiple(op, "number of channels", groups, channels)?;
        let elements = checked_product(op, "input", &[batch, channels, spatial])?;
        let scales = if elements == 0 { 0 } else { channels };
        Ok([
            Operand::new(op, "input", self.input, dtype, elements, Access::ReadInPlace)?,
            Operand::new(op, "output", self.output, dtype, elements, Access::Write)?,
            Operand::optional(op, "weight", self.weight, weight_dtype, scales, Access::Read)?,
            Operand::optional(op, "bias", self.bias, weight_dtype, scales, Access::Read)?,
        ])
    }
}

/// `output = (x − mean) / √(variance + eps) · weight + bias` with one of each for each channel: batch
/// normalisation with the statistics that training has found. The output may be exactly the input. (Ioffe and
/// Szegedy, "Batch Normalization", 2015.)
///
/// Statistics of the batch itself come from [`reduce_ext`](crate::ComputeBackend::reduce_ext).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BatchNormDesc {
    /// Handle of the input, `[batch, channels, spatial]`.
    pub input: u64,
    /// Handle of the output, of the input's shape.
    pub output: u64,
    /// Handle of `channels` means.
    pub mean: u64,
    /// Handle of `channels` variances.
    pub variance: u64,
    /// Element type of input and output.
    pub dtype: DType,
    /// Number of tensors.
    pub batch: usize,
    /// Channels.
    pub channels: usize,
    /// Elements in a channel: the product of the extents behind it.
    pub spatial: usize,
    /// Added to the variance.
    pub eps: f64,
    /// Handle of the weight, `[channels]`; 1 if `None`.
    pub weight: Option<u64>,
    /// Handle of `channels` summands; 0 if `None`.
    pub bias: Option<u64>,
    /// Element type of mean, variance, weight and bias: `dtype`, or f32 beside f16.
    pub weight_dtype: DType,
}

handles!(BatchNormDesc: input, output, mean, variance, weight, bias);

impl BatchNormDesc {
    /// Over `[batch, channels, spatial]`, without weight and bias, with an `eps` of 1e-5.
    #[must_use]
    pub const fn new(
        dtype: DType,
        input: u64,
        output: u64,
        mean: u64,
        variance: u64,
        shape: ChannelShape,
    ) -> Self {
        let ChannelShape { batch, channels, spatial } = shape;
        Self {
            input,
            output,
            mean,
            variance,
            dtype,
            batch,
            channels,
            spatial,
            eps: 1e-5,
            weight: None,
            bias: None,
            weight_dtype: dtype,
        }
    }

    norm_options!();
    bias_option!();

    /// Checks the shapes. Returns input, output, mean, variance, weight and bias.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 6]> {
        let &Self { dtype, weight_dtype, batch, channels, spatial, .. } = self;
        require_float(op, "dtype", dtype)?;
        require_weight_dtype(op, dtype, weight_dtype)?;
        let elements = checked_product(op, "input", &[batch, channels, spatial])?;
        let each = if elements == 0 { 0 } else { channels };
        Ok([
            Operand::new(op, "input", self.input, dtype, elements, Access::ReadInPlace)?,
            Operand::new(op, "output", self.output, dtype, elements, Access::Write)?,
            Operand::new(op, "mean", self.mean, weight_dtype, each, Access::Read)?,
            Operand::new(op, "variance", self.variance, weight_dtype, each, Access::Read)?,
            Operand::optional(op, "weight", self.weight, weight_dtype, each, Access::Read)?,
            Operand::optional(op, "bias", self.bias, weight_dtype, each, Access::Read)?,
        ])
    }
}
