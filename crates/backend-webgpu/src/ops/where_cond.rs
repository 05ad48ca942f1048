//! Selects elements of two strided tensors by a condition.

use backend_api::desc::WhereDesc;
use backend_api::support::round_to_odd;
use backend_api::{BackendResult, DType};
use half::f16;

use super::binary::{input, is_in_place, number_mask, origins};
use super::elementwise::number_bits;
use super::shared::strided_loops::{Shape, Stretch, StridedLoops, require_loops, shapes_of};
use crate::kernels::{Function, KernelSource, Variant, constants, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim};
use crate::recorder::Window;

constants! { struct Constants { shape: Shape, c_from: u32, a_from: u32, b_from: u32 } }

static WHERE: KernelSource = kernel!(
    "elementwise/where", libs: [GRID],
    types: ["T"], constants: Constants, params: Params, reads: ["c: CN", "a: AN", "b: BN"], writes: ["y: YN"],
);

/// Loops that the parameters have room for.
const MAX_LOOPS: usize = 5;

params! {
    struct Params {
        // Where c, a, b and y start; of a and b the bits if it is a number.
        starts: [u32; 4],
        // Extents of the loops, outermost first, as eight words of which the last three are the number of elements,
        // the number of loops, and which inputs are numbers (bit 0: a; bit 1: b).
        extents: [[u32; 4]; 2],
        // For each loop, outermost first: strides of c, a, b and y.
        strides: [[u32; 4]; MAX_LOOPS],
    }
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for dtype in [DType::U32, DType::F16] {
        for shape in shapes_of(&[DType::U32, dtype]) {
            for c in origins(shape, false) {
                for a in origins(shape, true) {
                    variants
                        .extend(origins(shape, true).into_iter().map(|b| variant(dtype, shape, [c, a, b])));
                }
            }
        }
    }
    variants
}

fn variant(dtype: DType, shape: Shape, [c_from, a_from, b_from]: [u32; 3]) -> Variant {
    Variant::new(&WHERE, [dtype], Constants { shape, c_from, a_from, b_from }).with_function(Function::Choose)
}

/// `output = condition ≠ 0 ? a : b`.
pub(crate) fn where_cond(ctx: &OpContext, op: &'static str, desc: &WhereDesc<'_>) -> BackendResult<()> {
    let (operands, loops) = desc.operands(op)?;
    let [Some(condition), a, b, Some(y)] = ctx.resolve(op, &operands)? else { return Ok(()) };
    ctx.require_dtype(op, desc.output.dtype)?;
    // Words are moved as they are, whatever they mean.
    let dtype = if desc.output.dtype == DType::F16 { DType::F16 } else { DType::U32 };
    let output = ctx.output(&y, dtype);
    let condition = ctx.input(op, &condition, DType::U32, &output)?;
    let numbers =
        [desc.a, desc.b].map(|value| value.scalar().map(|number| element_bits(desc.output.dtype, number)));
    let in_place = [false, is_in_place(a.as_ref(), &y), is_in_place(b.as_ref(), &y)];
    let a = input(ctx, op, a.as_ref(), numbers[0], dtype, &y, &output)?;
    let b = input(ctx, op, b.as_ref(), numbers[1], dtype, &y, &output)?;

    let whole = Stretch { loops, windows: [condition, a, b, output] };
    let moves = [in_place[0], in_place[1], in_place[2], false];
    whole.launch_parts(ctx, op, moves, |loops, [condition, a, b, output]| {
        let starts = [condition.offset, a.offset, b.offset, output.offset];
        let mut loops = loops.to_vec();
        // The one loop that the parameters have no room for is iterated over here.
        let spare = if loops.len() > MAX_LOOPS { shortest(&loops) } else { None };
        let (times, steps) = spare.map_or((1, [0; 4]), |at| loops.remove(at));
        for i in 0..times {
            let mut moved = starts;
            for (start, step) in moved.iter_mut().zip(steps) {
                *start += dim(op, "stride", i * step)?;
            }
            for strided in StridedLoops::plan(loops.clone(), moved, &[DType::U32, dtype]) {
                let origins = [0, 1, 2].map(|t| strided.origin(t, in_place[t]));
                let params = params(op, &strided, number_mask(&numbers))?;
                let variant = variant(dtype, strided.shape, origins);
                ctx.launch(op, &variant, &[condition, a, b], output, &params, strided.grid(op)?)?;
            }
        }
        Ok(())
    })
}

/// In scratch memory, `yes` for each word of `condition` that isn't 0, and `no` for the others.
pub(super) fn numbers_where(
    ctx: &OpContext,
    op: &'static str,
    condition: &DeviceSlice,
    [yes, no]: [f64; 2],
    dtype: DType,
) -> BackendResult<DeviceSlice> {
    let count = condition.len / DType::U32.size();
    let scratch = ctx.scratch(op, (count * dtype.size()).next_multiple_of(4))?;
    let moved_as = if dtype == DType::F16 { DType::F16 } else { DType::U32 };
    let output = ctx.output(&scratch, moved_as);
    let condition = ctx.input(op, condition, DType::U32, &output)?;
    let [a, b] = [yes, no].map(|number| Window { offset: element_bits(dtype, number), ..ctx.null() });
    let numbers = number_mask(&[Some(a.offset), Some(b.offset)]);
    let starts = [condition.offset, a.offset, b.offset, output.offset];
    let loops = vec![(count, [1, 0, 0, 1])];
    for strided in StridedLoops::plan(loops, starts, &[DType::U32, moved_as]) {
        let origins = [0, 1, 2].map(|t| strided.origin(t, false));
        let variant = variant(moved_as, strided.shape, origins);
        let params = params(op, &strided, numbers)?;
        ctx.launch(op, &variant, &[&condition, &a, &b], &output, &params, strided.grid(op)?)?;
    }
    Ok(scratch)
}

fn params(op: &'static str, strided: &StridedLoops<4>, numbers: u32) -> BackendResult<Params> {
    require_loops(op, strided.loops.len(), MAX_LOOPS)?;
    let mut words = [0; 8];
    let mut strides = [[0; 4]; MAX_LOOPS];
    for (i, (extent, loop_strides)) in strided.loops.iter().enumerate() {
        words[i] = dim(op, "extent", *extent)?;
        for (slot, &stride) in strides[i].iter_mut().zip(loop_strides) {
            *slot = dim(op, "stride", stride)?;
        }
    }
    words[MAX_LOOPS..].copy_from_slice(&[strided.count(op)?, strided.loops.len() as u32, numbers]);
    Ok(Params { starts: strided.starts, extents: bytemuck::cast(words), strides })
}

/// The loop of the smallest extent.
fn shortest(loops: &[(usize, [usize; 4])]) -> Option<usize> {
    (0..loops.len()).min_by_key(|&i| loops[i].0)
}

/// A number as the kernel takes it: a word's bits, and f16 as the f32 that is equal to it.
fn element_bits(dtype: DType, number: f64) -> u32 {
    match dtype {
        DType::F16 => f16::from_f32(round_to_odd(number)).to_f32().to_bits(),
        dtype => number_bits(dtype, number),
    }
}
