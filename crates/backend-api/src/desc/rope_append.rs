//! Rotary position embedding of queries and keys, and a cache that the keys and values are appended to.

use crate::operand::{Access, Operand};
use crate::size::strided_extent;
use crate::{BackendResult, DType, checked_add, checked_product};

use super::matmul::require_row;
use super::{Matrix, RopeStyle, RopeTables, require_at_least, require_float, require_multiple};

/// The extents of [`RopeAppendDesc`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RopeAppendShape {
    /// Tokens.
    pub rows: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys, and of values.
    pub kv_heads: usize,
    /// Elements in a vector.
    pub head_dim: usize,
    /// Rows of the cache.
    pub cache_rows: usize,
}

/// Root-mean-square norms of queries and of keys, each head by itself: x / √(mean(x²) + eps) · weight (QK-norm, as Qwen 3 and Gemma 3
/// have it).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct QkNorm {
    /// Handle of the weight of queries, `[head_dim]` of their type.
    pub query: u64,
    /// Handle of the weight of keys, `[head_dim]` of their type.
    pub key: u64,
    /// Added to the mean square.
    pub eps: f64,
}

impl QkNorm {
    /// Norms with these weights.
    #[must_use]
    pub const fn new(query: u64, key: u64, eps: f64) -> Self {
        Self { query, key, eps }
    }
}

handles!(QkNorm: query, key);

/// Rotates the queries and keys of a decoder's layer, as [`RopeDesc`](super::RopeDesc) does, and appends the keys and
/// values to a cache.
///
/// A row of `qkv` has `heads` queries, `kv_heads` keys and `kv_heads` values of `head_dim` elements, side by side: what a
/// product with their stacked weights gives. The queries are rotated where they are; keys and values there stay as they
/// are. Row r of the cache has `kv_heads` rotated keys, then `kv_heads` values. The token of row i has the position
/// `positions[i]`, or that of the tables' last row if they have fewer, and goes to row `indices[i]` of the cache.
///
/// With a [`norm`](Self::norm), queries and keys are normalised before they are rotated, and may be rounded to their type between.
/// Squares are summed in f32.
///
/// What an index outside the cache names is left out. Of rows with equal indices the last one stays. Of a paged cache, the
/// rows are those of the whole pool, and an index is `block · block_size + row`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RopeAppendDesc {
    /// Queries, keys and values, rows × (heads + 2·kv_heads)·head_dim; f32 or f16. `batch_stride` isn't looked at.
    pub qkv: Matrix,
    /// Keys and values, cache_rows × 2·kv_heads·head_dim; f32 or f16. `batch_stride` isn't looked at.
    pub cache: Matrix,
    /// Tokens.
    pub rows: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys, and of values.
    pub kv_heads: usize,
    /// Elements in a vector.
    pub head_dim: usize,
    /// How many of them are rotated: even, at most `head_dim`.
    pub rotary_dim: usize,
    /// Rows of the cache.
    pub cache_rows: usize,
    /// Which elements are paired.
    pub style: RopeStyle,
    /// Handle of the cosines, f32 `[max_position, rotary_dim/2]`.
    pub cos: u64,
    /// Handle of the sines, f32 `[max_position, rotary_dim/2]`.
    pub sin: u64,
    /// Rows in the tables.
    pub max_position: usize,
    /// Handle of the positions of u32, `[rows]`.
    pub positions: u64,
    /// Handle of the indices of u32 or i32, `[rows]`; a negative one is outside the cache.
    pub indices: u64,
    /// The norms of queries and keys, if they have some.
    pub norm: Option<QkNorm>,
}

handles!(RopeAppendDesc: qkv, cache, cos, sin, positions, indices, norm);

impl RopeAppendDesc {
    /// Rotates whole vectors, whose halves are paired.
    #[must_use]
    pub const fn new(
        qkv: Matrix,
        cache: Matrix,
        tables: RopeTables,
        shape: RopeAppendShape,
        positions: u64,
        indices: u64,
    ) -> Self {
        let RopeTables { cos, sin, max_position } = tables;
        let RopeAppendShape { rows, heads, kv_heads, head_dim, cache_rows } = shape;
        let (rotary_dim, style) = (head_dim, RopeStyle::Half);
        Self {
            qkv,
            cache,
            rows,
            heads,
            kv_heads,
            head_dim,
            rotary_dim,
            cache_rows,
            style,
            cos,
            sin,
            max_position,
            positions,
            indices,
            norm: None,
        }
    }

    setters! {
        /// Pairs other elements.
        pub fn with_style(style: RopeStyle);

        /// Rotates only the first elements of a vector.
        pub fn with_rotary_dim(rotary_dim: usize);

        /// Normalises queries and keys first.
        pub fn with_norm(Some(norm): QkNorm);
    }

    /// Elements of a row of queries, keys and values, and of the cache. They saturate for sizes that
    /// [`operands`](Self::operands) refuses.
    #[must_use]
    pub const fn widths(&self) -> [usize; 2] {
        let cached = self.kv_heads.saturating_mul(2);
        let all = self.heads.saturating_add(cached);
        [all.saturating_mul(self.head_dim), cached.saturating_mul(self.head_dim)]
    }

    /// Checks types and shapes. Returns `qkv`, the cache, cos, sin, positions, indices, and the norms' weights of queries and keys.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 8]> {
        let Self { qkv, cache, rows, heads, kv_heads, head_dim, rotary_dim, cache_rows, .. } = *self;
        require_float(op, "qkv", qkv.dtype)?;
        require_float(op, "cache", cache.dtype)?;
        require_multiple(op, "rotary_dim", 2, rotary_dim)?;
        require_at_least(op, "head_dim", rotary_dim, head_dim)?;
        let cached = checked_product(op, "row of the cache", &[2, kv_heads, head_dim])?;
        let queries = checked_product(op, "queries", &[heads, head_dim])?;
        let width = checked_add(op, "row of qkv", queries, cached)?;
        require_row(op, "ld of qkv", "qkv", width, qkv.ld)?;
        require_row(op, "ld of the cache", "the cache", cached, cache.ld)?;
        let appends = rows > 0 && cached > 0 && cache_rows > 0;
        let used = |is_used: bool, elements: usize| if is_used { elements } else { 0 };
        let touched = rows > 0 && (queries > 0 || appends);
        let rotated = touched && rotary_dim > 0;
        if rotated {
            require_at_least(op, "max_position", 1, self.max_position)?;
        }
        let of_qkv = strided_extent(op, "qkv", [(rows, qkv.ld), (width, 1)].into_iter())?;
        let of_cache = strided_extent(op, "cache", [(cache_rows, cache.ld), (cached, 1)].into_iter())?;
        let table = checked_product(op, "tables", &[used(rotated, self.max_position), rotary_dim / 2])?;
        let numbers = |arg, ptr, dtype, elements| Operand::new(op, arg, ptr, dtype, elements, Access::Read);
        let weight = |arg, ptr, is_used| {
            Operand::optional(op, arg, ptr, qkv.dtype, used(is_used, head_dim), Access::Read)
        };
        Ok([
            Operand::new(op, "qkv", qkv.ptr, qkv.dtype, used(touched, of_qkv), Access::Write)?
                .with_offset(op, qkv.offset)?,
            Operand::new(op, "cache", cache.ptr, cache.dtype, used(appends, of_cache), Access::Write)?
                .with_offset(op, cache.offset)?,
            numbers("cos", self.cos, DType::F32, table)?,
            numbers("sin", self.sin, DType::F32, table)?,
            numbers("positions", self.positions, DType::U32, used(rotated, rows))?,
            numbers("indices", self.indices, DType::U32, used(appends, rows))?,
            weight("query norm", self.norm.map(|norm| norm.query), touched && queries > 0)?,
            weight("key norm", self.norm.map(|norm| norm.key), appends)?,
        ])
    }
}
