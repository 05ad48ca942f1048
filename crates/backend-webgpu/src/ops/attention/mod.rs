//! Scaled dot-product attention: the one path behind `attention` and `attention_ext`.
//!
//! [`Plan`] says which kernel computes it. The kernels are `attention/flash` on any device,
//! `attention/cooperative` on tensor cores, and for few queries `attention/decode_cooperative` on tensor
//! cores, `attention/decode` in subgroups (also for more queries over few keys) or `attention/split`. Where the keys are in pieces, `attention/combine` puts
//! their parts together.

mod alternating;
mod blocks;
mod cooperative;
mod decode;
mod decode_cooperative;
mod decode_fragments;
mod fixup;
mod flash;
mod flash_pieces;
mod fragments;
mod kernel_override;
mod paged;
mod part;
mod pieces;
mod plan;
mod problem;
mod self_test;
mod split;
mod types;

use backend_api::desc::{AttentionAlignment, AttentionDesc};
use backend_api::{BackendError, BackendResult, DType};

use super::copy_bytes::copy_bytes;
use super::shared::long_work::{explain_parts, in_parts};
use super::where_cond::numbers_where;
use crate::kernels::{Variant, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::OpContext;

use part::Part;
use plan::Plan;
use problem::{Params, Problem, Windows, has_natural_scores, has_small_scores, params};
use types::{FLOATS, Reader, Types, every_types, types};

pub(crate) use kernel_override::KernelOverride;

/// The longest vectors of Q and K, and of V and O, that there are kernels for.
const MAX_HEAD_DIM: usize = 1024;
const MAX_V_HEAD_DIM: usize = 512;

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
        plan.launch(Problem { ctx, op, desc, windows })
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
    let [q, k, v, o, mask, lengths, lse, sinks, table] = ctx.resolve(op, &desc.operands(op)?)?;
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
}
