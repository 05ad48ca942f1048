//! Copies of f16 images with adjacent channels.

use backend_api::desc::{ConvGather, ImageLayout};
use backend_api::{BackendResult, DType, checked_product};

use super::Job;
use crate::context::{Context, dim, linear_grid};
use crate::kernels::{KernelSource, Variant, kernel, params};
use crate::recorder::Window;

static INTERLEAVE: KernelSource = kernel!(
    "conv/interleave",
    libs: [GRID],
    types: ["T"],
    constants: [],
    reads: 1,
    writes: 1,
    params: Params,
);

params! {
    struct Params {
        total: u32,
        pixels: u32,
        groups: u32,
        channels: u32,
        channels_out: u32,
        interleaved: u32,
        input_offset: u32,
    }
}

const WORKGROUP: usize = 256;

/// Channels that an invocation copies.
const EIGHT: usize = 8;

fn variant() -> Variant {
    Variant::new(&INTERLEAVE, [DType::F16], [])
}

pub(super) fn variants() -> Vec<Variant> {
    vec![variant()]
}

/// The source with `channels` channels in each group, a multiple of eight, 0 for those that there aren't.
pub(super) fn copy(ctx: &Context, op: &'static str, job: &Job, channels: usize) -> BackendResult<Window> {
    let &ConvGather { batch, groups, source: [height, width], layout, .. } = &job.gather;
    let pixels = checked_product(op, "pixels", &[height, width])?;
    let total = checked_product(op, "scratch", &[batch, pixels, groups, channels / EIGHT])?;
    let bytes = checked_product(op, "scratch", &[total, EIGHT, DType::F16.size()])?;
    let copy = ctx.output(op, &ctx.memory.scratch(op, bytes)?, DType::F16)?;
    let params = Params {
        total: dim(op, "pixels", total)?,
        pixels: dim(op, "pixels", pixels)?,
        groups: dim(op, "groups", groups)?,
        channels: dim(op, "channels", job.gather.channels)?,
        channels_out: dim(op, "channels", channels)?,
        interleaved: u32::from(layout == ImageLayout::Nhwc),
        input_offset: job.input.offset,
    };
    let grid = linear_grid(op, total.div_ceil(WORKGROUP))?;
    ctx.launch(op, &variant(), &[&job.input], &copy, &params, grid)?;
    Ok(copy)
}
