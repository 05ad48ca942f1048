//! Transposed convolution and the gradients of a convolution.

use crate::operand::{Access, Operand};
use crate::{Activation, BackendResult, DType};

use super::conv::ConvShape;
use super::{require_at_least, require_float, require_multiple};

/// `output = activation(Tᵀ · input + bias)` where T is the convolution that reads an image of the output's
/// extents: each number of the input, times a filter, is added to the output where that convolution would
/// have read.
///
/// The input is `[N, C, H, W]`, the filters `[C, K / groups, R, S]`, the output `[N, K, P, Q]` with
/// `P = (H − 1)·stride + dilation·(R − 1) + 1 + output_padding − before − after`; or in the other layout
/// `[N, H, W, C]`, `[C, R, S, K / groups]`, `[N, P, Q, K]`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConvTransposeDesc {
    /// Element type of every operand: f32 or f16.
    pub dtype: DType,
    /// Handle of the input.
    pub input: u64,
    /// Handle of the filters.
    pub filter: u64,
    /// Handle of the output.
    pub output: u64,
    /// The extents: channels and input are what is read, filters the channels of what is written.
    pub shape: ConvShape,
    /// Rows and columns that the output has more, below and on the right; less than the stride.
    pub output_padding: [usize; 2],
    /// Handle of the bias, one element for each channel of the output; 0 if `None`.
    pub bias: Option<u64>,
    /// Applied last.
    pub activation: Activation,
}

handles!(ConvTransposeDesc: input, filter, output, bias);

impl ConvTransposeDesc {
    /// Without output padding, bias and activation.
    #[must_use]
    pub const fn new(dtype: DType, input: u64, filter: u64, output: u64, shape: ConvShape) -> Self {
        let (bias, activation) = (None, Activation::Identity);
        Self { dtype, input, filter, output, shape, output_padding: [0; 2], bias, activation }
    }

    setters! {
        /// Adds rows and columns to the output.
        pub fn with_output_padding(output_padding: [usize; 2]);

        /// Adds a bias to each channel of the output.
        pub fn with_bias(Some(bias): u64);

        /// Applies `activation` last.
        pub fn with_activation(activation: Activation);
    }

    /// The convolution that this transposes: it reads an image like the output and gives one like the input.
    ///
    /// # Errors
    /// [`Shape`](crate::BackendError::Shape) if there is none; [`Overflow`](crate::BackendError::Overflow).
    pub fn transposes(&self, op: &'static str) -> BackendResult<ConvShape> {
        let ConvShape { channels, filters, input: [height, width], window, .. } = self.shape;
        let [more_y, more_x] = self.output_padding;
        let output = [window.spread(op, 0, height, more_y)?, window.spread(op, 1, width, more_x)?];
        Ok(ConvShape { channels: filters, filters: channels, input: output, ..self.shape })
    }

    /// Checks the shapes. Returns input, filter, output and bias.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 4]> {
        let dtype = self.dtype;
        require_float(op, "dtype", dtype)?;
        require_at_least(op, "groups", 1, self.shape.groups)?;
        require_multiple(op, "number of channels", self.shape.groups, self.shape.channels)?;
        require_multiple(op, "number of filters", self.shape.groups, self.shape.filters)?;
        let [output, filter, input] = self.transposes(op)?.elements(op)?;
        let read = |elements| if output == 0 { 0 } else { elements };
        Ok([
            Operand::new(op, "input", self.input, dtype, read(input), Access::Read)?,
            Operand::new(op, "filter", self.filter, dtype, read(filter), Access::Read)?,
            Operand::new(op, "output", self.output, dtype, output, Access::Write)?,
            Operand::optional(op, "bias", self.bias, dtype, read(self.shape.filters), Access::Read)?,
        ])
    }
}

/// The gradient of a convolution with respect to its input: `grad_input[n, c, y, x]` is the sum of
/// `grad_output[n, k, p, q] · filter[k, c, r, s]` over all (k, p, q, r, s) for which output (p, q) reads that
/// input.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConvBackwardDataDesc {
    /// Element type of every operand: f32 or f16.
    pub dtype: DType,
    /// Handle of the convolution's filters.
    pub filter: u64,
    /// Handle of the gradient with respect to the convolution's output.
    pub grad_output: u64,
    /// Handle of the gradient with respect to its input, which is written.
    pub grad_input: u64,
    /// The convolution's extents.
    pub shape: ConvShape,
}

handles!(ConvBackwardDataDesc: filter, grad_output, grad_input);

impl ConvBackwardDataDesc {
    /// The gradient of the convolution of that `shape`.
    #[must_use]
    pub const fn new(dtype: DType, filter: u64, grad_output: u64, grad_input: u64, shape: ConvShape) -> Self {
        Self { dtype, filter, grad_output, grad_input, shape }
    }

    /// Checks the shapes. Returns filter, `grad_output` and `grad_input`.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 3]> {
        require_float(op, "dtype", self.dtype)?;
        let [input, filter, output] = self.shape.elements(op)?;
        let read = |elements| if input == 0 { 0 } else { elements };
        Ok([
            Operand::new(op, "filter", self.filter, self.dtype, read(filter), Access::Read)?,
            Operand::new(op, "grad_output", self.grad_output, self.dtype, read(output), Access::Read)?,
            Operand::new(op, "grad_input", self.grad_input, self.dtype, input, Access::Write)?,
        ])
    }
}

/// The gradient of a convolution with respect to its filters: `grad_filter[k, c, r, s]` is the sum of
/// `grad_output[n, k, p, q] · input[n, c, y, x]` over all (n, p, q), (y, x) being where tap (r, s) of output
/// (p, q) reads. The gradient of the bias is `grad_output`'s sum over all but the channels.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConvBackwardFilterDesc {
    /// Element type of every operand: f32 or f16.
    pub dtype: DType,
    /// Handle of the convolution's input.
    pub input: u64,
    /// Handle of the gradient with respect to its output.
    pub grad_output: u64,
    /// Handle of the gradient with respect to its filters, which is written.
    pub grad_filter: u64,
    /// The convolution's extents.
    pub shape: ConvShape,
}

handles!(ConvBackwardFilterDesc: input, grad_output, grad_filter);

impl ConvBackwardFilterDesc {
    /// The gradient of the convolution of that `shape`.
    #[must_use]
    pub const fn new(dtype: DType, input: u64, grad_output: u64, grad_filter: u64, shape: ConvShape) -> Self {
        Self { dtype, input, grad_output, grad_filter, shape }
    }

    /// Checks the shapes. Returns input, `grad_output` and `grad_filter`.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 3]> {
        require_float(op, "dtype", self.dtype)?;
        let [input, filter, output] = self.shape.elements(op)?;
        let read = |elements| if filter == 0 { 0 } else { elements };
        Ok([
            Operand::new(op, "input", self.input, self.dtype, read(input), Access::Read)?,
            Operand::new(op, "grad_output", self.grad_output, self.dtype, read(output), Access::Read)?,
            Operand::new(op, "grad_filter", self.grad_filter, self.dtype, filter, Access::Write)?,
        ])
    }
}
