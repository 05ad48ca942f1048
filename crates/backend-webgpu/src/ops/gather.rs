//! Rows and elements of a table by index.

use backend_api::desc::GatherDesc;
use backend_api::{BackendResult, DType};

use super::shared::long_work::{Run, in_parts};
use crate::kernels::{Function, KernelSource, Variant, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::recorder::Window;

static GATHER: KernelSource = kernel!(
    "tokens/gather",
    libs: [GRID],
    types: ["T"],
    constants: ["VEC_WIDTH", "PER_ELEMENT"],
    reads: 2,
    writes: 1,
    params: Params,
);

params! {
    struct Params {
        rows: u32,
        columns: u32,
        count: u32,
        elements: u32,
        table: u32,
        indices: u32,
        output: u32,
    }
}

const WORKGROUP: usize = 256;

pub(super) fn variants() -> Vec<Variant> {
    let kinds = [(1, false), (1, true), (4, false)];
    let of = |dtype| kinds.map(|(vec_width, per_element)| variant(dtype, vec_width, per_element));
    [DType::U32, DType::F16].map(of).concat()
}

fn variant(dtype: DType, vec_width: u32, per_element: bool) -> Variant {
    Variant::new(&GATHER, [dtype], [vec_width, u32::from(per_element)]).with_function(Function::Move)
}

/// `output[o, i, c] = table[o, index, c]`.
pub(crate) fn gather(ctx: &OpContext, op: &'static str, desc: &GatherDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [table, indices, output] = ctx.resolve(op, &operands)?;
    let (Some(indices), Some(output)) = (indices, output) else { return Ok(()) };
    gather_slices(ctx, op, desc, [table.as_ref(), Some(&indices)], &output)
}

/// A lookup in memory that was checked: table and indices, and the output.
pub(super) fn gather_slices(
    ctx: &OpContext,
    op: &'static str,
    desc: &GatherDesc,
    [table, indices]: [Option<&DeviceSlice>; 2],
    output: &DeviceSlice,
) -> BackendResult<()> {
    ctx.require_dtype(op, desc.dtype)?;
    // Words are moved as they are, whatever they mean.
    let dtype = if desc.dtype == DType::F16 { DType::F16 } else { DType::U32 };
    // Of tables side by side, some at a time, and of a single one some of the indices.
    let several = desc.outer > 1;
    let items = if several { desc.outer } else { desc.count };
    let found = if several { desc.count } else { 1 } * desc.columns * desc.dtype.size();
    let mut run = Run::of_bytes(items, (2 * found) as f64).over(ctx, output, found);
    if let Some(table) = table.filter(|_| several) {
        run = run.over(ctx, table, desc.rows * desc.columns * desc.dtype.size());
    }
    if let Some(indices) = indices.filter(|_| desc.per_element || !several) {
        let each = if desc.per_element { found / desc.dtype.size() } else { 1 };
        run = run.over(ctx, indices, each * DType::U32.size());
    }
    let output = ctx.output(output, dtype);
    let table = ctx.optional_input(op, table, dtype, &output)?;
    let indices = ctx.optional_input(op, indices, DType::U32, &output)?;
    in_parts(ctx, op, run, |run| {
        let mut part = *desc;
        let rows = if several { run.first * desc.count } else { run.first };
        let from = if several { run.first * desc.rows * desc.columns } else { 0 };
        let index = if desc.per_element {
            rows * desc.columns
        } else if several {
            0
        } else {
            rows
        };
        if several {
            part.outer = run.count();
        } else {
            part.count = run.count();
        };
        let table = if desc.rows > 0 { table.advanced(from) } else { table.clone() };
        let table = table.truncated(part.outer * part.rows * part.columns);
        let found = part.outer * part.count * part.columns;
        let indices = indices.advanced(index).truncated(if part.per_element { found } else { part.count });
        let output = output.advanced(rows * desc.columns).truncated(found);
        gather_part(ctx, op, &part, dtype, [&table, &indices], &output)
    })
}

fn gather_part(
    ctx: &OpContext,
    op: &'static str,
    desc: &GatherDesc,
    dtype: DType,
    [table, indices]: [&Window; 2],
    output: &Window,
) -> BackendResult<()> {
    let vec_width = if goes_in_vectors(desc, [table, output]) { 4 } else { 1 };
    // The product was checked with the operands.
    let elements = desc.outer * desc.count * desc.columns / vec_width;
    let params = Params {
        rows: dim(op, "rows", desc.rows)?,
        columns: dim(op, "columns", desc.columns / vec_width)?,
        count: dim(op, "count", desc.count)?,
        elements: dim(op, "output", elements)?,
        table: table.offset / vec_width as u32,
        indices: indices.offset,
        output: output.offset / vec_width as u32,
    };
    let grid = linear_grid(op, elements.div_ceil(WORKGROUP))?;
    let variant = variant(dtype, vec_width as u32, desc.per_element);
    ctx.launch(op, &variant, &[table, indices], output, &params, grid)
}

/// Whether rows are made of whole vectors that lie where vectors may.
fn goes_in_vectors(desc: &GatherDesc, windows: [&Window; 2]) -> bool {
    let aligned = windows.iter().all(|window| window.offset.is_multiple_of(4));
    !desc.per_element && desc.columns.is_multiple_of(4) && aligned
}
