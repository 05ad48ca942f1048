//! Pooling and its gradient.

use backend_api::desc::{ImageLayout, PoolBackwardDesc, PoolDesc, PoolOp, PoolShape};
use backend_api::{BackendError, BackendResult, DType};

use super::conv::inverse;
use crate::context::{Context, dim, linear_grid};
use crate::kernels::{KernelSource, Variant, kernel, params};

static POOL: KernelSource = kernel!(
    "conv/pool",
    libs: [GRID, SPECIAL, QUOTIENT, POOL],
    types: ["T"],
    constants: ["OP"],
    reads: 1,
    writes: 1,
    params: Params,
);

static POOL_BACKWARD: KernelSource = kernel!(
    "conv/pool_backward",
    libs: [GRID, SPECIAL, QUOTIENT, POOL],
    types: ["T"],
    constants: ["OP"],
    reads: 2,
    writes: 1,
    params: Params,
);

params! {
    struct Params {
        total: u32,
        inner: u32,
        height: u32,
        width: u32,
        out_height: u32,
        out_width: u32,
        size_y: u32,
        size_x: u32,
        step_y: u32,
        step_x: u32,
        dilation_y: u32,
        dilation_x: u32,
        before_y: u32,
        before_x: u32,
        padded_y: u32,
        padded_x: u32,
        input_offset: u32,
        gradient_offset: u32,
        output_offset: u32,
        per_pixel: f32,
        per_row: f32,
        per_image: f32,
        per_step_y: f32,
        per_step_x: f32,
    }
}

const WORKGROUP: usize = 256;

fn variant(source: &'static KernelSource, dtype: DType, op: PoolOp) -> Variant {
    let code = PoolOp::ALL.iter().position(|&known| known == op).unwrap_or_default();
    Variant::new(source, [dtype], [code as u32])
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for source in [&POOL, &POOL_BACKWARD] {
        for dtype in [DType::F32, DType::F16] {
            variants.extend(PoolOp::ALL.map(|op| variant(source, dtype, op)));
        }
    }
    variants
}

/// `output = op over the windows of input`.
pub(crate) fn pool2d(ctx: &Context, op: &'static str, desc: &PoolDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [input, output] = ctx.resolve(op, &operands)?;
    let Some(output) = output else { return Ok(()) };
    ctx.require_dtype(op, desc.dtype)?;
    let elements = output.len / desc.dtype.size();
    let output = ctx.output(op, &output, desc.dtype)?;
    let input = ctx.optional_input(op, input.as_ref(), desc.dtype, &output)?;
    let offsets = [input.offset, 0, output.offset];
    let params = params(op, &desc.shape, elements, desc.shape.output, offsets)?;
    let grid = linear_grid(op, elements.div_ceil(WORKGROUP))?;
    ctx.launch(op, &variant(&POOL, desc.dtype, desc.op), &[&input], &output, &params, grid)
}

/// What each window's gradient gives to its numbers.
pub(crate) fn pool2d_backward(ctx: &Context, op: &'static str, desc: &PoolBackwardDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [input, gradient, output] = ctx.resolve(op, &operands)?;
    let Some(output) = output else { return Ok(()) };
    ctx.require_dtype(op, desc.dtype)?;
    let elements = output.len / desc.dtype.size();
    let output = ctx.output(op, &output, desc.dtype)?;
    let input = ctx.optional_input(op, input.as_ref(), desc.dtype, &output)?;
    let gradient = ctx.optional_input(op, gradient.as_ref(), desc.dtype, &output)?;
    let offsets = [input.offset, gradient.offset, output.offset];
    let params = params(op, &desc.shape, elements, desc.shape.input, offsets)?;
    let grid = linear_grid(op, elements.div_ceil(WORKGROUP))?;
    ctx.launch(
        op,
        &variant(&POOL_BACKWARD, desc.dtype, desc.op),
        &[&input, &gradient],
        &output,
        &params,
        grid,
    )
}

/// `elements`, height and width of what is written; offsets of input, gradient and output.
fn params(
    op: &'static str,
    shape: &PoolShape,
    elements: usize,
    [height, width]: [usize; 2],
    [input_offset, gradient_offset, output_offset]: [u32; 3],
) -> BackendResult<Params> {
    let window = &shape.window;
    // Sums of two of these fit in a word.
    let size = |what, value: usize| {
        let max = 1 << 30;
        if value > max {
            return Err(BackendError::Limit { op, what, requested: value, max });
        }
        dim(op, what, value)
    };
    // A step that is never taken may be any number.
    let taken = |what, value, count| if count > 1 { size(what, value) } else { Ok(1) };
    let padded =
        |axis: usize| size("padded input", shape.input[axis] + window.before[axis] + window.after[axis]);
    let interleaved = shape.layout == ImageLayout::Nhwc;
    let inner = if interleaved { shape.channels } else { 1 };
    let [step_y, step_x] = [
        taken("stride", window.stride[0], shape.output[0])?,
        taken("stride", window.stride[1], shape.output[1])?,
    ];
    Ok(Params {
        total: dim(op, "elements", elements)?,
        inner: dim(op, "channels", inner)?,
        height: size("height of the input", shape.input[0])?,
        width: size("width of the input", shape.input[1])?,
        out_height: size("height of the output", shape.output[0])?,
        out_width: size("width of the output", shape.output[1])?,
        size_y: size("height of the window", window.size[0])?,
        size_x: size("width of the window", window.size[1])?,
        step_y,
        step_x,
        dilation_y: taken("dilation", window.dilation[0], window.size[0])?,
        dilation_x: taken("dilation", window.dilation[1], window.size[1])?,
        before_y: size("padding", window.before[0])?,
        before_x: size("padding", window.before[1])?,
        padded_y: padded(0)?,
        padded_x: padded(1)?,
        input_offset,
        gradient_offset,
        output_offset,
        per_pixel: inverse(inner),
        per_row: inverse(width),
        per_image: inverse(height),
        per_step_y: inverse(step_y as usize),
        per_step_x: inverse(step_x as usize),
    })
}
