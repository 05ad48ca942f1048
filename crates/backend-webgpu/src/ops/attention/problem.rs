//! What every kernel of attention is launched with: the problem, that is a call or a part of one with its operands in memory,
//! and its parameters. It names no kernel, so that their files can import it.

use backend_api::desc::{AttentionAlignment, AttentionDesc, BlockTable, HeadLayout};
use backend_api::{BackendError, BackendResult};

use crate::kernels::params;
use crate::ops::op_context::{OpContext, dim};
use crate::recorder::Window;

params! {
    pub(super) struct Params {
        heads: u32,
        group: u32,
        seq_q: u32,
        seq_kv: u32,
        // Elements of a vector of Q and K, and above 16 bits of V and O.
        head_dims: u32,
        tiles: u32,
        options: u32,
        // How many keys back a query sees; 2³¹ for all.
        window: u32,
        // The scale, in powers of two unless scores are natural.
        scale: f32,
        // The softcap, or 0 for none.
        softcap: f32,
        lengths_offset: u32,
        lse_offset: u32,
        // Start and strides by batch, head and token; for `mask`, lib/attention_places says what they are without one.
        q: [u32; 4],
        k: [u32; 4],
        v: [u32; 4],
        o: [u32; 4],
        mask: [u32; 4],
    }
}

/// What the kernels see of the operands.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    pub(super) q: Window,
    pub(super) k: Window,
    pub(super) v: Window,
    pub(super) mask: Window,
    pub(super) lengths: Window,
    pub(super) table: Window,
    /// Sinks begin near the start of what is bound: parameters have room for a small number.
    pub(super) sinks: Window,
    pub(super) lse: Window,
    pub(super) o: Window,
}

/// A call, or a part of one, to be launched: on a device, of operands in memory.
#[derive(Clone, Copy)]
pub(super) struct Problem<'a> {
    pub(super) ctx: &'a OpContext,
    /// What errors name.
    pub(super) op: &'static str,
    pub(super) desc: &'a AttentionDesc,
    pub(super) windows: &'a Windows,
}

impl Problem<'_> {
    /// What kernels that read blocks of a pool bind as the mask: the block table, if there is one.
    pub(super) fn mask_or_table(&self) -> &Window {
        if self.desc.block_table.is_some() { &self.windows.table } else { &self.windows.mask }
    }
}

/// The parameters for so many tiles, with the keys in so many pieces, or for attention/flash in pieces of so many blocks.
pub(super) fn params(problem: Problem<'_>, tiles: usize, splits: usize) -> BackendResult<Params> {
    let Problem { op, desc, windows, .. } = problem;
    let place = |window: &Window, [batches, heads, seq]: [usize; 3], strides: HeadLayout| {
        let used = |count: usize, stride| {
            if count > 1 { dim(op, "stride", stride) } else { Ok(0) }
        };
        let HeadLayout { batch, head, token, .. } = strides;
        BackendResult::Ok([window.offset, used(batches, batch)?, used(heads, head)?, used(seq, token)?])
    };
    let [q, k, v, o] = desc.layouts();
    let mask = desc.mask.map_or(HeadLayout { offset: 0, batch: 0, head: 0, token: 0 }, |mask| HeadLayout {
        offset: 0,
        batch: mask.batch_stride,
        head: mask.head_stride,
        token: mask.query_stride,
    });
    let queries = [desc.batch, desc.heads, desc.seq_q];
    let [blocks, positions] = desc.kv_extents();
    let keys = [blocks, desc.kv_heads, positions];
    let mask = match desc.block_table {
        Some(table) => [
            windows.table.offset,
            max_blocks(op, desc, table)?,
            block_bits(table),
            dim(op, "pool_blocks", table.pool_blocks)?,
        ],
        None => place(&windows.mask, queries, mask)?,
    };
    // As lib/attention explains.
    let natural = has_natural_scores(desc);
    let scale = if natural { desc.scale } else { std::f64::consts::LOG2_E * desc.scale };
    // A lower bound is below what an exponential tells from 0, and its inverse is an f32.
    let softcap = desc.cap().map_or(0.0, |cap| cap.max(LEAST_SOFTCAP));
    let used = [
        desc.causal,
        desc.mask.is_some(),
        desc.key_lengths.is_some(),
        desc.lse.is_some(),
        natural,
        desc.alignment == AttentionAlignment::TopLeft,
        desc.alignment == AttentionAlignment::KeyLengths,
        desc.sinks.is_some(),
    ];
    let options = used.iter().enumerate().map(|(bit, &used)| usize::from(used) << bit).sum::<usize>();
    let options = options | splits << 8 | (windows.sinks.offset as usize) << 24;
    Ok(Params {
        heads: dim(op, "heads", desc.heads)?,
        group: dim(op, "heads", desc.heads / desc.kv_heads.max(1))?,
        // The kernels add both, and the window, and a block.
        seq_q: half_dim(op, "seq_q", desc.seq_q)?,
        seq_kv: half_dim(op, "seq_kv", desc.seq_kv)?,
        head_dims: dim(op, "head_dim", desc.head_dim | desc.v_head_dim << 16)?,
        tiles: dim(op, "tiles", tiles)?,
        options: dim(op, "pieces", options)?,
        window: desc
            .window
            .map_or(ALL_KEYS, |window| u32::try_from(window).unwrap_or(ALL_KEYS).min(ALL_KEYS)),
        scale: scale as f32,
        softcap,
        lengths_offset: windows.lengths.offset,
        lse_offset: windows.lse.offset,
        q: place(&windows.q, queries, q)?,
        k: place(&windows.k, keys, k)?,
        v: place(&windows.v, keys, v)?,
        o: place(&windows.o, queries, o)?,
        mask,
    })
}

const LEAST_SOFTCAP: f32 = 1e-37;

/// Whether products have to be scaled, bounded or masked to be scores, rather than be scores themselves,
/// whose differences are scaled: a scale above 1 may make them infinite, and a very small one may make their
/// differences so before they are scaled.
pub(super) fn has_natural_scores(desc: &AttentionDesc) -> bool {
    desc.cap().is_some() || desc.mask.is_some() || !(1e-30..=1.0).contains(&desc.scale)
}

/// Whether scores of f16 operands are far below what f32 has room for in powers of two.
pub(super) fn has_small_scores(desc: &AttentionDesc) -> bool {
    const LARGE: f64 = 1e15;
    desc.scale.abs() <= LARGE && desc.cap().is_none_or(|cap| f64::from(cap) <= LARGE)
}

/// A window that no sequence is longer than.
const ALL_KEYS: u32 = 1 << 31;

/// A size of which two can be added in a u32, and a window.
fn half_dim(op: &'static str, what: &'static str, value: usize) -> BackendResult<u32> {
    let max = 1 << 29;
    if value > max {
        return Err(BackendError::Limit { op, what, requested: value, max });
    }
    dim(op, what, value)
}

/// From one sequence's entries to the next ones.
pub(super) fn max_blocks(op: &'static str, desc: &AttentionDesc, table: BlockTable) -> BackendResult<u32> {
    if desc.batch > 1 { dim(op, "max_blocks", table.max_blocks) } else { Ok(0) }
}

/// The binary logarithm of the positions in a block, of which no sequence has 2³⁰.
pub(super) const fn block_bits(table: BlockTable) -> u32 {
    let bits = table.block_size.trailing_zeros();
    if bits < 30 { bits } else { 30 }
}

#[cfg(test)]
mod tests {
    use backend_api::DType;
    use backend_api::desc::AttentionShape;

    use super::*;

    fn desc() -> AttentionDesc {
        let shape = AttentionShape { batch: 1, heads: 1, seq_q: 3, seq_kv: 7, head_dim: 64 };
        AttentionDesc::new(DType::F32, 1, 1, 1, 1, shape).with_alignment(AttentionAlignment::BottomRight)
    }

    #[test]
    fn scores_are_their_own_where_scaling_them_first_is_safe() {
        let scaled = |scale: f64, softcap: f64| {
            let desc = desc().with_scale(scale).with_softcap(softcap);
            [has_natural_scores(&desc), has_small_scores(&desc)]
        };
        assert_eq!(scaled(0.125, 0.0), [false, true]);
        assert_eq!(
            [1.0, 1.5, 1e-30, 0.9e-30, -0.5].map(|scale| scaled(scale, 0.0)[0]),
            [false, true, false, true, true]
        );
        assert_eq!([1e15, 1.1e15, -1.1e15].map(|scale| scaled(scale, 0.0)[1]), [true, false, false]);
        assert_eq!([scaled(0.125, 30.0), scaled(0.125, 1e16)], [[true, true], [true, false]]);
        let mask =
            backend_api::desc::AttentionMask { ptr: 1, batch_stride: 0, head_stride: 0, query_stride: 7 };
        let masked = desc().with_mask(mask);
        assert!(has_natural_scores(&masked));
    }

    #[test]
    fn two_sizes_and_a_window_can_be_added() {
        let most = 1 << 29;
        assert_eq!([most, most + 1].map(|size| half_dim("test", "size", size).ok()), [Some(1 << 29), None]);
        assert!(2 * (1u64 << 29) + u64::from(ALL_KEYS) < 1 << 32);
    }
}
