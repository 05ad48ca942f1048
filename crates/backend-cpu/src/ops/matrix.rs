//! Row-major matrices as faer sees them.

use faer::{ContiguousFwd, MatMut, MatRef};

/// A matrix whose rows are slices.
pub(crate) type RowMajor<'a, T> = MatMut<'a, T, usize, usize, isize, isize>;

/// `rows` rows of `columns` adjacent elements, `ld` elements apart. A single row may have any `ld`.
pub(crate) fn row_major<T>(data: &mut [T], rows: usize, columns: usize, ld: usize) -> RowMajor<'_, T> {
    // A row-major matrix is the transpose of a column-major one.
    MatMut::from_column_major_slice_with_stride_mut(data, columns, rows, step(rows, columns, ld))
        .transpose_mut()
}

/// [`row_major`] for reading; rows may share elements.
pub(crate) fn row_major_ref<T>(data: &[T], rows: usize, columns: usize, ld: usize) -> MatRef<'_, T> {
    MatRef::from_row_major_slice_with_stride(data, rows, columns, step(rows, columns, ld))
}

/// An `ld` that fits the memory. Where it leads nowhere, the caller's may be any number.
const fn step(rows: usize, columns: usize, ld: usize) -> usize {
    if rows <= 1 || columns == 0 { columns } else { ld }
}

/// Calls `work(i, row)` for each row.
pub(crate) fn for_each_row<T>(matrix: RowMajor<'_, T>, mut work: impl FnMut(usize, &mut [T])) {
    // Always so, by the type's own promise.
    let Some(matrix): Option<MatMut<'_, T, usize, usize, isize, ContiguousFwd>> =
        matrix.try_as_row_major_mut()
    else {
        return;
    };
    for (i, row) in matrix.row_iter_mut().enumerate() {
        work(i, row.as_slice_mut());
    }
}
