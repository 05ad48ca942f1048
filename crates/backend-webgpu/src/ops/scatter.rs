//! Rows and elements into a table by index.

use backend_api::desc::ScatterDesc;
use backend_api::{BackendError, BackendResult, DType, ScatterOp};

use super::shared::iterations;
use super::shared::long_work::{Run, in_parts, require_end};
use crate::kernels::libs::CONVERT_F16;
use crate::kernels::{Function, KernelSource, Lib, Variant, kernel, params};
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::recorder::Window;

static SCATTER: KernelSource = kernel!(
    "tokens/scatter",
    libs: [GRID, SPECIAL],
    types: ["T", "S"],
    constants: [],
    reads: 2,
    writes: 1,
    params: Params,
);

static SCATTER_ROWS: KernelSource = kernel!(
    "tokens/scatter_rows",
    libs: [GRID, SPECIAL],
    types: ["T", "S"],
    constants: [],
    reads: 2,
    writes: 1,
    params: Params,
);

static SCATTER_ASSIGN: KernelSource = kernel!(
    "tokens/scatter_assign",
    libs: [GRID],
    types: ["T", "S"],
    constants: ["PER_ELEMENT"],
    reads: 2,
    writes: 1,
    params: Params,
);

params! {
    struct Params {
        rows: u32,
        columns: u32,
        count: u32,
        // The last but one element of this launch, and the first.
        elements: u32,
        first: u32,
        indices: u32,
        source: u32,
        table: u32,
    }
}

const WORKGROUP: usize = 256;

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    let converting = [[DType::F16, DType::F32], [DType::F32, DType::F16]];
    for source in [&SCATTER, &SCATTER_ROWS] {
        for &op in ScatterOp::ALL {
            variants.extend(DType::ALL.map(|dtype| variant(source, op, [dtype; 2])));
        }
        variants.extend(converting.map(|types| variant(source, ScatterOp::Assign, types)));
    }
    let types = DType::ALL.into_iter().map(|dtype| [dtype; 2]).chain(converting);
    variants
        .extend(types.flat_map(|types| [false, true].map(|per_element| assign_variant(types, per_element))));
    variants
}

/// Of the types of table and source.
fn variant(source: &'static KernelSource, op: ScatterOp, types: [DType; 2]) -> Variant {
    Variant::new(source, types, []).with_function(Function::Combine(op)).with_libs(conversions(types))
}

fn assign_variant(types: [DType; 2], per_element: bool) -> Variant {
    Variant::new(&SCATTER_ASSIGN, types, [u32::from(per_element)])
        .with_function(Function::Combine(ScatterOp::Assign))
        .with_libs(conversions(types))
}

const fn conversions(types: [DType; 2]) -> &'static [Lib] {
    match types {
        [DType::F16, DType::F32] => &[CONVERT_F16],
        _ => &[],
    }
}

/// `table[o, index, c] = op(table[o, index, c], source[o, i, c])` in the order of i.
pub(crate) fn scatter(ctx: &OpContext, op: &'static str, desc: &ScatterDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [Some(table), Some(indices), Some(source)] = ctx.resolve(op, &operands)? else { return Ok(()) };
    let dtype = desc.dtype;
    ctx.require_dtype(op, dtype)?;
    ctx.require_dtype(op, desc.source_dtype)?;
    let table = ctx.output(&table, dtype);
    let indices = ctx.input(op, &indices, DType::U32, &table)?;
    let source = ctx.input(op, &source, desc.source_dtype, &table)?;
    // With one table of one column, there is an index for each row either way.
    let by_element = desc.per_element && desc.outer * desc.columns > 1;
    let search = Search { ctx, op, desc, by_element, windows: [&indices, &source, &table] };
    if desc.op == ScatterOp::Assign && desc.count <= few_rows(desc.rows) {
        return search.assign();
    }
    // What arrives is taken in its order, so a long search may stop and go on where sums aren't rounded
    // meanwhile.
    let most = most_indices(ctx, op, desc)?;
    if desc.count <= most {
        return search.run([0, desc.outer], [0, desc.count]);
    }
    let elements = desc.outer * desc.rows * desc.columns;
    require_end(ctx, op, &search.work(elements, desc.count).with_iterations(most as f64))?;
    for table in 0..desc.outer {
        for first in (0..desc.count).step_by(most) {
            search.run([table, 1], [first, most.min(desc.count - first)])?;
        }
    }
    Ok(())
}

/// Bytes of memory that it takes as long to read as an element takes to look at an index of its own, or at
/// one that 256 elements share.
const INDEX: f64 = 4.0;
const SHARED_INDEX: f64 = 4.0 / 32.0;

/// How many rows are few enough, beside those of a table, for each of their elements to look for itself whether
/// a later one takes its place. A search by the table reads all of it.
fn few_rows(rows: usize) -> usize {
    (rows / 16).clamp(32, 4096)
}

/// Indices that an invocation goes through in one launch.
const MAX_COUNT: usize = 1 << 24;

/// Indices that `tokens/scatter_rows` takes at a time, and the most iterations of a kernel for so many.
const TILE: usize = 1024;
const ITERATIONS: usize = TILE + 64;

/// The most indices of a launch. Sums and products of f16 have to be made in one, as each rounds
/// them.
///
/// # Errors
/// [`Limit`](BackendError::Limit) for those that are too long for the device's loops.
fn most_indices(ctx: &OpContext, op: &'static str, desc: &ScatterDesc) -> BackendResult<usize> {
    let rounds = desc.dtype == DType::F16 && matches!(desc.op, ScatterOp::Add | ScatterOp::Mul);
    let most = if rounds { desc.count } else { MAX_COUNT };
    let wanted = desc.count.div_ceil(TILE).saturating_mul(ITERATIONS);
    match iterations::exceeded(ctx, wanted).map(|iterations| iterations / ITERATIONS * TILE) {
        Some(max) if rounds => {
            let (what, requested) = ("indices of sums of f16", desc.count);
            Err(BackendError::Limit { op, what, requested, max })
        }
        limit => Ok(limit.unwrap_or(most).min(most)),
    }
}

/// A call with its operands, whose windows are those of indices, source and table.
#[derive(Clone, Copy)]
struct Search<'a> {
    ctx: &'a OpContext,
    op: &'static str,
    desc: &'a ScatterDesc,
    by_element: bool,
    windows: [&'a Window; 3],
}

impl Search<'_> {
    /// Of so many elements of tables among so many indices.
    fn work(&self, elements: usize, count: usize) -> Run {
        Run::of_bytes(elements, count as f64 * if self.by_element { INDEX } else { SHARED_INDEX })
    }

    /// Puts each element of the source into its place, but for those that a later one overwrites.
    fn assign(&self) -> BackendResult<()> {
        let Self { ctx, op, desc, by_element, windows: [indices, source, target] } = *self;
        let &ScatterDesc { outer, rows, columns, count, .. } = desc;
        let params = Params {
            rows: dim(op, "rows", rows)?,
            columns: dim(op, "columns", columns)?,
            count: dim(op, "count", count)?,
            elements: 0,
            first: 0,
            indices: indices.offset,
            source: source.offset,
            table: target.offset,
        };
        let variant = assign_variant([desc.dtype, desc.source_dtype], by_element);
        let work = Run::of_bytes(outer * count * columns, count as f64 * INDEX).with_iterations(count as f64);
        in_parts(ctx, op, work, |run| {
            let [first, elements] = [dim(op, "source", run.first)?, dim(op, "source", run.end)?];
            let grid = linear_grid(op, run.count().div_ceil(WORKGROUP))?;
            let params = Params { first, elements, ..params };
            ctx.launch(op, &variant, &[indices, source], target, &params, grid)
        })
    }

    /// Takes some of the indices to some of the tables: the first, and how many. There is one table, or all
    /// indices.
    fn run(&self, [table, outer]: [usize; 2], [first, count]: [usize; 2]) -> BackendResult<()> {
        let Self { ctx, op, desc, by_element, windows } = *self;
        let [indices, source, target] = windows;
        let &ScatterDesc { rows, columns, .. } = desc;
        // These products were checked with the operands.
        let elements = outer * rows * columns;
        let arriving = (table * desc.count + first) * columns;
        let source = source.advanced(arriving);
        let target = target.advanced(table * rows * columns);
        let indices = indices.advanced(if by_element { arriving } else { first });
        let kernel = if by_element { &SCATTER } else { &SCATTER_ROWS };
        let params = Params {
            rows: dim(op, "rows", rows)?,
            columns: dim(op, "columns", columns)?,
            count: dim(op, "count", count)?,
            elements: 0,
            first: 0,
            indices: indices.offset,
            source: source.offset,
            table: target.offset,
        };
        let variant = variant(kernel, desc.op, [desc.dtype, desc.source_dtype]);
        let work = self.work(elements, count).with_iterations(count as f64);
        in_parts(ctx, op, work, |run| {
            let [first, elements] = [dim(op, "table", run.first)?, dim(op, "table", run.end)?];
            let grid = linear_grid(op, run.count().div_ceil(WORKGROUP))?;
            let params = Params { first, elements, ..params };
            ctx.launch(op, &variant, &[&indices, &source], &target, &params, grid)
        })
    }
}
