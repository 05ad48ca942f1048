//! Rows into a cache of keys and values of Q8_0.

use crate::kv::KvFormat;
use crate::operand::{Access, Operand};
use crate::size::strided_extent;
use crate::{BackendResult, DType};

use super::matmul::require_row;
use super::{Matrix, require_at_least, require_float, require_multiple};

/// `cache[indices[i], ..] = source[i, ..]`, quantised to [`Q8_0`](KvFormat::Q8_0): how keys and values are appended to a
/// cache, whose rows are tokens. Row r of the cache starts `offset + stride · r` elements after the handle's start, and
/// its first `columns` elements are written.
///
/// Without indices, row i of the source goes to row i of the cache. What an index outside the cache names is left out.
/// Of rows with equal indices the last one stays. Bytes of the cache that no row names stay as they are.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct QuantizeRowsDesc {
    /// The rows, count × columns; f32 or f16. `batch_stride` isn't looked at.
    pub source: Matrix,
    /// Handle of the cache.
    pub cache: u64,
    /// Rows of the cache.
    pub rows: usize,
    /// Elements of a row that are written; a multiple of 32.
    pub columns: usize,
    /// Rows of the source.
    pub count: usize,
    /// Elements before the first row of the cache; a multiple of 32.
    pub offset: usize,
    /// Elements from one row of the cache to the next; a multiple of 32, and at least `columns`.
    pub stride: usize,
    /// Handle of the indices of u32 or i32, `[count]`; a negative one is outside the cache.
    pub indices: Option<u64>,
}

handles!(QuantizeRowsDesc: source, cache, indices);

impl QuantizeRowsDesc {
    /// The first `count` rows of a cache of `rows` packed rows.
    #[must_use]
    pub const fn new(source: Matrix, cache: u64, rows: usize, columns: usize, count: usize) -> Self {
        Self { source, cache, rows, columns, count, offset: 0, stride: columns, indices: None }
    }

    setters! {
        /// Starts the cache's rows later.
        pub fn with_offset(offset: usize);

        /// Leaves room between the cache's rows.
        pub fn with_stride(stride: usize);

        /// Takes the rows of the cache from device memory.
        pub fn with_indices(Some(indices): u64);
    }

    /// Checks types and shapes. Returns source, cache and indices; nothing is touched where no row is written.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 3]> {
        let Self { source, rows, columns, count, offset, stride, .. } = *self;
        require_float(op, "source", source.dtype)?;
        require_row(op, "ld of the source", "the source", columns, source.ld)?;
        for (what, elements) in [("columns", columns), ("offset", offset), ("stride", stride)] {
            require_multiple(op, what, KvFormat::BLOCK, elements)?;
        }
        require_at_least(op, "stride", columns, stride)?;
        if self.indices.is_none() {
            require_at_least(op, "rows", count, rows)?;
        }
        let is_empty = [rows, columns, count].contains(&0);
        let used = |elements: usize| if is_empty { 0 } else { elements };
        // Every row may be named by an index.
        let named = if self.indices.is_some() { rows } else { count };
        let elements = strided_extent(op, "source", [(count, source.ld), (columns, 1)].into_iter())?;
        let reached = strided_extent(op, "cache", [(named, stride), (columns, 1)].into_iter())?;
        Ok([
            Operand::new(op, "source", source.ptr, source.dtype, used(elements), Access::Read)?
                .with_offset(op, source.offset)?,
            Operand::kv(op, "cache", (self.cache, KvFormat::Q8_0), offset, used(reached), Access::Write)?,
            Operand::optional(op, "indices", self.indices, DType::U32, used(count), Access::Read)?,
        ])
    }
}
