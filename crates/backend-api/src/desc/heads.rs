//! The vectors of heads: extents, layouts, masks and alignment of attention.

/// The extents of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionShape {
    /// Number of sequences.
    pub batch: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Queries in a sequence.
    pub seq_q: usize,
    /// Keys in a sequence.
    pub seq_kv: usize,
    /// Elements in a vector.
    pub head_dim: usize,
}

/// Where the vectors of one operand lie, in elements after the handle's start: `offset + batch·b + head·h +
/// token·t` is the start of a vector, whose `head_dim` elements are adjacent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLayout {
    /// The first vector.
    pub offset: usize,
    /// From one batch to the next.
    pub batch: usize,
    /// From one head to the next.
    pub head: usize,
    /// From one token to the next.
    pub token: usize,
}

impl HeadLayout {
    /// `[batch, heads, seq, dim]` without gaps. It saturates for sizes that a descriptor's `operands` refuses.
    pub(crate) const fn packed(heads: usize, seq: usize, dim: usize) -> Self {
        let head = seq.saturating_mul(dim);
        Self { offset: 0, batch: heads.saturating_mul(head), head, token: dim }
    }

    /// The extents of `[batch, heads, seq, dim]`, each with its stride.
    pub(crate) const fn dims(self, [batch, heads, seq]: [usize; 3], dim: usize) -> [(usize, usize); 4] {
        [(batch, self.batch), (heads, self.head), (seq, self.token), (dim, 1)]
    }
}

/// Terms added to the scaled scores before the softmax, or with [`mask_dtype`](super::AttentionDesc::mask_dtype)
/// u32 which keys are seen: row `(b, h, i)` starts `batch·b + head·h + query·i` elements after the handle's
/// start and has `seq_kv` adjacent elements. A stride of 0 shares rows. A number of −∞, or a u32 of 0, hides
/// a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionMask {
    /// Handle of the memory, of [`mask_dtype`](super::AttentionDesc::mask_dtype).
    pub ptr: u64,
    /// Elements from one batch to the next.
    pub batch_stride: usize,
    /// Elements from one head to the next.
    pub head_stride: usize,
    /// Elements from one query to the next.
    pub query_stride: usize,
}

/// At which key a query stands: what a causal mask and a window count from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttentionAlignment {
    /// The last query at the last of the `seq_kv` keys: position `query + seq_kv − seq_q`.
    #[default]
    BottomRight,
    /// The first query at the first key: position `query`, as PyTorch's `is_causal` has it.
    TopLeft,
    /// The last query at the last real key of its sequence: position `query + min(key_lengths[b], seq_kv) −
    /// seq_q`, so that a cache's capacity doesn't matter. Without key lengths this is
    /// [`BottomRight`](Self::BottomRight).
    KeyLengths,
}

impl AttentionAlignment {
    /// Every alignment.
    pub const ALL: [Self; 3] = [Self::BottomRight, Self::TopLeft, Self::KeyLengths];
}
