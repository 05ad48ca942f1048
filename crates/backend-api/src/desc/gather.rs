//! Rows of a table by index.

use crate::operand::{Access, Operand};
use crate::{BackendResult, DType, checked_product};

/// `output[i, :] = table[indices[i], :]`, the embedding lookup. An index outside the table gives a row of zeros.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GatherDesc {
    /// Handle of the table, `[rows, columns]`.
    pub table: u64,
    /// Handle of `count` indices of u32 or i32; a negative one is outside the table.
    pub indices: u64,
    /// Handle of the output, `[count, columns]`.
    pub output: u64,
    /// Element type of table and output; any.
    pub dtype: DType,
    /// Rows of the table.
    pub rows: usize,
    /// Numbers in a row.
    pub columns: usize,
    /// Number of indices.
    pub count: usize,
}

impl GatherDesc {
    /// `ptrs` are table, indices and output; `shape` is rows, columns, count.
    #[must_use]
    pub const fn new(dtype: DType, ptrs: [u64; 3], shape: [usize; 3]) -> Self {
        let [table, indices, output] = ptrs;
        let [rows, columns, count] = shape;
        Self { table, indices, output, dtype, rows, columns, count }
    }

    /// Checks the shapes. Returns table, indices and output.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 3]> {
        let output = checked_product(op, "output", &[self.count, self.columns])?;
        let table = if output == 0 { 0 } else { checked_product(op, "table", &[self.rows, self.columns])? };
        let count = if output == 0 { 0 } else { self.count };
        Ok([
            Operand::new(op, "table", self.table, self.dtype, table, Access::Read)?,
            Operand::new(op, "indices", self.indices, DType::U32, count, Access::Read)?,
            Operand::new(op, "output", self.output, self.dtype, output, Access::Write)?,
        ])
    }
}
