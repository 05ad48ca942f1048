//! Rows of a table by index.

use backend_api::desc::GatherDesc;
use backend_api::{BackendResult, DType};

use crate::context::{Context, dim, linear_grid};
use crate::kernels::{KernelSource, Variant, kernel, params};

static GATHER: KernelSource = kernel!(
    "tokens/gather",
    libs: [GRID],
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
        elements: u32,
        table_offset: u32,
        indices_offset: u32,
        output_offset: u32,
    }
}

const WORKGROUP: usize = 256;

pub(super) fn variants() -> Vec<Variant> {
    [DType::U32, DType::F16].map(|dtype| Variant::new(&GATHER, [dtype], [])).into()
}

/// `output[i, :] = table[indices[i], :]`.
pub(crate) fn gather(ctx: &Context, op: &'static str, desc: &GatherDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [table, indices, output] = ctx.resolve(op, &operands)?;
    let (Some(indices), Some(output)) = (indices, output) else { return Ok(()) };
    ctx.require_dtype(op, desc.dtype)?;
    // Words are moved as they are, whatever they mean.
    let dtype = if desc.dtype == DType::F16 { DType::F16 } else { DType::U32 };
    let output = ctx.output(op, &output, dtype)?;
    let table = ctx.optional_input(op, table.as_ref(), dtype, &output)?;
    let indices = ctx.input(op, &indices, DType::U32, &output)?;
    let elements = desc.count * desc.columns;
    let params = Params {
        rows: dim(op, "rows", desc.rows)?,
        columns: dim(op, "columns", desc.columns)?,
        elements: dim(op, "output", elements)?,
        table_offset: table.offset,
        indices_offset: indices.offset,
        output_offset: output.offset,
    };
    let grid = linear_grid(op, elements.div_ceil(WORKGROUP))?;
    ctx.launch(op, &Variant::new(&GATHER, [dtype], []), &[&table, &indices], &output, &params, grid)
}
