//! Packing: copies of operands whose rows begin at multiples of 16 bytes, as `gemm/cooperative` and the vectors of
//! `gemm/tiled` read them, or run along n.

use backend_api::desc::{MatmulDesc, Matrix};
use backend_api::support::checked_product;
use backend_api::{BackendResult, BackendTranspose, DType};

use super::layout::is_aligned;
use super::{Windows, stride};
use crate::kernels::{KernelSource, Variant, constants, kernel, params};
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::ops::transpose::Transpose;
use crate::recorder::Window;

constants! { struct Constants { per_word: usize, whole: bool } }

static PACK: KernelSource = kernel!(
    "gemm/pack", libs: [GRID, SHIFTED_VECTOR],
    types: [], constants: Constants, params: Params,
    reads: ["a: vec4<u32>", "b: vec4<u32>", "a_words: u32", "b_words: u32"], writes: ["packed: vec4<u32>"],
);

params! {
    /// Of both operands each; the second may have nothing.
    struct Params {
        // Rows and columns of a matrix, rows of its copy, and the vectors of each of these that are written.
        sizes: [[u32; 4]; 2],
        // Vectors from one row of the copy to the next; where the elements begin, and how many there are from one
        // row, and from one matrix, to the next.
        steps: [[u32; 4]; 2],
        // Vectors to be written, of all matrices together, and where they begin; the last vector of what is copied,
        // and the last word.
        ends: [[u32; 4]; 2],
    }
}

/// How an operand is prepared for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prep {
    /// It is read where it is.
    AsIs,
    /// It is copied to where its rows are aligned to 16 bytes.
    Pack,
    /// It is stored transposed, and copied to where it isn't; B only.
    Transpose,
}

/// Vectors that a workgroup copies.
const WORKGROUP: usize = 2 * 256;

/// Bytes of a vector, to a multiple of which rows are aligned at least.
const VECTOR: usize = 16;

/// Bytes of a line of the device's cache, to a multiple of which long rows are aligned.
const LINE: usize = 128;

/// A multiple of every kernel's step, to which k is filled up: a first step of less would leave the others
/// between the lines of the cache.
const STEP: usize = 32;

/// `whole` says that every vector of the sources is in its buffer as a whole.
fn variant(dtype: DType, whole: bool) -> Variant {
    Variant::new(&PACK, [], Constants { per_word: per_word(dtype), whole })
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

/// Elements to a multiple of which k is aligned, which both operands share.
fn group_of_both(desc: &MatmulDesc) -> usize {
    group(desc.a.dtype).max(group(desc.b.dtype))
}

/// An operand as it is stored: rows, columns, and which of the two is k.
#[derive(Clone, Copy)]
struct Stored {
    rows: usize,
    columns: usize,
    mn_major: bool,
}

fn stored(desc: &MatmulDesc) -> [Stored; 2] {
    let of = |across, mn_major| match mn_major {
        true => Stored { rows: desc.k, columns: across, mn_major },
        false => Stored { rows: across, columns: desc.k, mn_major },
    };
    [of(desc.m, desc.trans_a.is_transposed()), of(desc.n, !desc.trans_b.is_transposed())]
}

/// How operands have to be prepared to be read by vectors.
pub(super) fn needed(desc: &MatmulDesc, windows: &Windows) -> [Prep; 2] {
    let [a, b] = stored(desc);
    // Both operands have to end at the same k, and one that has it along its rows can't end inside of a
    // group.
    let k_along_rows = !(a.mn_major && b.mn_major);
    if k_along_rows && !desc.k.is_multiple_of(group_of_both(desc)) {
        return [Prep::Pack; 2];
    }
    let prep = |is_aligned| if is_aligned { Prep::AsIs } else { Prep::Pack };
    [
        prep(is_aligned(&desc.a, windows.a.offset, a.columns, group(desc.a.dtype))),
        prep(is_aligned(&desc.b, windows.b.offset, b.columns, group(desc.b.dtype))),
    ]
}

/// Whether every vector of both operands is in its buffer as a whole.
pub(super) fn has_whole_vectors(desc: &MatmulDesc, windows: &Windows) -> bool {
    let [a, b] = stored(desc);
    let is_whole = |matrix: &Matrix, window: &Window, Stored { rows, columns, .. }: Stored| {
        let last = last_element(matrix, window, rows, columns, desc.batch);
        last / group(matrix.dtype) < (window.size() / VECTOR as u64) as usize
    };
    is_whole(&desc.a, &windows.a, a) && is_whole(&desc.b, &windows.b, b)
}

/// The last element of all matrices of an operand, in its buffer.
fn last_element(matrix: &Matrix, window: &Window, rows: usize, columns: usize, batch: usize) -> usize {
    (window.offset as usize)
        .saturating_add(matrix.batch_stride.saturating_mul(batch.saturating_sub(1)))
        .saturating_add(matrix.ld.saturating_mul(rows.saturating_sub(1)))
        .saturating_add(columns.saturating_sub(1))
}

/// How B is copied to where its rows run along n, if they run along k.
pub(super) fn transposing_b(desc: &MatmulDesc) -> Option<Transpose> {
    let suits = desc.trans_b.is_transposed() && desc.batch == 1 && desc.n.is_multiple_of(group(desc.b.dtype));
    let loops = [(desc.n, [desc.b.ld, 1]), (desc.k, [1, transposed_ld(desc)])];
    if suits { Transpose::plan(&loops) } else { None }
}

fn transposed_ld(desc: &MatmulDesc) -> usize {
    desc.n.next_multiple_of(LINE / desc.b.dtype.size())
}

/// Makes the product one with such a copy of B.
pub(super) fn transpose_b(
    ctx: &OpContext,
    op: &'static str,
    desc: &mut MatmulDesc,
    windows: &mut Windows,
) -> BackendResult<()> {
    if let Some(transpose) = transposing_b(desc) {
        let (ld, dtype) = (transposed_ld(desc), desc.b.dtype);
        let bytes = checked_product(op, "scratch", &[desc.k, ld, dtype.size()])?;
        let copy = ctx.output(&ctx.scratch(op, bytes)?, dtype);
        transpose.launch(ctx, op, dtype, [&windows.b, &copy])?;
        windows.b = copy;
        (desc.b.ld, desc.trans_b) = (ld, BackendTranspose::NoTrans);
    }
    Ok(())
}

/// Whether a buffer has room for copies of both operands of every matrix of a batch, lines filled up.
pub(super) fn fits(ctx: &OpContext, desc: &MatmulDesc) -> bool {
    let &MatmulDesc { m, n, k, batch, .. } = desc;
    let [line_a, line_b] = [desc.a, desc.b].map(|matrix| LINE / matrix.dtype.size());
    let of = |across: usize, line| (across.saturating_add(line)).saturating_mul(k.saturating_add(line));
    let elements = of(m, line_a).saturating_add(of(n, line_b)).saturating_mul(batch);
    elements.saturating_mul(size_of::<f32>()) as u64 <= ctx.device.limits.max_bytes
}

/// Makes the product one with the given operands copied, both by one launch if they are of one type and a
/// buffer has room for both copies.
pub(super) fn align(
    ctx: &OpContext,
    op: &'static str,
    desc: &mut MatmulDesc,
    windows: &mut Windows,
    prep: [Prep; 2],
) -> BackendResult<()> {
    let packs = prep.map(|prep| prep == Prep::Pack);
    let [a, b] = stored(desc);
    let k = if packs == [true; 2] { desc.k.next_multiple_of(STEP) } else { desc.k };
    let of_a = packs[0].then(|| Copy::new(op, &desc.a, &windows.a, a, k, desc.batch)).transpose()?;
    let of_b = packs[1].then(|| Copy::new(op, &desc.b, &windows.b, b, k, desc.batch)).transpose()?;
    let fits = |a: &Copy, b: &Copy| (a.bytes() + b.bytes()) as u64 <= ctx.device.limits.max_bytes;
    match (of_a, of_b) {
        (Some(of_a), Some(of_b)) if of_a.dtype == of_b.dtype && fits(&of_a, &of_b) => {
            let copies = launch(ctx, op, &of_a, Some(&of_b))?;
            windows.b = Window { offset: copies.offset + of_a.elements as u32, ..copies.clone() };
            windows.a = copies;
            (desc.a, desc.b) = (of_a.matrix, of_b.matrix);
        }
        (of_a, of_b) => {
            for (copy, matrix, window) in
                [(of_a, &mut desc.a, &mut windows.a), (of_b, &mut desc.b, &mut windows.b)]
            {
                if let Some(copy) = copy {
                    (*matrix, *window) = (copy.matrix, launch(ctx, op, &copy, None)?);
                }
            }
        }
    }
    desc.k = k;
    Ok(())
}

/// What it takes to copy all matrices of an operand.
struct Copy {
    source: Window,
    dtype: DType,
    /// The copy, of so many elements.
    matrix: Matrix,
    elements: usize,
    /// Whether every vector of the source is in its buffer as a whole.
    whole: bool,
    /// Vectors to be written.
    total: usize,
    sizes: [u32; 4],
    steps: [u32; 4],
    /// The last vector and the last word of the source.
    last: [u32; 2],
}

impl Copy {
    /// With zeros up to `k`.
    fn new(
        op: &'static str,
        matrix: &Matrix,
        source: &Window,
        Stored { rows, columns, mn_major }: Stored,
        k: usize,
        batch: usize,
    ) -> BackendResult<Self> {
        let (rows_out, columns_out) = if mn_major { (k, columns) } else { (rows, k) };
        let dtype = matrix.dtype;
        let line = LINE / dtype.size();
        // Where lines are short, what that adds would be much of them.
        let ld = columns_out.next_multiple_of(if columns_out < 8 * line { group(dtype) } else { line });
        // A matrix that the whole batch shares is copied once.
        let copies = if matrix.batch_stride == 0 { 1 } else { batch };
        let elements = checked_product(op, "scratch", &[copies, rows_out, ld])?;
        checked_product(op, "scratch", &[elements, 2 * dtype.size()])?;
        let last = last_element(matrix, source, rows, columns, copies);
        let vectors = columns_out.div_ceil(group(dtype));
        Ok(Self {
            source: source.clone(),
            dtype,
            matrix: Matrix::new(matrix.ptr, matrix.dtype, ld).with_batch_stride(if copies == 1 {
                0
            } else {
                rows_out * ld
            }),
            elements,
            whole: last / group(dtype) < (source.size() / VECTOR as u64) as usize,
            total: copies * rows_out * vectors,
            sizes: [
                dim(op, "rows", rows)?,
                dim(op, "columns", columns)?,
                dim(op, "rows", rows_out)?,
                dim(op, "columns", vectors)?,
            ],
            steps: [
                dim(op, "columns", ld / group(dtype))?,
                source.offset,
                stride(op, "ld", matrix.ld, rows)?,
                stride(op, "batch stride", matrix.batch_stride, copies)?,
            ],
            last: [dim(op, "elements", last / group(dtype))?, dim(op, "elements", last / per_word(dtype))?],
        })
    }

    fn bytes(&self) -> usize {
        self.elements * self.dtype.size()
    }

    /// The last of the parameters, for a copy that begins at the vector `first`.
    fn ends(&self, op: &'static str, first: usize) -> BackendResult<[u32; 4]> {
        let [last, last_word] = self.last;
        Ok([dim(op, "elements", self.total)?, dim(op, "elements", first)?, last, last_word])
    }
}

/// Makes one copy, or two of one type, the second after the first.
fn launch(ctx: &OpContext, op: &'static str, first: &Copy, second: Option<&Copy>) -> BackendResult<Window> {
    let bytes = first.bytes() + second.map_or(0, Copy::bytes);
    let scratch = ctx.output(&ctx.scratch(op, bytes)?, first.dtype);
    let vectors = first.elements / group(first.dtype);
    let mut params =
        Params { sizes: [first.sizes; 2], steps: [first.steps; 2], ends: [first.ends(op, 0)?, [0; 4]] };
    let mut workgroups = first.total.div_ceil(WORKGROUP);
    if let Some(second) = second {
        params.sizes[1] = second.sizes;
        params.steps[1] = second.steps;
        params.ends[1] = second.ends(op, vectors)?;
        workgroups += second.total.div_ceil(WORKGROUP);
    }
    let (a, b) = (&first.source, second.map_or(&first.source, |second| &second.source));
    let whole = first.whole && second.is_none_or(|second| second.whole);
    let grid = linear_grid(op, workgroups)?;
    let [a_vectors, b_vectors] = [a, b].map(|source| source.clone().by_vectors());
    let reads = [&a_vectors, &b_vectors, a, b];
    ctx.launch(op, &variant(first.dtype, whole), &reads, &scratch, &params, grid)?;
    Ok(scratch)
}

#[cfg(test)]
mod tests {
    use BackendTranspose::{NoTrans, Trans};

    use super::*;

    #[test]
    fn only_a_transposed_b_of_whole_vectors_is_copied() {
        let transposes = |n, trans_b, batch| {
            let matrix = |ld| Matrix::new(0, DType::F16, ld);
            let mut desc = MatmulDesc::new(64, n, 32, matrix(32), matrix(32), matrix(n));
            (desc.trans_b, desc.batch) = (trans_b, batch);
            transposing_b(&desc).is_some()
        };
        assert!(transposes(48, Trans, 1));
        assert!(!transposes(48, NoTrans, 1) && !transposes(44, Trans, 1) && !transposes(48, Trans, 2));
    }
}
