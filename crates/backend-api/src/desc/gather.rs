//! Rows and elements of a table by index.

use crate::operand::{Access, Operand};
use crate::{BackendResult, DType, checked_product};

/// The extents of a lookup: `count` indices into a table `[rows, columns]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IndexShape {
    /// Rows of the table.
    pub rows: usize,
    /// Elements in a row.
    pub columns: usize,
    /// Number of indices.
    pub count: usize,
}

/// `output[o, i, c] = table[o, indices[i], c]`, the embedding lookup and index_select; or with an index for
/// each element, `output[o, i, c] = table[o, indices[o, i, c], c]`, as PyTorch's gather and NumPy's
/// take_along_axis. All are packed. An index outside the table gives zeros.
///
/// A lookup along axis `k` of a tensor has the product of the extents before `k` as `outer`, that of the
/// extents behind `k` as `columns`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GatherDesc {
    /// Handle of the table, `[outer, rows, columns]`.
    pub table: u64,
    /// Handle of the indices of u32 or i32, `[count]` or `[outer, count, columns]`; a negative one is outside
    /// a table of up to 2³¹ rows.
    pub indices: u64,
    /// Handle of the output, `[outer, count, columns]`.
    pub output: u64,
    /// Element type of table and output; any.
    pub dtype: DType,
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

handles!(GatherDesc: table, indices, output);

impl GatherDesc {
    /// Whole rows of one table.
    #[must_use]
    pub const fn new(dtype: DType, table: u64, indices: u64, output: u64, shape: IndexShape) -> Self {
        let IndexShape { rows, columns, count } = shape;
        Self { table, indices, output, dtype, outer: 1, rows, columns, count, per_element: false }
    }

    setters! {
        /// Gathers from `outer` tables, one after the other in memory.
        pub fn with_outer(outer: usize);

        /// With an index for each element.
        pub fn with_per_element(per_element = true);
    }

    /// Checks the shapes. Returns table, indices and output.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 3]> {
        let output = checked_product(op, "output", &[self.outer, self.count, self.columns])?;
        let used = |elements| if output == 0 { Ok(0) } else { elements };
        let table = used(checked_product(op, "table", &[self.outer, self.rows, self.columns]))?;
        let indices = used(Ok(if self.per_element { output } else { self.count }))?;
        Ok([
            Operand::new(op, "table", self.table, self.dtype, table, Access::Read)?,
            Operand::new(op, "indices", self.indices, DType::U32, indices, Access::Read)?,
            Operand::new(op, "output", self.output, self.dtype, output, Access::Write)?,
        ])
    }
}
