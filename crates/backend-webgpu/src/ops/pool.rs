//! Pooling and its gradient.

use backend_api::desc::{PoolBackwardDesc, PoolDesc, PoolOp};
use backend_api::{BackendError, BackendResult, DType};

use super::conv::inverse;
use super::pool_axes::Call;
use super::pool_tiles::Tiles;
use super::shared::long_work::{Run, in_parts};
use crate::kernels::{KernelSource, Variant, constants, kernel, params};
use crate::ops::op_context::{OpContext, dim, invocation_grid};
use crate::recorder::Window;

constants! {
    /// Which function of a window's elements, as lib/pool_input numbers them.
    pub(super) struct Constants { op: u32 }
}

static POOL: KernelSource = kernel!(
    "conv/pool", libs: [INVOCATION_RANGE, SPECIAL, POOL, POOL_INPUT],
    types: ["T"], constants: Constants, params: Params, reads: ["input: T"], writes: ["output: T"],
);

static POOL_ARGMAX: KernelSource = kernel!(
    "conv/pool_argmax", libs: [INVOCATION_RANGE, POOL, POOL_INPUT],
    types: ["T"], constants: Constants, params: Params, reads: ["input: T"], writes: ["positions: u32"],
);

static POOL_BACKWARD: KernelSource = kernel!(
    "conv/pool_backward", libs: [INVOCATION_RANGE, POOL],
    types: ["T"], constants: Constants, params: Params,
    reads: ["positions: u32", "gradient: T"], writes: ["output: T"],
);

params! {
    pub(super) struct Params {
        // The last but one element of this launch, and the first.
        total: u32,
        first: u32,
        // Channels that are adjacent; 1 where channels are planes, which count as images.
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
        // Extents of the padded image.
        padded_y: u32,
        padded_x: u32,
        input_offset: u32,
        gradient_offset: u32,
        output_offset: u32,
        // 1 / inner, of what is written 1 / width and 1 / height, and 1 / step.
        per_pixel: f32,
        per_row: f32,
        per_image: f32,
        per_step_y: f32,
        per_step_x: f32,
        // Of kernels that take tiles of the input: how many are abreast and one below the other, and their height.
        tiles_x: u32,
        tiles_y: u32,
        tile_height: u32,
    }
}

/// Bytes of memory that a read from a window, which caches serve, takes as long as.
pub(super) const READ: f64 = 4.0;

fn variant(source: &'static KernelSource, dtype: DType, op: PoolOp) -> Variant {
    let code = PoolOp::ALL.iter().position(|&known| known == op).unwrap_or_default();
    Variant::new(source, [dtype], Constants { op: code as u32 })
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for source in [&POOL, &POOL_BACKWARD] {
        for dtype in [DType::F32, DType::F16] {
            variants.extend(PoolOp::ALL.map(|op| variant(source, dtype, op)));
        }
    }
    variants.extend([DType::F32, DType::F16].map(|dtype| variant(&POOL_ARGMAX, dtype, PoolOp::Max)));
    variants.extend(super::pool_tiles::variants());
    variants
}

/// `output = op over the windows of input`.
pub(crate) fn pool2d(ctx: &OpContext, op: &'static str, desc: &PoolDesc) -> BackendResult<()> {
    let [input, output] = ctx.resolve(op, &desc.operands(op)?)?;
    let Some(output) = output else { return Ok(()) };
    ctx.require_dtype(op, desc.dtype)?;
    let output = ctx.output(&output, desc.dtype);
    let input = ctx.optional_input(op, input.as_ref(), desc.dtype, &output)?;
    let call = Call { ctx, op, pool: desc.op, dtype: desc.dtype, shape: &desc.shape };
    if call.is_long()? { call.forward_in_passes(&input, &output) } else { forward(&call, &input, &output) }
}

/// Launches one pass over all windows.
pub(super) fn forward(call: &Call<'_>, input: &Window, output: &Window) -> BackendResult<()> {
    let &Call { pool, dtype, shape, .. } = call;
    let elements = call.elements(shape.output)?;
    let params = params(call, elements, shape.output, [input.offset, 0, output.offset])?;
    let window = shape.window_elements();
    let run = Run::of_bytes(elements, READ * window).with_iterations(window);
    launch(call, run, &variant(&POOL, dtype, pool), &[input], output, &params)
}

/// What each window's gradient gives to its elements.
pub(crate) fn pool2d_backward(
    ctx: &OpContext,
    op: &'static str,
    desc: &PoolBackwardDesc,
) -> BackendResult<()> {
    let [input, gradient, output] = ctx.resolve(op, &desc.operands(op)?)?;
    let Some(output) = output else { return Ok(()) };
    ctx.require_dtype(op, desc.dtype)?;
    let output = ctx.output(&output, desc.dtype);
    let input = ctx.optional_input(op, input.as_ref(), desc.dtype, &output)?;
    let gradient = ctx.optional_input(op, gradient.as_ref(), desc.dtype, &output)?;
    let call = Call { ctx, op, pool: desc.op, dtype: desc.dtype, shape: &desc.shape };
    if call.gradient_is_long()? {
        call.backward_in_passes(&input, &gradient, &output)
    } else {
        backward(&call, &input, &gradient, &output)
    }
}

/// Launches the gradient of one pass. The input is read for maxima only.
pub(super) fn backward(
    call: &Call<'_>,
    input: &Window,
    gradient: &Window,
    output: &Window,
) -> BackendResult<()> {
    let &Call { pool, dtype, shape, .. } = call;
    let elements = call.elements(shape.input)?;
    if pool == PoolOp::Max
        && let Some(tiles) = Tiles::plan(call)
    {
        return tiles.launch(call, input, gradient, output);
    }
    let positions = if pool == PoolOp::Max { argmax(call, input)? } else { call.ctx.null() };
    let offsets = [positions.offset, gradient.offset, output.offset];
    let params = params(call, elements, shape.input, offsets)?;
    // Windows that cover an element, on average.
    let covering = (shape.reads() / elements as f64).max(1.0);
    let run = Run::of_bytes(elements, 2.0 * READ * covering).with_iterations(covering);
    launch(call, run, &variant(&POOL_BACKWARD, dtype, pool), &[&positions, gradient], output, &params)
}

/// Finds the position of each window's maximum, as u32.
fn argmax(call: &Call<'_>, input: &Window) -> BackendResult<Window> {
    let &Call { dtype, shape, .. } = call;
    let elements = call.elements(shape.output)?;
    let positions = call.scratch(elements, DType::U32)?;
    let params = params(call, elements, shape.output, [input.offset, 0, positions.offset])?;
    let window = shape.window_elements();
    let run = Run::of_bytes(elements, READ * window).with_iterations(window);
    launch(call, run, &variant(&POOL_ARGMAX, dtype, PoolOp::Max), &[input], &positions, &params)?;
    Ok(positions)
}

/// Launches the kernel for the elements of `run`, each of which an invocation makes.
fn launch(
    &Call { ctx, op, .. }: &Call<'_>,
    run: Run,
    variant: &Variant,
    reads: &[&Window],
    output: &Window,
    params: &Params,
) -> BackendResult<()> {
    in_parts(ctx, op, run, |run| {
        let [first, total] = [dim(op, "elements", run.first)?, dim(op, "elements", run.end)?];
        let grid = invocation_grid(op, run.count())?;
        ctx.launch(op, variant, reads, output, &Params { first, total, ..*params }, grid)
    })
}

/// `elements`, height and width of what is written; offsets of input, gradient and output.
pub(super) fn params(
    call: &Call<'_>,
    elements: usize,
    [height, width]: [usize; 2],
    [input_offset, gradient_offset, output_offset]: [u32; 3],
) -> BackendResult<Params> {
    let &Call { op, shape, .. } = call;
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
    let inner = call.inner();
    // Rows without columns would be iterated over for nothing.
    let [rows, columns] = if shape.input.contains(&0) { [0, 0] } else { shape.input };
    let [step_y, step_x] = [
        taken("stride", window.stride[0], shape.output[0])?,
        taken("stride", window.stride[1], shape.output[1])?,
    ];
    Ok(Params {
        total: dim(op, "elements", elements)?,
        first: 0,
        inner: dim(op, "channels", inner)?,
        height: size("height of the input", rows)?,
        width: size("width of the input", columns)?,
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
        ..Params::default()
    })
}
