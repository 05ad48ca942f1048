//! Rotary position embedding.

use backend_api::desc::{HeadLayout, RopeDesc, RopeStyle};
use backend_api::support::checked_product;
use backend_api::{BackendResult, DType};

use super::shared::long_work::{Run, in_parts};
use crate::kernels::{KernelSource, Variant, kernel, params};
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::recorder::Window;

static ROPE: KernelSource = kernel!(
    "tokens/rope",
    libs: [GRID],
    types: ["T", "Y"],
    constants: ["IN_PLACE", "INTERLEAVED", "HAS_POSITIONS"],
    reads: 4,
    writes: 1,
    params: Params,
);

params! {
    struct Params {
        // Start and strides by batch, head and token.
        input: [u32; 4],
        output: [u32; 4],
        heads: u32,
        seq: u32,
        pairs: u32,
        // Invocations of a vector: pairs and copied elements.
        work: u32,
        total: u32,
        max_position: u32,
        start: u32,
        cos_offset: u32,
        sin_offset: u32,
        positions_offset: u32,
        // WGSL rounds the struct up to its largest alignment.
        padding: [u32; 2],
    }
}

const WORKGROUP: usize = 256;
/// Bytes that are read and written for a pair.
const BYTES: usize = 24;

/// Of the types of input and output.
fn variant(types: [DType; 2], in_place: bool, style: RopeStyle, positions: bool) -> Variant {
    let flags = [in_place, style == RopeStyle::Interleaved, positions].map(u32::from);
    Variant::new(&ROPE, types, flags)
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    let types =
        [DType::F32, DType::F16].into_iter().flat_map(|from| [DType::F32, DType::F16].map(|to| [from, to]));
    for types in types {
        for style in [RopeStyle::Half, RopeStyle::Interleaved] {
            for positions in [false, true] {
                variants.push(variant(types, false, style, positions));
                if types[0] == types[1] {
                    variants.push(variant(types, true, style, positions));
                }
            }
        }
    }
    variants
}

/// Rotates pairs of elements by the angles of their positions.
pub(crate) fn rope(ctx: &OpContext, op: &'static str, desc: &RopeDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [input, output, cos, sin, positions] = ctx.resolve(op, &operands)?;
    let (Some(x), Some(y)) = (input, output) else { return Ok(()) };
    let &RopeDesc { dtype, output_dtype, .. } = desc;
    ctx.require_dtype(op, dtype)?;
    ctx.require_dtype(op, output_dtype)?;
    let output = ctx.output(&y, output_dtype);
    let in_place = x.region() == y.region();
    let input = if in_place { ctx.null() } else { ctx.input(op, &x, dtype, &output)? };
    let cos = ctx.optional_input(op, cos.as_ref(), DType::F32, &output)?;
    let sin = ctx.optional_input(op, sin.as_ref(), DType::F32, &output)?;
    let has_positions = positions.is_some();
    let positions = ctx.optional_input(op, positions.as_ref(), DType::U32, &output)?;

    let pairs = desc.rotary_dim / 2;
    let work = desc.head_dim - pairs;
    let total = checked_product(op, "pairs", &[desc.batch, desc.heads, desc.seq, work])?;
    let place = |offset: u32, strides: HeadLayout| {
        let used = |count: usize, stride| if count > 1 { dim(op, "stride", stride) } else { Ok(0) };
        let HeadLayout { batch, head, token, .. } = strides;
        BackendResult::Ok([offset, used(desc.batch, batch)?, used(desc.heads, head)?, used(desc.seq, token)?])
    };
    let [input_strides, output_strides] = desc.layouts();
    let params = Params {
        input: place(if in_place { output.offset } else { input.offset }, input_strides)?,
        output: place(output.offset, output_strides)?,
        heads: dim(op, "heads", desc.heads)?,
        seq: dim(op, "seq", desc.seq)?,
        pairs: dim(op, "rotary_dim", pairs)?,
        work: dim(op, "head_dim", work)?,
        total: dim(op, "pairs", total)?,
        max_position: dim(op, "max_position", desc.max_position)?,
        start: if has_positions { 0 } else { dim(op, "start", desc.start)? },
        cos_offset: cos.offset,
        sin_offset: sin.offset,
        positions_offset: positions.offset,
        padding: [0; 2],
    };
    let variant = variant([dtype, output_dtype], in_place, desc.style, has_positions);
    let each = total / desc.batch.max(1);
    let part_of = |window: &Window, strides: HeadLayout, run: &Run| {
        let HeadLayout { batch, head, token, .. } = strides;
        let steps = [(run.count(), batch), (desc.heads, head), (desc.seq, token)];
        let reach: usize = steps.into_iter().map(|(count, stride)| count.saturating_sub(1) * stride).sum();
        window.advanced(run.first * batch).truncated(reach + desc.head_dim)
    };
    // A stride that isn't used may be any number.
    let item =
        |strides: HeadLayout, dtype: DType| if desc.batch > 1 { strides.batch * dtype.size() } else { 0 };
    let run = Run::of_bytes(desc.batch, (each * BYTES) as f64)
        .over(ctx, &x, item(input_strides, dtype))
        .over(ctx, &y, item(output_strides, output_dtype));
    in_parts(ctx, op, run, |run| {
        let total = run.count() * each;
        let mut part = Params { total: dim(op, "pairs", total)?, ..params };
        // Within the operands, whose elements have numbers of 32 bits.
        let (input, output) = (part_of(&input, input_strides, run), part_of(&output, output_strides, run));
        part.input[0] = if in_place { output.offset } else { input.offset };
        part.output[0] = output.offset;
        part.positions_offset += if has_positions { dim(op, "positions", run.first * desc.seq)? } else { 0 };
        let grid = linear_grid(op, total.div_ceil(WORKGROUP))?;
        ctx.launch(op, &variant, &[&input, &cos, &sin, &positions], &output, &part, grid)
    })
}
