//! Rows and elements into a table by index.

use crate::operand::{Access, Operand};
use crate::{BackendError, BackendResult, DType, ScatterOp, checked_product};

use super::IndexShape;

/// `table[o, indices[i], c] = op(table[o, indices[i], c], source[o, i, c])` for each `i` in turn, which with
/// addition is PyTorch's index_add; or with an index for each element, `table[o, indices[o, i, c], c]`, as
/// its scatter and scatter_add. All are packed. What an index outside the table names is left out.
///
/// The result doesn't depend on the device's timing: of elements with equal indices, each is taken in the
/// order of `i`, in f32 for floating-point types and with one rounding at the end. To this end every element
/// of the table looks for the indices that name it, which takes `rows · count` comparisons in a column with
/// an index for each element, and 1/256 of that with one for each row. Few rows that replace others, as those
/// appended to a cache of keys and values, only look for later indices that name the same row: `count²`
/// comparisons. Elements that no index names stay as they are, to the bit.
///
/// What [`Assign`](ScatterOp::Assign) puts into a floating-point table may be of the other floating-point
/// type: f32 activations go into an f16 cache with one call, rounded to the nearest, halves to even.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ScatterDesc {
    /// How an element of the source is combined with the table's.
    pub op: ScatterOp,
    /// Handle of the table, `[outer, rows, columns]`, which is changed.
    pub table: u64,
    /// Handle of the indices of u32 or i32, `[count]` or `[outer, count, columns]`; a negative one is outside
    /// a table of up to 2³¹ rows.
    pub indices: u64,
    /// Handle of the source, `[outer, count, columns]`.
    pub source: u64,
    /// Element type of the table; any.
    pub dtype: DType,
    /// Element type of the source; the table's unless given.
    pub source_dtype: DType,
    /// Tables side by side.
    pub outer: usize,
    /// Rows of the table.
    pub rows: usize,
    /// Elements in a row.
    pub columns: usize,
    /// Number of indices, of each column if there is one for each element.
    pub count: usize,
    /// Whether there is an index for each element rather than for each row.
    pub per_element: bool,
}

handles!(ScatterDesc: table, indices, source);

impl ScatterDesc {
    /// Whole rows of one table.
    #[must_use]
    pub const fn new(
        op: ScatterOp,
        dtype: DType,
        table: u64,
        indices: u64,
        source: u64,
        shape: IndexShape,
    ) -> Self {
        let IndexShape { rows, columns, count } = shape;
        Self {
            op,
            table,
            indices,
            source,
            dtype,
            source_dtype: dtype,
            outer: 1,
            rows,
            columns,
            count,
            per_element: false,
        }
    }

    /// Adds rows: `table[indices[i], :] += source[i, :]`.
    #[must_use]
    pub const fn index_add(dtype: DType, table: u64, indices: u64, source: u64, shape: IndexShape) -> Self {
        Self::new(ScatterOp::Add, dtype, table, indices, source, shape)
    }

    /// Adds elements: `table[indices[i, c], c] += source[i, c]`.
    #[must_use]
    pub const fn scatter_add(dtype: DType, table: u64, indices: u64, source: u64, shape: IndexShape) -> Self {
        Self::new(ScatterOp::Add, dtype, table, indices, source, shape).with_per_element()
    }

    setters! {
        /// Scatters to `outer` tables, one after the other in memory.
        pub fn with_outer(outer: usize);

        /// With an index for each element.
        pub fn with_per_element(per_element = true);

        /// Converts what arrives from this type: from f32 into a table of f16, or the other way round.
        pub fn with_source_dtype(source_dtype: DType);
    }

    /// Checks types and shapes. Returns table, indices and source.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 3]> {
        let converts =
            matches!(self.op, ScatterOp::Assign) && self.dtype.is_float() && self.source_dtype.is_float();
        if self.source_dtype != self.dtype && !converts {
            return Err(BackendError::Dtype { op, arg: "source", got: self.source_dtype });
        }
        let source = checked_product(op, "source", &[self.outer, self.count, self.columns])?;
        let places = [self.outer, self.rows, self.columns];
        let table = if source == 0 { 0 } else { checked_product(op, "table", &places)? };
        // Without a number that arrives or a place for it, there is nothing to do.
        let used = |elements| if source == 0 || table == 0 { 0 } else { elements };
        let indices = used(if self.per_element { source } else { self.count });
        Ok([
            Operand::new(op, "table", self.table, self.dtype, used(table), Access::Write)?,
            Operand::new(op, "indices", self.indices, DType::U32, indices, Access::Read)?,
            Operand::new(op, "source", self.source, self.source_dtype, used(source), Access::Read)?,
        ])
    }
}
