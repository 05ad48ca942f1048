//! Strided copies that convert.

use backend_api::desc::{CopyDesc, MAX_RANK};
use backend_api::support::Loop;
use backend_api::{BackendResult, DType};

use super::shared::strided_loops::{Shape, Stretch, StridedLoops, shapes_of};
use super::transpose::Transpose;
use crate::kernels::libs::{CONVERT, CONVERT_F16, GRID, STRIDED};
use crate::kernels::{Function, KernelSource, Origin, Variant, constants, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::OpContext;
use crate::recorder::Window;

constants! { struct Constants { shape: Shape, src_from: u32 } }

const COPY_WORDS: KernelSource = kernel!(
    "memory/copy", libs: [GRID, STRIDED, CONVERT],
    types: ["SRC", "DST"], constants: Constants, params: Params, reads: ["src: SRCN"], writes: ["dst: YN"],
);

static COPY: KernelSource = COPY_WORDS;

/// `memory/copy` from or to f16, with helpers that only a device with f16 can compile.
static COPY_F16: KernelSource = KernelSource { libs: &[GRID, STRIDED, CONVERT, CONVERT_F16], ..COPY_WORDS };

params! {
    struct Params {
        n: u32,
        rank: u32,
        src: u32,
        dst: u32,
        // For each loop, outermost first: extent, stride of src, stride of dst.
        loops: [[u32; 4]; MAX_RANK],
    }
}

/// The types as which elements are read and written: bits are moved as words where nothing is converted.
fn moved_as(src: DType, dst: DType) -> [DType; 2] {
    if src == dst && src != DType::F16 { [DType::U32; 2] } else { [src, dst] }
}

fn variant(types: [DType; 2], shape: Shape, origin: u32) -> Variant {
    let source = if types.contains(&DType::F16) { &COPY_F16 } else { &COPY };
    Variant::new(source, types, Constants { shape, src_from: origin }).with_function(Function::Convert)
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for src in DType::ALL {
        for dst in DType::ALL {
            let types = moved_as(src, dst);
            for variant in shapes_of(&types).flat_map(|shape| {
                let widest = shapes_of(&types).next() == Some(shape);
                let origins = [Origin::Memory, Origin::Repeated, Origin::Gathered].into_iter();
                let origins = origins.filter(move |&origin| match origin {
                    Origin::Repeated => shape.vec_width > 1,
                    Origin::Gathered => widest,
                    _ => true,
                });
                origins.map(move |origin| variant(types, shape, origin as u32))
            }) {
                if !variants.contains(&variant) {
                    variants.push(variant);
                }
            }
        }
    }
    variants
}

/// `dst = src`, converted.
pub(crate) fn copy(ctx: &OpContext, op: &'static str, desc: &CopyDesc<'_>) -> BackendResult<()> {
    let (operands, loops) = desc.operands(op)?;
    let [Some(src), Some(dst)] = ctx.resolve(op, &operands)? else { return Ok(()) };
    copy_loops(ctx, op, [desc.src.dtype, desc.dst.dtype], loops, [&src, &dst], [0; 2])
}

/// Records the copy that `loops` iterate over, of elements that begin at numbers `starts` of source and destination.
pub(super) fn copy_loops(
    ctx: &OpContext,
    op: &'static str,
    [from, to]: [DType; 2],
    loops: Vec<Loop<2>>,
    [src, dst]: [&DeviceSlice; 2],
    starts: [usize; 2],
) -> BackendResult<()> {
    let types = moved_as(from, to);
    for dtype in types {
        ctx.require_dtype(op, dtype)?;
    }
    let output = ctx.output(dst, types[1]);
    let input = ctx.input(op, src, types[0], &output)?;
    launch(ctx, op, types, loops, [&input.advanced(starts[0]), &output.advanced(starts[1])])
}

/// Records the copy between windows of elements of the given types.
pub(super) fn copy_windows(
    ctx: &OpContext,
    op: &'static str,
    [from, to]: [DType; 2],
    loops: Vec<Loop<2>>,
    windows: [&Window; 2],
) -> BackendResult<()> {
    launch(ctx, op, moved_as(from, to), loops, windows)
}

/// Records the copy of whole words from one binding to another.
pub(super) fn copy_words(
    ctx: &OpContext,
    op: &'static str,
    words: usize,
    windows: [&Window; 2],
) -> BackendResult<()> {
    launch(ctx, op, [DType::U32; 2], vec![(words, [1; 2])], windows)
}

fn launch(
    ctx: &OpContext,
    op: &'static str,
    types: [DType; 2],
    loops: Vec<Loop<2>>,
    [input, output]: [&Window; 2],
) -> BackendResult<()> {
    let whole = Stretch { loops, windows: [input.clone(), output.clone()] };
    whole.launch_parts(ctx, op, [false; 2], |loops, [input, output]| {
        if types[0] == types[1]
            && let Some(transpose) = Transpose::plan(loops)
            && transpose.is_worthwhile(ctx, types[0], [input, output])
        {
            return transpose.launch(ctx, op, types[0], [input, output]);
        }
        for strided in StridedLoops::plan_gathering(loops.to_vec(), [input.offset, output.offset], &types) {
            let params = Params {
                n: strided.count(op)?,
                rank: strided.loops.len() as u32,
                src: strided.starts[0],
                dst: strided.starts[1],
                loops: strided.packed(op)?,
            };
            let variant = variant(types, strided.shape, strided.origin(0, false));
            ctx.launch(op, &variant, &[input], output, &params, strided.grid(op)?)?;
        }
        Ok(())
    })
}
