//! Functions of one number and of two, over strided tensors.

use backend_api::desc::{BinaryDesc, Loop, MAX_RANK, UnaryDesc};
use backend_api::{BackendError, BackendResult, BinaryOp, DType, UnaryOp};

use crate::context::{Context, dim, linear_grid};
use crate::kernels::{Function, KernelSource, Variant, kernel, params};
use crate::memory::DeviceSlice;
use crate::recorder::Window;

static UNARY: KernelSource = kernel!(
    "elementwise/unary",
    libs: [GRID, SPECIAL, UNARY, LOG, TRIG],
    types: ["T"],
    constants: ["IN_PLACE"],
    reads: 1,
    writes: 1,
    params: UnaryParams,
);

params! {
    struct UnaryParams {
        n: u32,
        rank: u32,
        x_offset: u32,
        y_offset: u32,
        loops: [[u32; 4]; MAX_RANK],
    }
}

static BINARY: KernelSource = kernel!(
    "elementwise/binary",
    libs: [GRID, SPECIAL, UNARY, LOG, BINARY],
    types: ["T"],
    constants: ["IN_PLACE"],
    reads: 2,
    writes: 1,
    params: BinaryParams,
);

params! {
    struct BinaryParams {
        n: u32,
        rank: u32,
        a_offset: u32,
        b_offset: u32,
        y_offset: u32,
        // WGSL aligns an array of vectors.
        padding: [u32; 3],
        loops: [[u32; 4]; MAX_RANK],
    }
}

const WORKGROUP: usize = 256;

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for &op in UnaryOp::ALL {
        for dtype in [DType::F32, DType::F16] {
            variants.extend([false, true].map(|in_place| unary_variant(op, dtype, in_place)));
        }
    }
    for &op in BinaryOp::ALL {
        for dtype in [DType::F32, DType::F16] {
            variants.extend((0..4).map(|in_place| binary_variant(op, dtype, in_place)));
        }
    }
    variants
}

fn unary_variant(op: UnaryOp, dtype: DType, in_place: bool) -> Variant {
    Variant::new(&UNARY, [dtype], [u32::from(in_place)]).with_function(Function::Unary(op))
}

/// `in_place` has bit 0 set if the output is a, and bit 1 if it is b.
fn binary_variant(op: BinaryOp, dtype: DType, in_place: u32) -> Variant {
    Variant::new(&BINARY, [dtype], [in_place]).with_function(Function::Binary(op))
}

/// `output = op(input)`.
pub(crate) fn unary(ctx: &Context, op: &'static str, desc: &UnaryDesc<'_>) -> BackendResult<()> {
    let (operands, loops) = desc.operands(op)?;
    let [Some(x), Some(y)] = ctx.resolve(op, &operands)? else {
        return Ok(());
    };
    let dtype = desc.output.dtype;
    ctx.require_dtype(op, dtype)?;
    let output = ctx.output(op, &y, dtype)?;
    let in_place = x.region() == y.region();
    let input = if in_place { ctx.null() } else { ctx.input(op, &x, dtype, &output)? };
    let params = UnaryParams {
        n: element_count(op, &loops)?,
        rank: loops.len() as u32,
        x_offset: if in_place { output.offset } else { input.offset },
        y_offset: output.offset,
        loops: packed_loops(op, &loops)?,
    };
    let grid = linear_grid(op, (params.n as usize).div_ceil(WORKGROUP))?;
    ctx.launch(op, &unary_variant(desc.op, dtype, in_place), &[&input], &output, &params, grid)
}

/// `output = op(a, b)`.
pub(crate) fn binary(ctx: &Context, op: &'static str, desc: &BinaryDesc<'_>) -> BackendResult<()> {
    let (operands, loops) = desc.operands(op)?;
    let [Some(a), Some(b), Some(y)] = ctx.resolve(op, &operands)? else { return Ok(()) };
    let dtype = desc.output.dtype;
    ctx.require_dtype(op, dtype)?;
    let output = ctx.output(op, &y, dtype)?;
    let mut in_place = 0;
    let mut input = |slice: &DeviceSlice, bit: u32| {
        if slice.region() != y.region() {
            return ctx.input(op, slice, dtype, &output);
        }
        in_place |= bit;
        Ok(Window { offset: output.offset, ..ctx.null() })
    };
    let (a, b) = (input(&a, 1)?, input(&b, 2)?);
    let params = BinaryParams {
        n: element_count(op, &loops)?,
        rank: loops.len() as u32,
        a_offset: a.offset,
        b_offset: b.offset,
        y_offset: output.offset,
        padding: [0; 3],
        loops: packed_loops(op, &loops)?,
    };
    let grid = linear_grid(op, (params.n as usize).div_ceil(WORKGROUP))?;
    ctx.launch(op, &binary_variant(desc.op, dtype, in_place), &[&a, &b], &output, &params, grid)
}

/// The number of elements that loops visit.
pub(super) fn element_count<const N: usize>(op: &'static str, loops: &[Loop<N>]) -> BackendResult<u32> {
    let extents: Vec<_> = loops.iter().map(|&(extent, _)| extent).collect();
    dim(op, "elements", backend_api::checked_product(op, "elements", &extents)?)
}

/// Loops as kernels take them: extent and up to three strides.
pub(super) fn packed_loops<const N: usize>(
    op: &'static str,
    loops: &[Loop<N>],
) -> BackendResult<[[u32; 4]; MAX_RANK]> {
    const { assert!(N <= 3, "a loop has room for three strides") };
    if loops.len() > MAX_RANK {
        let what = "dimensions that can't be merged";
        return Err(BackendError::Limit { op, what, requested: loops.len(), max: MAX_RANK });
    }
    let mut packed = [[0; 4]; MAX_RANK];
    for (slot, (extent, strides)) in packed.iter_mut().zip(loops) {
        slot[0] = dim(op, "extent", *extent)?;
        for (stride, value) in slot[1..].iter_mut().zip(strides) {
            *stride = dim(op, "stride", *value)?;
        }
    }
    Ok(packed)
}
