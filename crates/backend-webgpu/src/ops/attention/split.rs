//! Attention of few queries in registers: pieces of the keys in attention/split, put together by
//! attention/combine.

use backend_api::desc::AttentionDesc;
use backend_api::{BackendResult, DType};

use super::pieces::{Pieces, ROWS};
use super::{DTYPES, Params, Windows};
use crate::kernels::libs::{ATTENTION_NARROW, ATTENTION_WIDE, ROWS_1, ROWS_2, ROWS_4};
use crate::kernels::{KernelSource, Lib, Variant, kernel};
use crate::ops::op_context::OpContext;

pub(super) static SPLIT: KernelSource = kernel!(
    "attention/split",
    libs: [ATTENTION, ATTENTION_PIECES, ATTENTION_ROWS, ATTENTION_SINKS, ATTENTION_PARTS],
    types: ["T"],
    constants: ["HALF_Q", "HALF_KV"],
    reads: 6,
    writes: 1,
    params: Params,
);

/// What pieces are a multiple of.
const UNIT: usize = 16;

/// The helper files for so many rows.
const fn libs(rows: usize, wide: bool) -> &'static [Lib] {
    match (rows, wide) {
        (1, true) => &[ATTENTION_WIDE, ROWS_1],
        (2, true) => &[ATTENTION_WIDE, ROWS_2],
        (_, true) => &[ATTENTION_WIDE, ROWS_4],
        (1, false) => &[ATTENTION_NARROW, ROWS_1],
        (2, false) => &[ATTENTION_NARROW, ROWS_2],
        (_, false) => &[ATTENTION_NARROW, ROWS_4],
    }
}

/// Whether a workgroup's invocations hold a vector.
pub(super) fn fits(desc: &AttentionDesc, wide: bool) -> bool {
    const INVOCATIONS: usize = 128;
    let width = if wide { 16 / desc.kv_dtype.size() } else { 4 };
    desc.head_dim.max(desc.v_head_dim) <= INVOCATIONS * width
}

fn variant(rows: usize, [dtype, kv_dtype]: [DType; 2], wide: bool) -> Variant {
    let halves = [dtype, kv_dtype].map(|dtype| u32::from(dtype == DType::F16));
    Variant::new(&SPLIT, [dtype], halves).with_libs(libs(rows, wide))
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for rows in ROWS {
        for dtypes in DTYPES {
            variants.extend([false, true].map(|wide| variant(rows, dtypes, wide)));
        }
    }
    variants
}

pub(super) fn run(
    ctx: &OpContext,
    op: &'static str,
    desc: &AttentionDesc,
    windows: &Windows,
    plan: &super::Plan,
    rows: usize,
) -> BackendResult<()> {
    let variant = variant(rows, [desc.dtype, desc.kv_dtype], plan.wide);
    Pieces::new(desc, rows, plan.splits, UNIT).run(ctx, op, desc, windows, &variant)
}
