//! Softmax along an axis.

use backend_api::desc::SoftmaxDesc;
use backend_api::{BackendResult, DType};

use super::teams::{Block, Teams};
use crate::context::{Context, dim};
use crate::kernels::{KernelSource, Variant, kernel, params};

static SOFTMAX: KernelSource = kernel!(
    "norm/softmax",
    libs: [GRID, SPECIAL, REDUCE, WORKGROUP],
    types: ["T"],
    constants: ["IN_PLACE", "BLOCK", "WHOLE"],
    reads: 1,
    writes: 1,
    params: Params,
);

params! {
    struct Params {
        slices: u32,
        length: u32,
        inner: u32,
        team: u32,
        stride: u32,
        x_offset: u32,
        y_offset: u32,
    }
}

/// The fewest numbers of an invocation in a small team.
const LEAST: usize = 4;

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        for block in Block::ALL {
            variants.extend([false, true].map(|in_place| variant(dtype, in_place, block)));
        }
    }
    variants
}

fn variant(dtype: DType, in_place: bool, block: Block) -> Variant {
    let [size, whole] = block.constants();
    Variant::new(&SOFTMAX, [dtype], [u32::from(in_place), size, whole])
}

/// `output = softmax(input)` along the axis.
pub(crate) fn softmax(ctx: &Context, op: &'static str, desc: &SoftmaxDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [Some(x), Some(y)] = ctx.resolve(op, &operands)? else {
        return Ok(());
    };
    let dtype = desc.dtype;
    ctx.require_dtype(op, dtype)?;
    let output = ctx.output(op, &y, dtype)?;
    let in_place = x.region() == y.region();
    let input = if in_place { ctx.null() } else { ctx.input(op, &x, dtype, &output)? };
    let teams = Teams::new(desc.length, desc.inner, LEAST);
    let block = Block::of(teams.share(desc.length));
    // The product is one of the tensor's size, which has been checked.
    let slices = desc.outer * desc.inner;
    let params = Params {
        slices: dim(op, "slices", slices)?,
        length: dim(op, "axis", desc.length)?,
        inner: dim(op, "inner", desc.inner)?,
        team: teams.size,
        stride: teams.stride,
        x_offset: input.offset,
        y_offset: output.offset,
    };
    ctx.launch(op, &variant(dtype, in_place, block), &[&input], &output, &params, teams.grid(op, slices)?)
}
