//! Random numbers.

use backend_api::desc::{Distribution, RandomDesc};
use backend_api::{BackendResult, DType};

use super::shared::long_work::{Run, in_parts};
use crate::kernels::libs::{CONVERT_F16, INVOCATION_OUTPUTS, PHILOX};
use crate::kernels::{Function, KernelSource, Variant, constants, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim, invocation_grid};

constants! { struct Constants { vec_width: u32, normal: bool, has_offset: bool } }

const RANDOM_F32: KernelSource = kernel!(
    "memory/random", libs: [INVOCATION_OUTPUTS, PHILOX],
    types: ["T"], constants: Constants, params: Params, reads: ["offsets: u32"], writes: ["output: TN"],
);

static RANDOM: KernelSource = RANDOM_F32;

/// `memory/random` for f16, with helpers that only a device with f16 can compile.
static RANDOM_F16: KernelSource =
    KernelSource { libs: &[INVOCATION_OUTPUTS, PHILOX, CONVERT_F16], ..RANDOM_F32 };

params! {
    struct Params {
        // Of the output: numbers, and blocks of them.
        n: u32,
        total: u32,
        output: u32,
        seed_low: u32,
        seed_high: u32,
        // Where in the stream the numbers begin.
        start_low: u32,
        start_high: u32,
        // Of what is added to that.
        offset: u32,
        shift: f32,
        scale: f32,
        // Always 0, which a compiler doesn't know.
        zero: u32,
    }
}

/// Elements of a block.
const BLOCK: usize = 4;

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        // Numbers that begin where memory says are aligned to nothing.
        for (vec_width, has_offset) in [(1, false), (4, false), (1, true)] {
            variants.extend([false, true].map(|normal| variant(dtype, vec_width, normal, has_offset)));
        }
    }
    variants
}

fn variant(dtype: DType, vec_width: u32, normal: bool, has_offset: bool) -> Variant {
    let source = if dtype == DType::F16 { &RANDOM_F16 } else { &RANDOM };
    let constants = Constants { vec_width, normal, has_offset };
    Variant::new(source, [dtype], constants).with_function(Function::Write)
}

/// `output` = random numbers of a stream.
pub(crate) fn random(ctx: &OpContext, op: &'static str, desc: &RandomDesc) -> BackendResult<()> {
    let [Some(output), offset] = ctx.resolve(op, &desc.operands(op)?)? else { return Ok(()) };
    ctx.require_dtype(op, desc.dtype)?;
    let run = Run::of_bytes(desc.n, BYTES).aligned(BLOCK).over(ctx, &output, desc.dtype.size());
    in_parts(ctx, op, run, |run| {
        let mut desc = *desc;
        desc.n = run.count();
        // It wraps around where the stream does.
        desc.offset = desc.offset.wrapping_add(run.first as u64);
        random_part(ctx, op, &desc, offset.as_ref(), &run.part_of(&output, desc.dtype.size()))
    })
}

/// Bytes that would be written while a number is made.
const BYTES: f64 = 16.0;

fn random_part(
    ctx: &OpContext,
    op: &'static str,
    desc: &RandomDesc,
    offset: Option<&DeviceSlice>,
    output: &DeviceSlice,
) -> BackendResult<()> {
    let output = ctx.output(output, desc.dtype);
    let has_offset = offset.is_some();
    let offset = ctx.optional_input(op, offset, DType::U32, &output)?;
    // Of the first block; as many as can be where memory says how many.
    let skip = if has_offset { BLOCK - 1 } else { (desc.offset % BLOCK as u64) as usize };
    // The bytes of n elements were checked, so this can't pass the end.
    let blocks = (skip + desc.n).div_ceil(BLOCK);
    let [shift, scale] = desc.distribution.affine();
    let params = Params {
        n: dim(op, "n", desc.n)?,
        total: dim(op, "n", blocks)?,
        output: output.offset,
        seed_low: desc.seed as u32,
        seed_high: (desc.seed >> 32) as u32,
        start_low: desc.offset as u32,
        start_high: (desc.offset >> 32) as u32,
        offset: offset.offset,
        shift,
        scale,
        zero: 0,
    };
    let whole = skip == 0 && desc.n.is_multiple_of(BLOCK) && output.offset.is_multiple_of(4);
    let normal = matches!(desc.distribution, Distribution::Normal { .. });
    let grid = invocation_grid(op, blocks)?;
    let variant = variant(desc.dtype, if whole { 4 } else { 1 }, normal, has_offset);
    ctx.launch(op, &variant, &[&offset], &output, &params, grid)
}
