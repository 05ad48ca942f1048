//! Reductions over any axes.

use backend_api::desc::{MAX_RANK, ReduceDesc};
use backend_api::support::ReduceLoops;
use backend_api::{BackendResult, DType, ReduceOp};

use super::reduce_parts::{self, Numbers, Outputs};
use super::reduce_plan::ReducePlan;
use super::reduction::{Output, Rule, rule};
use super::shared::long_work::{in_parts, parts};
use super::shared::vec_width::VecWidth;
use crate::context::{FIXUP_COUNTERS, FIXUP_WORDS};
use crate::kernels::params;
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim};
use crate::recorder::Window;

pub(super) use super::reduction::variants;

params! {
    pub(super) struct Params {
        // Outputs, or vectors of outputs.
        outputs: u32,
        // Vectors that one of them is made of; elements, if they are read in words.
        length: u32,
        // Powers of two.
        row_group: u32,
        stride: u32,
        // In vectors, or elements.
        x_offset: u32,
        y_offset: u32,
        // Number of loops over outputs.
        kept: u32,
        // The number that results are divided by.
        divisor: f32,
        // Extent, stride of x in vectors, or elements, stride of y. First the loops over outputs; the others lie at the end.
        loops: [[u32; 4]; MAX_RANK],
    }
}

/// `output = op over axes of input`.
pub(crate) fn reduce(ctx: &OpContext, op: &'static str, desc: &ReduceDesc<'_>) -> BackendResult<()> {
    let (operands, mut loops) = desc.operands(op)?;
    reduce_parts::forget_unread(&mut loops);
    let [x, y] = ctx.resolve(op, &operands)?;
    let Some(y) = y else { return Ok(()) };
    let (from, to) = (desc.input.dtype, desc.output_dtype);
    ctx.require_dtype(op, from)?;
    let rule = rule(op, desc.op)?;
    let output = ctx.output(&y, to);
    let input = ctx.optional_input(op, x.as_ref(), from, &output)?;
    let divisor = if desc.op == ReduceOp::Mean { loops.length as f32 } else { 1.0 };
    let reduction = Reduction { ctx, op, rule, dtype: from };
    let numbers = Numbers { loops, input };
    let whole = Outputs { numbers, output, is_index: rule.is_index() };
    in_parts(ctx, op, whole, |part| {
        let output = part.output.truncated(part.results());
        reduction.run(&part.numbers, (&output, to), divisor)
    })
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
    ctx: &OpContext,
    op: &'static str,
    x: &DeviceSlice,
    dtype: DType,
    loops: ReduceLoops,
) -> BackendResult<Exponentials> {
    let (rule, to) = (Rule::Exponentials { pairs: false }, DType::F32);
    let window = ctx.output(x, dtype);
    let reduction = Reduction { ctx, op, rule, dtype };
    let mut plan = ReducePlan::new(dtype, &window, loops, rule);
    plan.pack_outputs();
    let (slices, outputs) = (plan.slices(), plan.loops.outputs);
    // Longer parts take less than a launch that joins more of them.
    let most = if slices <= 4 * MAX_PARTS { MAX_PARTS.max(plan.fewest_slices()) } else { slices };
    let parts = plan.at_most(slices.min(most));
    let scratch = |parts: usize| -> BackendResult<Window> {
        let bytes = parts * outputs * rule.partial_numbers() * to.size();
        Ok(ctx.output(&ctx.scratch(op, bytes)?, to))
    };
    let sums = scratch(parts)?;
    let input = ctx.input(op, x, dtype, &sums)?;
    reduction.launch(&plan, &input, (&sums, to), Results::Partial { slices: parts })?;
    if parts <= MAX_PARTS {
        return Ok(Exponentials { sums, parts });
    }
    let strides: Vec<usize> = plan.loops.kept.iter().map(|&(_, [_, y])| y).collect();
    let rest = ReducePlan::of_slices(&plan, &strides, parts, to, &sums, rule);
    let joined = scratch(1)?;
    let joining = Reduction { dtype: to, rule: rule.of_partials(), ..reduction };
    joining.launch(&rest, &sums, (&joined, to), Results::Partial { slices: 1 })?;
    Ok(Exponentials { sums: joined, parts: 1 })
}

/// `output = Σ over parts` of packed `[parts, outputs]` sums of f32.
pub(super) fn sum_parts(
    ctx: &OpContext,
    op: &'static str,
    sums: &Window,
    [parts, outputs]: [usize; 2],
    output: (&Window, DType),
) -> BackendResult<()> {
    let (rule, dtype) = (rule(op, ReduceOp::Sum)?, DType::F32);
    let kept = if outputs > 1 { vec![(outputs, [1, 1])] } else { Vec::new() };
    let loops = ReduceLoops { kept, reduced: vec![(parts, [outputs])], outputs, length: parts };
    let plan = ReducePlan::new(dtype, sums, loops, rule);
    Reduction { ctx, op, rule, dtype }.launch(&plan, sums, output, Results::Final { divisor: 1.0 })
}

/// The sums of slices of each output.
pub(super) struct SliceSums {
    /// `[slices, outputs]` sums in scratch memory.
    pub(super) window: Window,
    pub(super) dtype: DType,
    /// Elements of a slice.
    pub(super) chunk: usize,
}

/// The sums of `slices` slices along the reduced loop of a packed tensor.
pub(super) fn slice_sums(
    ctx: &OpContext,
    op: &'static str,
    x: &DeviceSlice,
    dtype: DType,
    loops: ReduceLoops,
    slices: usize,
) -> BackendResult<SliceSums> {
    let rule = rule(op, ReduceOp::Sum)?;
    let to = rule.partial(dtype);
    let window = ctx.output(x, dtype);
    let mut plan = ReducePlan::new(dtype, &window, loops, rule);
    if plan.vec_width == VecWidth::Two {
        // Slices of words would begin at another element in each row.
        plan.vec_width = VecWidth::One;
    }
    plan.pack_outputs();
    let scratch = ctx.scratch(op, slices * plan.loops.outputs * to.size())?;
    let sums = ctx.output(&scratch, to);
    let input = ctx.input(op, x, dtype, &sums)?;
    Reduction { ctx, op, rule, dtype }.launch(&plan, &input, (&sums, to), Results::Partial { slices })?;
    let width = if plan.rows { plan.vec_width.width() } else { 1 };
    Ok(SliceSums { window: sums, dtype: to, chunk: plan.loads().div_ceil(slices) * width })
}

/// How often an invocation of a last workgroup may wait for parts: waiting more often takes longer than another launch
/// (shaders/reduce/notes.md).
const MOST_WAITS: usize = 6;

/// [`MOST_WAITS`] for parts of vectors of eight lanes, of which four are read at a time.
const MOST_WAITS_OF_EIGHT: usize = 2;

/// The kernel of one operation.
#[derive(Clone, Copy)]
struct Reduction<'a> {
    ctx: &'a OpContext,
    op: &'static str,
    rule: Rule,
    /// The input's element type.
    dtype: DType,
}

/// What a launch writes, with what it takes.
#[derive(Clone, Copy)]
enum Results<'a> {
    /// `[slices, outputs]`, of a piece of each output in each slice.
    Partial { slices: usize },
    /// The outputs, of which means are divided.
    Final { divisor: f32 },
    /// The outputs, which the last workgroup of each joins from slices in `fixup`.
    FixedUp { slices: usize, divisor: f32, fixup: &'a Window },
}

impl Reduction<'_> {
    /// The whole reduction.
    fn run(&self, whole: &Numbers, output: (&Window, DType), divisor: f32) -> BackendResult<()> {
        let &Self { ctx, op, rule, dtype } = self;
        // An index counts from the first number on.
        let stages = if rule.is_index() { vec![(whole.clone(), 0.0)] } else { parts(ctx, whole.clone()) };
        let mut stages: Vec<_> = stages
            .into_iter()
            .map(|(part, seconds)| {
                let (input, loops) = (part.bound(), part.loops);
                (ReducePlan::new(dtype, &input, loops, rule), input, seconds)
            })
            .collect();
        let slices: usize = stages.iter().map(|(plan, ..)| plan.slices()).sum();
        if let [(plan, input, _)] = stages.as_slice()
            && slices == 1
        {
            return self.launch(plan, input, output, Results::Final { divisor });
        }
        if let [(plan, input, seconds)] = stages.as_slice()
            && self.last_workgroups_join(plan, slices)
            && let Ok(fixup) = ctx.fixup()
        {
            ctx.expect(*seconds);
            return self.launch(plan, input, output, Results::FixedUp { slices, divisor, fixup: &fixup });
        }
        // The order of every sum is fixed by the shape and the alignment, so results are the same each time.
        let (partial, outputs) = (rule.partial(dtype), whole.loops.outputs);
        let scratch = ctx.scratch(op, slices * outputs * rule.partial_numbers() * partial.size())?;
        let partials = ctx.output(&scratch, partial);
        let (mut begun, mut rest) = (0, None);
        for (plan, input, seconds) in &mut stages {
            ctx.expect(*seconds);
            let (slices_here, strides) = (plan.slices(), plan.pack_outputs());
            let to = (&partials.advanced(begun * outputs), partial);
            self.launch(plan, input, to, Results::Partial { slices: slices_here })?;
            begun += slices_here;
            rest = Some(ReducePlan::of_slices(plan, &strides, slices, partial, &partials, rule));
        }
        let Some(rest) = rest else { return Ok(()) };
        let of_partials = Reduction { dtype: partial, rule: rule.of_partials(), ..*self };
        of_partials.launch(&rest, &partials, output, Results::Final { divisor })
    }

    /// Whether the last workgroups of outputs can join their slices, each invocation with few steps.
    fn last_workgroups_join(&self, plan: &ReducePlan, slices: usize) -> bool {
        let row_groups = plan.row_groups();
        let lanes = if plan.rows { 1 } else { plan.vec_width.width() };
        let parts = slices.div_ceil(row_groups.size as usize);
        // As joined_parts and joined_parts_of_lanes of reduce.wgsl have them.
        let (waits, most) = match lanes {
            1 => (parts.div_ceil(4), MOST_WAITS),
            2..=4 => (parts.div_ceil(2), MOST_WAITS),
            _ => (2 * parts.div_ceil(2), MOST_WAITS_OF_EIGHT),
        };
        let words = slices.saturating_mul(plan.loops.outputs).saturating_mul(self.rule.state_words());
        self.ctx.has_fixup()
            && waits <= most
            && row_groups.groups(plan.outputs()) <= FIXUP_COUNTERS
            && words <= FIXUP_WORDS - FIXUP_COUNTERS
    }

    fn launch(
        &self,
        plan: &ReducePlan,
        input: &Window,
        (output, to): (&Window, DType),
        results: Results<'_>,
    ) -> BackendResult<()> {
        let op = self.op;
        let (slices, divisor, writes, fixup) = match results {
            Results::Partial { slices } => (slices, 1.0, Output::Partial, None),
            Results::Final { divisor } => (1, divisor, Output::Final, None),
            Results::FixedUp { slices, divisor, fixup } => (slices, divisor, Output::FixedUp, Some(fixup)),
        };
        let row_groups = plan.row_groups();
        let params = Params {
            outputs: dim(op, "outputs", plan.outputs())?,
            length: dim(op, "axes", plan.length())?,
            row_group: row_groups.size,
            stride: row_groups.stride,
            x_offset: input.offset / (plan.unit() * self.rule.read_numbers()) as u32,
            y_offset: output.offset,
            kept: plan.loops.kept.len() as u32,
            divisor,
            loops: plan.packed(op)?,
        };
        let [x, y, _] = row_groups.grid(op, plan.outputs())?;
        let variant = self.rule.variant(self.dtype, to, plan.access(), writes);
        let bound: Vec<&Window> = [input].into_iter().chain(fixup).collect();
        self.ctx.launch(op, &variant, &bound, output, &params, [x, y, dim(op, "slices", slices)?])
    }
}

#[cfg(test)]
mod tests {
    use backend_api::ComputeBackend as _;
    use backend_api::desc::TensorDesc;
    use half::f16;

    use super::*;
    use crate::WebGpuBackend;

    /// A number of element `i`, few of them different, so that sums are exact.
    fn number(i: usize) -> i32 {
        (i * 7919 % 1013 % 7) as i32 - 3
    }

    fn bytes(dtype: DType, numbers: impl Iterator<Item = i32>) -> Vec<u8> {
        numbers
            .flat_map(|n| match dtype {
                DType::F32 => (n as f32).to_le_bytes().to_vec(),
                DType::F16 => f16::from_f32(n as f32).to_le_bytes().to_vec(),
                _ => n.to_le_bytes().to_vec(),
            })
            .collect()
    }

    fn expected(op: ReduceOp, numbers: &[i32]) -> f64 {
        let first = |best: i32| numbers.iter().position(|&n| n == best).unwrap() as f64;
        let (least, most) = (*numbers.iter().min().unwrap(), *numbers.iter().max().unwrap());
        let sum: i32 = numbers.iter().sum();
        match op {
            ReduceOp::Sum => f64::from(sum),
            ReduceOp::Mean => f64::from(sum) / numbers.len() as f64,
            ReduceOp::Max => f64::from(most),
            ReduceOp::NormL2 => numbers.iter().map(|&n| f64::from(n * n)).sum::<f64>().sqrt(),
            ReduceOp::LogSumExp => numbers.iter().map(|&n| f64::from(n).exp()).sum::<f64>().ln(),
            ReduceOp::ArgMin => first(least),
            _ => unreachable!("{op:?}"),
        }
    }

    /// The suites' samples have few reductions that are cut. Each is made twice: counters have to be 0 again.
    #[test]
    fn slices_are_joined_in_one_launch() {
        use ReduceOp::{ArgMin, LogSumExp, Max, Mean, NormL2, Sum};
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let has_fixup = backend.context("test").unwrap().context.has_fixup();
        let columns = |rows, columns| ([rows, columns], 0);
        let rows = |rows, columns| ([rows, columns], 1);
        for (dtype, op, (shape, axis)) in [
            (DType::F32, Sum, columns(318, 87)),
            (DType::F32, Mean, rows(1, 40_001)),
            (DType::F32, NormL2, rows(2, 40_004)),
            (DType::F32, LogSumExp, columns(2110, 5)),
            (DType::F16, LogSumExp, rows(1, 40_003)),
            (DType::F16, Max, rows(3, 65_536)),
            (DType::I32, Sum, columns(700, 41)),
            (DType::F32, Sum, columns(600, 40)),
            (DType::F16, Sum, columns(992, 80)),
            (DType::F32, ArgMin, columns(5000, 8)),
            (DType::I32, ArgMin, rows(1, 70_001)),
            (DType::F32, ArgMin, columns(1296, 98)),
        ] {
            let count = shape[0] * shape[1];
            let [x, y] = [count, shape[1 - axis]].map(|elements| backend.alloc(4 * elements).unwrap());
            backend.copy_htod(x, &bytes(dtype, (0..count).map(number))).unwrap();
            let axes = [axis];
            let desc = ReduceDesc::new(op, TensorDesc::packed(x, dtype, &shape), &axes, y);
            let desc = if dtype == DType::F16 { desc.with_output_dtype(DType::F32) } else { desc };
            let kernels = backend.planned(|planner| planner.reduce_ext(&desc).unwrap()).unwrap();
            let joined = kernels.iter().filter(|kernel| kernel.contains("reduce_fixup")).count();
            assert_eq!(
                (kernels.len(), joined),
                if has_fixup { (1, 1) } else { (2, 0) },
                "{op:?} of {shape:?}"
            );
            for _ in 0..2 {
                let mut found = vec![0xff; 4 * shape[1 - axis]];
                backend.copy_htod(y, &found).unwrap();
                backend.reduce_ext(&desc).unwrap();
                backend.copy_dtoh(&mut found, y).unwrap();
                for (output, bits) in bytemuck::pod_collect_to_vec::<u8, u32>(&found).into_iter().enumerate()
                {
                    let at = |r: usize| if axis == 1 { output * shape[1] + r } else { r * shape[1] + output };
                    let numbers: Vec<i32> = (0..shape[axis]).map(|r| number(at(r))).collect();
                    let is_integer = dtype == DType::I32 || op == ArgMin;
                    let found =
                        if is_integer { f64::from(bits as i32) } else { f64::from(f32::from_bits(bits)) };
                    let wanted = expected(op, &numbers);
                    // A few roundings of an exact sum; the logarithm has an exponential for each join, too.
                    let bound =
                        if matches!(op, Mean | NormL2 | LogSumExp) { 1e-5 * wanted.abs() } else { 0.0 };
                    assert!((found - wanted).abs() <= bound, "{op:?} of {shape:?}: {found}, not {wanted}");
                }
            }
            for ptr in [x, y] {
                backend.free(ptr).unwrap();
            }
        }
    }
}
