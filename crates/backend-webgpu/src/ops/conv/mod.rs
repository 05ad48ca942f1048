//! Convolution, its transposition and its gradients.
//!
//! A convolution and the transposition of one are the same to the kernels: results that gather what they are
//! made of ([`ConvGather`]). Pointwise ones are matrix products as they lie, those of f16 go to
//! `conv/cooperative` or `conv/halo` where there are tensor cores, depthwise ones of adjacent channels to
//! `conv/depthwise`, those with few filters to `conv/few_filters`, others with few channels or filters in a group
//! to `conv/direct`, and the rest to `conv/implicit_gemm`.

mod cooperative;
mod depthwise;
mod direct;
mod few_filters;
mod filter;
mod filter_parts;
mod fold;
mod halo;
mod halo_step;
mod job;
mod nchw_to_nhwc;
mod params;
mod part;
mod plan;
mod ranges;
mod repack_filter;
mod self_test;
mod slices;
mod split;
mod subpixel;
mod tiled;

use backend_api::desc::{
    Bias, BiasAxis, ConvBackwardDataDesc, ConvDesc, ConvTransposeDesc, ImageLayout, MatmulDesc, Matrix,
};
use backend_api::support::ConvGather;
use backend_api::{Activation, BackendResult, BackendTranspose, DType};

use super::matmul;
use super::shared::IS_NATIVE;
use super::shared::long_work::{Divisible as _, explain_parts, in_parts, is_long, require_end};
use crate::kernels::Variant;
use crate::memory::DeviceSlice;
use crate::ops::op_context::OpContext;

pub(crate) use filter::conv2d_backward_filter;
pub(super) use params::inverse;
pub(crate) use plan::KernelOverride;

use filter_parts::FilterParts;
use job::Job;
use plan::Kernel;

pub(super) fn variants() -> Vec<Variant> {
    [
        cooperative::variants(),
        depthwise::variants(),
        direct::variants(),
        few_filters::variants(),
        repack_filter::variants(),
        filter::variants(),
        fold::variants(),
        halo::variants(),
        split::variants(),
        nchw_to_nhwc::variants(),
        subpixel::variants(),
        tiled::variants(),
    ]
    .concat()
}

/// `output = activation(input ∗ filter + bias)`.
pub(crate) fn conv2d(ctx: &OpContext, op: &'static str, desc: &ConvDesc) -> BackendResult<()> {
    run(ctx, op, forward(ctx, op, desc)?)
}

/// The kernel for a convolution, in words.
pub(crate) fn explain_conv(ctx: &OpContext, op: &'static str, desc: &ConvDesc) -> BackendResult<String> {
    let Some(job) = forward(ctx, op, desc)? else { return Ok("nothing".to_owned()) };
    if Kernel::choose(ctx, &job) == Kernel::Product {
        let (desc, windows) = product(&job);
        return Ok(format!("product, {}", matmul::explain(ctx, op, &desc, windows)?));
    }
    let plan = |part: &Job| Kernel::choose(ctx, &part.bound()).to_string();
    match FilterParts::of_wide(&job) {
        Some(parts) => Ok(format!("{}, {parts} at a time", explain_parts(ctx, op, parts.first(&job), plan)?)),
        None => explain_parts(ctx, op, job, plan),
    }
}

fn forward(ctx: &OpContext, op: &'static str, desc: &ConvDesc) -> BackendResult<Option<Job>> {
    let operands = desc.operands(op)?;
    let gather = ConvGather::forward(op, &desc.shape)?;
    let [input, filter, output, bias] = ctx.resolve(op, &operands)?;
    job(ctx, op, gather, desc.dtype, (false, desc.activation), [input, filter, bias, output])
}

/// `output = activation(Tᵀ · input + bias)`.
pub(crate) fn conv_transpose2d(
    ctx: &OpContext,
    op: &'static str,
    desc: &ConvTransposeDesc,
) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let gather = ConvGather::transposed(op, &desc.transposes(op)?)?;
    let [input, filter, output, bias] = ctx.resolve(op, &operands)?;
    let slices = [input, filter, bias, output];
    run(ctx, op, job(ctx, op, gather, desc.dtype, (true, desc.activation), slices)?)
}

/// `grad_input = Tᵀ · grad_output`.
pub(crate) fn conv2d_backward_data(
    ctx: &OpContext,
    op: &'static str,
    desc: &ConvBackwardDataDesc,
) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let gather = ConvGather::transposed(op, &desc.shape)?;
    let [filter, grad_output, grad_input] = ctx.resolve(op, &operands)?;
    let slices = [grad_output, filter, None, grad_input];
    run(ctx, op, job(ctx, op, gather, desc.dtype, (true, Activation::Identity), slices)?)
}

/// Finds the operands; `None` if there is nothing to compute. The slices are those of input, filter, bias and output.
fn job(
    ctx: &OpContext,
    op: &'static str,
    gather: ConvGather,
    dtype: DType,
    (transposed, activation): (bool, Activation),
    [input, filter, bias, output]: [Option<DeviceSlice>; 4],
) -> BackendResult<Option<Job>> {
    let Some(output) = output else { return Ok(None) };
    ctx.require_dtype(op, dtype)?;
    let output = ctx.output(&output, dtype);
    Ok(Some(Job {
        gather,
        first_row: 0,
        dtype,
        transposed,
        biased: bias.is_some(),
        activation,
        input: ctx.optional_input(op, input.as_ref(), dtype, &output)?,
        filter: ctx.optional_input(op, filter.as_ref(), dtype, &output)?,
        bias: ctx.optional_input(op, bias.as_ref(), dtype, &output)?,
        output,
    }))
}

fn run(ctx: &OpContext, op: &'static str, job: Option<Job>) -> BackendResult<()> {
    let Some(job) = job else { return Ok(()) };
    require_end(ctx, op, &job)?;
    make(ctx, op, &job)
}

/// Makes a convolution, a part after the other where its filters, or the phases of its results, can't be bound.
fn make(ctx: &OpContext, op: &'static str, job: &Job) -> BackendResult<()> {
    let wide = FilterParts::of_wide(job);
    // Products divide both of their operands.
    if let Some(parts) = wide.filter(|_| Kernel::choose(ctx, job) != Kernel::Product) {
        return parts.run(ctx, op, job, |part| make(ctx, op, part));
    }
    if !subpixel::are_worth_it(&job.gather) {
        return convolve(ctx, op, job);
    }
    let &ConvGather { batch, groups, filters, .. } = &job.gather;
    let most = subpixel::most_filters(ctx, job);
    if most >= groups * filters {
        let job = job.bound();
        let made = subpixel::divide(ctx, op, &job)?;
        convolve(ctx, op, &made)?;
        return subpixel::depth_to_space(ctx, op, &job, &made);
    }
    if batch > 1
        && let Some(halves) = job.halves()
    {
        return halves.iter().try_for_each(|part| {
            let _part = ctx.begin_part();
            make(ctx, op, part)
        });
    }
    match FilterParts::of_most(&job.gather, most) {
        Some(parts) if most > 0 => parts.run(ctx, op, job, |part| make(ctx, op, part)),
        // Without phases, rows of a result can be made one part after the other.
        _ => convolve(ctx, op, job),
    }
}

/// Makes a convolution, in parts if it takes long.
fn convolve(ctx: &OpContext, op: &'static str, job: &Job) -> BackendResult<()> {
    if Kernel::choose(ctx, job) == Kernel::Product {
        return pointwise(ctx, op, job);
    }
    let mut whole = job.clone();
    if job.transposed && (is_long(ctx, job) || job.excess() > 0) {
        // The filters of a part have to follow each other.
        whole = repack_filter::as_multiplied(ctx, op, &job.bound(), job.gather.layout == ImageLayout::Nhwc)?;
        whole.transposed = false;
    }
    in_parts(ctx, op, whole, |part| launch(ctx, op, &part.bound()))
}

/// Chooses the kernel. Sums that are too long for the device's loops are made in slices of the channels.
fn launch(ctx: &OpContext, op: &'static str, job: &Job) -> BackendResult<()> {
    let kernel = Kernel::choose(ctx, job);
    tracing::trace!(op, %kernel, "convolution");
    if kernel != Kernel::Product
        && let Some(channels) = slices::channels(ctx, op, &job.gather)?
    {
        return slices::run(ctx, op, job, channels);
    }
    match kernel {
        Kernel::Product => pointwise(ctx, op, job),
        Kernel::Cooperative(tile, slices) if IS_NATIVE => tile.launch(ctx, op, job, slices),
        Kernel::Halo(tile) if IS_NATIVE => tile.launch(ctx, op, job),
        Kernel::Depthwise => depthwise::launch(ctx, op, job),
        Kernel::FewFilters(block, slices) => few_filters::launch(ctx, op, job, (block, slices)),
        // No browser offers tensor cores, and a page needn't load what launches their kernels.
        Kernel::Direct | Kernel::Cooperative(..) | Kernel::Halo(_) => direct::launch(ctx, op, job),
        Kernel::Tiled(tile, slices) => tiled::launch(ctx, op, job, (tile, slices)),
    }
}

/// Makes a convolution of single pixels.
fn pointwise(ctx: &OpContext, op: &'static str, job: &Job) -> BackendResult<()> {
    let (desc, windows) = product(job);
    matmul::multiply(ctx, op, &desc, &windows)
}

/// A convolution of single pixels as a matrix product of the filters and each image, or where channels are
/// adjacent, of all pixels and the filters.
fn product(job: &Job) -> (MatmulDesc, matmul::Windows) {
    let &Job { dtype, transposed, biased, activation, .. } = job;
    let &ConvGather { batch, channels, filters, layout, .. } = &job.gather;
    let pixels = job.gather.pixels();
    let matrix = |columns: usize| Matrix::new(0, dtype, columns.max(1));
    // The filters are stored with a row for each channel of a convolution's output.
    let stored = matrix(if transposed { filters } else { channels });
    let trans = |yes| if yes { BackendTranspose::Trans } else { BackendTranspose::NoTrans };
    let (desc, axis, operands) = if layout == ImageLayout::Nhwc {
        let desc =
            MatmulDesc::new(batch * pixels, filters, channels, matrix(channels), stored, matrix(filters))
                .with_transpose(BackendTranspose::NoTrans, trans(!transposed));
        (desc, BiasAxis::Column, [&job.input, &job.filter])
    } else {
        let image = |channels: usize| matrix(pixels).with_batch_stride(channels * pixels);
        let desc = MatmulDesc::new(filters, pixels, channels, stored, image(channels), image(filters))
            .with_transpose(trans(transposed), BackendTranspose::NoTrans)
            .with_batch(batch);
        (desc, BiasAxis::Row, [&job.filter, &job.input])
    };
    let mut desc = desc.with_activation(activation);
    desc.bias = biased.then_some(Bias { ptr: 0, axis });
    let [a, b] = operands.map(Clone::clone);
    (desc, matmul::Windows { a, b, bias: job.bias.clone(), c: job.output.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WebGpuBackend;

    /// A kernel that fails its self test is replaced without a word that the suites would hear.
    #[test]
    fn tensor_cores_are_right_where_there_are_some() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let call = backend.context("test").unwrap();
        let ctx = &call.context;
        if !ctx.gpu().cooperative_matrices {
            return;
        }
        for tile in cooperative::SourceTile::ALL {
            assert!(tile.is_verified(ctx, 2), "{tile}");
        }
        for layout in [ImageLayout::Nchw, ImageLayout::Nhwc] {
            for tile in halo::HaloTile::ALL {
                assert!(!ctx.gpu().takes_spirv || tile.is_verified(ctx, layout), "{tile} {layout:?}");
            }
        }
    }
}
