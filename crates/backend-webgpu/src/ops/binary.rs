//! Element-wise functions and comparisons of two strided tensors.

use backend_api::desc::{BinaryDesc, CompareDesc, MAX_RANK, Value};
use backend_api::support::{Loop, Operand};
use backend_api::{BackendResult, BinaryOp, CompareOp, DType};

use super::elementwise::{in_output, number_bits};
use super::normed_rows::add_with_norm;
use super::shared::strided_loops::{Shape, Stretch, StridedLoops, shapes_of};
use crate::kernels::libs::REMAINDER;
use crate::kernels::{Function, KernelSource, Lib, Origin, Variant, constants, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::OpContext;
use crate::recorder::Window;

constants! { struct Constants { shape: Shape, a_from: u32, b_from: u32 } }

static BINARY: KernelSource = kernel!(
    "elementwise/binary", libs: [GRID, STRIDED, HALF, BINARY, ORDER, INTEGER],
    types: ["T", "Y"], constants: Constants, params: Params, reads: ["a: AN", "b: BN"], writes: ["y: YN"],
);

params! {
    struct Params {
        n: u32,
        rank: u32,
        // Where a and b start, or the bits of a number.
        a: u32,
        b: u32,
        y: u32,
        // Bit 0: a is a number; bit 1: b is.
        numbers: u32,
        // WGSL aligns an array of vectors.
        padding: [u32; 2],
        // For each loop, outermost first: extent, stride of a, stride of b, stride of y.
        loops: [[u32; 4]; MAX_RANK],
    }
}

pub(super) fn variants() -> Vec<Variant> {
    let functions = BinaryOp::ALL.iter().map(|&op| Function::Binary(op));
    let mut variants = Vec::new();
    for function in functions.chain(CompareOp::ALL.iter().map(|&op| Function::Compare(op))) {
        for dtype in DType::ALL {
            let (types, in_place) = match function {
                Function::Binary(op) if !op.accepts(dtype) => continue,
                Function::Binary(_) => ([dtype; 2], true),
                _ => ([dtype, DType::U32], false),
            };
            for shape in shapes_of(&types) {
                let pairs = origins(shape, in_place)
                    .into_iter()
                    .flat_map(|a| origins(shape, in_place).into_iter().map(move |b| [a, b]));
                variants.extend(pairs.map(|pair| variant(function, types, shape, pair)));
                let gathered = gathered_pairs(shape, &types, in_place).into_iter();
                variants.extend(gathered.map(|pair| variant(function, types, shape, pair)));
            }
        }
    }
    variants
}

/// Where a kernel of this shape may have an input from.
pub(super) fn origins(shape: Shape, in_place: bool) -> Vec<u32> {
    let all = [Origin::Memory, Origin::Output, Origin::Repeated].into_iter();
    let possible = all.filter(|&origin| match origin {
        Origin::Memory => true,
        Origin::Output => in_place,
        Origin::Repeated => shape.vec_width > 1,
        Origin::Gathered => false,
    });
    possible.map(|origin| origin as u32).collect()
}

/// The origins of both inputs where one is gathered, as it is in the widest vectors only.
fn gathered_pairs(shape: Shape, types: &[DType], in_place: bool) -> Vec<[u32; 2]> {
    if shapes_of(types).next() != Some(shape) {
        return Vec::new();
    }
    let gathered = Origin::Gathered as u32;
    let others = [Some(Origin::Memory), in_place.then_some(Origin::Output)].into_iter().flatten();
    others.flat_map(|other| [[gathered, other as u32], [other as u32, gathered]]).collect()
}

fn variant(function: Function, types: [DType; 2], shape: Shape, [a_from, b_from]: [u32; 2]) -> Variant {
    let libs: &[Lib] = match function {
        Function::Binary(BinaryOp::Rem | BinaryOp::Mod) if types[0].is_float() => &[REMAINDER],
        _ => &[],
    };
    let variant = Variant::new(&BINARY, types, Constants { shape, a_from, b_from });
    variant.with_function(function).with_libs(libs)
}

/// `output = op(a, b)`.
pub(crate) fn binary(ctx: &OpContext, op: &'static str, desc: &BinaryDesc<'_>) -> BackendResult<()> {
    let types = [desc.output.dtype; 2];
    let (operands, loops) = desc.operands(op)?;
    let is_contiguous = matches!(loops.as_slice(), [(_, [1, 1, 1])]);
    if add_with_norm(ctx, op, desc, &operands, is_contiguous)? {
        return Ok(());
    }
    zip(ctx, op, (operands, loops), [desc.a, desc.b], types, Function::Binary(desc.op))
}

/// `output = a op b`.
pub(crate) fn compare(ctx: &OpContext, op: &'static str, desc: &CompareDesc<'_>) -> BackendResult<()> {
    let types = [desc.dtype(), DType::U32];
    zip(ctx, op, desc.operands(op)?, [desc.a, desc.b], types, Function::Compare(desc.op))
}

/// `output = function(a, b)` of tensors of one type, by the memory of a, b and output.
pub(super) fn binary_of(
    ctx: &OpContext,
    op: &'static str,
    function: BinaryOp,
    dtype: DType,
    loops: Vec<Loop<3>>,
    [a, b, y]: [&DeviceSlice; 3],
) -> BackendResult<()> {
    zip_of(ctx, op, loops, [(Some(a), None), (Some(b), None)], y, [dtype; 2], Function::Binary(function))
}

fn zip(
    ctx: &OpContext,
    op: &'static str,
    (operands, loops): ([Operand; 3], Vec<Loop<3>>),
    values: [Value<'_>; 2],
    types: [DType; 2],
    function: Function,
) -> BackendResult<()> {
    let [a, b, Some(y)] = ctx.resolve(op, &operands)? else { return Ok(()) };
    for dtype in types {
        ctx.require_dtype(op, dtype)?;
    }
    let number = |value: &Value<'_>| value.scalar().map(|number| number_bits(types[0], number));
    let numbers = values.each_ref().map(number);
    let [a, b] = [(a.as_ref(), numbers[0]), (b.as_ref(), numbers[1])];
    zip_of(ctx, op, loops, [a, b], &y, types, function)
}

/// Of inputs, each of which is in memory or the bits of a number.
fn zip_of(
    ctx: &OpContext,
    op: &'static str,
    loops: Vec<Loop<3>>,
    inputs: [(Option<&DeviceSlice>, Option<u32>); 2],
    y: &DeviceSlice,
    types: [DType; 2],
    function: Function,
) -> BackendResult<()> {
    let output = ctx.output(y, types[1]);
    let in_place = inputs.map(|(slice, _)| is_in_place(slice, y));
    let numbers = inputs.map(|(_, number)| number);
    let window = |(slice, number)| input(ctx, op, slice, number, types[0], y, &output);
    let (a, b) = (window(inputs[0])?, window(inputs[1])?);
    let [a_in_place, b_in_place] = in_place;
    let whole = Stretch { loops, windows: [a, b, output] };
    whole.launch_parts(ctx, op, [a_in_place, b_in_place, false], |loops, [a, b, output]| {
        let starts = [a.offset, b.offset, output.offset];
        for strided in StridedLoops::plan_gathering(loops.to_vec(), starts, &types) {
            let params = Params {
                n: strided.count(op)?,
                rank: strided.loops.len() as u32,
                a: strided.starts[0],
                b: strided.starts[1],
                y: strided.starts[2],
                numbers: number_mask(&numbers),
                padding: [0; 2],
                loops: strided.packed(op)?,
            };
            let origins = [0, 1].map(|t| strided.origin(t, in_place[t]));
            let variant = variant(function, types, strided.shape, origins);
            ctx.launch(op, &variant, &[a, b], output, &params, strided.grid(op)?)?;
        }
        Ok(())
    })
}

/// Whether an input is exactly the output.
pub(super) fn is_in_place(input: Option<&DeviceSlice>, output: &DeviceSlice) -> bool {
    input.is_some_and(|input| input.region() == output.region())
}

/// The window of an input that may be the output, or a number, whose bits then take the place of its start.
pub(super) fn input(
    ctx: &OpContext,
    op: &'static str,
    slice: Option<&DeviceSlice>,
    number: Option<u32>,
    dtype: DType,
    output_slice: &DeviceSlice,
    output: &Window,
) -> BackendResult<Window> {
    match (slice, number) {
        (Some(_), _) if is_in_place(slice, output_slice) => Ok(in_output(ctx, output)),
        (Some(slice), _) => ctx.input(op, slice, dtype, output),
        (None, bits) => Ok(Window { offset: bits.unwrap_or(0), ..ctx.null() }),
    }
}

/// A bit for each input that is a number.
pub(super) fn number_mask(numbers: &[Option<u32>]) -> u32 {
    numbers.iter().enumerate().map(|(i, number)| u32::from(number.is_some()) << i).sum()
}
