//! Batch normalisation with given statistics.

use backend_api::desc::BatchNormDesc;
use backend_api::{BackendResult, DType};

use super::shared::long_work::{Divisible as _, Run, in_parts};
use super::shared::vec_width::VecWidth;
use crate::kernels::{KernelSource, Variant, constants, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim, linear_grid};

constants! { struct Constants { in_place: bool } }

static BATCH_NORM: KernelSource = kernel!(
    "norm/batch_norm", libs: [GRID, VECTORS_AHEAD],
    types: ["T", "W"], constants: Constants, params: Params,
    reads: ["x: V", "mean: W", "variance: W", "weight: W", "bias: W"], writes: ["y: V"],
);

params! {
    struct Params {
        // Vectors of the tensor.
        vectors: u32,
        // Vectors of a channel.
        spatial: u32,
        channels: u32,
        eps: f32,
        // Bit 0: there is a weight; bit 1: there is a bias.
        scaled: u32,
        x_offset: u32,
        mean_offset: u32,
        variance_offset: u32,
        weight_offset: u32,
        bias_offset: u32,
        y_offset: u32,
    }
}

/// Vectors of a workgroup.
const GROUP: usize = 4 * 256;

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for types in [[DType::F32, DType::F32], [DType::F16, DType::F16], [DType::F16, DType::F32]] {
        for vec_width in [VecWidth::One, VecWidth::Four] {
            variants.extend([false, true].map(|in_place| variant(types, in_place, vec_width)));
        }
    }
    variants
}

/// Over elements and statistics of the two types.
fn variant(types: [DType; 2], in_place: bool, vec_width: VecWidth) -> Variant {
    Variant::new(&BATCH_NORM, types, Constants { in_place }).with_libs(vec_width.libs())
}

/// `output = (x − mean) / √(variance + eps) · weight + bias` for each channel.
pub(crate) fn batch_norm(ctx: &OpContext, op: &'static str, desc: &BatchNormDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [Some(x), Some(y), Some(mean), Some(variance), weight, bias] = ctx.resolve(op, &operands)? else {
        return Ok(());
    };
    let dtype = desc.dtype;
    ctx.require_dtype(op, dtype)?;
    let channel = desc.spatial * dtype.size();
    let image = desc.channels * channel;
    let run = Run::of_bytes(desc.batch, 2.0 * image as f64);
    in_parts(ctx, op, run.over(ctx, &x, image).over(ctx, &y, image), |images| {
        let mut part = *desc;
        part.batch = images.count();
        let [x, y] = [images.part_of(&x, image), images.part_of(&y, image)];
        if images.excess() == 0 || images.count() > 1 {
            let of_channels = [Some(&mean), Some(&variance), weight.as_ref(), bias.as_ref()];
            return batch_norm_part(ctx, op, &part, [&x, &y], of_channels);
        }
        // Some channels of an image that can't be bound as a whole.
        let run = Run::of_bytes(desc.channels, 2.0 * channel as f64);
        in_parts(ctx, op, run.over(ctx, &x, channel).over(ctx, &y, channel), |run| {
            part.channels = run.count();
            let slices = [run.part_of(&x, channel), run.part_of(&y, channel)];
            let number = desc.weight_dtype.size();
            let of_channels = [Some(&mean), Some(&variance), weight.as_ref(), bias.as_ref()]
                .map(|slice| slice.map(|slice| run.part_of(slice, number)));
            batch_norm_part(ctx, op, &part, slices.each_ref(), of_channels.each_ref().map(Option::as_ref))
        })
    })
}

/// `of_channels` are mean, variance, weight and bias.
fn batch_norm_part(
    ctx: &OpContext,
    op: &'static str,
    desc: &BatchNormDesc,
    [x, y]: [&DeviceSlice; 2],
    [mean, variance, weight, bias]: [Option<&DeviceSlice>; 4],
) -> BackendResult<()> {
    let dtype = desc.dtype;
    let output = ctx.output(y, dtype);
    let (input, in_place) = ctx.input_or_output(op, dtype, x, (y, &output))?;
    let mean = ctx.optional_input(op, mean, desc.weight_dtype, &output)?;
    let variance = ctx.optional_input(op, variance, desc.weight_dtype, &output)?;
    let weights = ctx.optional_input(op, weight, desc.weight_dtype, &output)?;
    let biases = ctx.optional_input(op, bias, desc.weight_dtype, &output)?;
    let vec_width = VecWidth::four_if_fitting(&[&input, &output], &[desc.spatial]);
    let width = vec_width.width();
    let vectors = desc.batch * desc.channels * desc.spatial / width;
    let params = Params {
        vectors: dim(op, "elements", vectors)?,
        spatial: dim(op, "spatial", desc.spatial / width)?,
        channels: dim(op, "channels", desc.channels)?,
        eps: desc.eps as f32,
        scaled: u32::from(weight.is_some()) | u32::from(bias.is_some()) << 1,
        x_offset: input.offset / width as u32,
        mean_offset: mean.offset,
        variance_offset: variance.offset,
        weight_offset: weights.offset,
        bias_offset: biases.offset,
        y_offset: output.offset / width as u32,
    };
    let reads = [&input, &mean, &variance, &weights, &biases];
    let grid = linear_grid(op, vectors.div_ceil(GROUP))?;
    let variant = variant([dtype, desc.weight_dtype], in_place, vec_width);
    ctx.launch(op, &variant, &reads, &output, &params, grid)
}
