//! Matrix products.

use crate::operand::{Access, Operand};
use crate::size::{strided_extent, strides_are_injective};
use crate::{Activation, BackendError, BackendResult, BackendTranspose, Bound, DType, MathMode};

use super::require_float;

/// A row-major matrix in device memory, or a batch of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Matrix {
    /// Handle of the memory.
    pub ptr: u64,
    /// Element type.
    pub dtype: DType,
    /// Elements from the handle's start to the first one.
    pub offset: usize,
    /// Elements from one stored row to the next, at least the stored columns.
    pub ld: usize,
    /// Elements from one matrix of the batch to the next; 0 repeats an input for the whole batch.
    pub batch_stride: usize,
}

impl Matrix {
    /// One matrix with the leading dimension `ld`, the same for the whole batch.
    #[must_use]
    pub const fn new(ptr: u64, dtype: DType, ld: usize) -> Self {
        Self { ptr, dtype, offset: 0, ld, batch_stride: 0 }
    }

    setters! {
        /// A part of a larger matrix: `row · ld + column` elements after the handle's start.
        pub fn with_offset(offset: usize);

        /// Sets the elements between the matrices of a batch.
        pub fn with_batch_stride(batch_stride: usize);
    }
}

/// Along which dimension of the product a bias changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BiasAxis {
    /// One element for each of the n columns.
    Column,
    /// One element for each of the m rows.
    Row,
}

/// A bias vector, of the product's element type, the same for the whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bias {
    /// Handle of the memory.
    pub ptr: u64,
    /// The dimension along which it changes.
    pub axis: BiasAxis,
}

/// `C = activation(alpha · op(A) · op(B) + beta · C + bias)` for each matrix of a batch.
///
/// op(A) is m×k, op(B) k×n and C m×n. Products are accumulated in f32. With `beta` 0, C is not read. With `k`
/// 0 the product is 0. Each of A and B is f32 or f16; C is f32, or f16 where both are f16.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MatmulDesc {
    /// Rows of op(A) and of C.
    pub m: usize,
    /// Columns of op(B) and of C.
    pub n: usize,
    /// Columns of op(A), rows of op(B).
    pub k: usize,
    /// Left operand, stored m×k, or k×m if transposed.
    pub a: Matrix,
    /// How A is read.
    pub trans_a: BackendTranspose,
    /// Right operand, stored k×n, or n×k if transposed.
    pub b: Matrix,
    /// How B is read.
    pub trans_b: BackendTranspose,
    /// The result, and with `beta` ≠ 0 an input.
    pub c: Matrix,
    /// Number of matrices; 1 for a single product.
    pub batch: usize,
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of the previous C.
    pub beta: f64,
    /// Added to every result.
    pub bias: Option<Bias>,
    /// Applied last.
    pub activation: Activation,
    /// With what arithmetic f32 products may be made.
    pub math: MathMode,
}

handles!(MatmulDesc: a, b, c, bias);

impl MatmulDesc {
    /// `C = A · B`, of one batch, nothing transposed.
    #[must_use]
    pub const fn new(m: usize, n: usize, k: usize, a: Matrix, b: Matrix, c: Matrix) -> Self {
        Self {
            m,
            n,
            k,
            a,
            trans_a: BackendTranspose::NoTrans,
            b,
            trans_b: BackendTranspose::NoTrans,
            c,
            batch: 1,
            alpha: 1.0,
            beta: 0.0,
            bias: None,
            activation: Activation::Identity,
            math: MathMode::Standard,
        }
    }

    /// Reads A and B as given.
    #[must_use]
    pub const fn with_transpose(mut self, trans_a: BackendTranspose, trans_b: BackendTranspose) -> Self {
        self.trans_a = trans_a;
        self.trans_b = trans_b;
        self
    }

    /// Sets alpha and beta, the scalars of BLAS.
    #[must_use]
    pub const fn with_scale(mut self, alpha: f64, beta: f64) -> Self {
        self.alpha = alpha;
        self.beta = beta;
        self
    }

    setters! {
        /// Multiplies `batch` matrices, each operand advancing by its own stride.
        pub fn with_batch(batch: usize);

        /// Adds a bias.
        pub fn with_bias(Some(bias): Bias);

        /// Applies `activation` last.
        pub fn with_activation(activation: Activation);

        /// Allows another arithmetic.
        pub fn with_math(math: MathMode);
    }

    /// Checks the shapes. Returns a, b, c and bias; A and B touch nothing when no product is formed.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 4]> {
        self.check_dtypes(op)?;
        let stored = |rows, columns, trans: BackendTranspose| {
            if trans.is_transposed() { (columns, rows) } else { (rows, columns) }
        };
        let (a_rows, a_columns) = stored(self.m, self.k, self.trans_a);
        let (b_rows, b_columns) = stored(self.k, self.n, self.trans_b);
        require_row(op, "lda", "A", a_columns, self.a.ld)?;
        require_row(op, "ldb", "B", b_columns, self.b.ld)?;
        require_row(op, "ldc", "C", self.n, self.c.ld)?;
        if !strides_are_injective(&mut self.c_dims()) {
            return Err(BackendError::Overlap { op, a: "c", b: "c" });
        }

        let empty = self.m == 0 || self.n == 0 || self.batch == 0;
        let input = |arg, matrix: Matrix, rows, columns| {
            let dims = [(self.batch, matrix.batch_stride), (rows, matrix.ld), (columns, 1)];
            let elements = strided_extent(op, arg, dims.into_iter())?;
            Operand::new(op, arg, matrix.ptr, matrix.dtype, if empty { 0 } else { elements }, Access::Read)?
                .with_offset(op, matrix.offset)
        };
        let c_elements = strided_extent(op, "c", self.c_dims().into_iter())?;
        let bias_length = match self.bias.map(|bias| bias.axis) {
            _ if empty => 0,
            Some(BiasAxis::Row) => self.m,
            _ => self.n,
        };
        Ok([
            input("a", self.a, a_rows, a_columns)?,
            input("b", self.b, b_rows, b_columns)?,
            Operand::new(op, "c", self.c.ptr, self.c.dtype, c_elements, Access::Write)?
                .with_offset(op, self.c.offset)?,
            Operand::optional(op, "bias", self.bias.map(|b| b.ptr), self.c.dtype, bias_length, Access::Read)?,
        ])
    }

    fn c_dims(&self) -> [(usize, usize); 3] {
        [(self.batch, self.c.batch_stride), (self.m, self.c.ld), (self.n, 1)]
    }

    fn check_dtypes(&self, op: &'static str) -> BackendResult<()> {
        require_float(op, "a", self.a.dtype)?;
        require_float(op, "b", self.b.dtype)?;
        require_float(op, "c", self.c.dtype)?;
        match (self.a.dtype, self.b.dtype, self.c.dtype) {
            (_, _, DType::F32) | (DType::F16, DType::F16, _) => Ok(()),
            (_, _, got) => Err(BackendError::Dtype { op, arg: "c", got }),
        }
    }
}

/// A leading dimension must hold a row, and a row of nothing must have room for one element.
pub(super) fn require_row(
    op: &'static str,
    what: &'static str,
    matrix: &'static str,
    length: usize,
    ld: usize,
) -> BackendResult<()> {
    let expected = if length == 0 { Bound::AtLeast(1) } else { Bound::Row { matrix, length } };
    if ld >= length.max(1) { Ok(()) } else { Err(BackendError::Shape { op, what, expected, got: ld }) }
}
