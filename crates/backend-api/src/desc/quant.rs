//! Operations on quantised matrices.

use crate::operand::{Access, Operand};
use crate::quant::{QuantFormat, QuantLayout};
use crate::size::strided_extent;
use crate::{Activation, BackendError, BackendResult, DType, Gate, MathMode, checked_product};

use super::matmul::require_row;
use super::norm::require_output_dtype;
use super::{Matrix, require_float, require_multiple};

/// Bytes to whose multiples the memory of a quantised matrix is aligned in its allocation.
const ALIGN: usize = 16;

/// A matrix of quantised weights in device memory, `rows` × `columns`, in the layout of
/// [`quant`](crate::quant).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuantMatrix {
    /// Handle of the planes: [`QuantFormat::bytes`] bytes. A view starts at a multiple of 16 bytes.
    pub ptr: u64,
    /// The format.
    pub format: QuantFormat,
    /// Rows: the outputs of a linear layer, n.
    pub rows: usize,
    /// Weights in a row: the inputs of a linear layer, k.
    pub columns: usize,
}

impl QuantMatrix {
    /// A matrix whose planes lie at `ptr`.
    #[must_use]
    pub const fn new(ptr: u64, format: QuantFormat, rows: usize, columns: usize) -> Self {
        Self { ptr, format, rows, columns }
    }

    /// Where the planes lie.
    ///
    /// # Errors
    /// As [`QuantFormat::bytes`].
    pub fn layout(&self, op: &'static str) -> BackendResult<QuantLayout> {
        QuantLayout::new(op, self.format, self.rows, self.columns)
    }

    pub(super) fn operand(&self, op: &'static str, arg: &'static str, used: bool) -> BackendResult<Operand> {
        let bytes = self.layout(op)?.bytes;
        let bytes = if used { bytes } else { 0 };
        Ok(Operand { arg, ptr: self.ptr, offset: 0, bytes, align: ALIGN, access: Access::Read })
    }
}

/// The root-mean-square norm of a row x of k elements, `x / √(mean(x²) + eps) · weight`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RmsNorm {
    /// Handle of the weight, k elements of the rows' type.
    pub weight: u64,
    /// Added to the mean square.
    pub eps: f64,
    /// Element type that normalised elements are rounded to, if it isn't the rows': f16 beside rows of f32, so that a residual
    /// stream of f32 is multiplied on tensor cores.
    pub output_dtype: Option<DType>,
}

impl RmsNorm {
    /// With the weight behind a handle, and normalised elements of the rows' type.
    #[must_use]
    pub const fn new(weight: u64, eps: f64) -> Self {
        Self { weight, eps, output_dtype: None }
    }

    setters! {
        /// Rounds normalised elements to another type: f16 beside rows of f32.
        pub fn with_output_dtype(Some(output_dtype): DType);
    }
}

/// `C = residual + activation(alpha · A · Bᵀ + bias)` with a quantised B: a linear layer.
///
/// A is m×k, B has n rows of k weights, C is m×n. A and C have either floating-point type. A isn't rounded, and
/// products with the exact weights are accumulated in f32: the error of the sum is at most (k + 8) · 2⁻²⁴ of the
/// sum of |a| · (|s| · (|q| + z) + |m|), where s, q, z and m make up a weight `s · (q − z) − m`. With `k` 0 the
/// product is 0.
///
/// Only where A has the type f16 and more than 32 rows may weights be rounded to f16, as those of an f16
/// matrix are; a weight above 65504 is infinite there.
///
/// With a [`norm`](Self::norm), A's rows are normalised first, and their elements rounded to A's type or to the
/// norm's; what is said of A's type above is then true of that. With a [`gate`](Self::gate), B has twice n rows,
/// those of the gate first, and `C = residual + gate(P₁, P₂)`, where P₁ and P₂ are the halves of
/// `alpha · A · Bᵀ + bias`, which may be rounded to C's type first.
///
/// # Activations of 8 bits
/// With [`MathMode::Int8`], each block of 32 activations of a row of A, normalised ones after their norm, may be
/// rounded to `d · q` with `d = max |x| / 127` and q the integer nearest to `x / d`, as in ggml's Q8_1: by at most
/// d / 2, and with the roundings of f32 by no more than `max |x| / 253`. Integers are multiplied and summed exactly
/// where weights share a scale, then in f32. So the sum of a result differs by at most `Σ max |x| / 253 · Σ |w|`, over
/// the blocks and the weights w in each, and the error above is that of the rounded activations. A block whose
/// activations are all below 2⁻¹¹⁹ may count as zeros. One with a NaN or an infinity becomes NaN, and with it all
/// results of its row.
///
/// That is allowed, not promised: a backend may round some rows, all or none, and rounds none where it is faster
/// without. It never does for a format that [doesn't take it](crate::quant::QuantFormat::takes_int8).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct QuantMatmulDesc {
    /// Rows of A and C.
    pub m: usize,
    /// Left operand, m×k; f32 or f16. `batch_stride` isn't looked at.
    pub a: Matrix,
    /// The weights, n×k, or 2n×k with a gate.
    pub b: QuantMatrix,
    /// The result, m×n; f32 or f16. `batch_stride` isn't looked at.
    pub c: Matrix,
    /// Factor of the product.
    pub alpha: f64,
    /// Handle of a number of C's element type for each row of B, added to every row of the product.
    pub bias: Option<u64>,
    /// Applied to the product with its bias. Not looked at with a gate.
    pub activation: Activation,
    /// The function of both halves of the product, if there is one.
    pub gate: Option<Gate>,
    /// How A's rows are normalised, if they are.
    pub norm: Option<RmsNorm>,
    /// A matrix m×n of C's element type, added last. It may be exactly C, and overlap it in no other way.
    /// `batch_stride` isn't looked at.
    pub residual: Option<Matrix>,
    /// With what arithmetic products may be made: exact activations, or with [`MathMode::Int8`] those of 8 bits.
    pub math: MathMode,
}

handles!(QuantMatmulDesc: a, b, c, bias, residual, norm);

impl QuantMatmulDesc {
    /// `C = A · Bᵀ` of `m` rows.
    #[must_use]
    pub const fn new(m: usize, a: Matrix, b: QuantMatrix, c: Matrix) -> Self {
        Self {
            m,
            a,
            b,
            c,
            alpha: 1.0,
            bias: None,
            activation: Activation::Identity,
            gate: None,
            norm: None,
            residual: None,
            math: MathMode::Standard,
        }
    }

    setters! {
        /// Sets alpha, the factor of the product.
        pub fn with_alpha(alpha: f64);

        /// Adds a bias, an element for each row of B, to every row of the product.
        pub fn with_bias(Some(bias): u64);

        /// Applies `activation` to the product with its bias.
        pub fn with_activation(activation: Activation);

        /// Makes a gated linear unit of the halves of the product.
        pub fn with_gate(Some(gate): Gate);

        /// Normalises the rows of A first.
        pub fn with_norm(Some(norm): RmsNorm);

        /// Adds a matrix last.
        pub fn with_residual(Some(residual): Matrix);

        /// Allows another arithmetic.
        pub fn with_math(math: MathMode);
    }

    /// Columns of C.
    #[must_use]
    pub const fn n(&self) -> usize {
        if self.gate.is_some() { self.b.rows / 2 } else { self.b.rows }
    }

    /// Columns of A.
    #[must_use]
    pub const fn k(&self) -> usize {
        self.b.columns
    }

    /// The element type of what is multiplied by the weights: A's, or that of its normalised rows.
    #[must_use]
    pub fn multiplied_dtype(&self) -> DType {
        self.norm.and_then(|norm| norm.output_dtype).unwrap_or(self.a.dtype)
    }

    /// Checks the shapes. Returns a, b, c, bias, residual and the norm's weight; inputs touch nothing where C is
    /// empty.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 6]> {
        let (m, n, k) = (self.m, self.n(), self.k());
        if self.gate.is_some() {
            require_multiple(op, "B's number of rows", 2, self.b.rows)?;
        }
        require_float(op, "a", self.a.dtype)?;
        require_float(op, "c", self.c.dtype)?;
        require_output_dtype(op, "output_dtype of the norm", self.a.dtype, self.multiplied_dtype())?;
        require_row(op, "lda", "A", k, self.a.ld)?;
        require_row(op, "ldc", "C", n, self.c.ld)?;
        if let Some(residual) = self.residual {
            if residual.dtype != self.c.dtype {
                return Err(BackendError::Dtype { op, arg: "residual", got: residual.dtype });
            }
            require_row(op, "ld of the residual", "the residual", n, residual.ld)?;
        }
        let is_empty = m == 0 || n == 0;
        let b = self.b.operand(op, "b", !is_empty)?;
        let matrix = |arg, matrix: Matrix, columns, access| {
            let elements = strided_extent(op, arg, [(m, matrix.ld), (columns, 1)].into_iter())?;
            Operand::new(op, arg, matrix.ptr, matrix.dtype, if is_empty { 0 } else { elements }, access)?
                .with_offset(op, matrix.offset)
        };
        let residual = match self.residual {
            Some(residual) => matrix("residual", residual, n, Access::ReadInPlace)?,
            None => Operand::absent("residual"),
        };
        let [bias_length, norm_length] = if is_empty { [0, 0] } else { [self.b.rows, k] };
        let norm = self.norm.map(|norm| norm.weight);
        Ok([
            matrix("a", self.a, k, Access::Read)?,
            b,
            matrix("c", self.c, n, Access::Write)?,
            Operand::optional(op, "bias", self.bias, self.c.dtype, bias_length, Access::Read)?,
            residual,
            Operand::optional(op, "norm", norm, self.a.dtype, norm_length, Access::Read)?,
        ])
    }
}

/// `output[i, c] = table[indices[i], c]` of a quantised table: the embedding lookup. The output is packed. An
/// index outside the table gives zeros.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct QuantGatherDesc {
    /// The table.
    pub table: QuantMatrix,
    /// Handle of the indices of u32 or i32, `[count]`; a negative one is outside the table.
    pub indices: u64,
    /// Handle of the output, `[count, columns]`.
    pub output: u64,
    /// Element type of the output; f32 or f16, to which a weight is rounded.
    pub dtype: DType,
    /// Number of indices.
    pub count: usize,
}

handles!(QuantGatherDesc: table, indices, output);

impl QuantGatherDesc {
    /// The rows of `table` that `count` indices name.
    #[must_use]
    pub const fn new(dtype: DType, table: QuantMatrix, indices: u64, output: u64, count: usize) -> Self {
        Self { table, indices, output, dtype, count }
    }

    /// Checks the shapes. Returns table, indices and output.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 3]> {
        require_float(op, "output", self.dtype)?;
        let output = checked_product(op, "output", &[self.count, self.table.columns])?;
        let indices = if output == 0 { 0 } else { self.count };
        Ok([
            self.table.operand(op, "table", output > 0)?,
            Operand::new(op, "indices", self.indices, DType::U32, indices, Access::Read)?,
            Operand::new(op, "output", self.output, self.dtype, output, Access::Write)?,
        ])
    }
}

/// `output = input`: the weights of a quantised matrix as f32 or f16.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DequantizeDesc {
    /// The matrix, rows × columns.
    pub input: QuantMatrix,
    /// The weights, rows × columns, row-major; f32 or f16, to which a weight is rounded. `batch_stride` isn't
    /// looked at.
    pub output: Matrix,
}

handles!(DequantizeDesc: input, output);

impl DequantizeDesc {
    /// Every weight of `input`.
    #[must_use]
    pub const fn new(input: QuantMatrix, output: Matrix) -> Self {
        Self { input, output }
    }

    /// Checks the shapes. Returns input and output.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 2]> {
        let Self { input, output } = *self;
        let QuantMatrix { rows, columns, .. } = input;
        require_float(op, "output", output.dtype)?;
        require_row(op, "ld of the output", "the output", columns, output.ld)?;
        let elements = strided_extent(op, "output", [(rows, output.ld), (columns, 1)].into_iter())?;
        Ok([
            input.operand(op, "input", elements > 0)?,
            Operand::new(op, "output", output.ptr, output.dtype, elements, Access::Write)?
                .with_offset(op, output.offset)?,
        ])
    }
}
