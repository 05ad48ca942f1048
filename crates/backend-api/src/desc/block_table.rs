//! Paged keys and values.

use crate::operand::{Access, Operand};
use crate::size::strided_extent;
use crate::{BackendError, BackendResult, Bound, DType};

use super::require_at_least;

/// Where the keys and values of sequences lie in blocks of a pool, as in vLLM's PagedAttention.
///
/// A block holds `block_size` positions of one sequence, and position p of sequence b is position `p % block_size` of
/// the pool's block `table[b, p / block_size]`. Sequences may have blocks in common, those of a prefix that they share
/// for example, and blocks of a sequence may lie in any order.
///
/// Positions of a block whose number is outside the pool count as keys and values of zeros, as what
/// [`gather`](crate::ComputeBackend::gather) gives for such an index. Entries for keys that no query of the sequence sees
/// are never used: those from its key length on, and those before its window may hold any number.
///
/// With layouts of `[pool_blocks, block_size, kv_heads, head_dim]`, position p of sequence b is row `table[b, p /
/// block_size] · block_size + p % block_size` of a matrix, into which [`scatter`](crate::ComputeBackend::scatter), or for
/// blocks of Q8_0 [`quantize_rows`](crate::ComputeBackend::quantize_rows), writes new keys and values:
///
/// ```
/// use backend_api::desc::{
///     AttentionAlignment, AttentionDesc, AttentionShape, BlockTable, HeadLayout, IndexShape, ScatterDesc,
/// };
/// use backend_api::{BackendResult, ComputeBackend, DType, ScatterOp};
///
/// const HEADS: [usize; 2] = [32, 8];
/// const HEAD_DIM: usize = 128;
/// const KV_WIDTH: usize = HEADS[1] * HEAD_DIM;
///
/// /// One token for each of `batch` sequences: appends rows of keys and values at `new` to a pool
/// /// `[pool_blocks, block_size, 2, kv_heads, head_dim]`, each in the row of the pool that `rows` names, and attends.
/// fn decode(
///     backend: &dyn ComputeBackend,
///     [q, new, pool, rows, key_lengths, o]: [u64; 6],
///     (batch, table): (usize, BlockTable),
/// ) -> BackendResult<()> {
///     let shape = IndexShape { rows: table.pool_blocks * table.block_size, columns: 2 * KV_WIDTH, count: batch };
///     let append = ScatterDesc::new(ScatterOp::Assign, DType::F16, pool, rows, new, shape);
///     backend.scatter(&append.with_source_dtype(DType::F32))?;
///
///     let seq_kv = table.max_blocks * table.block_size;
///     let shape = AttentionShape { batch, heads: HEADS[0], seq_q: 1, seq_kv, head_dim: HEAD_DIM };
///     let block = table.block_size * 2 * KV_WIDTH;
///     let keys = HeadLayout { offset: 0, batch: block, head: HEAD_DIM, token: 2 * KV_WIDTH };
///     let desc = AttentionDesc::new(DType::F32, q, pool, pool, o, shape)
///         .with_kv_format(DType::F16.into())
///         .with_kv_heads(HEADS[1])
///         .with_k_layout(keys)
///         .with_v_layout(HeadLayout { offset: KV_WIDTH, ..keys })
///         .with_block_table(table)
///         .with_key_lengths(key_lengths)
///         .with_alignment(AttentionAlignment::KeyLengths)
///         .with_causal(true);
///     backend.attention_ext(&desc)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct BlockTable {
    /// Handle of the table, `[batch, max_blocks]` of u32.
    pub ptr: u64,
    /// Entries of a sequence.
    pub max_blocks: usize,
    /// Positions in a block: a power of two, 16 at least.
    pub block_size: usize,
    /// Blocks of the pool.
    pub pool_blocks: usize,
}

handles!(BlockTable: ptr);

impl BlockTable {
    /// The fewest positions in a block.
    pub const MIN_BLOCK_SIZE: usize = 16;

    /// A table of `max_blocks` entries for each sequence, for a pool of `pool_blocks` blocks.
    #[must_use]
    pub const fn new(ptr: u64, max_blocks: usize, block_size: usize, pool_blocks: usize) -> Self {
        Self { ptr, max_blocks, block_size, pool_blocks }
    }

    /// Checks the sizes for sequences of at most `seq_kv` keys.
    pub(super) fn require_valid(&self, op: &'static str, seq_kv: usize) -> BackendResult<()> {
        let (what, got) = ("block_size", self.block_size);
        require_at_least(op, what, Self::MIN_BLOCK_SIZE, got)?;
        if !got.is_power_of_two() {
            return Err(BackendError::Shape { op, what, expected: Bound::PowerOfTwo, got });
        }
        require_at_least(op, "pool_blocks", 1, self.pool_blocks)?;
        require_at_least(op, "max_blocks", seq_kv.div_ceil(got), self.max_blocks)
    }

    /// The entries of `batch` sequences of at most `seq_kv` keys.
    pub(super) fn operand(&self, op: &'static str, batch: usize, seq_kv: usize) -> BackendResult<Operand> {
        let used = seq_kv.div_ceil(self.block_size);
        let entries = strided_extent(op, "block_table", [(batch, self.max_blocks), (used, 1)].into_iter())?;
        Operand::new(op, "block_table", self.ptr, DType::U32, entries, Access::Read)
    }
}

#[cfg(test)]
mod tests {
    use crate::desc::{AttentionDesc, AttentionShape, BlockTable, HeadLayout};
    use crate::kv::KvFormat;
    use crate::{BackendError, DType};

    fn paged(seq_kv: usize) -> AttentionDesc {
        let shape = AttentionShape { batch: 2, heads: 4, seq_q: 1, seq_kv, head_dim: 64 };
        AttentionDesc::new(DType::F32, 1, 2, 3, 4, shape)
            .with_kv_heads(2)
            .with_kv_format(DType::F16.into())
            .with_block_table(BlockTable::new(5, 3, 16, 9))
    }

    #[test]
    fn keys_and_values_reach_to_the_end_of_the_pool_and_entries_to_the_last_that_keys_need() {
        let touched = |desc: AttentionDesc| {
            let [_, k, v, .., table] = desc.operands("t").unwrap();
            [k, v, table].map(|operand| (operand.ptr, operand.offset, operand.bytes))
        };
        let packed = 9 * 2 * 16 * 64 * 2;
        assert_eq!(touched(paged(20)), [(2, 0, packed), (3, 0, packed), (5, 0, (3 + 2) * 4)]);
        // Nothing without keys.
        assert_eq!(touched(paged(0)).map(|(.., bytes)| bytes), [0; 3]);
        // Keys and values of a position side by side, in blocks of Q8_0.
        let keys = HeadLayout { offset: 0, batch: 16 * 256, head: 64, token: 256 };
        let both = paged(48)
            .with_kv_format(KvFormat::Q8_0)
            .with_k_layout(keys)
            .with_v_layout(HeadLayout { offset: 128, ..keys });
        let reach = (8 * 16 * 256 + 15 * 256 + 64 + 64) / 32 * 36;
        assert_eq!(touched(both), [(2, 0, reach), (3, 144, reach), (5, 0, 6 * 4)]);
        let refused = both.with_k_layout(HeadLayout { batch: 16 * 256 + 8, ..keys }).operands("t");
        assert!(matches!(refused, Err(BackendError::Shape { .. })));
    }
}
