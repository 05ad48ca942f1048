//! Attention of few queries in registers: pieces of the keys in attention/split, put together by
//! attention/combine or the last workgroup.

use backend_api::BackendResult;
use backend_api::desc::AttentionDesc;
use backend_api::kv::KvFormat;

use super::pieces::{Output, Pieces, ROWS};
use super::{Params, Problem, Reader, Types, every_types, types};
use crate::kernels::libs::{
    ATTENTION_FIXUP_ROWS, ATTENTION_NARROW, ATTENTION_PARTS, ATTENTION_Q8_0, ATTENTION_WIDE, ROWS_1, ROWS_2,
    ROWS_4,
};
use crate::kernels::{KernelSource, Lib, Variant, kernel};

const SPLIT_KEYS: KernelSource = kernel!(
    "attention/split",
    libs: [ATTENTION, ATTENTION_PIECES, ATTENTION_LOADS, ATTENTION_ROWS, ATTENTION_SINKS],
    types: ["T", "M"],
    constants: ["HALF_Q", "HALF_KV", "PAGED"],
    params: Params,
    reads: ["q: Words", "k: Words", "v: Words", "mask: M", "lengths: u32", "sinks: f32"],
    writes: ["parts"],
);

/// The file with parts of rows as its output.
pub(super) static SPLIT: KernelSource = SPLIT_KEYS;

/// The file with outputs beside the parts of rows.
static SPLIT_FIXED_UP: KernelSource = KernelSource { writes: &["fixup", "o"], ..SPLIT_KEYS };

/// What pieces are a multiple of.
const UNIT: usize = 16;

/// The helper files for so many rows, in so many variants.
macro_rules! libs {
    ($output:ident: $($reader:ident, $lib:ident);+) => {
        |rows: usize, reader: Reader| -> &'static [Lib] {
            match (rows, reader) {
                $((1, Reader::$reader) => &[$output, $lib, ROWS_1],
                (2, Reader::$reader) => &[$output, $lib, ROWS_2],
                (_, Reader::$reader) => &[$output, $lib, ROWS_4],)+
            }
        }
    };
}

fn libs(rows: usize, reader: Reader, output: Output) -> &'static [Lib] {
    let fixed_up =
        libs!(ATTENTION_FIXUP_ROWS: Wide, ATTENTION_WIDE; Narrow, ATTENTION_NARROW; Q8_0, ATTENTION_Q8_0);
    let parts = libs!(ATTENTION_PARTS: Wide, ATTENTION_WIDE; Narrow, ATTENTION_NARROW; Q8_0, ATTENTION_Q8_0);
    if output == Output::FixedUp { fixed_up(rows, reader) } else { parts(rows, reader) }
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

fn variant(rows: usize, types: Types, wide: bool, output: Output) -> Variant {
    let source = if output == Output::FixedUp { &SPLIT_FIXED_UP } else { &SPLIT };
    let libs = libs(rows, Reader::of(types.kv, wide), output);
    Variant::new(source, [types.q, types.mask()], types.constants()).with_libs(libs)
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for rows in ROWS {
        for types in every_types() {
            let widths: &[bool] = if types.kv == KvFormat::Q8_0 { &[false] } else { &[false, true] };
            for output in [Output::Parts, Output::FixedUp] {
                variants.extend(widths.iter().map(|&wide| variant(rows, types, wide, output)));
            }
        }
    }
    variants
}

pub(super) fn run(
    problem: Problem<'_>,
    rows: usize,
    wide: bool,
    splits: usize,
    output: Output,
) -> BackendResult<()> {
    let variant = variant(rows, types(problem.desc), wide, output);
    Pieces::new(problem.desc, rows, splits, UNIT).run(problem, &variant, output)
}
