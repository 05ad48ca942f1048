//! Softmax and normalisations.

use crate::operand::{Access, Operand};
use crate::{BackendResult, DType, checked_product};

use super::reduce::split_axis;
use super::require_float;

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

impl SoftmaxDesc {
    /// Along the last dimension of `rows` rows of `columns` numbers.
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

    /// Makes the result log-softmax.
    #[must_use]
    pub const fn with_log(mut self) -> Self {
        self.log = true;
        self
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
/// variance is the biased one. The output may be exactly the input or the residual.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LayerNormDesc {
    /// Handle of the input, `[rows, columns]`.
    pub input: u64,
    /// Handle of the output, of the input's shape.
    pub output: u64,
    /// Element type of every operand.
    pub dtype: DType,
    /// Number of rows.
    pub rows: usize,
    /// Numbers in a row.
    pub columns: usize,
    /// Added to the variance.
    pub eps: f64,
    /// Handle of `columns` factors; 1 if `None`.
    pub weight: Option<u64>,
    /// Handle of `columns` summands; 0 if `None`.
    pub bias: Option<u64>,
    /// Handle of a tensor of the input's shape that is added first.
    pub residual: Option<u64>,
}

impl LayerNormDesc {
    /// Without weight, bias and residual, with an `eps` of 1e-5.
    #[must_use]
    pub const fn new(dtype: DType, input: u64, output: u64, rows: usize, columns: usize) -> Self {
        Self { input, output, dtype, rows, columns, eps: 1e-5, weight: None, bias: None, residual: None }
    }

    /// Adds another number to the variance.
    #[must_use]
    pub const fn with_eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// Multiplies by the factors behind a handle.
    #[must_use]
    pub const fn with_weight(mut self, weight: u64) -> Self {
        self.weight = Some(weight);
        self
    }

    /// Adds the summands behind a handle.
    #[must_use]
    pub const fn with_bias(mut self, bias: u64) -> Self {
        self.bias = Some(bias);
        self
    }

    /// Adds the tensor behind a handle before the normalisation.
    #[must_use]
    pub const fn with_residual(mut self, residual: u64) -> Self {
        self.residual = Some(residual);
        self
    }

    /// Checks the shapes. Returns input, output, weight, bias and residual.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 5]> {
        let row = NormRow { op, dtype: self.dtype, rows: self.rows, columns: self.columns };
        let [input, output, weight, residual] =
            row.operands(self.input, self.output, self.weight, self.residual)?;
        Ok([input, output, weight, row.vector("bias", self.bias)?, residual])
    }
}

/// `output = x / √(mean(x²) + eps) · weight` for each row, `x = input + residual`. The output may be exactly
/// the input or the residual. (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.)
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RmsNormDesc {
    /// Handle of the input, `[rows, columns]`.
    pub input: u64,
    /// Handle of the output, of the input's shape.
    pub output: u64,
    /// Element type of every operand.
    pub dtype: DType,
    /// Number of rows.
    pub rows: usize,
    /// Numbers in a row.
    pub columns: usize,
    /// Added to the mean square.
    pub eps: f64,
    /// Handle of `columns` factors; 1 if `None`.
    pub weight: Option<u64>,
    /// Handle of a tensor of the input's shape that is added first.
    pub residual: Option<u64>,
}

impl RmsNormDesc {
    /// Without weight and residual, with an `eps` of 1e-6.
    #[must_use]
    pub const fn new(dtype: DType, input: u64, output: u64, rows: usize, columns: usize) -> Self {
        Self { input, output, dtype, rows, columns, eps: 1e-6, weight: None, residual: None }
    }

    /// Adds another number to the mean square.
    #[must_use]
    pub const fn with_eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// Multiplies by the factors behind a handle.
    #[must_use]
    pub const fn with_weight(mut self, weight: u64) -> Self {
        self.weight = Some(weight);
        self
    }

    /// Adds the tensor behind a handle before the normalisation.
    #[must_use]
    pub const fn with_residual(mut self, residual: u64) -> Self {
        self.residual = Some(residual);
        self
    }

    /// Checks the shapes. Returns input, output, weight and residual.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 4]> {
        let row = NormRow { op, dtype: self.dtype, rows: self.rows, columns: self.columns };
        row.operands(self.input, self.output, self.weight, self.residual)
    }
}

/// What the two normalisations of rows have in common.
struct NormRow {
    op: &'static str,
    dtype: DType,
    rows: usize,
    columns: usize,
}

impl NormRow {
    fn operands(
        &self,
        input: u64,
        output: u64,
        weight: Option<u64>,
        residual: Option<u64>,
    ) -> BackendResult<[Operand; 4]> {
        let &Self { op, dtype, rows, columns } = self;
        require_float(op, "dtype", dtype)?;
        let elements = checked_product(op, "input", &[rows, columns])?;
        Ok([
            Operand::new(op, "input", input, dtype, elements, Access::ReadInPlace)?,
            Operand::new(op, "output", output, dtype, elements, Access::Write)?,
            self.vector("weight", weight)?,
            Operand::optional(op, "residual", residual, dtype, elements, Access::ReadInPlace)?,
        ])
    }

    fn vector(&self, arg: &'static str, ptr: Option<u64>) -> BackendResult<Operand> {
        let length = if self.rows == 0 { 0 } else { self.columns };
        Operand::optional(self.op, arg, ptr, self.dtype, length, Access::Read)
    }
}
