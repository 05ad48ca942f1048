//! Softmax and normalisations.

use crate::operand::{Access, Operand};
use crate::{BackendError, BackendResult, DType, checked_product};

use super::reduce::split_axis;
use super::require_float;

/// The options of a normalisation: eps, the weight, and its element type.
macro_rules! norm_options {
    () => {
        setters! {
            /// Sets what is added to the variance or the mean square under the root.
            pub fn with_eps(eps: f64);

            /// Multiplies by the weights behind a handle.
            pub fn with_weight(Some(weight): u64);

            /// Takes weights (and biases and given statistics) of another element type: f32 beside f16.
            pub fn with_weight_dtype(weight_dtype: DType);
        }
    };
}
pub(super) use norm_options;

/// The option of a normalisation about the mean, or a given one: the bias.
macro_rules! bias_option {
    () => {
        setters! {
            /// Adds the summands behind a handle.
            pub fn with_bias(Some(bias): u64);
        }
    };
}
pub(super) use bias_option;

/// The options of a normalisation of rows: [`norm_options`], the residual, and its sum with the input.
macro_rules! row_norm_options {
    () => {
        norm_options!();

        setters! {
            /// Adds the tensor behind a handle before the normalisation.
            pub fn with_residual(Some(residual): u64);

            /// Writes `input + residual`, which is normalised, to a handle too.
            pub fn with_sum(Some(sum): u64);

            /// Rounds the output to another element type: f16 beside rows of f32.
            pub fn with_output_dtype(output_dtype: DType);
        }
    };
}

/// `output = exp(x − max) / Σ exp(x − max)` along an axis of a packed tensor, or with `log` its logarithm, x
/// − max − ln Σ exp(x − max). The output may be exactly the input.
///
/// A slice that is all −∞ gives NaN, as does one with NaN or +∞ in it. Sums are f32.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SoftmaxDesc {
    /// Handle of the input.
    pub input: u64,
    /// Handle of the output.
    pub output: u64,
    /// Element type.
    pub dtype: DType,
    /// Product of the extents before the axis.
    pub outer: usize,
    /// Extent of the axis.
    pub length: usize,
    /// Product of the extents after the axis.
    pub inner: usize,
    /// Whether the result is the logarithm: log-softmax.
    pub log: bool,
}

handles!(SoftmaxDesc: input, output);

impl SoftmaxDesc {
    /// Along the last dimension of `rows` rows of `columns` elements.
    #[must_use]
    pub const fn rows(dtype: DType, input: u64, output: u64, rows: usize, columns: usize) -> Self {
        Self { input, output, dtype, outer: rows, length: columns, inner: 1, log: false }
    }

    /// Along `axis` of a tensor of `shape`.
    ///
    /// # Errors
    /// [`Shape`](crate::BackendError::Shape) if there is no such axis,
    /// [`Overflow`](crate::BackendError::Overflow).
    pub fn along(dtype: DType, input: u64, output: u64, shape: &[usize], axis: usize) -> BackendResult<Self> {
        let (outer, length, inner) = split_axis("softmax", shape, axis)?;
        Ok(Self { input, output, dtype, outer, length, inner, log: false })
    }

    setters! {
        /// Makes the result log-softmax.
        pub fn with_log(log = true);
    }

    /// Checks the shapes. Returns input and output.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 2]> {
        require_float(op, "dtype", self.dtype)?;
        let elements = checked_product(op, "input", &[self.outer, self.length, self.inner])?;
        Ok([
            Operand::new(op, "input", self.input, self.dtype, elements, Access::ReadInPlace)?,
            Operand::new(op, "output", self.output, self.dtype, elements, Access::Write)?,
        ])
    }
}

/// `output = (x − mean(x)) / √(var(x) + eps) · weight + bias` for each row, `x = input + residual`; the
/// variance is the biased one. The output may be exactly the input or the residual, if it has their type.
///
/// Rows, their sum and statistics are f32 inside, whatever their type in memory. With a handle for the sum,
/// x is written too, rounded to the rows' type: what a pre-norm transformer adds its next block's result to.
/// Its memory may be exactly the input's or the residual's, not the output's.
///
/// One step of such a transformer, whose residual stream `x` is updated in place:
///
/// ```
/// use backend_api::desc::RmsNormDesc;
/// use backend_api::{BackendResult, ComputeBackend, DType};
///
/// fn next(backend: &dyn ComputeBackend, block: u64, x: u64, weight: u64, out: u64) -> BackendResult<()> {
///     let (rows, columns) = (1, 4096);
///     let desc = RmsNormDesc::new(DType::F16, block, out, rows, columns)
///         .with_residual(x)
///         .with_sum(x)
///         .with_weight(weight)
///         .with_weight_dtype(DType::F32);
///     backend.rms_norm(&desc)
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LayerNormDesc {
    /// Handle of the input, `[rows, columns]`.
    pub input: u64,
    /// Handle of the output, of the input's shape.
    pub output: u64,
    /// Element type of input, residual and sum.
    pub dtype: DType,
    /// Element type of the output: `dtype`, or f16 beside rows of f32, as products on tensor cores take it.
    pub output_dtype: DType,
    /// Number of rows.
    pub rows: usize,
    /// Elements in a row.
    pub columns: usize,
    /// Added to the variance.
    pub eps: f64,
    /// Handle of the weight, `[columns]`; 1 if `None`.
    pub weight: Option<u64>,
    /// Handle of `columns` summands; 0 if `None`.
    pub bias: Option<u64>,
    /// Element type of weight and bias: `dtype`, or f32 beside rows of f16.
    pub weight_dtype: DType,
    /// Handle of a tensor of the input's shape that is added first.
    pub residual: Option<u64>,
    /// Handle to which `input + residual` is written.
    pub sum: Option<u64>,
}

handles!(LayerNormDesc: input, output, weight, bias, residual, sum);

impl LayerNormDesc {
    /// Without weight, bias, residual and sum, with an `eps` of 1e-5.
    #[must_use]
    pub const fn new(dtype: DType, input: u64, output: u64, rows: usize, columns: usize) -> Self {
        Self {
            input,
            output,
            dtype,
            output_dtype: dtype,
            rows,
            columns,
            eps: 1e-5,
            weight: None,
            bias: None,
            weight_dtype: dtype,
            residual: None,
            sum: None,
        }
    }

    row_norm_options!();
    bias_option!();

    /// Checks types and shapes. Returns input, output, weight, bias, residual and sum.
    ///
    /// # Errors
    /// [`Dtype`](BackendError::Dtype), [`Overflow`](BackendError::Overflow).
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 6]> {
        let &Self { dtype, output_dtype, weight_dtype, rows, columns, .. } = self;
        let row = NormRow { op, dtype, output_dtype, weight_dtype, rows, columns };
        let [input, output, residual, sum] = row.tensors(self.input, self.output, self.residual, self.sum)?;
        let (weight, bias) = (row.vector("weight", self.weight)?, row.vector("bias", self.bias)?);
        Ok([input, output, weight, bias, residual, sum])
    }
}

/// `output = x / √(mean(x²) + eps) · weight` for each row, `x = input + residual`. The output may be exactly
/// the input or the residual, if it has their type; the sum x is written where it is asked for, as by
/// [`LayerNormDesc`]. (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.)
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RmsNormDesc {
    /// Handle of the input, `[rows, columns]`.
    pub input: u64,
    /// Handle of the output, of the input's shape.
    pub output: u64,
    /// Element type of input, residual and sum.
    pub dtype: DType,
    /// Element type of the output: `dtype`, or f16 beside rows of f32, as products on tensor cores take it.
    pub output_dtype: DType,
    /// Number of rows.
    pub rows: usize,
    /// Elements in a row.
    pub columns: usize,
    /// Added to the mean square.
    pub eps: f64,
    /// Handle of the weight, `[columns]`; 1 if `None`.
    pub weight: Option<u64>,
    /// Element type of the weight: `dtype`, or f32 beside rows of f16.
    pub weight_dtype: DType,
    /// Handle of a tensor of the input's shape that is added first.
    pub residual: Option<u64>,
    /// Handle to which `input + residual` is written; exactly the input's or the residual's memory, or apart.
    pub sum: Option<u64>,
}

handles!(RmsNormDesc: input, output, weight, residual, sum);

impl RmsNormDesc {
    /// Without weight, residual and sum, with an `eps` of 1e-6.
    #[must_use]
    pub const fn new(dtype: DType, input: u64, output: u64, rows: usize, columns: usize) -> Self {
        Self {
            input,
            output,
            dtype,
            output_dtype: dtype,
            rows,
            columns,
            eps: 1e-6,
            weight: None,
            weight_dtype: dtype,
            residual: None,
            sum: None,
        }
    }

    row_norm_options!();

    /// Checks types and shapes. Returns input, output, weight, residual and sum.
    ///
    /// # Errors
    /// [`Dtype`](BackendError::Dtype), [`Overflow`](BackendError::Overflow).
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 5]> {
        let &Self { dtype, output_dtype, weight_dtype, rows, columns, .. } = self;
        let row = NormRow { op, dtype, output_dtype, weight_dtype, rows, columns };
        let [input, output, residual, sum] = row.tensors(self.input, self.output, self.residual, self.sum)?;
        Ok([input, output, row.vector("weight", self.weight)?, residual, sum])
    }
}

/// The rows of a normalisation, and the vectors that scale them.
struct NormRow {
    op: &'static str,
    dtype: DType,
    output_dtype: DType,
    weight_dtype: DType,
    rows: usize,
    columns: usize,
}

impl NormRow {
    fn tensors(
        &self,
        input: u64,
        output: u64,
        residual: Option<u64>,
        sum: Option<u64>,
    ) -> BackendResult<[Operand; 4]> {
        let &Self { op, dtype, output_dtype, weight_dtype, rows, columns } = self;
        require_float(op, "dtype", dtype)?;
        require_output_dtype(op, "output_dtype", dtype, output_dtype)?;
        require_weight_dtype(op, dtype, weight_dtype)?;
        let elements = checked_product(op, "input", &[rows, columns])?;
        Ok([
            Operand::new(op, "input", input, dtype, elements, Access::ReadInPlace)?,
            Operand::new(op, "output", output, output_dtype, elements, Access::Write)?,
            Operand::optional(op, "residual", residual, dtype, elements, Access::ReadInPlace)?,
            Operand::optional(op, "sum", sum, dtype, elements, Access::Write)?,
        ])
    }

    fn vector(&self, arg: &'static str, ptr: Option<u64>) -> BackendResult<Operand> {
        let length = if self.rows == 0 { 0 } else { self.columns };
        Operand::optional(self.op, arg, ptr, self.weight_dtype, length, Access::Read)
    }
}

/// Normalised elements have the rows' type, or are f16 beside f32.
pub(super) fn require_output_dtype(
    op: &'static str,
    arg: &'static str,
    dtype: DType,
    got: DType,
) -> BackendResult<()> {
    if got == dtype || got == DType::F16 { Ok(()) } else { Err(BackendError::Dtype { op, arg, got }) }
}

/// Weights, biases and statistics of a normalisation have its own element type, or are f32 beside f16.
pub(super) fn require_weight_dtype(op: &'static str, dtype: DType, got: DType) -> BackendResult<()> {
    if got == dtype || got == DType::F32 {
        Ok(())
    } else {
        Err(BackendError::Dtype { op, arg: "weight_dtype", got })
    }
}
