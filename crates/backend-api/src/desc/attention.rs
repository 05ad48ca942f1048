//! Scaled dot-product attention.

use std::ops::Range;

use crate::kv::KvFormat;
use crate::operand::{Access, Operand};
use crate::size::{strided_extent, strides_are_injective};
use crate::{BackendError, BackendResult, DType, checked_product};

use super::{
    AttentionAlignment, AttentionMask, AttentionShape, BlockTable, HeadLayout, require_at_least,
    require_float, require_multiple,
};

/// `O = softmax(cap(scale · Q·Kᵀ) + mask) · V` for each batch and head, where `cap(s) = c·tanh(s/c)` with a
/// softcap c and s without.
///
/// Query head `h` uses key and value head `h / (heads / kv_heads)`. A key is hidden where the mask is −∞ (or
/// 0, if it is of u32), from the batch's key length on, with `causal` where `key > position`, and with a
/// window where `position − key ≥ window`, the query's position being that of its [`AttentionAlignment`]. A
/// query that sees no key gives zeros.
///
/// With [`sinks`](Self::sinks), the exponential of the head's sink joins the denominator: it counts as the score
/// of one more key, which every query sees and whose value is 0. It is neither scaled nor bounded, and no mask
/// hides it. A sink of −∞ is none; one of NaN or +∞ makes its head's outputs NaN, as such a score does.
///
/// Sums are f32. Weights may be rounded to f16 before they are multiplied by values of f16, if the queries
/// are f16 too. Beside queries of f16, elements of [`Q8_0`](KvFormat::Q8_0) may be rounded to f16 first, which makes
/// those above 65,504 infinite, where there are more than 16 queries, more than 65,535 sequences, or more than 65,535
/// groups of four rows, a row being a query of a head and a group of heads that share keys; then they count as keys
/// and values of f16.
///
/// Causal attention over rows `[q, k, v]` of one matrix, as a fused projection leaves them:
///
/// ```
/// use backend_api::desc::{AttentionDesc, AttentionShape, HeadLayout};
/// use backend_api::{BackendResult, ComputeBackend, DType};
///
/// fn attend(backend: &dyn ComputeBackend, qkv: u64, o: u64, tokens: usize) -> BackendResult<()> {
///     let (heads, head_dim) = (12, 64);
///     let width = heads * head_dim;
///     let part = |i| HeadLayout { offset: i * width, batch: 0, head: head_dim, token: 3 * width };
///     let shape = AttentionShape { batch: 1, heads, seq_q: tokens, seq_kv: tokens, head_dim };
///     let desc = AttentionDesc::new(DType::F16, qkv, qkv, qkv, o, shape)
///         .with_q_layout(part(0))
///         .with_k_layout(part(1))
///         .with_v_layout(part(2))
///         .with_o_layout(HeadLayout { offset: 0, batch: 0, head: head_dim, token: width })
///         .with_causal(true);
///     backend.attention_ext(&desc)
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AttentionDesc {
    /// Handle of the queries, `[batch, heads, seq_q, head_dim]`.
    pub q: u64,
    /// Handle of the keys, `[batch, kv_heads, seq_kv, head_dim]`.
    pub k: u64,
    /// Handle of the values, `[batch, kv_heads, seq_kv, v_head_dim]`.
    pub v: u64,
    /// Handle of the output, `[batch, heads, seq_q, v_head_dim]`.
    pub o: u64,
    /// Element type of the queries and the output.
    pub dtype: DType,
    /// How keys and values are stored: in the type of the queries, as f16 beside queries of f32, or as
    /// [`Q8_0`](KvFormat::Q8_0) beside either.
    pub kv_format: KvFormat,
    /// Number of sequences.
    pub batch: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Queries in a sequence.
    pub seq_q: usize,
    /// Keys in a sequence.
    pub seq_kv: usize,
    /// Elements in a vector of the queries and keys.
    pub head_dim: usize,
    /// Elements in a vector of the values and the output.
    pub v_head_dim: usize,
    /// Factor of the scores, usually 1/√head_dim.
    pub scale: f64,
    /// Bound of the scaled scores, before the mask is added; none if it is 0 or no finite f32. Its sign has
    /// no meaning.
    pub softcap: f64,
    /// Whether a query is blind to later keys.
    pub causal: bool,
    /// How many keys back a query sees, the one at its own position included.
    pub window: Option<usize>,
    /// Where a query's position is.
    pub alignment: AttentionAlignment,
    /// Added to the scores, or hides keys.
    pub mask: Option<AttentionMask>,
    /// Element type of the mask: that of the queries, whose elements are added, or u32, where 0 hides a key
    /// and any other number doesn't, as [`compare`](crate::ComputeBackend::compare) leaves it.
    pub mask_dtype: DType,
    /// Handle of the key lengths, `[batch]` of u32: how many keys of each sequence are real. More than `seq_kv` means
    /// all.
    pub key_lengths: Option<u64>,
    /// Where keys and values lie in blocks of a pool. Their strides by batch and token are then those by block and by
    /// position in it, and packed ones are `[pool_blocks, kv_heads, block_size, head_dim]`.
    pub block_table: Option<BlockTable>,
    /// Handle of the logarithms of the sums of the exponentials of the scores, f32 `[batch, heads, seq_q]`,
    /// which are written too, with the exponential of the sink, if there is one: −∞ for a query that sees no key,
    /// or the sink. Parts of the keys that are put together by these have the sink in one part only. Untouched
    /// where the output has no elements.
    pub lse: Option<u64>,
    /// Handle of the sinks, `[heads]` of f32: a natural logarithm for each query head that joins the
    /// denominator of its softmaxes.
    pub sinks: Option<u64>,
    /// Layout of the queries; packed if `None`.
    pub q_layout: Option<HeadLayout>,
    /// Layout of the keys; packed if `None`.
    pub k_layout: Option<HeadLayout>,
    /// Layout of the values; packed if `None`.
    pub v_layout: Option<HeadLayout>,
    /// Layout of the output; packed if `None`.
    pub o_layout: Option<HeadLayout>,
}

handles!(AttentionDesc: q, k, v, o, mask, key_lengths, block_table, lse, sinks);

impl AttentionDesc {
    /// Full attention over packed operands, scaled by 1/√head_dim.
    #[must_use]
    pub fn new(dtype: DType, q: u64, k: u64, v: u64, o: u64, shape: AttentionShape) -> Self {
        let AttentionShape { batch, heads, seq_q, seq_kv, head_dim } = shape;
        Self {
            q,
            k,
            v,
            o,
            dtype,
            kv_format: KvFormat::Float(dtype),
            batch,
            heads,
            kv_heads: heads,
            seq_q,
            seq_kv,
            head_dim,
            v_head_dim: head_dim,
            scale: 1.0 / (head_dim.max(1) as f64).sqrt(),
            softcap: 0.0,
            causal: false,
            window: None,
            alignment: AttentionAlignment::BottomRight,
            mask: None,
            mask_dtype: dtype,
            key_lengths: None,
            block_table: None,
            lse: None,
            sinks: None,
            q_layout: None,
            k_layout: None,
            v_layout: None,
            o_layout: None,
        }
    }

    setters! {
        /// Takes keys and values that are stored in another format.
        pub fn with_kv_format(kv_format: KvFormat);

        /// Shares each key and value head between `heads / kv_heads` query heads.
        pub fn with_kv_heads(kv_heads: usize);

        /// Multiplies the scores by another factor.
        pub fn with_scale(scale: f64);

        /// Bounds the scaled scores.
        pub fn with_softcap(softcap: f64);

        /// Hides later keys from a query, or not. Over a cache with [key lengths](Self::with_key_lengths), take
        /// [`AttentionAlignment::KeyLengths`] too: otherwise positions count from `seq_kv`, the cache's capacity.
        pub fn with_causal(causal: bool);

        /// Limits a query to the last `window` keys, the one at its own position included.
        pub fn with_window(Some(window): usize);

        /// Adds a mask to the scores.
        pub fn with_mask(Some(mask): AttentionMask);

        /// Takes a mask of another element type: u32, which hides keys instead of adding to their scores.
        pub fn with_mask_dtype(mask_dtype: DType);

        /// Counts positions from another key.
        pub fn with_alignment(alignment: AttentionAlignment);

        /// Takes values, and gives outputs, of another length than the queries and keys.
        pub fn with_v_head_dim(v_head_dim: usize);

        /// Takes the number of real keys of each sequence from device memory. With `causal` or a window, queries
        /// stand at the last of them only by [`AttentionAlignment::KeyLengths`].
        pub fn with_key_lengths(Some(key_lengths): u64);

        /// Takes keys and values from blocks of a pool.
        pub fn with_block_table(Some(block_table): BlockTable);

        /// Writes the log-sum-exp of the scores too.
        pub fn with_lse(Some(lse): u64);

        /// Lets a score of each query head join the denominator without a value.
        pub fn with_sinks(Some(sinks): u64);

        /// Says where the vectors of the queries lie.
        pub fn with_q_layout(Some(q_layout): HeadLayout);

        /// Says where the vectors of the keys lie.
        pub fn with_k_layout(Some(k_layout): HeadLayout);

        /// Says where the vectors of the values lie.
        pub fn with_v_layout(Some(v_layout): HeadLayout);

        /// Says where the vectors of the output lie.
        pub fn with_o_layout(Some(o_layout): HeadLayout);
    }

    /// The softcap, if the scores are bounded.
    #[must_use]
    pub fn cap(&self) -> Option<f32> {
        let cap = self.softcap.abs() as f32;
        (cap > 0.0 && cap.is_finite()).then_some(cap)
    }

    /// The keys that a query sees, the mask aside, of which the first `keys` are real.
    #[must_use]
    pub fn visible(&self, query: usize, keys: usize) -> Range<usize> {
        // One past the last query's position.
        let behind = match self.alignment {
            AttentionAlignment::BottomRight => self.seq_kv,
            AttentionAlignment::TopLeft => self.seq_q,
            AttentionAlignment::KeyLengths => keys.min(self.seq_kv),
        };
        // One past the query's position, which may lie before the first key.
        let end = query.saturating_add(1).saturating_add(behind).saturating_sub(self.seq_q);
        let last = if self.causal { end.min(keys) } else { keys };
        // Without saturation, because a window reaches back from a negative position too.
        let back = self.window.map_or(usize::MAX, |window| window.saturating_add(self.seq_q));
        let first = query.saturating_add(1).saturating_add(behind).saturating_sub(back);
        first.min(last)..last
    }

    /// What the strides by batch and by token of keys and values count: sequences and their keys, or with a block table
    /// blocks of the pool and positions in one.
    #[must_use]
    pub const fn kv_extents(&self) -> [usize; 2] {
        match self.block_table {
            Some(table) => [table.pool_blocks, table.block_size],
            None => [self.batch, self.seq_kv],
        }
    }

    /// The layouts in use: of q, k, v and o. They saturate for sizes that [`operands`](Self::operands)
    /// refuses.
    #[must_use]
    pub fn layouts(&self) -> [HeadLayout; 4] {
        let packed = HeadLayout::packed;
        let [_, positions] = self.kv_extents();
        [
            self.q_layout.unwrap_or(packed(self.heads, self.seq_q, self.head_dim)),
            self.k_layout.unwrap_or(packed(self.kv_heads, positions, self.head_dim)),
            self.v_layout.unwrap_or(packed(self.kv_heads, positions, self.v_head_dim)),
            self.o_layout.unwrap_or(packed(self.heads, self.seq_q, self.v_head_dim)),
        ]
    }

    /// Blocks of Q8_0 are never parted: vectors begin and end with one.
    fn require_whole_blocks(&self, op: &'static str) -> BackendResult<()> {
        let whole = |what, elements| require_multiple(op, what, KvFormat::BLOCK, elements);
        whole("head_dim", self.head_dim)?;
        whole("v_head_dim", self.v_head_dim)?;
        let [blocks, positions] = self.kv_extents();
        for layout in [self.k_layout, self.v_layout].into_iter().flatten() {
            let HeadLayout { offset, batch, head, token } = layout;
            whole("offset of keys and values", offset)?;
            for (extent, stride) in [(blocks, batch), (self.kv_heads, head), (positions, token)] {
                // A stride that leads nowhere may be any number.
                whole("stride of keys and values", if extent > 1 { stride } else { 0 })?;
            }
        }
        Ok(())
    }

    /// Checks types and shapes. Returns q, k, v, o, mask, key_lengths, lse, sinks and block_table; nothing is touched,
    /// the output and lse neither, when there are no queries or the vectors of queries or of values have no elements.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 9]> {
        require_float(op, "dtype", self.dtype)?;
        match self.kv_format {
            KvFormat::Float(got) if got != self.dtype && (self.dtype, got) != (DType::F32, DType::F16) => {
                return Err(BackendError::Dtype { op, arg: "kv_format", got });
            }
            KvFormat::Float(_) => {}
            KvFormat::Q8_0 => self.require_whole_blocks(op)?,
        }
        if let Some(table) = self.block_table {
            table.require_valid(op, self.seq_kv)?;
        }
        if self.mask_dtype != self.dtype && self.mask_dtype != DType::U32 {
            return Err(BackendError::Dtype { op, arg: "mask_dtype", got: self.mask_dtype });
        }
        require_at_least(op, "kv_heads", usize::from(self.heads > 0), self.kv_heads)?;
        if self.kv_heads > 0 {
            require_multiple(op, "heads", self.kv_heads, self.heads)?;
        }
        for dim in [self.head_dim, self.v_head_dim] {
            checked_product(op, "queries", &[self.batch, self.heads, self.seq_q, dim])?;
            checked_product(op, "keys", &[self.batch, self.kv_heads, self.seq_kv, dim])?;
        }

        let [q, k, v, o] = self.layouts();
        let empty = [self.batch, self.heads, self.seq_q, self.head_dim, self.v_head_dim].contains(&0);
        let queries = [self.batch, self.heads, self.seq_q];
        // A pool in which no sequence has a key isn't touched.
        let [blocks, positions] = self.kv_extents();
        let keys = [blocks, self.kv_heads, if self.seq_kv > 0 { positions } else { 0 }];
        let q_dims = q.dims(queries, self.head_dim);
        let k_dims = k.dims(keys, self.head_dim);
        let v_dims = v.dims(keys, self.v_head_dim);
        let operand = |arg, ptr, dtype, offset, dims: [(usize, usize); 4], access| {
            let elements = strided_extent(op, arg, dims.into_iter())?;
            Operand::new(op, arg, ptr, dtype, if empty { 0 } else { elements }, access)?
                .with_offset(op, offset)
        };
        let kv = |arg, ptr, offset, dims: [(usize, usize); 4]| {
            let elements = strided_extent(op, arg, dims.into_iter())?;
            let reach = if empty { 0 } else { elements };
            Operand::kv(op, arg, (ptr, self.kv_format), offset, reach, Access::Read)
        };
        let o_dims = o.dims(queries, self.v_head_dim);
        if !empty && !strides_are_injective(&mut o_dims.clone()) {
            return Err(BackendError::Overlap { op, a: "o", b: "o" });
        }
        let mask_elements = match self.mask {
            Some(mask) if !empty => {
                let rows = [(self.batch, mask.batch_stride), (self.heads, mask.head_stride)];
                let columns = [(self.seq_q, mask.query_stride), (self.seq_kv, 1)];
                strided_extent(op, "mask", rows.into_iter().chain(columns))?
            }
            _ => 0,
        };
        let mask = self.mask.map(|mask| mask.ptr);
        let lengths = if empty { 0 } else { self.batch };
        let table = match &self.block_table {
            Some(table) if !empty => table.operand(op, self.batch, self.seq_kv)?,
            _ => Operand::absent("block_table"),
        };
        let [rows, heads] = if empty { [0, 0] } else { [self.batch * self.heads * self.seq_q, self.heads] };
        Ok([
            operand("q", self.q, self.dtype, q.offset, q_dims, Access::Read)?,
            kv("k", self.k, k.offset, k_dims)?,
            kv("v", self.v, v.offset, v_dims)?,
            operand("o", self.o, self.dtype, o.offset, o_dims, Access::Write)?,
            Operand::optional(op, "mask", mask, self.mask_dtype, mask_elements, Access::Read)?,
            Operand::optional(op, "key_lengths", self.key_lengths, DType::U32, lengths, Access::Read)?,
            Operand::optional(op, "lse", self.lse, DType::F32, rows, Access::Write)?,
            Operand::optional(op, "sinks", self.sinks, DType::F32, heads, Access::Read)?,
            table,
        ])
    }
}
