//! Attention, block by block of keys.

use backend_api::desc::{AttentionDesc, HeadStrides};
use backend_api::{BackendError, BackendResult, DType, checked_product};

use crate::context::{Context, dim, linear_grid};
use crate::kernels::{KernelSource, Variant, kernel, params};

static FLASH: KernelSource = kernel!(
    "attention/flash",
    libs: [GRID, SPECIAL],
    types: ["T"],
    constants: ["CHUNKS", "CAUSAL", "HAS_MASK", "HAS_LENGTHS"],
    reads: 5,
    writes: 1,
    params: Params,
);

params! {
    struct Params {
        heads: u32,
        group: u32,
        seq_q: u32,
        seq_kv: u32,
        head_dim: u32,
        blocks_q: u32,
        tiles: u32,
        scale: f32,
        q: [u32; 4],
        k: [u32; 4],
        v: [u32; 4],
        o: [u32; 4],
        mask: [u32; 4],
        lengths_offset: u32,
        // WGSL rounds the struct up to its largest alignment.
        padding: [u32; 3],
    }
}

/// Queries of a workgroup, and numbers of a chunk of a vector.
const BLOCK: usize = 32;
/// Numbers of chunks that there is a variant for.
const CHUNKS: [usize; 4] = [1, 2, 4, 8];

fn variant(dtype: DType, chunks: usize, causal: bool, mask: bool, lengths: bool) -> Variant {
    let flags = [causal, mask, lengths].map(u32::from);
    Variant::new(&FLASH, [dtype], [chunks as u32, flags[0], flags[1], flags[2]])
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        for chunks in CHUNKS {
            for flags in 0..8 {
                let [causal, mask, lengths] = [1, 2, 4].map(|bit| flags & bit != 0);
                variants.push(variant(dtype, chunks, causal, mask, lengths));
            }
        }
    }
    variants
}

/// `O = softmax(scale · Q·Kᵀ + mask) · V`.
pub(crate) fn attention(ctx: &Context, op: &'static str, desc: &AttentionDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [q, k, v, o, mask, lengths] = ctx.resolve(op, &operands)?;
    let Some(o) = o else { return Ok(()) };
    let dtype = desc.dtype;
    ctx.require_dtype(op, dtype)?;
    let max = CHUNKS[CHUNKS.len() - 1] * BLOCK;
    let chunks = CHUNKS
        .into_iter()
        .find(|chunks| chunks * BLOCK >= desc.head_dim)
        .ok_or(BackendError::Limit { op, what: "head_dim", requested: desc.head_dim, max })?;
    let output = ctx.output(op, &o, dtype)?;
    let has_lengths = lengths.is_some();
    let [q, k, v, mask] =
        [&q, &k, &v, &mask].map(|slice| ctx.optional_input(op, slice.as_ref(), dtype, &output));
    let (q, k, v, mask) = (q?, k?, v?, mask?);
    let lengths = ctx.optional_input(op, lengths.as_ref(), DType::U32, &output)?;

    let blocks_q = desc.seq_q.div_ceil(BLOCK);
    let tiles = checked_product(op, "blocks of queries", &[blocks_q, desc.heads, desc.batch])?;
    let place = |offset: u32, heads: usize, seq: usize, strides: HeadStrides| {
        let used = |count: usize, stride| {
            if count > 1 { dim(op, "stride", stride) } else { Ok(0) }
        };
        let HeadStrides { batch, head, token } = strides;
        BackendResult::Ok([offset, used(desc.batch, batch)?, used(heads, head)?, used(seq, token)?])
    };
    let [q_strides, k_strides, v_strides, o_strides] = desc.strides();
    let mask_strides = desc.mask.map_or(HeadStrides { batch: 0, head: 0, token: 0 }, |mask| HeadStrides {
        batch: mask.batch_stride,
        head: mask.head_stride,
        token: mask.query_stride,
    });
    let params = Params {
        heads: dim(op, "heads", desc.heads)?,
        group: dim(op, "heads", desc.heads / desc.kv_heads.max(1))?,
        // The kernel adds both, and a block.
        seq_q: half_dim(op, "seq_q", desc.seq_q)?,
        seq_kv: half_dim(op, "seq_kv", desc.seq_kv)?,
        head_dim: dim(op, "head_dim", desc.head_dim)?,
        blocks_q: dim(op, "seq_q", blocks_q)?,
        tiles: dim(op, "blocks of queries", tiles)?,
        scale: desc.scale as f32,
        q: place(q.offset, desc.heads, desc.seq_q, q_strides)?,
        k: place(k.offset, desc.kv_heads, desc.seq_kv, k_strides)?,
        v: place(v.offset, desc.kv_heads, desc.seq_kv, v_strides)?,
        o: place(output.offset, desc.heads, desc.seq_q, o_strides)?,
        mask: place(mask.offset, desc.heads, desc.seq_q, mask_strides)?,
        lengths_offset: lengths.offset,
        padding: [0; 3],
    };
    let variant = variant(dtype, chunks, desc.causal, desc.mask.is_some(), has_lengths);
    let grid = linear_grid(op, tiles)?;
    ctx.launch(op, &variant, &[&q, &k, &v, &mask, &lengths], &output, &params, grid)
}

/// A size of which two can be added in a u32.
fn half_dim(op: &'static str, what: &'static str, value: usize) -> BackendResult<u32> {
    let max = 1 << 30;
    if value > max {
        return Err(BackendError::Limit { op, what, requested: value, max });
    }
    dim(op, what, value)
}
