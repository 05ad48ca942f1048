//! Copies of factors whose rows are aligned, as `gemm/cooperative` and the vectors of `gemm/tiled` read them.

use backend_api::desc::{MatmulDesc, Matrix};
use backend_api::{BackendResult, DType, checked_product};

use super::layout::is_aligned;
use super::{Windows, stride};
use crate::context::{Context, dim, linear_grid};
use crate::kernels::{KernelSource, Variant, kernel, params};
use crate::recorder::Window;

static PACK: KernelSource = kernel!(
    "gemm/pack",
    libs: [GRID],
    types: [],
    constants: ["PER_WORD", "LANES"],
    reads: 1,
    writes: 1,
    params: Params,
);

params! {
    struct Params {
        rows: u32,
        columns: u32,
        rows_out: u32,
        lines: u32,
        words: u32,
        parts: u32,
        offset: u32,
        ld: u32,
        batch: u32,
        last: u32,
    }
}

const WORKGROUP: usize = 256;

/// Words that an invocation copies.
const WORDS: usize = 4;

/// Invocations that share a row.
const LANES: [usize; 2] = [32, WORKGROUP];

/// Bytes to a multiple of which rows are aligned.
const ALIGNMENT: usize = 16;

fn variant(dtype: DType, lanes: usize) -> Variant {
    Variant::new(&PACK, [], [per_word(dtype) as u32, lanes as u32])
}

pub(super) fn variants() -> Vec<Variant> {
    [DType::F32, DType::F16].iter().flat_map(|&dtype| LANES.map(|lanes| variant(dtype, lanes))).collect()
}

/// Elements of a word.
fn per_word(dtype: DType) -> usize {
    size_of::<u32>() / dtype.size()
}

/// Elements to a multiple of which rows are aligned.
fn group(dtype: DType) -> usize {
    ALIGNMENT / dtype.size()
}

/// The same for k, which both factors share.
fn group_of_both(desc: &MatmulDesc) -> usize {
    group(desc.a.dtype).max(group(desc.b.dtype))
}

/// A factor as it is stored: rows, columns, and which of the two is k.
#[derive(Clone, Copy)]
struct Stored {
    rows: usize,
    columns: usize,
    k_down: bool,
}

fn stored(desc: &MatmulDesc) -> [Stored; 2] {
    let of = |across, k_down| match k_down {
        true => Stored { rows: desc.k, columns: across, k_down },
        false => Stored { rows: across, columns: desc.k, k_down },
    };
    [of(desc.m, desc.trans_a.is_transposed()), of(desc.n, !desc.trans_b.is_transposed())]
}

/// Which factors have to be copied.
pub(super) fn needed(desc: &MatmulDesc, windows: &Windows) -> [bool; 2] {
    let [a, b] = stored(desc);
    // Both factors have to end at the same k, and one that has it along its rows can't end inside of a group.
    let k_along_rows = !(a.k_down && b.k_down);
    if k_along_rows && !desc.k.is_multiple_of(group_of_both(desc)) {
        return [true; 2];
    }
    [
        !is_aligned(&desc.a, windows.a.offset, a.columns, group(desc.a.dtype)),
        !is_aligned(&desc.b, windows.b.offset, b.columns, group(desc.b.dtype)),
    ]
}

/// The same product with the given factors copied.
pub(super) fn aligned(
    ctx: &Context,
    op: &'static str,
    desc: &MatmulDesc,
    windows: &Windows,
    packs: [bool; 2],
) -> BackendResult<(MatmulDesc, Windows)> {
    let (mut desc, mut windows, [a, b]) = (*desc, windows.clone(), stored(desc));
    let k = if packs == [true; 2] { desc.k.next_multiple_of(group_of_both(&desc)) } else { desc.k };
    if packs[0] {
        (desc.a, windows.a) = copy(ctx, op, &desc.a, &windows.a, a, k, desc.batch)?;
    }
    if packs[1] {
        (desc.b, windows.b) = copy(ctx, op, &desc.b, &windows.b, b, k, desc.batch)?;
    }
    desc.k = k;
    Ok((desc, windows))
}

/// A copy of all matrices of a factor, with zeros up to `k`.
fn copy(
    ctx: &Context,
    op: &'static str,
    matrix: &Matrix,
    window: &Window,
    stored: Stored,
    k: usize,
    batch: usize,
) -> BackendResult<(Matrix, Window)> {
    let Stored { rows, columns, k_down } = stored;
    let (rows_out, columns_out) = if k_down { (k, columns) } else { (rows, k) };
    let dtype = matrix.dtype;
    let ld = columns_out.next_multiple_of(group(dtype));
    // A matrix that the whole batch shares is copied once.
    let copies = if matrix.batch_stride == 0 { 1 } else { batch };
    let size = checked_product(op, "scratch", &[copies, rows_out, ld])?;
    let bytes = checked_product(op, "scratch", &[size, dtype.size()])?;
    let scratch = ctx.output(op, &ctx.memory.scratch(op, bytes)?, dtype)?;
    let last = window.offset as usize
        + matrix.batch_stride.saturating_mul(copies - 1)
        + matrix.ld.saturating_mul(rows - 1)
        + columns
        - 1;
    let (lines, words) = (copies * rows_out, ld / per_word(dtype));
    let lanes = LANES.into_iter().find(|lanes| lanes * WORDS >= words).unwrap_or(WORKGROUP);
    let parts = words.div_ceil(lanes * WORDS);
    let params = Params {
        rows: dim(op, "rows", rows)?,
        columns: dim(op, "columns", columns)?,
        rows_out: dim(op, "rows", rows_out)?,
        lines: dim(op, "rows", lines)?,
        words: dim(op, "columns", words)?,
        parts: dim(op, "columns", parts)?,
        offset: window.offset,
        ld: stride(op, "ld", matrix.ld, rows)?,
        batch: stride(op, "batch stride", matrix.batch_stride, copies)?,
        last: dim(op, "elements", last / per_word(dtype))?,
    };
    let grid = linear_grid(op, lines.div_ceil(WORKGROUP / lanes).saturating_mul(parts))?;
    ctx.launch(op, &variant(dtype, lanes), &[window], &scratch, &params, grid)?;
    let batch_stride = if copies == 1 { 0 } else { rows_out * ld };
    Ok((Matrix { ld, batch_stride, ..*matrix }, scratch))
}
