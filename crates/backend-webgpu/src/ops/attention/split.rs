//! Attention of few queries: pieces of the keys in attention/split, put together by attention/combine.

use backend_api::desc::AttentionDesc;
use backend_api::{BackendResult, DType, checked_product};

use super::plan::Plan;
use super::{DTYPES, Params, Windows, params, reader};
use crate::context::{Context, linear_grid};
use crate::kernels::{KernelSource, Variant, kernel};

static SPLIT: KernelSource = kernel!(
    "attention/split",
    libs: [GRID, SPECIAL, ATTENTION],
    types: ["T"],
    constants: ["ROWS", "HALF_Q", "HALF_KV"],
    reads: 5,
    writes: 1,
    params: Params,
);

static COMBINE: KernelSource = kernel!(
    "attention/combine",
    libs: [GRID, SPECIAL, ATTENTION],
    types: ["T"],
    constants: [],
    reads: 3,
    writes: 2,
    params: Params,
);

/// Invocations of a workgroup of attention/combine.
const WORKGROUP: usize = 128;

/// Rows of a workgroup, a row being a query of one of the heads that share keys.
pub(super) const ROWS: [usize; 4] = [1, 2, 4, 8];

fn split_variant(rows: usize, [dtype, kv_dtype]: [DType; 2], wide: bool) -> Variant {
    let [q, kv] = [dtype, kv_dtype].map(|dtype| u32::from(dtype == DType::F16));
    Variant::new(&SPLIT, [dtype], [rows as u32, q, kv]).with_libs(reader(wide))
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for rows in ROWS {
        for dtypes in DTYPES {
            variants.extend([false, true].map(|wide| split_variant(rows, dtypes, wide)));
        }
    }
    variants.extend([DType::F32, DType::F16].map(|dtype| Variant::new(&COMBINE, [dtype], [])));
    variants
}

/// Rows that share keys and values.
pub(super) fn shared_rows(desc: &AttentionDesc) -> usize {
    desc.seq_q.saturating_mul(desc.heads / desc.kv_heads.max(1))
}

pub(super) fn run(
    ctx: &Context,
    op: &'static str,
    desc: &AttentionDesc,
    windows: &Windows,
    plan: &Plan,
    rows: usize,
) -> BackendResult<()> {
    let chunks = shared_rows(desc).div_ceil(rows);
    let tiles = checked_product(op, "tiles", &[plan.splits, chunks, desc.kv_heads, desc.batch])?;
    let all_rows = checked_product(op, "rows", &[desc.batch, desc.heads, desc.seq_q])?;
    // A maximum, a sum and a vector for each piece.
    let elements = checked_product(op, "scratch", &[all_rows, plan.splits, desc.head_dim + 2])?;
    let bytes = checked_product(op, "scratch", &[elements, size_of::<f32>()])?;
    let parts = ctx.output(op, &ctx.memory.scratch(op, bytes)?, DType::F32)?;

    let Windows { q, k, v, mask, lengths, lse, o } = windows;
    let variant = split_variant(rows, [desc.dtype, desc.kv_dtype], plan.wide);
    let first = params(op, desc, windows, tiles, plan.splits)?;
    ctx.launch(op, &variant, &[q, k, v, mask, lengths], &parts, &first, linear_grid(op, tiles)?)?;

    let second = params(op, desc, windows, all_rows, plan.splits)?;
    let numbers = checked_product(op, "numbers", &[all_rows, desc.head_dim])?;
    let grid = linear_grid(op, numbers.div_ceil(WORKGROUP))?;
    let combine = Variant::new(&COMBINE, [desc.dtype], []);
    ctx.launch(op, &combine, &[&parts, mask, lengths, lse], o, &second, grid)
}
