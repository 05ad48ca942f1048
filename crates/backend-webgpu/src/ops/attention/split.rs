//! Attention of few queries in registers: pieces of the keys in attention/split, put together by
//! attention/combine.

use backend_api::BackendResult;
use backend_api::desc::AttentionDesc;
use backend_api::kv::KvFormat;

use super::pieces::{Pieces, ROWS};
use super::{Params, Reader, Types, Windows, every_types, types};
use crate::kernels::libs::{ATTENTION_NARROW, ATTENTION_Q8_0, ATTENTION_WIDE, ROWS_1, ROWS_2, ROWS_4};
use crate::kernels::{KernelSource, Lib, Variant, kernel};
use crate::ops::op_context::OpContext;

pub(super) static SPLIT: KernelSource = kernel!(
    "attention/split",
    libs: [ATTENTION, ATTENTION_PIECES, ATTENTION_LOADS, ATTENTION_ROWS, ATTENTION_SINKS, ATTENTION_PARTS],
    types: ["T", "M"],
    constants: ["HALF_Q", "HALF_KV", "PAGED"],
    reads: 6,
    writes: 1,
    params: Params,
);

/// What pieces are a multiple of.
const UNIT: usize = 16;

/// The helper files for so many rows.
const fn libs(rows: usize, reader: Reader) -> &'static [Lib] {
    match (rows, reader) {
        (1, Reader::Wide) => &[ATTENTION_WIDE, ROWS_1],
        (2, Reader::Wide) => &[ATTENTION_WIDE, ROWS_2],
        (_, Reader::Wide) => &[ATTENTION_WIDE, ROWS_4],
        (1, Reader::Narrow) => &[ATTENTION_NARROW, ROWS_1],
        (2, Reader::Narrow) => &[ATTENTION_NARROW, ROWS_2],
        (_, Reader::Narrow) => &[ATTENTION_NARROW, ROWS_4],
        (1, Reader::Q8_0) => &[ATTENTION_Q8_0, ROWS_1],
        (2, Reader::Q8_0) => &[ATTENTION_Q8_0, ROWS_2],
        (_, Reader::Q8_0) => &[ATTENTION_Q8_0, ROWS_4],
    }
}

/// Whether a workgroup's invocations hold a vector.
pub(super) fn fits(desc: &AttentionDesc, wide: bool) -> bool {
    const INVOCATIONS: usize = 128;
    let width = match desc.kv_format {
        KvFormat::Float(dtype) if wide => 16 / dtype.size(),
        KvFormat::Q8_0 => 8,
        _ => 4,
    };
    desc.head_dim.max(desc.v_head_dim) <= INVOCATIONS * width
}

fn variant(rows: usize, types: Types, wide: bool) -> Variant {
    let reader = Reader::of(types.kv, wide);
    Variant::new(&SPLIT, [types.q, types.mask()], types.constants()).with_libs(libs(rows, reader))
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for rows in ROWS {
        for types in every_types() {
            let widths: &[bool] = if types.kv == KvFormat::Q8_0 { &[false] } else { &[false, true] };
            variants.extend(widths.iter().map(|&wide| variant(rows, types, wide)));
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
    let variant = variant(rows, types(desc), plan.wide);
    Pieces::new(desc, rows, plan.splits, UNIT).run(ctx, op, desc, windows, &variant)
}
