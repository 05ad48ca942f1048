//! Products with matrices that are chosen row by row: layers of experts.

use crate::operand::{Access, Operand};
use crate::size::strided_extent;
use crate::{BackendResult, DType, Gate, checked_product};

use super::matmul::require_row;
use super::{Matrix, QuantMatrix, require_at_least, require_float, require_multiple};

/// Products of rows with the matrices that indices choose for them from a stack: a layer of a mixture of experts,
/// the `mul_mat_id` of ggml.
///
/// B is a stack of `experts` matrices Bₑ of n rows of k weights, one after the other. With the indices
/// `e = indices[i, u]` of row i:
///
/// - `C[i · used + u] = A[i] · Bₑᵀ`, or with [`per_expert`](Self::per_expert) `A[i · used + u] · Bₑᵀ`;
/// - with a [`bias`](Self::bias), `bias[e]` is added to the product with Bₑ;
/// - with a [`gate`](Self::gate), each Bₑ has twice n rows, those of the gate first, and the row of C is
///   `gate(P₁, P₂)`, where P₁ and P₂ are the halves of the product with its bias, which may be rounded to C's type first;
/// - with [`weights`](Self::weights) C has one row for each row i, the sum over u of `weights[i, u]` times those rows,
///   which may be rounded to f32 first;
/// - with [`accumulate`](Self::accumulate), the result is added to what is in C.
///
/// An index that is no expert's, to which negative ones belong, chooses a matrix whose product is 0 and which has no
/// bias, whatever A and the weight are. Indices may repeat.
///
/// A and C have either floating-point type. A isn't rounded, and products with the exact weights are accumulated in
/// f32: the error of a product is at most (k + 8) · 2⁻²⁴ of the sum of |a| · (|s| · (|q| + z) + |m|), where s, q, z and m
/// make up a weight `s · (q − z) − m`. A sum over u adds at most (used + 2) · 2⁻²⁴ of the sum of |weights| times that, or
/// with a gate times the rows' magnitudes. With `k` 0 products are 0. Only where A has the type f16 and `rows · used` is more than 32 may
/// weights of B be rounded to f16; a weight above 65504 is infinite there.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ExpertMatmulDesc {
    /// Rows that have experts, the tokens.
    pub rows: usize,
    /// Experts of each row.
    pub used: usize,
    /// Matrices in the stack, at least 1.
    pub experts: usize,
    /// Left operand, rows×k, or (rows · used)×k; f32 or f16. `batch_stride` isn't looked at.
    pub a: Matrix,
    /// Whether A has a row for each expert of a row, rather than one for all of them.
    pub per_expert: bool,
    /// The stack, (experts · n)×k, or (experts · 2n)×k with a gate.
    pub b: QuantMatrix,
    /// Handle of the chosen experts of u32 or i32, `[rows, used]`.
    pub indices: u64,
    /// The result, (rows · used)×n, or rows×n with weights; f32 or f16. `batch_stride` isn't looked at.
    pub c: Matrix,
    /// Handle of f32, `[experts, n]`, or `[experts, 2n]` with a gate: what is added to the products with each matrix.
    pub bias: Option<u64>,
    /// The function of both halves of a product, if there is one.
    pub gate: Option<Gate>,
    /// Handle of f32, `[rows, used]`: by what the rows of a row's experts are multiplied to be summed, if they are.
    pub weights: Option<u64>,
    /// Whether the result is added to C.
    pub accumulate: bool,
}

handles!(ExpertMatmulDesc: a, b, indices, c, bias, weights);

impl ExpertMatmulDesc {
    /// The products of `rows` rows of A, each with `used` matrices of `experts`.
    #[must_use]
    pub const fn new(
        [rows, used, experts]: [usize; 3],
        a: Matrix,
        b: QuantMatrix,
        indices: u64,
        c: Matrix,
    ) -> Self {
        Self {
            rows,
            used,
            experts,
            a,
            per_expert: false,
            b,
            indices,
            c,
            bias: None,
            gate: None,
            weights: None,
            accumulate: false,
        }
    }

    setters! {
        /// Takes a row of A for each expert of a row.
        pub fn with_per_expert(per_expert: bool);

        /// Adds the row of a matrix of f32 that belongs to the expert to each product.
        pub fn with_bias(Some(bias): u64);

        /// Makes a gated linear unit of the halves of each product.
        pub fn with_gate(Some(gate): Gate);

        /// Sums the products of a row's experts, multiplied by these.
        pub fn with_weights(Some(weights): u64);

        /// Adds the result to C.
        pub fn with_accumulate(accumulate: bool);
    }

    /// Columns of C.
    #[must_use]
    pub const fn n(&self) -> usize {
        let Some(rows) = self.b.rows.checked_div(self.experts) else { return 0 };
        if self.gate.is_some() { rows / 2 } else { rows }
    }

    /// Columns of A.
    #[must_use]
    pub const fn k(&self) -> usize {
        self.b.columns
    }

    /// Rows of A, and rows of C.
    ///
    /// # Errors
    /// [`Overflow`](crate::BackendError::Overflow).
    pub fn rows_of(&self, op: &'static str) -> BackendResult<[usize; 2]> {
        let pairs = checked_product(op, "indices", &[self.rows, self.used])?;
        let each = |apart: bool| if apart { pairs } else { self.rows };
        Ok([each(self.per_expert), each(self.weights.is_none())])
    }

    /// Checks the shapes. Returns a, b, indices, bias, weights and c; inputs touch nothing where C is empty or rows have
    /// no experts.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 6]> {
        require_at_least(op, "experts", 1, self.experts)?;
        let parts = if self.gate.is_some() { 2 } else { 1 };
        let multiple = checked_product(op, "B", &[self.experts, parts])?;
        require_multiple(op, "B's number of rows", multiple, self.b.rows)?;
        let (n, k) = (self.n(), self.k());
        require_float(op, "a", self.a.dtype)?;
        require_float(op, "c", self.c.dtype)?;
        require_row(op, "lda", "A", k, self.a.ld)?;
        require_row(op, "ldc", "C", n, self.c.ld)?;
        let [a_rows, c_rows] = self.rows_of(op)?;
        let is_empty = c_rows == 0 || n == 0;
        let has_inputs = !is_empty && self.used > 0;
        let pairs = if has_inputs { checked_product(op, "indices", &[self.rows, self.used])? } else { 0 };
        let matrix = |arg, matrix: Matrix, [rows, columns]: [usize; 2], used: bool, access| {
            let elements = strided_extent(op, arg, [(rows, matrix.ld), (columns, 1)].into_iter())?;
            Operand::new(op, arg, matrix.ptr, matrix.dtype, if used { elements } else { 0 }, access)?
                .with_offset(op, matrix.offset)
        };
        Ok([
            matrix("a", self.a, [a_rows, k], has_inputs, Access::Read)?,
            self.b.operand(op, "b", has_inputs)?,
            Operand::new(op, "indices", self.indices, DType::U32, pairs, Access::Read)?,
            // The bias has a number for each row of B.
            Operand::optional(
                op,
                "bias",
                self.bias,
                DType::F32,
                if has_inputs { self.b.rows } else { 0 },
                Access::Read,
            )?,
            Operand::optional(op, "weights", self.weights, DType::F32, pairs, Access::Read)?,
            matrix("c", self.c, [c_rows, n], !is_empty, Access::Write)?,
        ])
    }
}
