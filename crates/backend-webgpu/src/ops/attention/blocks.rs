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
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::recorder::Window;

static DEQUANTIZE: KernelSource = kernel!(
    "attention/dequantize",
    libs: [GRID],
    types: ["T"],
    constants: [],
    reads: 1,
    writes: 1,
    params: Params,
);

params! {
    struct Params {
        fours: u32,
        heads: u32,
        tokens: u32,
        dim: u32,
        // The first word, and strides in words.
        blocks: u32,
        by_batch: u32,
        by_head: u32,
        by_token: u32,
        elements: u32,
    }
}

const WORKGROUP: usize = 256;

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

/// The call as kernels take it: blocks with their layouts in words where a kernel reads them, otherwise their elements,
/// in the type of the queries.
pub(super) fn readable(ctx: &OpContext, op: &'static str, part: Part) -> BackendResult<Part> {
    let Part { mut desc, mut windows } = part;
    if desc.kv_format != KvFormat::Q8_0 {
        return Ok(Part { desc, windows });
    }
    let [q, k, v, o] = desc.layouts();
    let [k, v] = [k, v].map(in_words);
    let most_rows = ROWS[ROWS.len() - 1];
    if desc.seq_q <= FEW_QUERIES_OF_BLOCKS && Pieces::fit(&desc, most_rows) && split::fits(&desc, false) {
        [desc.q_layout, desc.k_layout, desc.v_layout, desc.o_layout] = [q, k, v, o].map(Some);
        return Ok(Part { desc, windows });
    }
    // Without keys there is nothing to dequantise.
    if desc.seq_kv > 0 {
        windows.k = dequantized(ctx, op, &desc, &windows.k, (k, desc.head_dim))?;
        windows.v = dequantized(ctx, op, &desc, &windows.v, (v, desc.v_head_dim))?;
    }
    (desc.kv_format, desc.k_layout, desc.v_layout) = (KvFormat::Float(desc.dtype), None, None);
    Ok(Part { desc, windows })
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
        fours: dim(op, "elements", elements / 4)?,
        heads: dim(op, "heads", desc.kv_heads)?,
        tokens: dim(op, "seq_kv", desc.seq_kv)?,
        dim: dim(op, "head_dim", length)?,
        blocks: blocks.offset,
        by_batch: stride(desc.batch, layout.batch)?,
        by_head: stride(desc.kv_heads, layout.head)?,
        by_token: stride(desc.seq_kv, layout.token)?,
        elements: scratch.offset,
    };
    let grid = linear_grid(op, (elements / 4).div_ceil(WORKGROUP))?;
    ctx.launch(op, &variant(desc.dtype), &[blocks], &scratch, &params, grid)?;
    Ok(scratch)
}
