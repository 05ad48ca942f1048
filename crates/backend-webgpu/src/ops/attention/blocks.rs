//! Keys and values of Q8_0: which calls read their blocks, and attention/dequantize for the others.

use backend_api::desc::{AttentionDesc, HeadLayout};
use backend_api::kv::KvFormat;
use backend_api::support::checked_product;
use backend_api::{BackendResult, DType};

use super::part::Part;
use super::pieces::{Pieces, ROWS};
use super::plan::FEW_QUERIES_OF_BLOCKS;
use super::split;
use crate::kernels::{KernelSource, Variant, kernel, params};
use crate::ops::op_context::{OpContext, dim, invocation_grid};
use crate::ops::shared::long_work::Divisible as _;
use crate::recorder::Window;

static DEQUANTIZE: KernelSource = kernel!(
    "attention/dequantize",
    libs: [INVOCATION_OUTPUTS],
    types: ["T"],
    constants: [],
    params: Params,
    reads: ["blocks: u32"],
    writes: ["elements: T"],
);

params! {
    /// Keys or values that are written without anything between them.
    pub(super) struct PackedParams {
        // Units of all vectors.
        total: u32,
        heads: u32,
        tokens: u32,
        // Units of a vector.
        dim: u32,
    }
}

impl PackedParams {
    pub(super) fn new(
        op: &'static str,
        desc: &AttentionDesc,
        total: usize,
        length: usize,
    ) -> BackendResult<Self> {
        Ok(Self {
            total: dim(op, "elements", total)?,
            heads: dim(op, "heads", desc.kv_heads)?,
            tokens: dim(op, "seq_kv", desc.seq_kv)?,
            dim: dim(op, "head_dim", length)?,
        })
    }
}

params! {
    struct Params {
        sizes: PackedParams,
        // The first word, and strides in words.
        blocks: u32,
        by_batch: u32,
        by_head: u32,
        by_token: u32,
        elements: u32,
    }
}

pub(super) fn variants() -> Vec<Variant> {
    [DType::F32, DType::F16].map(variant).into()
}

fn variant(dtype: DType) -> Variant {
    Variant::new(&DEQUANTIZE, [dtype], [])
}

/// Words of so many elements in whole blocks.
pub(super) const fn words(elements: usize) -> usize {
    elements / KvFormat::BLOCK * (KvFormat::BLOCK_BYTES / size_of::<u32>())
}

/// A layout in words.
pub(super) fn in_words(HeadLayout { batch, head, token, .. }: HeadLayout) -> HeadLayout {
    HeadLayout { offset: 0, batch: words(batch), head: words(head), token: words(token) }
}

/// Calls `then` with what kernels read: blocks with their layouts in words where a kernel reads them, otherwise their
/// elements, in the type of the queries.
pub(super) fn for_each(
    ctx: &OpContext,
    op: &'static str,
    part: Part,
    then: &mut dyn FnMut(Part) -> BackendResult<()>,
) -> BackendResult<()> {
    let Part { mut desc, windows } = part;
    if desc.kv_format != KvFormat::Q8_0 {
        return then(Part { desc, windows });
    }
    let [q, k, v, o] = desc.layouts();
    [desc.q_layout, desc.k_layout, desc.v_layout, desc.o_layout] = [q, in_words(k), in_words(v), o].map(Some);
    let most_rows = ROWS[ROWS.len() - 1];
    if desc.seq_q <= FEW_QUERIES_OF_BLOCKS && Pieces::fit(&desc, most_rows) && split::fits(&desc, false) {
        return then(Part { desc, windows });
    }
    for_each_dequantized(ctx, op, Part { desc, windows }, then)
}

/// The elements of all blocks at once, or of as many sequences and heads at a time as can be bound.
fn for_each_dequantized(
    ctx: &OpContext,
    op: &'static str,
    part: Part,
    then: &mut dyn FnMut(Part) -> BackendResult<()>,
) -> BackendResult<()> {
    let &AttentionDesc { dtype, batch, kv_heads, seq_kv, head_dim, v_head_dim, .. } = &part.desc;
    let longest = head_dim.max(v_head_dim);
    let bytes = checked_product(op, "scratch", &[batch, kv_heads, seq_kv, longest, dtype.size()])?;
    let bound = part.bound();
    let can_be_bound = bytes as u64 <= ctx.device.limits.max_bytes
        && [&bound.k, &bound.v].iter().all(|window| window.require_bindable(op).is_ok());
    if !can_be_bound
        && (batch > 1 || kv_heads > 1)
        && let Some(halves) = part.halves()
    {
        return halves.into_iter().try_for_each(|half| {
            let _part = ctx.begin_part();
            for_each_dequantized(ctx, op, half, then)
        });
    }
    let mut elements = part.clone();
    // Without keys there is nothing to dequantise.
    if seq_kv > 0 {
        let [_, k, v, _] = part.desc.layouts();
        elements.windows.k = dequantized(ctx, op, &part.desc, &bound.k, (k, head_dim))?;
        elements.windows.v = dequantized(ctx, op, &part.desc, &bound.v, (v, v_head_dim))?;
    }
    let desc = &mut elements.desc;
    (desc.kv_format, desc.k_layout, desc.v_layout) = (KvFormat::Float(dtype), None, None);
    then(elements)
}

/// Packed elements of blocks, whose layout is in words.
fn dequantized(
    ctx: &OpContext,
    op: &'static str,
    desc: &AttentionDesc,
    blocks: &Window,
    (layout, length): (HeadLayout, usize),
) -> BackendResult<Window> {
    let elements = checked_product(op, "scratch", &[desc.batch, desc.kv_heads, desc.seq_kv, length])?;
    let bytes = checked_product(op, "scratch", &[elements, desc.dtype.size()])?;
    let scratch = ctx.output(&ctx.scratch(op, bytes)?, desc.dtype);
    let stride = |extent: usize, stride| if extent > 1 { dim(op, "stride", stride) } else { Ok(0) };
    let params = Params {
        sizes: PackedParams::new(op, desc, elements / 4, length)?,
        blocks: blocks.offset,
        by_batch: stride(desc.batch, layout.batch)?,
        by_head: stride(desc.kv_heads, layout.head)?,
        by_token: stride(desc.seq_kv, layout.token)?,
        elements: scratch.offset,
    };
    let grid = invocation_grid(op, elements / 4)?;
    ctx.launch(op, &variant(desc.dtype), &[blocks], &scratch, &params, grid)?;
    Ok(scratch)
}
