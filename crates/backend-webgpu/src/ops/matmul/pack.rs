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
    constants: ["PER_WORD", "WHOLE"],
    reads: 2,
    writes: 1,
    params: Params,
);

params! {
    struct Params {
        rows: u32,
        columns: u32,
        rows_out: u32,
        vectors: u32,
        ld_out: u32,
        total: u32,
        offset: u32,
        ld: u32,
        batch: u32,
        last: u32,
        last_word: u32,
    }
}

/// Vectors that a workgroup copies.
const WORKGROUP: usize = 2 * 256;

/// Bytes of a vector, to a multiple of which rows are aligned at least.
const VECTOR: usize = 16;

/// Bytes of a line of the device's cache, to a multiple of which long rows are aligned.
const LINE: usize = 128;

/// A multiple of every kernel's step, to which k is filled up: a first step of less would leave the others between the
/// lines of the cache.
const STEP: usize = 32;

/// `whole` says that every vector of the source is in its buffer as a whole.
fn variant(dtype: DType, whole: bool) -> Variant {
    Variant::new(&PACK, [], [per_word(dtype) as u32, u32::from(whole)])
}

pub(super) fn variants() -> Vec<Variant> {
    [DType::F32, DType::F16]
        .iter()
        .flat_map(|&dtype| [false, true].map(|whole| variant(dtype, whole)))
        .collect()
}

/// Elements of a word.
fn per_word(dtype: DType) -> usize {
    size_of::<u32>() / dtype.size()
}

/// Elements to a multiple of which rows are aligned.
fn group(dtype: DType) -> usize {
    VECTOR / dtype.size()
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
    let k = if packs == [true; 2] { desc.k.next_multiple_of(STEP) } else { desc.k };
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
    let line = LINE / dtype.size();
    // Where lines are short, what that adds would be much of them.
    let ld = columns_out.next_multiple_of(if columns_out < 8 * line { group(dtype) } else { line });
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
    let vectors = columns_out.div_ceil(group(dtype));
    let total = copies * rows_out * vectors;
    let whole = last / group(dtype) < (window.size / VECTOR as u64) as usize;
    let params = Params {
        rows: dim(op, "rows", rows)?,
        columns: dim(op, "columns", columns)?,
        rows_out: dim(op, "rows", rows_out)?,
        vectors: dim(op, "columns", vectors)?,
        ld_out: dim(op, "columns", ld / group(dtype))?,
        total: dim(op, "elements", total)?,
        offset: window.offset,
        ld: stride(op, "ld", matrix.ld, rows)?,
        batch: stride(op, "batch stride", matrix.batch_stride, copies)?,
        last: dim(op, "elements", last / group(dtype))?,
        last_word: dim(op, "elements", last / per_word(dtype))?,
    };
    let grid = linear_grid(op, total.div_ceil(WORKGROUP))?;
    ctx.launch(op, &variant(dtype, whole), &[window, window], &scratch, &params, grid)?;
    let batch_stride = if copies == 1 { 0 } else { rows_out * ld };
    Ok((Matrix { ld, batch_stride, ..*matrix }, scratch))
}
