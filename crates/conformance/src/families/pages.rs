//! Block tables of attention: keys of sequences in the blocks of a pool.

use backend_api::desc::BlockTable;

use crate::rng::Rng;

/// How keys and values lie in blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paging {
    /// Positions of a block.
    pub(super) size: usize,
    /// Whether some entries of keys that are seen name no block of the pool.
    pub(super) outside: bool,
}

/// A table over a pool of more blocks than it names.
pub(super) struct Pages {
    /// The table's entries.
    pub(super) table: Vec<f64>,
    /// The table as the descriptor has it, without memory.
    pub(super) desc: BlockTable,
    /// For each position of each block, the key that is seen there by some query.
    keys: Vec<Option<usize>>,
}

impl Pages {
    /// Blocks in a random order. Sequences share their first block, if that is whole in all that have it. Entries of
    /// keys that are never seen are outside the pool or name a block that nothing else does.
    pub(super) fn new(
        rng: &mut Rng,
        paging: Paging,
        [batch, seq_kv]: [usize; 2],
        sees: impl Fn(usize, usize) -> bool,
    ) -> Self {
        let size = paging.size;
        // One entry more than keys need.
        let max_blocks = seq_kv.div_ceil(size) + 1;
        let pool_blocks = batch * max_blocks + 1;
        let mut order: Vec<usize> = (0..pool_blocks).collect();
        for i in (1..pool_blocks).rev() {
            order.swap(i, rng.below(i + 1));
        }
        let (unused, order) = order.split_first().map_or((0, &[][..]), |(&first, rest)| (first, rest));
        let mut keys = vec![None; pool_blocks * size];
        let mut table = vec![0.0; batch * max_blocks];
        for (entry, slot) in table.iter_mut().enumerate() {
            let (b, i) = (entry / max_blocks, entry % max_blocks);
            let of_block = (i * size..seq_kv.min((i + 1) * size)).filter(|&key| sees(b, key));
            let seen: Vec<usize> = of_block.collect();
            if seen.is_empty() {
                *slot = [f64::from(u32::MAX), unused as f64, pool_blocks as f64][entry % 3];
            } else if paging.outside && i % 3 == 1 {
                *slot = [pool_blocks as f64, f64::from(u32::MAX)][b % 2];
            } else {
                // The first block of the first sequence is that of all.
                let block = if i == 0 { order[0] } else { order[entry] };
                *slot = block as f64;
                seen.into_iter().for_each(|key| keys[block * size + key % size] = Some(key));
            }
        }
        Self { table, desc: BlockTable::new(0, max_blocks, size, pool_blocks), keys }
    }

    /// The key that some query sees at a position of a block, if there is one.
    pub(super) fn key(&self, block: usize, position: usize) -> Option<usize> {
        self.keys[block * self.desc.block_size + position]
    }

    /// The block and the position in it of a sequence's key; `None` outside the pool.
    pub(super) fn place(&self, sequence: usize, key: usize) -> Option<[usize; 2]> {
        let block = self.table[sequence * self.desc.max_blocks + key / self.desc.block_size] as usize;
        (block < self.desc.pool_blocks).then_some([block, key % self.desc.block_size])
    }
}
