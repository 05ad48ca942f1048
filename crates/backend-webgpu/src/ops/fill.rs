//! One value in every element.

use backend_api::support::{Access, Operand, round_to_odd};
use backend_api::{BackendError, BackendResult, DType};
use half::f16;

use super::shared::long_work::{Run, in_parts};
use crate::kernels::{KernelSource, Variant, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim, invocation_grid};

static FILL: KernelSource = kernel!(
    "memory/fill", libs: [GRID],
    types: [], constants: [], params: Params, reads: [], writes: ["dst: u32"],
);

params! {
    struct Params {
        value: u32,
        dst_byte: u32,
        bytes: u32,
    }
}

pub(super) fn variants() -> Vec<Variant> {
    vec![Variant::new(&FILL, [], [])]
}

/// `dst[0..n] = value`.
pub(crate) fn fill(
    ctx: &OpContext,
    op: &'static str,
    dst: u64,
    dtype: DType,
    n: usize,
    value: f64,
) -> BackendResult<()> {
    let operand = Operand::new(op, "dst", dst, dtype, n, Access::Write)?;
    let [Some(slice)] = ctx.resolve(op, &[operand])? else {
        return Ok(());
    };
    ctx.require_dtype(op, dtype)?;
    let value = word_of(op, dtype, value)?;
    let run = Run::of_bytes(n, dtype.size() as f64).over(ctx, &slice, dtype.size());
    in_parts(ctx, op, run, |run| fill_part(ctx, op, &run.part_of(&slice, dtype.size()), value))
}

/// New memory whose bytes are 0.
pub(crate) fn alloc_zeroed(ctx: &OpContext, bytes: usize) -> BackendResult<u64> {
    let op = "alloc_zeroed";
    let ctx = &ctx.for_transfers();
    let ptr = ctx.alloc(op, bytes)?;
    zero(ctx, op, ptr, bytes).map(|()| ptr).or_else(|error| {
        ctx.device.memory.free(ptr)?;
        Err(error)
    })
}

fn zero(ctx: &OpContext, op: &'static str, ptr: u64, bytes: usize) -> BackendResult<()> {
    let operand = Operand::bytes("ptr", ptr, bytes, Access::Write);
    let [Some(slice)] = ctx.resolve(op, &[operand])? else {
        return Ok(());
    };
    let run = Run::of_bytes(bytes, 1.0).aligned(size_of::<u32>()).over(ctx, &slice, 1);
    in_parts(ctx, op, run, |run| fill_part(ctx, op, &run.part_of(&slice, 1), 0))?;
    ctx.commit(op)
}

/// Sets bytes within one binding to 0.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn zero_bytes(ctx: &OpContext, op: &'static str, slice: &DeviceSlice) -> BackendResult<()> {
    fill_part(ctx, op, slice, 0)
}

fn fill_part(ctx: &OpContext, op: &'static str, slice: &DeviceSlice, value: u32) -> BackendResult<()> {
    // Counted in words, so that one kernel serves every type.
    let (mut words, byte) = (slice.clone(), slice.offset % 4);
    words.offset -= byte;
    words.len += byte;
    let output = ctx.output(&words, DType::U32);
    let params =
        Params { value, dst_byte: output.offset * 4 + byte as u32, bytes: dim(op, "bytes", slice.len)? };
    let grid = invocation_grid(op, words.len.div_ceil(4))?;
    ctx.launch(op, &Variant::new(&FILL, [], []), &[], &output, &params, grid)
}

/// The value's bits as an element, twice if it is of 2 bytes.
fn word_of(op: &'static str, dtype: DType, value: f64) -> BackendResult<u32> {
    match dtype {
        DType::F32 => Ok((value as f32).to_bits()),
        DType::F16 => Ok(u32::from(f16::from_f32(round_to_odd(value)).to_bits()) * 0x1_0001),
        DType::I32 => Ok((value as i32).cast_unsigned()),
        DType::U32 => Ok(value as u32),
        got => Err(BackendError::Dtype { op, arg: "dtype", got }),
    }
}
