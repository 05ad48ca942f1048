//! Softmax of rows that are too long for a workgroup to hold, where there are enough of them to keep the device
//! busy with one workgroup for each.

use backend_api::desc::SoftmaxDesc;
use backend_api::{BackendResult, DType};

use super::has_room;
use super::shared::iterations;
use super::shared::seams::Seams;
use super::shared::vec_width::VecWidth;
use super::softmax::Constants as Softmax;
use crate::kernels::{KernelSource, Variant, constants, kernel, params};
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::recorder::Window;

constants! { struct Constants { softmax: Softmax, lanes: usize, held: usize } }

static SOFTMAX_LONG: KernelSource = kernel!(
    "norm/softmax_long", libs: [GRID, SPECIAL, REDUCE, EXP_BELOW, SOFTMAX_SCALE],
    types: ["T"], constants: Constants, params: Params, reads: ["x: V"], writes: ["y: V"],
);

params! {
    struct Params {
        rows: u32,
        // Elements of a row.
        length: u32,
        // In vectors.
        x_offset: u32,
        y_offset: u32,
        // Of rows that share words.
        turns: u32,
        rows_before: u32,
    }
}

/// The size of a workgroup, and how much of a row it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Workgroup {
    /// Invocations.
    lanes: usize,
    /// Vectors that each holds.
    held: usize,
}

/// Vectors that an invocation reads before it uses them, at least.
const AHEAD: usize = 4;

/// The workgroups for rows of this type, the best first.
fn workgroups(dtype: DType, vec_width: VecWidth) -> &'static [Workgroup] {
    const fn workgroup(lanes: usize, held: usize) -> Workgroup {
        Workgroup { lanes, held }
    }
    match (dtype, vec_width) {
        (DType::F16, VecWidth::Two) => {
            const { &[workgroup(512, 48), workgroup(512, 24), workgroup(512, 12), workgroup(256, 16)] }
        }
        (DType::F16, VecWidth::One) => const { &[workgroup(512, 16), workgroup(256, 16)] },
        (DType::F16, _) => const { &[workgroup(512, 12), workgroup(256, 8)] },
        (_, VecWidth::One) => const { &[workgroup(1024, 24), workgroup(1024, 8), workgroup(256, 16)] },
        _ => const { &[workgroup(1024, 6), workgroup(256, 8)] },
    }
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        let widths = [VecWidth::One, VecWidth::Two, VecWidth::Four];
        for vec_width in widths.into_iter().filter(|&width| dtype == DType::F16 || width != VecWidth::Two) {
            for softmax in Softmax::all() {
                let all = workgroups(dtype, vec_width).iter();
                variants.extend(all.map(|&workgroup| variant(dtype, vec_width, softmax, workgroup)));
            }
        }
    }
    variants
}

fn variant(dtype: DType, vec_width: VecWidth, softmax: Softmax, workgroup: Workgroup) -> Variant {
    let Workgroup { lanes, held } = workgroup;
    Variant::new(&SOFTMAX_LONG, [dtype], Constants { softmax, lanes, held })
        .with_libs(vec_width.row_libs())
        .with_workgroup(workgroup.lanes, 0)
}

/// Whether a device has that many workgroups to do that its units are idle for a third of the time at most.
fn keep_busy(groups: usize, compute_units: usize) -> bool {
    let rounds = groups.div_ceil(compute_units.max(1));
    groups >= compute_units && 3 * groups >= 2 * rounds * compute_units
}

/// The plan for long rows.
pub(super) struct LongRows {
    vec_width: VecWidth,
    workgroup: Workgroup,
    seams: Seams,
    groups: usize,
}

impl LongRows {
    /// `None` where the rows are too few, or too long for the device's loops.
    pub(super) fn plan(ctx: &OpContext, desc: &SoftmaxDesc, windows: [&Window; 2]) -> Option<Self> {
        if desc.inner != 1 {
            return None;
        }
        let vec_width = VecWidth::of_rows(desc.dtype, desc.length, &windows);
        let limits = &ctx.gpu().limits;
        let vectors = vec_width.whole_vectors_of_row(desc.length);
        // What is held has to be there in every row. Workgroup memory is less than any device has.
        let fits = |workgroup: &Workgroup| {
            workgroup.lanes * workgroup.held <= vectors && has_room(limits, workgroup.lanes, 0)
        };
        let workgroup = workgroups(desc.dtype, vec_width).iter().copied().find(fits)?;
        let seams = Seams::new(vec_width, desc.length, windows[1].offset, 1);
        let groups = seams.groups(desc.outer, 1);
        // It reads what it doesn't hold twice, and the device may count the turns of both loops.
        let turns = 2 * seams.turns as usize * (vectors / (workgroup.lanes * AHEAD) + 1);
        let fits =
            keep_busy(groups, ctx.profile().compute_units) && iterations::exceeded(ctx, turns).is_none();
        fits.then_some(Self { vec_width, workgroup, seams, groups })
    }

    pub(super) fn launch(
        &self,
        ctx: &OpContext,
        op: &'static str,
        desc: &SoftmaxDesc,
        [input, output]: [&Window; 2],
        in_place: bool,
    ) -> BackendResult<()> {
        let width = self.vec_width.width() as u32;
        let params = Params {
            rows: dim(op, "slices", desc.outer)?,
            length: dim(op, "axis", desc.length)?,
            x_offset: input.offset / width,
            y_offset: output.offset / width,
            turns: self.seams.turns,
            rows_before: self.seams.rows_before,
        };
        let softmax = Softmax { log: desc.log, in_place };
        let variant = variant(desc.dtype, self.vec_width, softmax, self.workgroup);
        ctx.launch(op, &variant, &[input], output, &params, linear_grid(op, self.groups)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::h200;

    const UNITS: usize = h200::COMPUTE_UNITS;

    #[test]
    fn a_device_is_busy_with_many_rows_or_whole_rounds() {
        let busy =
            [1, UNITS - 1, UNITS, 140, 176, 2 * UNITS, 300, 352, 4096].map(|groups| keep_busy(groups, UNITS));
        assert_eq!(busy, [false, false, true, false, true, true, true, true, true]);
        assert!(keep_busy(1, 1));
    }
}
