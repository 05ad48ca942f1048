//! Keys and values in blocks of a pool: which calls read them there, and attention/gather_blocks for the others.

use backend_api::desc::{AttentionDesc, BlockTable, HeadLayout};
use backend_api::kv::KvFormat;
use backend_api::support::checked_product;
use backend_api::{BackendResult, DType};

use super::blocks::{PackedParams, in_words, words};
use super::part::Part;
use super::pieces::{Pieces, ROWS};
use super::plan::FEW_QUERIES_OF_BLOCKS;
use super::problem::{block_bits, max_blocks};
use super::split;
use crate::kernels::libs::{VEC_1, VEC_4};
use crate::kernels::{KernelSource, Variant, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim, invocation_grid};
use crate::recorder::{BindingLimits, Window};

static GATHER_BLOCKS: KernelSource = kernel!(
    "attention/gather_blocks", libs: [INVOCATION_OUTPUTS],
    types: ["T", "A"], constants: [], params: Params,
    reads: ["pool: V", "blocks: u32", "lengths: u32"], writes: ["packed: V"],
);

params! {
    struct Params {
        sizes: PackedParams,
        // The first unit of the pool, and strides.
        pool: u32,
        by_block: u32,
        by_head: u32,
        by_token: u32,
        packed: u32,
        table: u32,
        max_blocks: u32,
        // The binary logarithm of the positions in a block.
        block_bits: u32,
        pool_blocks: u32,
        lengths: u32,
        has_lengths: u32,
    }
}

/// The most bytes of keys, and of values, that are gathered at once, unless those of one sequence are more.
const MOST_BYTES: usize = 128 << 20;

pub(super) fn variants() -> Vec<Variant> {
    vec![variant(DType::U32, true), variant(DType::U32, false), variant(DType::F16, false)]
}

/// The variant for units of a type, or for 16 bytes.
fn variant(dtype: DType, wide: bool) -> Variant {
    if wide {
        return Variant::new(&GATHER_BLOCKS, [DType::U32; 2], []).with_libs(&[VEC_4]);
    }
    Variant::new(&GATHER_BLOCKS, [dtype; 2], []).with_libs(&[VEC_1])
}

/// Whether a call has keys and values in blocks of a pool that no kernel reads there: those for few queries without
/// masks do.
pub(super) fn is_gathered(desc: &AttentionDesc) -> bool {
    let most_rows = ROWS[ROWS.len() - 1];
    let is_read = desc.seq_q <= FEW_QUERIES_OF_BLOCKS
        && desc.mask.is_none()
        && Pieces::fit(desc, most_rows)
        && split::fits(desc, false);
    desc.block_table.is_some() && !is_read
}

/// Calls `then` with what kernels read: the call itself, or with gathered keys and values as many sequences at a time as
/// there is scratch memory for.
pub(super) fn for_each(
    ctx: &OpContext,
    op: &'static str,
    part: Part,
    mut then: impl FnMut(Part) -> BackendResult<()>,
) -> BackendResult<()> {
    let Some(table) = part.desc.block_table.filter(|_| is_gathered(&part.desc)) else { return then(part) };
    let AttentionDesc { batch, kv_heads, seq_kv, head_dim, v_head_dim, kv_format, .. } = part.desc;
    let bytes_of = |sequences: usize, length: usize| {
        kv_format.bytes(op, checked_product(op, "scratch", &[sequences, kv_heads, seq_kv, length])?)
    };
    let most = usize::try_from(BindingLimits::of(&ctx.gpu().limits).max_bytes).unwrap_or(usize::MAX);
    let each = bytes_of(1, head_dim.max(v_head_dim))?.max(1);
    let at_once = (most.min(MOST_BYTES) / each).clamp(1, batch);
    // Chunks share it, as they are worked on one after the other.
    let scratch = |length| ctx.scratch(op, bytes_of(at_once, length)?.max(4));
    let [keys, values] = [scratch(head_dim)?, scratch(v_head_dim)?];
    for first in (0..batch).step_by(at_once) {
        let mut part = part.batches(first, at_once.min(batch - first));
        if seq_kv > 0 {
            let [_, k_layout, v_layout, _] = part.desc.layouts();
            let k = gathered(ctx, op, &part, table, (&part.windows.k, k_layout, head_dim), &keys)?;
            let v = gathered(ctx, op, &part, table, (&part.windows.v, v_layout, v_head_dim), &values)?;
            (part.windows.k, part.windows.v) = (k, v);
        }
        (part.desc.block_table, part.desc.k_layout, part.desc.v_layout) = (None, None, None);
        then(part)?;
    }
    Ok(())
}

/// Packed keys or values of a part's sequences, in `scratch`.
fn gathered(
    ctx: &OpContext,
    op: &'static str,
    part: &Part,
    table: BlockTable,
    (pool, layout, length): (&Window, HeadLayout, usize),
    scratch: &DeviceSlice,
) -> BackendResult<Window> {
    let (desc, windows) = (&part.desc, &part.windows);
    let (dtype, layout, length) = match desc.kv_format {
        KvFormat::Float(DType::F16) => (DType::F16, layout, length),
        KvFormat::Q8_0 => (DType::U32, in_words(layout), words(length)),
        _ => (DType::U32, layout, length),
    };
    let to = ctx.output(scratch, dtype);
    // Strides that lead nowhere may be any numbers.
    let used = |extent: usize, stride: usize| if extent > 1 { stride } else { 0 };
    let by_block = used(table.pool_blocks, layout.batch);
    let (by_head, by_token) = (used(desc.kv_heads, layout.head), layout.token);
    let all = [pool.offset as usize, to.offset as usize, by_block, by_head, by_token, length];
    let vector = 16 / dtype.size();
    let wide = all.iter().all(|x| x.is_multiple_of(vector));
    let [pool_offset, packed, by_block, by_head, by_token, units] =
        all.map(|x| if wide { x / vector } else { x });
    let all_units = checked_product(op, "elements", &[desc.batch, desc.kv_heads, desc.seq_kv, units])?;
    let params = Params {
        sizes: PackedParams::new(op, desc, all_units, units)?,
        pool: dim(op, "offset", pool_offset)?,
        by_block: dim(op, "stride", by_block)?,
        by_head: dim(op, "stride", by_head)?,
        by_token: dim(op, "stride", by_token)?,
        packed: dim(op, "offset", packed)?,
        table: windows.table.offset,
        max_blocks: max_blocks(op, desc, table)?,
        block_bits: block_bits(table),
        pool_blocks: dim(op, "pool_blocks", table.pool_blocks)?,
        lengths: windows.lengths.offset,
        has_lengths: u32::from(desc.key_lengths.is_some()),
    };
    let grid = invocation_grid(op, all_units)?;
    let inputs = [pool, &windows.table, &windows.lengths];
    ctx.launch(op, &variant(dtype, wide), &inputs, &to, &params, grid)?;
    // In the type that kernels take it for.
    Ok(ctx.output(scratch, desc.kv_format.dtype().unwrap_or(DType::U32)))
}
