//! Reductions over one axis.

use backend_api::desc::ReduceDesc;
use backend_api::{BackendError, BackendResult, DType, ReduceOp};

use super::fill::fill;
use super::teams::Teams;
use crate::context::{Context, dim};
use crate::kernels::{KernelSource, Variant, kernel, params};
use crate::recorder::Window;

static REDUCE: KernelSource = kernel!(
    "reduce/reduce",
    libs: [GRID, SPECIAL, REDUCE, WORKGROUP],
    types: [],
    constants: ["OP"],
    reads: 1,
    writes: 1,
    params: Params,
);

params! {
    struct Params {
        outputs: u32,
        length: u32,
        inner: u32,
        chunk: u32,
        team: u32,
        stride: u32,
        x_offset: u32,
        y_offset: u32,
        divisor: f32,
    }
}

/// The fewest numbers of an invocation in a small team.
const LEAST: usize = 8;
/// Workgroups that keep a large device busy.
const BUSY: usize = 512;
/// Numbers of an invocation from which on an axis is worth being cut.
const CUT_SHARE: usize = 32;

/// What invocations do with two values, as shaders/lib/reduce.wgsl numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Combine {
    Sum = 0,
    Prod = 1,
    Max = 2,
    Min = 3,
}

impl Combine {
    const ALL: [Self; 4] = [Self::Sum, Self::Prod, Self::Max, Self::Min];

    fn variant(self) -> Variant {
        Variant::new(&REDUCE, [], [self as u32])
    }
}

pub(super) fn variants() -> Vec<Variant> {
    Combine::ALL.map(Combine::variant).to_vec()
}

/// `output = op over the axis of input`.
pub(crate) fn reduce(ctx: &Context, op: &'static str, desc: &ReduceDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [x, y] = ctx.resolve(op, &operands)?;
    let Some(y) = y else { return Ok(()) };
    let (combine, identity) = combine(op, desc.op)?;
    let Some(x) = x else {
        return fill(ctx, desc.output, DType::F32, desc.outer * desc.inner, identity);
    };
    let output = ctx.output(op, &y, DType::F32)?;
    let axis = Axis { outer: desc.outer, length: desc.length, inner: desc.inner };
    let divisor = if desc.op == ReduceOp::Mean { desc.length as f32 } else { 1.0 };
    let reduction = Reduction { ctx, op, variant: combine.variant() };

    let chunk = axis.chunk();
    let slices = axis.length.div_ceil(chunk);
    if slices == 1 {
        let input = ctx.input(op, &x, DType::F32, &output)?;
        return reduction.launch(&input, &output, &axis, chunk, divisor);
    }
    // The order of every sum is fixed by the shape, so results are the same each time.
    let partials = ctx.memory.scratch(op, slices * axis.outputs() * DType::F32.size())?;
    let partials = ctx.output(op, &partials, DType::F32)?;
    let input = ctx.input(op, &x, DType::F32, &partials)?;
    reduction.launch(&input, &partials, &axis, chunk, 1.0)?;
    let rest = Axis { outer: 1, length: slices, inner: axis.outputs() };
    reduction.launch(&partials, &output, &rest, slices, divisor)
}

/// What an operation does with two values, and its result over an empty axis.
fn combine(op: &'static str, reduce: ReduceOp) -> BackendResult<(Combine, f64)> {
    Ok(match reduce {
        ReduceOp::Sum => (Combine::Sum, 0.0),
        ReduceOp::Mean => (Combine::Sum, f64::NAN),
        ReduceOp::Prod => (Combine::Prod, 1.0),
        ReduceOp::Max => (Combine::Max, f64::NEG_INFINITY),
        ReduceOp::Min => (Combine::Min, f64::INFINITY),
        other => {
            return Err(BackendError::Unsupported { op, need: format!("the reduction {}", other.name()) });
        }
    })
}

/// A packed tensor around the axis that is reduced.
#[derive(Clone, Copy, Debug)]
struct Axis {
    outer: usize,
    length: usize,
    inner: usize,
}

impl Axis {
    fn outputs(&self) -> usize {
        self.outer * self.inner
    }

    fn teams(&self) -> Teams {
        Teams::new(self.length, self.inner, LEAST)
    }

    /// Numbers along the axis that one team reduces: all of them if there are enough outputs to keep the device busy.
    fn chunk(&self) -> usize {
        let teams = self.teams();
        let wanted = BUSY / teams.groups(self.outputs());
        let slices = wanted.min(teams.share(self.length) / CUT_SHARE);
        self.length.div_ceil(slices.max(1))
    }
}

/// The kernel of one operation.
struct Reduction<'a> {
    ctx: &'a Context,
    op: &'static str,
    variant: Variant,
}

impl Reduction<'_> {
    /// `output[slice, outputs] = input reduced over a chunk of the axis / divisor`.
    fn launch(
        &self,
        input: &Window,
        output: &Window,
        axis: &Axis,
        chunk: usize,
        divisor: f32,
    ) -> BackendResult<()> {
        let op = self.op;
        let teams = axis.teams();
        let params = Params {
            outputs: dim(op, "outputs", axis.outputs())?,
            length: dim(op, "axis", axis.length)?,
            inner: dim(op, "inner", axis.inner)?,
            chunk: dim(op, "axis", chunk)?,
            team: teams.size,
            stride: teams.stride,
            x_offset: input.offset,
            y_offset: output.offset,
            divisor,
        };
        let [x, y, _] = teams.grid(op, axis.outputs())?;
        let slices = dim(op, "axis", axis.length.div_ceil(chunk))?;
        self.ctx.launch(op, &self.variant, &[input], output, &params, [x, y, slices])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_axes_of_few_outputs_are_cut() {
        let slices = |outer, length: usize, inner| length.div_ceil(Axis { outer, length, inner }.chunk());
        assert_eq!(slices(1, 1 << 24, 1), 512);
        assert_eq!(slices(2, 70_000, 1), 8);
        assert_eq!(slices(1, 8191, 1), 1);
        assert_eq!(slices(1, 4096, 1 << 16), 1);
        assert_eq!(slices(100_000, 5, 1), 1);
        assert_eq!(slices(1, 1, 1), 1);
    }
}
