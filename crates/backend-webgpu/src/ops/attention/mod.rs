//! Scaled dot-product attention: the one path behind `attention` and `attention_ext`.
//!
//! [`Plan`] says which kernel computes it. The kernels are `attention/flash` on any device,
//! `attention/cooperative` on tensor cores, and for few queries `attention/decode_cooperative` on tensor
//! cores, `attention/decode` in subgroups or `attention/split`. Where the keys are in pieces, `attention/combine` puts
//! their parts together.

mod blocks;
mod cooperative;
mod decode;
mod decode_cooperative;
mod decode_fragments;
mod fixup;
mod flash;
mod fragments;
mod in_turns;
mod kernel_override;
mod paged;
mod part;
mod pieces;
mod plan;
mod self_test;
mod split;
mod types;

use backend_api::desc::{AttentionAlignment, AttentionDesc, HeadLayout};
use backend_api::{BackendError, BackendResult, DType};

use super::copy_bytes::copy_bytes;
use super::shared::iterations;
use super::shared::long_work::{explain_parts, in_parts};
use super::where_cond::numbers_where;
use crate::kernels::{Variant, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim};
use crate::recorder::Window;

use part::Part;
use plan::{Kernel, Plan};
use types::{FLOATS, Reader, Types, every_types, types};

pub(crate) use kernel_override::KernelOverride;

params! {
    struct Params {
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

/// The longest vectors of Q and K, and of V and O, that there are kernels for.
const MAX_HEAD_DIM: usize = 1024;
const MAX_V_HEAD_DIM: usize = 512;

/// What the kernels see of the operands.
#[derive(Clone, Debug)]
struct Windows {
    q: Window,
    k: Window,
    v: Window,
    mask: Window,
    lengths: Window,
    table: Window,
    /// Sinks begin near the start of what is bound: parameters have room for a small number.
    sinks: Window,
    lse: Window,
    o: Window,
}

impl Windows {
    /// What kernels that read blocks of a pool bind as the mask: the block table, if there is one.
    fn mask_or_table(&self, desc: &AttentionDesc) -> &Window {
        if desc.block_table.is_some() { &self.table } else { &self.mask }
    }
}

/// A call, or a part of one, to be launched: on a device, of operands in memory.
#[derive(Clone, Copy)]
struct Problem<'a> {
    ctx: &'a OpContext,
    /// What errors name.
    op: &'static str,
    desc: &'a AttentionDesc,
    windows: &'a Windows,
}

pub(super) fn variants() -> Vec<Variant> {
    let few = [pieces::variants(), split::variants(), decode::variants(), decode_cooperative::variants()];
    [flash::variants(), cooperative::variants(), few.concat(), blocks::variants(), paged::variants()].concat()
}

/// `O = softmax(cap(scale · Q·Kᵀ) + mask) · V`.
pub(crate) fn attention(ctx: &OpContext, op: &'static str, desc: &AttentionDesc) -> BackendResult<()> {
    let Some((mut windows, lse)) = windows(ctx, op, desc)? else {
        return Ok(());
    };
    let desc = counted_from_the_last_key(desc);
    let Some(lse) = lse else { return attend(ctx, op, Part { desc, windows }) };
    windows.lse = ctx.output(&lse, DType::F32);
    let Windows { q, k, v, mask, lengths, table, sinks, o, .. } = &windows;
    if ![q, k, v, mask, lengths, table, sinks, o].iter().any(|other| other.shares_buffer(&windows.lse)) {
        return attend(ctx, op, Part { desc, windows });
    }
    // A buffer can't be bound twice where one binding is written.
    let scratch = ctx.scratch(op, lse.len)?;
    windows.lse = ctx.output(&scratch, DType::F32);
    attend(ctx, op, Part { desc, windows })?;
    copy_bytes(ctx, op, &lse, &scratch, lse.len)
}

/// Launches a call whose outputs are bound.
fn attend(ctx: &OpContext, op: &'static str, part: Part) -> BackendResult<()> {
    paged::for_each(ctx, op, part, |part| {
        blocks::for_each(ctx, op, part, &mut |part| in_parts(ctx, op, part, run_part(ctx, op)))
    })
}

/// The call with positions that count from the last key, where the alignment at the first is that of as many
/// keys as queries: those behind are never seen.
fn counted_from_the_last_key(desc: &AttentionDesc) -> AttentionDesc {
    let mut desc = *desc;
    let hidden_behind = desc.causal && desc.seq_q <= desc.seq_kv;
    match desc.alignment {
        AttentionAlignment::TopLeft if hidden_behind => {
            [desc.q_layout, desc.k_layout, desc.v_layout, desc.o_layout] = desc.layouts().map(Some);
            (desc.seq_kv, desc.alignment) = (desc.seq_q, AttentionAlignment::BottomRight);
        }
        AttentionAlignment::KeyLengths if desc.key_lengths.is_none() => {
            desc.alignment = AttentionAlignment::BottomRight;
        }
        _ if !desc.causal && desc.window.is_none() => desc.alignment = AttentionAlignment::BottomRight,
        _ => {}
    }
    desc
}

/// Plans and launches a part.
fn run_part(ctx: &OpContext, op: &'static str) -> impl FnMut(&Part) -> BackendResult<()> {
    move |part| {
        let (desc, windows) = (&part.desc, &*part.bound());
        let plan = Plan::choose(ctx, desc, windows);
        tracing::trace!(op, %plan, "attention");
        run(Problem { ctx, op, desc, windows }, &plan)
    }
}

/// The plan, in words.
pub(crate) fn explain_attention(
    ctx: &OpContext,
    op: &'static str,
    desc: &AttentionDesc,
) -> BackendResult<String> {
    let Some((windows, _)) = windows(ctx, op, desc)? else { return Ok("nothing".to_owned()) };
    let desc = counted_from_the_last_key(desc);
    let mut plans = Vec::new();
    paged::for_each(ctx, op, Part { desc, windows }, |part| {
        blocks::for_each(ctx, op, part, &mut |part| {
            let plan = |part: &Part| Plan::choose(ctx, &part.desc, &part.bound()).to_string();
            plans.push(explain_parts(ctx, op, part, plan)?);
            Ok(())
        })
    })?;
    let plan = plans.swap_remove(0);
    Ok(if paged::is_gathered(&desc) { format!("{plan}, of gathered blocks") } else { plan })
}

/// Checks the call and finds its operands, the place for logarithms apart; `None` if there is nothing to
/// compute.
fn windows(
    ctx: &OpContext,
    op: &'static str,
    desc: &AttentionDesc,
) -> BackendResult<Option<(Windows, Option<DeviceSlice>)>> {
    let operands = desc.operands(op)?;
    let [q, k, v, o, mask, lengths, lse, sinks, table] = ctx.resolve(op, &operands)?;
    let Some(o) = o else { return Ok(None) };
    ctx.require_dtype(op, desc.dtype)?;
    let stored = desc.kv_format.dtype().unwrap_or(DType::U32);
    ctx.require_dtype(op, stored)?;
    let vectors =
        [("head_dim", desc.head_dim, MAX_HEAD_DIM), ("v_head_dim", desc.v_head_dim, MAX_V_HEAD_DIM)];
    if let Some((what, requested, max)) = vectors.into_iter().find(|&(_, length, max)| length > max) {
        return Err(BackendError::Limit { op, what, requested, max });
    }
    let o = ctx.output(&o, desc.dtype);
    let input = |slice: &Option<DeviceSlice>, dtype| ctx.optional_input(op, slice.as_ref(), dtype, &o);
    let (q, k, v) = (input(&q, desc.dtype)?, input(&k, stored)?, input(&v, stored)?);
    let mask = match &mask {
        Some(mask) if desc.mask_dtype == DType::U32 => {
            let numbers = numbers_where(ctx, op, mask, [0.0, f64::NEG_INFINITY], desc.dtype)?;
            ctx.output(&numbers, desc.dtype)
        }
        mask => input(mask, desc.dtype)?,
    };
    let lengths = input(&lengths, DType::U32)?;
    let table = input(&table, DType::U32)?;
    let sinks = input(&sinks, DType::F32)?.near();
    Ok(Some((Windows { q, k, v, mask, lengths, table, sinks, lse: ctx.sink(), o }, lse)))
}

fn run(problem: Problem<'_>, plan: &Plan) -> BackendResult<()> {
    let Problem { ctx, op, desc, .. } = problem;
    let keys = pieces::seen_keys(desc).div_ceil(plan.splits.max(1));
    iterations::require(ctx, op, "seq_kv", keys, plan.kernel.iterations(desc))?;
    match plan.kernel {
        Kernel::Flash(tile) => flash::run(problem, plan, tile),
        Kernel::Cooperative(tile) => cooperative::run(problem, tile),
        Kernel::DecodeCooperative(tile) => decode_cooperative::run(problem, plan, tile),
        Kernel::Decode(workgroup) => decode::run(problem, plan, workgroup),
        Kernel::Split(rows) => split::run(problem, plan, rows),
    }
}

/// The parameters for so many tiles, with the keys in so many pieces.
fn params(problem: Problem<'_>, tiles: usize, splits: usize) -> BackendResult<Params> {
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
            paged::max_blocks(op, desc, table)?,
            paged::block_bits(table),
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
fn has_natural_scores(desc: &AttentionDesc) -> bool {
    desc.cap().is_some() || desc.mask.is_some() || !(1e-30..=1.0).contains(&desc.scale)
}

/// Whether scores of f16 operands are far below what f32 has room for in powers of two.
fn has_small_scores(desc: &AttentionDesc) -> bool {
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

#[cfg(test)]
mod tests {
    use backend_api::desc::AttentionShape;

    use super::*;

    fn desc(causal: bool, window: Option<usize>, alignment: AttentionAlignment) -> AttentionDesc {
        let shape = AttentionShape { batch: 1, heads: 1, seq_q: 3, seq_kv: 7, head_dim: 64 };
        let desc = AttentionDesc::new(DType::F32, 1, 1, 1, 1, shape).with_causal(causal);
        let desc = desc.with_alignment(alignment);
        window.map_or(desc, |window| desc.with_window(window))
    }

    /// The keys that each query sees, as the alignment says: the position of query i is i counted from the first key,
    /// or from the last.
    fn seen(desc: &AttentionDesc) -> Vec<Vec<usize>> {
        let behind = match desc.alignment {
            AttentionAlignment::TopLeft => 0,
            _ => desc.seq_kv as isize - desc.seq_q as isize,
        };
        let sees = |query: usize, key: usize| {
            let distance = query as isize + behind - key as isize;
            (!desc.causal || distance >= 0) && desc.window.is_none_or(|window| distance < window as isize)
        };
        (0..desc.seq_q).map(|query| (0..desc.seq_kv).filter(|&key| sees(query, key)).collect()).collect()
    }

    #[test]
    fn positions_that_count_from_the_last_key_see_the_same_keys() {
        for (causal, window) in [(false, None), (true, None), (false, Some(2)), (true, Some(2))] {
            for (seq_q, alignment) in
                [1, 3, 7, 9].into_iter().flat_map(|n| AttentionAlignment::ALL.iter().map(move |&of| (n, of)))
            {
                let mut desc = desc(causal, window, alignment);
                desc.seq_q = seq_q;
                let counted = counted_from_the_last_key(&desc);
                assert_eq!(seen(&counted), seen(&desc), "{desc:?}");
                // There is nothing left to count from elsewhere, unless keys lie behind the last query, or queries
                // behind the last key.
                let is_counted = counted.alignment == AttentionAlignment::BottomRight;
                let hides = causal && seq_q <= 7;
                assert_eq!(
                    is_counted,
                    alignment != AttentionAlignment::TopLeft || hides || (!causal && window.is_none()),
                    "{desc:?}"
                );
            }
        }
        let mut cached = desc(true, None, AttentionAlignment::KeyLengths);
        cached.key_lengths = Some(1);
        assert_eq!(counted_from_the_last_key(&cached).alignment, AttentionAlignment::KeyLengths);
    }

    #[test]
    fn scores_are_their_own_where_scaling_them_first_is_safe() {
        let scaled = |scale: f64, softcap: f64| {
            let desc =
                desc(false, None, AttentionAlignment::BottomRight).with_scale(scale).with_softcap(softcap);
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
        let masked = desc(false, None, AttentionAlignment::BottomRight).with_mask(mask);
        assert!(has_natural_scores(&masked));
    }

    #[test]
    fn two_sizes_and_a_window_can_be_added() {
        let most = 1 << 29;
        assert_eq!([most, most + 1].map(|size| half_dim("test", "size", size).ok()), [Some(1 << 29), None]);
        assert!(2 * (1u64 << 29) + u64::from(ALL_KEYS) < 1 << 32);
    }
}
