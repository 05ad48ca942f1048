//! Gradients of softmax and of the normalisations of rows.

use crate::operand::{Access, Operand};
use crate::{BackendResult, DType, checked_product};

use super::norm::SoftmaxDesc;
use super::require_float;

/// `grad_input = y · (grad_output − Σ grad_output · y)` along an axis of packed tensors, y being the result
/// of [`softmax`](crate::ComputeBackend::softmax); with `log`,
/// `grad_input = grad_output − exp(y) · Σ grad_output`. The gradient of the input may be exactly that of the
/// output.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SoftmaxBackwardDesc {
    /// Handle of the softmax y.
    pub y: u64,
    /// Handle of the gradient with respect to y.
    pub grad_output: u64,
    /// Handle of the gradient with respect to the softmax's input, which is written.
    pub grad_input: u64,
    /// Element type of every operand.
    pub dtype: DType,
    /// Product of the extents before the axis.
    pub outer: usize,
    /// Extent of the axis.
    pub length: usize,
    /// Product of the extents after the axis.
    pub inner: usize,
    /// Whether y is the logarithm of a softmax.
    pub log: bool,
}

handles!(SoftmaxBackwardDesc: y, grad_output, grad_input);

impl SoftmaxBackwardDesc {
    /// The gradient of `forward`, whose output is y.
    #[must_use]
    pub const fn of(forward: &SoftmaxDesc, grad_output: u64, grad_input: u64) -> Self {
        let &SoftmaxDesc { output: y, dtype, outer, length, inner, log, .. } = forward;
        Self { y, grad_output, grad_input, dtype, outer, length, inner, log }
    }

    /// Checks the shapes. Returns y and the gradients of output and input.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 3]> {
        require_float(op, "dtype", self.dtype)?;
        let elements = checked_product(op, "y", &[self.outer, self.length, self.inner])?;
        let operand = |arg, ptr, access| Operand::new(op, arg, ptr, self.dtype, elements, access);
        Ok([
            operand("y", self.y, Access::Read)?,
            operand("grad_output", self.grad_output, Access::ReadInPlace)?,
            operand("grad_input", self.grad_input, Access::Write)?,
        ])
    }
}

/// The gradient of layer or root-mean-square normalisation of rows x with respect to them:
///
/// `grad_input = s · (g − mean(g) − v · mean(g · v))`, with g = `grad_output` · `weight`, the normalised row
/// v = (x − mean(x)) · s and s = 1 / √(var(x) + eps). For root-mean-square normalisation without the means of
/// x and g. It may be exactly `grad_output`.
///
/// The gradient of the weight is [`NormBackwardWeightDesc`]'s; that of the bias is the sum of `grad_output`
/// over the rows.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NormBackwardDesc {
    /// Handle of what was normalised, `[rows, columns]`; the sum if there was a residual.
    pub x: u64,
    /// Handle of the gradient with respect to the result.
    pub grad_output: u64,
    /// Handle of the gradient with respect to x, which is written.
    pub grad_input: u64,
    /// Element type of every operand.
    pub dtype: DType,
    /// Number of rows.
    pub rows: usize,
    /// Elements in a row.
    pub columns: usize,
    /// What the normalisation added to the variance or the mean square.
    pub eps: f64,
    /// Whether it was a layer normalisation.
    pub centred: bool,
    /// Handle of the normalisation's weight, `[columns]`; 1 if `None`.
    pub weight: Option<u64>,
}

handles!(NormBackwardDesc: x, grad_output, grad_input, weight);

impl NormBackwardDesc {
    /// The gradient of [`layer_norm`](crate::ComputeBackend::layer_norm) with an `eps` of 1e-5 and no weight.
    #[must_use]
    pub const fn layer_norm(
        dtype: DType,
        x: u64,
        grad_output: u64,
        grad_input: u64,
        rows: usize,
        columns: usize,
    ) -> Self {
        Self { x, grad_output, grad_input, dtype, rows, columns, eps: 1e-5, centred: true, weight: None }
    }

    /// The gradient of [`rms_norm`](crate::ComputeBackend::rms_norm) with an `eps` of 1e-6 and no weight.
    #[must_use]
    pub const fn rms_norm(
        dtype: DType,
        x: u64,
        grad_output: u64,
        grad_input: u64,
        rows: usize,
        columns: usize,
    ) -> Self {
        Self { x, grad_output, grad_input, dtype, rows, columns, eps: 1e-6, centred: false, weight: None }
    }

    setters! {
        /// Says what was added to the variance or the mean square.
        pub fn with_eps(eps: f64);

        /// Says what the normalisation multiplied by.
        pub fn with_weight(Some(weight): u64);
    }

    /// Checks the shapes. Returns x, the gradients of output and input, and the weight.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 4]> {
        let &Self { dtype, rows, columns, .. } = self;
        require_float(op, "dtype", dtype)?;
        let elements = checked_product(op, "x", &[rows, columns])?;
        let operand = |arg, ptr, access| Operand::new(op, arg, ptr, dtype, elements, access);
        let scales = if rows == 0 { 0 } else { columns };
        Ok([
            operand("x", self.x, Access::Read)?,
            operand("grad_output", self.grad_output, Access::ReadInPlace)?,
            operand("grad_input", self.grad_input, Access::Write)?,
            Operand::optional(op, "weight", self.weight, dtype, scales, Access::Read)?,
        ])
    }
}

/// The gradient of layer or root-mean-square normalisation of rows with respect to the weight:
/// `grad_weight = Σ grad_output · v` over the rows, v as in [`NormBackwardDesc`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NormBackwardWeightDesc {
    /// Handle of what was normalised, `[rows, columns]`.
    pub x: u64,
    /// Handle of the gradient with respect to the result.
    pub grad_output: u64,
    /// Handle of the weight's gradient, `[columns]`, which is written.
    pub grad_weight: u64,
    /// Element type of every operand.
    pub dtype: DType,
    /// Number of rows. Of none, the gradient is 0.
    pub rows: usize,
    /// Elements in a row.
    pub columns: usize,
    /// What the normalisation added to the variance or the mean square.
    pub eps: f64,
    /// Whether it was a layer normalisation.
    pub centred: bool,
}

handles!(NormBackwardWeightDesc: x, grad_output, grad_weight);

impl NormBackwardWeightDesc {
    /// Beside the gradient of the input.
    #[must_use]
    pub const fn of(input: &NormBackwardDesc, grad_weight: u64) -> Self {
        let &NormBackwardDesc { x, grad_output, dtype, rows, columns, eps, centred, .. } = input;
        Self { x, grad_output, grad_weight, dtype, rows, columns, eps, centred }
    }

    /// Checks the shapes. Returns x, the gradient of the output and that of the weight.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 3]> {
        require_float(op, "dtype", self.dtype)?;
        let elements = checked_product(op, "x", &[self.rows, self.columns])?;
        Ok([
            Operand::new(op, "x", self.x, self.dtype, elements, Access::Read)?,
            Operand::new(op, "grad_output", self.grad_output, self.dtype, elements, Access::Read)?,
            Operand::new(op, "grad_weight", self.grad_weight, self.dtype, self.columns, Access::Write)?,
        ])
    }
}
