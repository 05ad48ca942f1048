//! Scaled dot-product attention: the one path behind `attention` and `attention_ext`.
//!
//! [`Plan`] says which kernel computes it. The kernels are `attention/flash` on any device, `attention/cooperative` on
//! matrix units, and for few queries `attention/decode_cooperative` on matrix units, `attention/decode` in subgroups or
//! `attention/split`, with `attention/combine`.

mod cooperative;
mod decode;
mod decode_cooperative;
mod decode_fragments;
mod flash;
mod forced;
mod fragments;
mod pieces;
mod plan;
mod proof;
mod split;

use backend_api::desc::{AttentionDesc, HeadStrides};
use backend_api::{BackendError, BackendResult, DType};

use super::copy_bytes;
use crate::context::{Context, dim};
use crate::kernels::libs::{ATTENTION_NARROW, ATTENTION_WIDE};
use crate::kernels::{Lib, Variant, params};
use crate::memory::DeviceSlice;
use crate::recorder::Window;

use plan::{Kernel, Plan};

pub(crate) use forced::Forced;

params! {
    struct Params {
        heads: u32,
        group: u32,
        seq_q: u32,
        seq_kv: u32,
        head_dim: u32,
        tiles: u32,
        options: u32,
        window: u32,
        scale: f32,
        softcap: f32,
        lengths_offset: u32,
        lse_offset: u32,
        q: [u32; 4],
        k: [u32; 4],
        v: [u32; 4],
        o: [u32; 4],
        mask: [u32; 4],
    }
}

/// The longest vectors of heads that there are kernels for.
const MAX_HEAD_DIM: usize = 256;

/// What the kernels see of the operands.
#[derive(Clone, Debug)]
struct Windows {
    q: Window,
    k: Window,
    v: Window,
    mask: Window,
    lengths: Window,
    lse: Window,
    o: Window,
}

pub(super) fn variants() -> Vec<Variant> {
    let few = [pieces::variants(), split::variants(), decode::variants(), decode_cooperative::variants()];
    [flash::variants(), cooperative::variants(), few.concat()].concat()
}

/// Types of the queries and of the keys and values.
const DTYPES: [[DType; 2]; 3] =
    [[DType::F32, DType::F32], [DType::F16, DType::F16], [DType::F32, DType::F16]];

/// `O = softmax(cap(scale · Q·Kᵀ) + mask) · V`.
pub(crate) fn attention(ctx: &Context, op: &'static str, desc: &AttentionDesc) -> BackendResult<()> {
    let Some((mut windows, lse)) = windows(ctx, op, desc)? else {
        return Ok(());
    };
    let plan = Plan::choose(ctx, desc, &windows);
    tracing::trace!(op, %plan, "attention");
    let Some(lse) = lse else { return run(ctx, op, desc, &windows, &plan) };
    windows.lse = ctx.output(op, &lse, DType::F32)?;
    let Windows { q, k, v, mask, lengths, o, .. } = &windows;
    if ![q, k, v, mask, lengths, o].iter().any(|other| other.shares_buffer(&windows.lse)) {
        return run(ctx, op, desc, &windows, &plan);
    }
    // A buffer can't be bound twice where one binding is written.
    let scratch = ctx.memory.scratch(op, lse.len)?;
    windows.lse = ctx.output(op, &scratch, DType::F32)?;
    run(ctx, op, desc, &windows, &plan)?;
    copy_bytes(ctx, op, &lse, &scratch, lse.len)
}

/// The plan, in words.
pub(crate) fn explain_attention(
    ctx: &Context,
    op: &'static str,
    desc: &AttentionDesc,
) -> BackendResult<String> {
    Ok(match windows(ctx, op, desc)? {
        Some((windows, _)) => Plan::choose(ctx, desc, &windows).to_string(),
        None => "nothing".to_owned(),
    })
}

/// Checks the call and finds its operands, the place for logarithms apart; `None` if there is nothing to compute.
fn windows(
    ctx: &Context,
    op: &'static str,
    desc: &AttentionDesc,
) -> BackendResult<Option<(Windows, Option<DeviceSlice>)>> {
    let operands = desc.operands(op)?;
    let [q, k, v, o, mask, lengths, lse] = ctx.resolve(op, &operands)?;
    let Some(o) = o else { return Ok(None) };
    ctx.require_dtype(op, desc.dtype)?;
    ctx.require_dtype(op, desc.kv_dtype)?;
    if desc.head_dim > MAX_HEAD_DIM {
        let (requested, max) = (desc.head_dim, MAX_HEAD_DIM);
        return Err(BackendError::Limit { op, what: "head_dim", requested, max });
    }
    let o = ctx.output(op, &o, desc.dtype)?;
    let input = |slice: &Option<DeviceSlice>, dtype| ctx.optional_input(op, slice.as_ref(), dtype, &o);
    let (q, k, v) = (input(&q, desc.dtype)?, input(&k, desc.kv_dtype)?, input(&v, desc.kv_dtype)?);
    let (mask, lengths) = (input(&mask, desc.dtype)?, input(&lengths, DType::U32)?);
    Ok(Some((Windows { q, k, v, mask, lengths, lse: ctx.sink(), o }, lse)))
}

fn run(
    ctx: &Context,
    op: &'static str,
    desc: &AttentionDesc,
    windows: &Windows,
    plan: &Plan,
) -> BackendResult<()> {
    match plan.kernel {
        Kernel::Flash(tile) => flash::run(ctx, op, desc, windows, tile, plan.wide),
        Kernel::Cooperative(tile) => cooperative::run(ctx, op, desc, windows, tile),
        Kernel::DecodeCooperative(tile) => decode_cooperative::run(ctx, op, desc, windows, plan.splits, tile),
        Kernel::Decode(rows) => decode::run(ctx, op, desc, windows, plan.splits, rows),
        Kernel::Split(rows) => split::run(ctx, op, desc, windows, plan, rows),
    }
}

/// The helper file that reads the operands.
fn reader(wide: bool) -> &'static [Lib] {
    if wide { &[ATTENTION_WIDE] } else { &[ATTENTION_NARROW] }
}

/// The parameters for so many tiles, with the keys in so many pieces.
fn params(
    op: &'static str,
    desc: &AttentionDesc,
    windows: &Windows,
    tiles: usize,
    splits: usize,
) -> BackendResult<Params> {
    let place = |window: &Window, heads: usize, seq: usize, strides: HeadStrides| {
        let used = |count: usize, stride| {
            if count > 1 { dim(op, "stride", stride) } else { Ok(0) }
        };
        let HeadStrides { batch, head, token } = strides;
        BackendResult::Ok([window.offset, used(desc.batch, batch)?, used(heads, head)?, used(seq, token)?])
    };
    let [q, k, v, o] = desc.strides();
    let mask = desc.mask.map_or(HeadStrides { batch: 0, head: 0, token: 0 }, |mask| HeadStrides {
        batch: mask.batch_stride,
        head: mask.head_stride,
        token: mask.query_stride,
    });
    // As lib/attention explains.
    let log2_e = std::f64::consts::LOG2_E;
    let (scale, softcap) = match desc.cap() {
        Some(cap) => (2.0 * log2_e * desc.scale / f64::from(cap), log2_e * f64::from(cap)),
        None => (log2_e * desc.scale, 0.0),
    };
    let used = [desc.causal, desc.mask.is_some(), desc.key_lengths.is_some(), desc.lse.is_some()];
    let options = used.iter().enumerate().map(|(bit, &used)| usize::from(used) << bit).sum::<usize>();
    Ok(Params {
        heads: dim(op, "heads", desc.heads)?,
        group: dim(op, "heads", desc.heads / desc.kv_heads.max(1))?,
        // The kernels add both, and the window, and a block.
        seq_q: half_dim(op, "seq_q", desc.seq_q)?,
        seq_kv: half_dim(op, "seq_kv", desc.seq_kv)?,
        head_dim: dim(op, "head_dim", desc.head_dim)?,
        tiles: dim(op, "tiles", tiles)?,
        options: dim(op, "pieces", options | splits << 8)?,
        window: desc
            .window
            .map_or(ALL_KEYS, |window| u32::try_from(window).unwrap_or(ALL_KEYS).min(ALL_KEYS)),
        scale: scale as f32,
        softcap: softcap as f32,
        lengths_offset: windows.lengths.offset,
        lse_offset: windows.lse.offset,
        q: place(&windows.q, desc.heads, desc.seq_q, q)?,
        k: place(&windows.k, desc.kv_heads, desc.seq_kv, k)?,
        v: place(&windows.v, desc.kv_heads, desc.seq_kv, v)?,
        o: place(&windows.o, desc.heads, desc.seq_q, o)?,
        mask: place(&windows.mask, desc.heads, desc.seq_q, mask)?,
    })
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
