//! Rows and elements into a table by index.

use backend_api::desc::ScatterDesc;
use backend_api::{BackendResult, DType, ScatterOp};

use crate::context::{Context, dim, linear_grid};
use crate::kernels::{Function, KernelSource, Variant, kernel, params};

static SCATTER: KernelSource = kernel!(
    "tokens/scatter",
    libs: [GRID, SPECIAL],
    types: ["T"],
    constants: [],
    reads: 2,
    writes: 1,
    params: Params,
);

static SCATTER_ROWS: KernelSource = kernel!(
    "tokens/scatter_rows",
    libs: [GRID, SPECIAL],
    types: ["T"],
    constants: [],
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
        indices: u32,
        source: u32,
        table: u32,
    }
}

const WORKGROUP: usize = 256;

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for source in [&SCATTER, &SCATTER_ROWS] {
        for &op in ScatterOp::ALL {
            variants.extend(DType::ALL.map(|dtype| variant(source, op, dtype)));
        }
    }
    variants
}

fn variant(source: &'static KernelSource, op: ScatterOp, dtype: DType) -> Variant {
    Variant::new(source, [dtype], []).with_function(Function::Combine(op))
}

/// `table[o, index, c] = op(table[o, index, c], source[o, i, c])` in the order of i.
pub(crate) fn scatter(ctx: &Context, op: &'static str, desc: &ScatterDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [Some(table), Some(indices), Some(source)] = ctx.resolve(op, &operands)? else { return Ok(()) };
    let dtype = desc.dtype;
    ctx.require_dtype(op, dtype)?;
    let table = ctx.output(op, &table, dtype)?;
    let indices = ctx.input(op, &indices, DType::U32, &table)?;
    let source = ctx.input(op, &source, dtype, &table)?;
    // Both products were checked with the operands.
    let elements = desc.outer * desc.rows * desc.columns;
    let params = Params {
        rows: dim(op, "rows", desc.rows)?,
        columns: dim(op, "columns", desc.columns)?,
        count: dim(op, "count", desc.count)?,
        elements: dim(op, "table", elements)?,
        indices: indices.offset,
        source: source.offset,
        table: table.offset,
    };
    // With one table of one column, there is an index for each row either way.
    let by_element = desc.per_element && desc.outer * desc.columns > 1;
    let kernel = if by_element { &SCATTER } else { &SCATTER_ROWS };
    let grid = linear_grid(op, elements.div_ceil(WORKGROUP))?;
    ctx.launch(op, &variant(kernel, desc.op, dtype), &[&indices, &source], &table, &params, grid)
}
