//! Rotary position embedding.

use backend_api::desc::{HeadLayout, RopeDesc, RopeStyle};
use backend_api::support::checked_product;
use backend_api::{BackendResult, DType};

use super::shared::long_work::{Divisible, halves_of, in_parts};
use crate::device::DeviceProfile;
use crate::kernels::{KernelSource, Variant, constants, kernel, params};
use crate::ops::op_context::{OpContext, dim, invocation_grid};
use crate::recorder::Window;

constants! { struct Constants { in_place: bool, interleaved: bool, has_positions: bool } }

static ROPE: KernelSource = kernel!(
    "tokens/rope", libs: [INVOCATION_OUTPUTS],
    types: ["T", "Y"], constants: Constants, params: Params,
    reads: ["input: T", "cosines: f32", "sines: f32", "positions: u32"], writes: ["output: Y"],
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

/// Bytes that are read and written for a pair.
const BYTES: usize = 24;

/// Of the types of input and output.
fn variant(types: [DType; 2], in_place: bool, style: RopeStyle, has_positions: bool) -> Variant {
    let interleaved = style == RopeStyle::Interleaved;
    Variant::new(&ROPE, types, Constants { in_place, interleaved, has_positions })
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
    let [input, output, cos, sin, positions] = ctx.resolve(op, &desc.operands(op)?)?;
    let (Some(x), Some(y)) = (input, output) else { return Ok(()) };
    let &RopeDesc { dtype, output_dtype, .. } = desc;
    ctx.require_dtype(op, dtype)?;
    ctx.require_dtype(op, output_dtype)?;
    let output = ctx.output(&y, output_dtype);
    let (input, in_place) = ctx.input_or_output(op, dtype, &x, (&y, &output))?;
    let cos = ctx.optional_input(op, cos.as_ref(), DType::F32, &output)?;
    let sin = ctx.optional_input(op, sin.as_ref(), DType::F32, &output)?;
    let positions = ctx.optional_input(op, positions.as_ref(), DType::U32, &output)?;

    let [input_layout, output_layout] = desc.layouts();
    let desc = desc.with_input_layout(input_layout).with_output_layout(output_layout);
    let whole = Part { desc, in_place, input, output, positions };
    in_parts(ctx, op, whole, |part| part.launch(ctx, op, [&cos, &sin]))
}

/// Some sequences of a rotation, some heads of one, or some tokens of one head, with the windows of their first elements.
#[derive(Clone, Debug)]
struct Part {
    /// With both layouts, in which offsets have no meaning any more.
    desc: RopeDesc,
    in_place: bool,
    input: Window,
    output: Window,
    positions: Window,
}

impl Part {
    /// The elements of input, output and positions, from the first to the last one.
    fn elements(&self) -> [usize; 3] {
        let RopeDesc { batch, heads, seq, head_dim, .. } = self.desc;
        let last = |count: usize, stride: usize| count.saturating_sub(1).saturating_mul(stride);
        let reach = |layout: HeadLayout| {
            let heads = last(heads, layout.head).saturating_add(last(seq, layout.token));
            last(batch, layout.batch).saturating_add(heads).saturating_add(head_dim)
        };
        let [input, output] = self.desc.layouts().map(reach);
        [input, output, if self.desc.positions.is_some() { batch * seq } else { 0 }]
    }

    /// Vectors from some sequence, head and token on, where the part has several of them.
    fn from(&self, [batch, head, token]: [usize; 3], change: impl FnOnce(&mut RopeDesc)) -> Self {
        let start = |layout: HeadLayout| batch * layout.batch + head * layout.head + token * layout.token;
        let [input, output] = self.desc.layouts().map(start);
        let positions = if self.desc.positions.is_some() { batch * self.desc.seq + token } else { 0 };
        let mut desc = self.desc;
        change(&mut desc);
        Self {
            desc,
            in_place: self.in_place,
            input: self.input.advanced(if self.in_place { 0 } else { input }),
            output: self.output.advanced(output),
            positions: self.positions.advanced(positions),
        }
    }

    /// Along sequences, heads or tokens.
    fn halves_along(&self, axis: usize) -> Option<[Self; 2]> {
        let RopeDesc { batch, heads, seq, .. } = self.desc;
        let extent = [batch, heads, seq][axis];
        halves_of(extent, |first, count| {
            let mut at = [0; 3];
            at[axis] = first;
            self.from(at, |desc| match axis {
                0 => desc.batch = count,
                1 => desc.heads = count,
                _ => (desc.seq, desc.start) = (count, desc.start.saturating_add(first)),
            })
        })
    }

    fn launch(&self, ctx: &OpContext, op: &'static str, [cos, sin]: [&Window; 2]) -> BackendResult<()> {
        let &Self { ref desc, in_place, .. } = self;
        let [of_input, of_output, of_positions] = self.elements();
        let output = self.output.truncated(of_output);
        let input = if in_place { self.input.clone() } else { self.input.truncated(of_input) };
        let positions = self.positions.truncated(of_positions);
        let (pairs, work) = (desc.rotary_dim / 2, work(desc));
        let total = checked_product(op, "pairs", &[desc.batch, desc.heads, desc.seq, work])?;
        let place = |offset: u32, strides: HeadLayout| {
            // A stride that isn't used may be any number.
            let used = |count: usize, stride| if count > 1 { dim(op, "stride", stride) } else { Ok(0) };
            let HeadLayout { batch, head, token, .. } = strides;
            let heads = [used(desc.batch, batch)?, used(desc.heads, head)?, used(desc.seq, token)?];
            BackendResult::Ok([offset, heads[0], heads[1], heads[2]])
        };
        let [input_strides, output_strides] = desc.layouts();
        let has_positions = desc.positions.is_some();
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
        let variant = variant([desc.dtype, desc.output_dtype], in_place, desc.style, has_positions);
        let grid = invocation_grid(op, total)?;
        ctx.launch(op, &variant, &[&input, cos, sin, &positions], &output, &params, grid)
    }
}

/// Pairs of a vector, and elements that are copied.
const fn work(desc: &RopeDesc) -> usize {
    desc.head_dim - desc.rotary_dim / 2
}

impl Divisible for Part {
    fn seconds(&self, profile: &DeviceProfile) -> f64 {
        let RopeDesc { batch, heads, seq, .. } = self.desc;
        batch as f64 * heads as f64 * seq as f64 * (work(&self.desc) * BYTES) as f64 / profile.bandwidth
    }

    fn halves(&self) -> Option<[Self; 2]> {
        (0..3).find_map(|axis| self.halves_along(axis))
    }

    fn excess(&self) -> u64 {
        let [input, output, positions] = self.elements();
        let of_input = if self.in_place { 0 } else { self.input.excess(input) };
        of_input + self.output.excess(output) + self.positions.excess(positions)
    }
    /// Along the axis that reaches furthest in the operand that is the most too large.
    fn smaller_halves(&self) -> Option<[Self; 2]> {
        let RopeDesc { batch, heads, seq, .. } = self.desc;
        let [input, output] = self.desc.layouts();
        let [of_input, of_output, _] = self.elements();
        let most = if self.input.excess(of_input) > self.output.excess(of_output) { input } else { output };
        let reach = [(batch, most.batch), (heads, most.head), (seq, most.token)]
            .map(|(count, stride)| count.saturating_sub(1).saturating_mul(stride));
        let furthest = (0..3).max_by_key(|&axis| reach[axis])?;
        // Positions are counted by whole sequences.
        let axis = if furthest == 2 && batch > 1 && self.desc.positions.is_some() { 0 } else { furthest };
        self.halves_along(axis).or_else(|| self.halves())
    }
}
