//! Functions of one number, over strided tensors.

use backend_api::desc::{AffineDesc, ClampDesc, MAX_RANK, UnaryDesc};
use backend_api::support::{Loop, Operand};
use backend_api::{BackendResult, DType, UnaryOp};

use super::shared::strided_loops::{Shape, Stretch, StridedLoops, shapes_of};
use crate::kernels::libs::{ACTIVATIONS, HYPERBOLIC, INVERSE_TRIG};
use crate::kernels::{Function, KernelSource, Lib, Origin, Variant, constants, kernel, params};
use crate::ops::op_context::OpContext;
use crate::recorder::Window;

constants! { struct Constants { shape: Shape, x_from: u32 } }

static UNARY: KernelSource = kernel!(
    "elementwise/unary", libs: [GRID, STRIDED, UNARY, HALF, LOG, TRIG, INTEGER],
    types: ["T"], constants: Constants, params: Params, reads: ["x: XN"], writes: ["y: YN"],
);

params! {
    struct Params {
        n: u32,
        rank: u32,
        x: u32,
        y: u32,
        // Numbers that apply takes, as bits.
        p: u32,
        q: u32,
        // WGSL aligns an array of vectors.
        padding: [u32; 2],
        // For each loop, outermost first: extent, stride of x, stride of y.
        loops: [[u32; 4]; MAX_RANK],
    }
}

pub(super) fn variants() -> Vec<Variant> {
    let functions = UnaryOp::ALL.iter().map(|&op| Function::Unary(op));
    let mut variants = Vec::new();
    for function in functions.chain([Function::Clamp, Function::Affine]) {
        for dtype in DType::ALL {
            let accepted = match function {
                Function::Unary(op) => op.accepts(dtype),
                Function::Affine => dtype.is_float(),
                _ => true,
            };
            for shape in shapes_of(&[dtype]).filter(|_| accepted) {
                let origins = [Origin::Memory, Origin::Output];
                variants.extend(origins.map(|origin| variant(function, dtype, shape, origin as u32)));
                if shape.vec_width > 1 {
                    variants.push(variant(function, dtype, shape, Origin::Repeated as u32));
                }
            }
        }
    }
    variants
}

fn variant(function: Function, dtype: DType, shape: Shape, origin: u32) -> Variant {
    let variant = Variant::new(&UNARY, [dtype], Constants { shape, x_from: origin });
    let libs = if dtype.is_float() { libs_of(function) } else { &[] };
    variant.with_function(function).with_libs(libs)
}

/// The helper files of functions that the kernel's own don't have, as a text is compiled whole.
const fn libs_of(function: Function) -> &'static [Lib] {
    use UnaryOp as Op;
    let Function::Unary(op) = function else { return &[] };
    match op {
        Op::Asin | Op::Acos | Op::Atan => &[INVERSE_TRIG],
        Op::Expm1 | Op::Log1p | Op::Sinh | Op::Cosh | Op::Asinh | Op::Acosh | Op::Atanh => &[HYPERBOLIC],
        Op::Erf
        | Op::Softplus
        | Op::Softsign
        | Op::Mish
        | Op::Elu
        | Op::Selu
        | Op::Celu
        | Op::LeakyRelu
        | Op::ThresholdedRelu
        | Op::Shrink
        | Op::HardSigmoid
        | Op::HardSwish
        | Op::Swish => &[ACTIVATIONS],
        _ => &[],
    }
}

/// `output = op(input)`.
pub(crate) fn unary(ctx: &OpContext, op: &'static str, desc: &UnaryDesc<'_>) -> BackendResult<()> {
    let parameters = [desc.alpha, desc.beta].map(|number| number_bits(DType::F32, number));
    map(ctx, op, desc.operands(op)?, desc.output.dtype, Function::Unary(desc.op), parameters)
}

/// `output = min(max(input, min), max)`.
pub(crate) fn clamp(ctx: &OpContext, op: &'static str, desc: &ClampDesc<'_>) -> BackendResult<()> {
    let dtype = desc.output.dtype;
    let bounds = [desc.min, desc.max].map(|bound| number_bits(dtype, bound));
    map(ctx, op, desc.operands(op)?, dtype, Function::Clamp, bounds)
}

/// `output = scale · input + bias`.
pub(crate) fn affine(ctx: &OpContext, op: &'static str, desc: &AffineDesc<'_>) -> BackendResult<()> {
    let numbers = [desc.scale, desc.bias].map(|number| number_bits(DType::F32, number));
    map(ctx, op, desc.operands(op)?, desc.output.dtype, Function::Affine, numbers)
}

fn map(
    ctx: &OpContext,
    op: &'static str,
    (operands, loops): ([Operand; 2], Vec<Loop<2>>),
    dtype: DType,
    function: Function,
    [p, q]: [u32; 2],
) -> BackendResult<()> {
    let [Some(x), Some(y)] = ctx.resolve(op, &operands)? else { return Ok(()) };
    ctx.require_dtype(op, dtype)?;
    let output = ctx.output(&y, dtype);
    let in_place = x.region() == y.region();
    let input = if in_place { in_output(ctx, &output) } else { ctx.input(op, &x, dtype, &output)? };
    let whole = Stretch { loops, windows: [input, output] };
    whole.launch_parts(ctx, op, [in_place, false], |loops, [input, output]| {
        let starts = [input.offset, output.offset];
        for strided in StridedLoops::plan(loops.to_vec(), starts, &[dtype]) {
            let params = Params {
                n: strided.count(op)?,
                rank: strided.loops.len() as u32,
                x: strided.starts[0],
                y: strided.starts[1],
                p,
                q,
                padding: [0; 2],
                loops: strided.packed(op)?,
            };
            let variant = variant(function, dtype, strided.shape, strided.origin(0, in_place));
            ctx.launch(op, &variant, &[input], output, &params, strided.grid(op)?)?;
        }
        Ok(())
    })
}

/// The window of an input that is the output: the kernel reads the output's binding.
pub(super) fn in_output(ctx: &OpContext, output: &Window) -> Window {
    Window { offset: output.offset, ..ctx.null() }
}

/// A number as a parameter: the bits of what kernels take elements of `dtype` as, which is f32 for f16.
pub(super) fn number_bits(dtype: DType, number: f64) -> u32 {
    match dtype {
        DType::I32 => (number as i32).cast_unsigned(),
        DType::U32 => number as u32,
        _ => (number as f32).to_bits(),
    }
}
