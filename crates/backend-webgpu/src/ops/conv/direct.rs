//! Convolutions with few channels or filters in a group, without workgroup memory.

use backend_api::desc::ConvGather;
use backend_api::{Activation, BackendResult, DType, checked_product};

use super::Job;
use super::params::Params;
use crate::context::{Context, dim, linear_grid};
use crate::kernels::{KernelSource, Variant, kernel};
use crate::ops::matmul::activation_code;

static DIRECT: KernelSource = kernel!(
    "conv/direct",
    libs: [GRID, SPECIAL, UNARY, ACTIVATE, CONV],
    types: ["T"],
    constants: ["ROWS", "SIDE", "ACTIVATION"],
    reads: 3,
    writes: 1,
    params: Params,
);

const WORKGROUP: usize = 128;

/// Sides of the filters that have a kernel of their own, 0 for any, and the rows of an invocation.
const KINDS: [[u32; 2]; 3] = [[4, 0], [8, 3], [8, 5]];

fn variant(dtype: DType, [rows, side]: [u32; 2], activation: Activation) -> Variant {
    Variant::new(&DIRECT, [dtype], [rows, side, activation_code(activation)])
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        for kind in KINDS {
            variants.extend(Activation::ALL.iter().map(|&activation| variant(dtype, kind, activation)));
        }
    }
    variants
}

/// Whether a tile of results would be mostly empty.
pub(super) fn is_better(gather: &ConvGather) -> bool {
    gather.filters <= 4 || (gather.filters <= 8 && gather.channels <= 4)
}

/// The kernel for this filter.
fn kind(gather: &ConvGather) -> [u32; 2] {
    let [vertical, horizontal] = gather.axes;
    let single = gather.channels == 1
        && (vertical.stride, vertical.dilation) == (1, 1)
        && (!horizontal.transposed || horizontal.stride == 1);
    let side = |kind: &[u32; 2]| gather.filter == [kind[1] as usize; 2];
    KINDS.into_iter().find(|kind| single && side(kind)).unwrap_or(KINDS[0])
}

pub(super) fn launch(ctx: &Context, op: &'static str, job: &Job) -> BackendResult<()> {
    let &ConvGather { batch, groups, filters, result: [height, width], .. } = &job.gather;
    let kind = kind(&job.gather);
    let bands = height.div_ceil(kind[0] as usize);
    let invocations = checked_product(op, "invocations", &[batch, groups, filters, bands, width])?;
    let params = Params { tiles: dim(op, "invocations", invocations)?, ..Params::new(op, job)? };
    let grid = linear_grid(op, invocations.div_ceil(WORKGROUP))?;
    let variant = variant(job.dtype, kind, job.activation);
    ctx.launch(op, &variant, &[&job.input, &job.filter, &job.bias], &job.output, &params, grid)
}
