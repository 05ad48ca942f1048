//! Strided copies that convert.

use backend_api::desc::{CopyDesc, MAX_RANK};
use backend_api::{BackendResult, DType};

use super::elementwise::{element_count, packed_loops};
use crate::context::{Context, linear_grid};
use crate::kernels::{Function, KernelSource, Variant, kernel, params};

static COPY: KernelSource = kernel!(
    "memory/copy",
    libs: [GRID, SPECIAL, CONVERT],
    types: ["SRC", "DST"],
    constants: [],
    reads: 1,
    writes: 1,
    params: Params,
);

/// The same with the helpers that only a device with f16 can compile.
static COPY_F16: KernelSource = kernel!(
    "memory/copy",
    libs: [GRID, SPECIAL, CONVERT, CONVERT_F16],
    types: ["SRC", "DST"],
    constants: [],
    reads: 1,
    writes: 1,
    params: Params,
);

params! {
    struct Params {
        n: u32,
        rank: u32,
        src_offset: u32,
        dst_offset: u32,
        loops: [[u32; 4]; MAX_RANK],
    }
}

const WORKGROUP: usize = 256;

/// The types as which elements are read and written: bits are moved as words where nothing is converted.
fn moved_as(src: DType, dst: DType) -> [DType; 2] {
    if src == dst && src != DType::F16 { [DType::U32; 2] } else { [src, dst] }
}

fn variant(types: [DType; 2]) -> Variant {
    let source = if types.contains(&DType::F16) { &COPY_F16 } else { &COPY };
    Variant::new(source, types, []).with_function(Function::Convert)
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for src in DType::ALL {
        for dst in DType::ALL {
            let variant = variant(moved_as(src, dst));
            if !variants.contains(&variant) {
                variants.push(variant);
            }
        }
    }
    variants
}

/// `dst = src`, converted.
pub(crate) fn copy(ctx: &Context, op: &'static str, desc: &CopyDesc<'_>) -> BackendResult<()> {
    let (operands, loops) = desc.operands(op)?;
    let [Some(src), Some(dst)] = ctx.resolve(op, &operands)? else { return Ok(()) };
    let types = moved_as(desc.src.dtype, desc.dst.dtype);
    for dtype in types {
        ctx.require_dtype(op, dtype)?;
    }
    let output = ctx.output(op, &dst, types[1])?;
    let input = ctx.input(op, &src, types[0], &output)?;
    let params = Params {
        n: element_count(op, &loops)?,
        rank: loops.len() as u32,
        src_offset: input.offset,
        dst_offset: output.offset,
        loops: packed_loops(op, &loops)?,
    };
    let grid = linear_grid(op, (params.n as usize).div_ceil(WORKGROUP))?;
    ctx.launch(op, &variant(types), &[&input], &output, &params, grid)
}
