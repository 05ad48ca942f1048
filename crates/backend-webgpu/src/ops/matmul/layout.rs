//! Whether operands can be read by vectors.

use backend_api::desc::{MatmulDesc, Matrix};

use super::Windows;

/// Whether every row of both operands starts at a multiple of `width` elements and has a multiple of `width` of
/// them.
pub(super) fn reads_as_vectors(desc: &MatmulDesc, windows: &Windows, width: usize) -> bool {
    let along_a = if desc.trans_a.is_transposed() { desc.m } else { desc.k };
    let along_b = if desc.trans_b.is_transposed() { desc.k } else { desc.n };
    is_aligned(&desc.a, windows.a.offset, along_a, width)
        && is_aligned(&desc.b, windows.b.offset, along_b, width)
}

/// Whether every row of an operand starts at a multiple of `width` elements and has a multiple of `width` of
/// them.
pub(super) fn is_aligned(matrix: &Matrix, offset: u32, along_memory: usize, width: usize) -> bool {
    (offset as usize).is_multiple_of(width)
        && [matrix.ld, matrix.batch_stride, along_memory].iter().all(|size| size.is_multiple_of(width))
}
