//! Products of few rows or columns: the operand that takes the time of reading it, the other one, and how
//! they are turned around.

use backend_api::DType;
use backend_api::desc::{MatmulDesc, Matrix};

use super::layout::is_aligned;
use super::{Params, ResultParams, SizeParams, Windows};
use crate::kernels::Lib;
use crate::kernels::libs::{ACTIVATE, ACTIVATE_HALF, VEC_1, VEC_4, VEC_8};
use crate::ops::shared::vec_width::VecWidth;

/// The operand that takes the time.
pub(super) struct Large<'a> {
    pub(super) matrix: &'a Matrix,
    /// Whether its rows run along k.
    pub(super) k_major: bool,
    /// Length of its rows.
    row: usize,
    /// Whether it is A, which becomes the right operand of the transposed product.
    transposed: bool,
}

impl<'a> Large<'a> {
    pub(super) fn of(desc: &'a MatmulDesc, transposed: bool) -> Self {
        let (matrix, k_major, across) = match transposed {
            true => (&desc.a, !desc.trans_a.is_transposed(), desc.m),
            false => (&desc.b, desc.trans_b.is_transposed(), desc.n),
        };
        Self { matrix, k_major, row: if k_major { desc.k } else { across }, transposed }
    }

    /// Whether it can be read by vectors.
    pub(super) fn reads_as_vectors(&self, windows: &Windows) -> bool {
        let window = if self.transposed { &windows.a } else { &windows.b };
        is_aligned(self.matrix, window.offset, self.row, VecWidth::of(self.matrix.dtype).width())
    }
}

/// The other operand, of few rows or columns.
pub(super) struct Small<'a> {
    pub(super) matrix: &'a Matrix,
    pub(super) offset: u32,
    /// Whether its rows run across k.
    pub(super) across_k: bool,
}

impl<'a> Small<'a> {
    pub(super) fn of(desc: &'a MatmulDesc, windows: &Windows, transposed: bool) -> Self {
        let (matrix, across_k, window) = match transposed {
            true => (&desc.b, !desc.trans_b.is_transposed(), &windows.b),
            false => (&desc.a, desc.trans_a.is_transposed(), &windows.a),
        };
        Self { matrix, offset: window.offset, across_k }
    }
}

/// Types of the operands and whether they are stored transposed, of the product that is made: the transposed
/// one or not.
pub(super) fn oriented(transposed: bool, [a, b, c]: [DType; 3], trans: [bool; 2]) -> ([DType; 3], [bool; 2]) {
    if transposed { ([b, a, c], [!trans[1], !trans[0]]) } else { ([a, b, c], trans) }
}

impl Params {
    /// The parameters of the transposed product, which writes C by columns.
    pub(super) fn transposed(self) -> Self {
        let SizeParams { m, n, tiles_m, tiles_n, .. } = self.sizes;
        let bias = [0, 2, 1][self.result.bias.min(2) as usize];
        Self {
            sizes: SizeParams { m: n, n: m, tiles_m: tiles_n, tiles_n: tiles_m, ..self.sizes },
            a_offset: self.b_offset,
            a_ld: self.b_ld,
            a_batch: self.b_batch,
            b_offset: self.a_offset,
            b_ld: self.a_ld,
            b_batch: self.a_batch,
            result: ResultParams { bias, ..self.result },
        }
    }
}

/// Vectors of this width, and the activations for results of this type.
pub(super) fn libs(vec_width: VecWidth, result: DType) -> &'static [Lib] {
    match (vec_width, result) {
        (VecWidth::One | VecWidth::Two, DType::F16) => &[VEC_1, ACTIVATE_HALF],
        (VecWidth::Four, DType::F16) => &[VEC_4, ACTIVATE_HALF],
        (VecWidth::Eight, DType::F16) => &[VEC_8, ACTIVATE_HALF],
        (VecWidth::One | VecWidth::Two, _) => &[VEC_1, ACTIVATE],
        (VecWidth::Four, _) => &[VEC_4, ACTIVATE],
        (VecWidth::Eight, _) => &[VEC_8, ACTIVATE],
    }
}
