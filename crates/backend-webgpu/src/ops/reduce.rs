//! Reductions over any axes.

use backend_api::desc::{Loop, MAX_RANK, ReduceDesc, ReduceLoops};
use backend_api::{BackendResult, DType, ReduceOp};

use super::lanes::Lanes;
use super::reduction::{Rule, rule};
use super::teams::Teams;
use crate::context::{Context, dim};
use crate::kernels::params;
use crate::memory::DeviceSlice;
use crate::recorder::Window;

pub(super) use super::reduction::variants;

params! {
    pub(super) struct Params {
        outputs: u32,
        length: u32,
        team: u32,
        stride: u32,
        x_offset: u32,
        y_offset: u32,
        kept: u32,
        divisor: f32,
        loops: [[u32; 4]; MAX_RANK],
    }
}

/// The fewest loads of an invocation in a small team.
const LEAST: usize = 2;
/// Workgroups that keep a large device busy.
const BUSY: usize = 1024;
/// Loads of an invocation from which on a reduction is worth being cut.
const CUT_SHARE: usize = 16;
/// Loads of an invocation beyond which runs of runs would lose accuracy.
const MAX_SHARE: usize = 4096;

/// `output = op over axes of input`.
pub(crate) fn reduce(ctx: &Context, op: &'static str, desc: &ReduceDesc<'_>) -> BackendResult<()> {
    let (operands, loops) = desc.operands(op)?;
    let [x, y] = ctx.resolve(op, &operands)?;
    let Some(y) = y else { return Ok(()) };
    let (from, to) = (desc.input.dtype, desc.output_dtype);
    ctx.require_dtype(op, from)?;
    let rule = rule(op, desc.op)?;
    let output = ctx.output(op, &y, to)?;
    let input = ctx.optional_input(op, x.as_ref(), from, &output)?;
    let reduction = Reduction { ctx, op, rule, dtype: from };

    let divisor = if desc.op == ReduceOp::Mean { loops.length as f32 } else { 1.0 };
    let mut walk = Walk::new(from, &input, loops, rule);
    let slices = walk.slices();
    if slices == 1 {
        return reduction.finish(&walk, &input, (&output, to), divisor);
    }
    // The order of every sum is fixed by the shape and the alignment, so results are the same each time.
    let partial = rule.partial(from);
    let scratch =
        ctx.memory.scratch(op, slices * walk.loops.outputs * rule.partial_numbers() * partial.size())?;
    let partials = ctx.output(op, &scratch, partial)?;
    let input = ctx.optional_input(op, x.as_ref(), from, &partials)?;
    let strides = walk.pack_outputs();
    reduction.begin(&walk, &input, (&partials, partial), slices)?;
    let rest = Walk::of_slices(&walk, &strides, slices, partial, &partials, rule);
    let reduction = Reduction { dtype: partial, rule: rule.of_partials(), ..reduction };
    reduction.finish(&rest, &partials, (&output, to), divisor)
}

/// The maximum m and Σ exp(x − m) of each output of `loops`, as pairs of f32 in several parts.
pub(super) struct Exponentials {
    /// `[parts, outputs]` pairs in scratch memory.
    pub(super) sums: Window,
    pub(super) parts: usize,
}

/// The most parts that are worth being joined where they are used.
const MAX_PARTS: usize = 16;

/// [`Exponentials`] of a packed tensor, with at most [`MAX_PARTS`] parts.
pub(super) fn exponentials(
    ctx: &Context,
    op: &'static str,
    x: &DeviceSlice,
    dtype: DType,
    loops: ReduceLoops,
) -> BackendResult<Exponentials> {
    let (rule, to) = (Rule::Exponentials { pairs: false }, DType::F32);
    let window = ctx.output(op, x, dtype)?;
    let reduction = Reduction { ctx, op, rule, dtype };
    let mut walk = Walk::new(dtype, &window, loops, rule);
    walk.pack_outputs();
    let (parts, outputs) = (walk.slices(), walk.loops.outputs);
    let scratch = |parts: usize| {
        let bytes = parts * outputs * rule.partial_numbers() * to.size();
        ctx.output(op, &ctx.memory.scratch(op, bytes)?, to)
    };
    let sums = scratch(parts)?;
    let input = ctx.input(op, x, dtype, &sums)?;
    reduction.begin(&walk, &input, (&sums, to), parts)?;
    if parts <= MAX_PARTS {
        return Ok(Exponentials { sums, parts });
    }
    let strides: Vec<usize> = walk.loops.kept.iter().map(|&(_, [_, y])| y).collect();
    let rest = Walk::of_slices(&walk, &strides, parts, to, &sums, rule);
    let joined = scratch(1)?;
    Reduction { dtype: to, rule: rule.of_partials(), ..reduction }.begin(&rest, &sums, (&joined, to), 1)?;
    Ok(Exponentials { sums: joined, parts: 1 })
}

/// The sums of slices of each output.
pub(super) struct SliceSums {
    /// `[slices, outputs]` sums in scratch memory.
    pub(super) window: Window,
    pub(super) dtype: DType,
    /// Numbers of a slice.
    pub(super) chunk: usize,
}

/// The sums of `slices` slices along the reduced loop of a packed tensor.
pub(super) fn slice_sums(
    ctx: &Context,
    op: &'static str,
    x: &DeviceSlice,
    dtype: DType,
    loops: ReduceLoops,
    slices: usize,
) -> BackendResult<SliceSums> {
    let rule = rule(op, ReduceOp::Sum)?;
    let to = rule.partial(dtype);
    let window = ctx.output(op, x, dtype)?;
    let mut walk = Walk::new(dtype, &window, loops, rule);
    walk.pack_outputs();
    let scratch = ctx.memory.scratch(op, slices * walk.loops.outputs * to.size())?;
    let sums = ctx.output(op, &scratch, to)?;
    let input = ctx.input(op, x, dtype, &sums)?;
    Reduction { ctx, op, rule, dtype }.begin(&walk, &input, (&sums, to), slices)?;
    let width = if walk.rows { walk.lanes.width() } else { 1 };
    Ok(SliceSums { window: sums, dtype: to, chunk: walk.loads().div_ceil(slices) * width })
}

/// How a reduction reads its input.
#[derive(Clone, Debug)]
struct Walk {
    loops: ReduceLoops,
    lanes: Lanes,
    /// Whether neighbouring numbers are of one output, not of neighbouring ones.
    rows: bool,
}

impl Walk {
    fn new(dtype: DType, input: &Window, mut loops: ReduceLoops, rule: Rule) -> Self {
        // Neighbours in memory come last. An index counts in the order of the axes.
        loops.kept.sort_by_key(|&(_, [x, _])| std::cmp::Reverse(x));
        if !rule.is_index() {
            loops.reduced.sort_by_key(|&(_, [x])| std::cmp::Reverse(x));
        }
        let kept = loops.kept.last().map_or((1, usize::MAX), |&(extent, [x, _])| (extent, x));
        let reduced = loops.reduced.last().map_or((1, usize::MAX), |&(extent, [x])| (extent, x));
        let rows = loops.kept.is_empty() || reduced.1 < kept.1;
        let (nearest, outer) = if rows { (reduced, 0) } else { (kept, 1) };
        let lanes = Self::lanes(dtype, input, &loops, nearest, outer);
        Self { loops, lanes, rows }
    }

    /// Vectors if the loop over neighbours is one of whole vectors, and every other loop starts at one.
    fn lanes(
        dtype: DType,
        input: &Window,
        loops: &ReduceLoops,
        (extent, stride): (usize, usize),
        side: usize,
    ) -> Lanes {
        let kept = loops.kept.iter().map(|&(_, [x, _])| x);
        let reduced = loops.reduced.iter().map(|&(_, [x])| x);
        let (near, far): (Vec<usize>, Vec<usize>) =
            if side == 1 { (kept.collect(), reduced.collect()) } else { (reduced.collect(), kept.collect()) };
        let lanes = Lanes::of(dtype);
        let several = extent.is_multiple_of(lanes.width()) && extent > lanes.width() * side;
        if stride != 1 || !several {
            return Lanes::One;
        }
        let others = [&near[..near.len() - 1], &far[..]].concat();
        Lanes::fitting(dtype, &[input], &others)
    }

    /// Over the `slices` that the launch of `first` stored, into outputs of these strides.
    fn of_slices(
        first: &Self,
        strides: &[usize],
        slices: usize,
        dtype: DType,
        partials: &Window,
        rule: Rule,
    ) -> Self {
        let outputs = first.loops.outputs;
        let kept = first.loops.kept.iter().zip(strides).map(|(&(n, [_, y]), &to)| (n, [y, to])).collect();
        let reduced = vec![(slices, [outputs])];
        let loops = ReduceLoops { kept, reduced, outputs, length: slices };
        let mut walk = Self::new(dtype, partials, loops, rule);
        if rule.of_partials().reads_pairs() {
            walk.lanes = Lanes::One;
        }
        walk
    }

    /// Lets the outputs lie packed in the order of the loops; their strides so far.
    fn pack_outputs(&mut self) -> Vec<usize> {
        let mut stride = 1;
        let mut before: Vec<usize> = Vec::with_capacity(self.loops.kept.len());
        for (extent, [_, y]) in self.loops.kept.iter_mut().rev() {
            before.push(std::mem::replace(y, stride));
            stride *= *extent;
        }
        before.reverse();
        before
    }

    /// Loads for one output, or one vector of outputs.
    fn loads(&self) -> usize {
        if self.rows { self.loops.length / self.lanes.width() } else { self.loops.length }
    }

    /// Outputs, or vectors of outputs.
    fn outputs(&self) -> usize {
        if self.rows { self.loops.outputs } else { self.loops.outputs / self.lanes.width() }
    }

    fn teams(&self) -> Teams {
        let abreast = match self.loops.kept.last() {
            Some(&(extent, _)) if !self.rows => extent / self.lanes.width(),
            _ => 1,
        };
        Teams::new(self.loads(), abreast, LEAST)
    }

    /// Into how many slices the numbers of an output are cut: one if there are enough outputs to keep the device busy.
    fn slices(&self) -> usize {
        let teams = self.teams();
        let share = teams.share(self.loads());
        let wanted = (BUSY / teams.groups(self.outputs()).max(1)).min(share / CUT_SHARE);
        let slices = wanted.max(share.div_ceil(MAX_SHARE)).max(1);
        // No slice is empty.
        self.loads().div_ceil(self.loads().div_ceil(slices).max(1)).max(1)
    }

    /// The loops as the kernel takes them: those over outputs first, the others at the end.
    fn packed(&self, op: &'static str) -> BackendResult<[[u32; 4]; MAX_RANK]> {
        let width = self.lanes.width();
        let mut packed = [[1, 0, 0, 0]; MAX_RANK];
        let ReduceLoops { kept, reduced, .. } = &self.loops;
        let kept: Vec<Loop<2>> = self.in_vectors(kept, !self.rows);
        let reduced: Vec<Loop<1>> = self.in_vectors(reduced, self.rows);
        for (slot, &(extent, [x, y])) in packed.iter_mut().zip(&kept) {
            *slot = [dim(op, "extent", extent)?, dim(op, "stride", x)?, dim(op, "stride", y)?, 0];
        }
        if !self.rows && width > 1 {
            // The innermost outputs of a vector are `stride` apart, their vectors `width` times that.
            let innermost = &mut packed[kept.len() - 1];
            innermost[2] = dim(op, "stride", (innermost[2] as usize).saturating_mul(width))?;
        }
        let first = MAX_RANK - reduced.len();
        for (slot, &(extent, [x])) in packed[first..].iter_mut().zip(&reduced) {
            *slot = [dim(op, "extent", extent)?, dim(op, "stride", x)?, 0, 0];
        }
        Ok(packed)
    }

    /// Loops that step over vectors; the innermost has them as its steps if it is over `neighbours`.
    fn in_vectors<const N: usize>(&self, loops: &[Loop<N>], neighbours: bool) -> Vec<Loop<N>> {
        let width = self.lanes.width();
        let mut loops = loops.to_vec();
        let last = loops.len().saturating_sub(1);
        for (i, (extent, strides)) in loops.iter_mut().enumerate() {
            if neighbours && i == last && width > 1 {
                *extent /= width;
            } else {
                strides[0] /= width;
            }
        }
        loops
    }
}

/// The kernel of one operation.
#[derive(Clone, Copy)]
struct Reduction<'a> {
    ctx: &'a Context,
    op: &'static str,
    rule: Rule,
    /// The input's element type.
    dtype: DType,
}

impl Reduction<'_> {
    /// One launch into the final output.
    fn finish(
        &self,
        walk: &Walk,
        input: &Window,
        output: (&Window, DType),
        divisor: f32,
    ) -> BackendResult<()> {
        self.launch(walk, input, output, 1, divisor, true)
    }

    /// A launch into `[slices, outputs]` partial results.
    fn begin(
        &self,
        walk: &Walk,
        input: &Window,
        output: (&Window, DType),
        slices: usize,
    ) -> BackendResult<()> {
        self.launch(walk, input, output, slices, 1.0, false)
    }

    fn launch(
        &self,
        walk: &Walk,
        input: &Window,
        (output, to): (&Window, DType),
        slices: usize,
        divisor: f32,
        last: bool,
    ) -> BackendResult<()> {
        let op = self.op;
        let teams = walk.teams();
        let params = Params {
            outputs: dim(op, "outputs", walk.outputs())?,
            length: dim(op, "axes", walk.loads())?,
            team: teams.size,
            stride: teams.stride,
            x_offset: input.offset / (walk.lanes.width() * self.rule.read_numbers()) as u32,
            y_offset: output.offset,
            kept: walk.loops.kept.len() as u32,
            divisor,
            loops: walk.packed(op)?,
        };
        let [x, y, _] = teams.grid(op, walk.outputs())?;
        let variant = self.rule.variant(self.dtype, to, walk.lanes, last);
        self.ctx.launch(op, &variant, &[input], output, &params, [x, y, dim(op, "slices", slices)?])
    }
}

#[cfg(test)]
mod tests {
    use backend_api::desc::TensorDesc;

    use super::*;

    fn slices(shape: &[usize], axes: &[usize], lanes: Lanes) -> usize {
        let desc = ReduceDesc::new(ReduceOp::Sum, TensorDesc::packed(1, DType::F32, shape), axes, 2);
        let (_, loops) = desc.operands("t").unwrap();
        let rows = axes.contains(&(shape.len() - 1));
        Walk { loops, lanes, rows }.slices()
    }

    #[test]
    fn only_long_axes_of_few_outputs_are_cut() {
        assert_eq!(slices(&[1 << 26], &[0], Lanes::Four), 1024);
        assert_eq!(slices(&[1 << 26], &[0], Lanes::One), 1024);
        assert_eq!(slices(&[16_384, 4096], &[0], Lanes::Four), 32);
        assert_eq!(slices(&[16_384, 4096], &[1], Lanes::Four), 1);
        assert_eq!(slices(&[4095], &[0], Lanes::One), 1);
        assert_eq!(slices(&[100_000, 5], &[1], Lanes::One), 1);
        assert_eq!(slices(&[1], &[0], Lanes::One), 1);
    }
}
