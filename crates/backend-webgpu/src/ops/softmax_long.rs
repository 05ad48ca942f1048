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

constants! { struct Constants { softmax: Softmax, lanes: usize, held: usize, staged: usize } }

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
        rows_per_group: u32,
        rows_before: u32,
    }
}

/// The size of a workgroup, and how much of a row it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Workgroup {
    /// Invocations.
    lanes: usize,
    /// Vectors that each holds in registers.
    held: usize,
    /// Vectors that each keeps in workgroup memory.
    staged: usize,
}

impl Workgroup {
    /// Bytes of workgroup memory: for what is kept there, for what joins the results of all invocations, and for the
    /// ends of rows.
    fn bytes(self, dtype: DType, vec_width: VecWidth) -> usize {
        const JOINING: usize = 32;
        let numbers = self.lanes + JOINING;
        self.lanes * self.staged * vec_width.width() * dtype.size()
            + numbers * DType::F32.size()
            + Seams::workgroup_bytes(vec_width)
    }
}

/// Vectors that an invocation reads before it uses them, at least.
const AHEAD: usize = 4;

/// The workgroups for rows of this type, each with the vectors of a row from which on it is the fastest on an H200
/// (shaders/reduce/notes.md), which are no fewer than it keeps. Those for the longest rows come first.
fn workgroups(dtype: DType, vec_width: VecWidth) -> &'static [(usize, Workgroup)] {
    const fn workgroup(lanes: usize, held: usize, staged: usize) -> Workgroup {
        Workgroup { lanes, held, staged }
    }
    match (dtype, vec_width) {
        (DType::F16, VecWidth::Two) => {
            const {
                &[
                    (32 << 10, workgroup(1024, 24, 8)),
                    (16 << 10, workgroup(512, 24, 8)),
                    (12 << 10, workgroup(512, 24, 0)),
                    (6 << 10, workgroup(512, 12, 0)),
                    (4 << 10, workgroup(256, 16, 0)),
                ]
            }
        }
        (DType::F16, VecWidth::One) => {
            const { &[(8 << 10, workgroup(512, 16, 0)), (4 << 10, workgroup(256, 16, 0))] }
        }
        (DType::F16, _) => {
            const {
                &[
                    (20 << 10, workgroup(1024, 10, 4)),
                    (8 << 10, workgroup(512, 12, 4)),
                    (6 << 10, workgroup(512, 12, 0)),
                    (2 << 10, workgroup(256, 8, 0)),
                ]
            }
        }
        (_, VecWidth::One) => {
            const {
                &[
                    (48 << 10, workgroup(1024, 28, 8)),
                    (16 << 10, workgroup(512, 24, 8)),
                    (8 << 10, workgroup(1024, 8, 0)),
                    (4 << 10, workgroup(256, 16, 0)),
                ]
            }
        }
        _ => {
            const {
                &[
                    (8 << 10, workgroup(1024, 8, 0)),
                    (6 << 10, workgroup(1024, 6, 0)),
                    (2 << 10, workgroup(256, 8, 0)),
                ]
            }
        }
    }
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        let widths = [VecWidth::One, VecWidth::Two, VecWidth::Four];
        for vec_width in widths.into_iter().filter(|&width| dtype == DType::F16 || width != VecWidth::Two) {
            for softmax in Softmax::all() {
                let all = workgroups(dtype, vec_width).iter();
                variants.extend(all.map(|&(_, workgroup)| variant(dtype, vec_width, softmax, workgroup)));
            }
        }
    }
    variants
}

fn variant(dtype: DType, vec_width: VecWidth, softmax: Softmax, workgroup: Workgroup) -> Variant {
    let Workgroup { lanes, held, staged } = workgroup;
    Variant::new(&SOFTMAX_LONG, [dtype], Constants { softmax, lanes, held, staged })
        .with_libs(vec_width.row_libs())
        .with_workgroup(lanes, workgroup.bytes(dtype, vec_width))
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
        let fits = |&&(least, workgroup): &&(usize, Workgroup)| {
            let bytes = workgroup.bytes(desc.dtype, vec_width);
            least <= vectors && has_room(limits, workgroup.lanes, bytes)
        };
        let &(_, workgroup) = workgroups(desc.dtype, vec_width).iter().find(fits)?;
        let seams = Seams::new(vec_width, desc.length, windows[1].offset, 1);
        let groups = seams.groups(desc.outer, 1);
        // It reads what it doesn't keep twice, and the device may count the iterations of both loops.
        let steps = 2 * seams.rows_per_group as usize * (vectors / (workgroup.lanes * AHEAD) + 1);
        let fits =
            keep_busy(groups, ctx.profile().compute_units) && iterations::exceeded(ctx, steps).is_none();
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
            rows_per_group: self.seams.rows_per_group,
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

    /// What a workgroup keeps is there in every row.
    #[test]
    fn rows_have_all_that_their_workgroups_keep() {
        for (dtype, vec_width) in [
            (DType::F16, VecWidth::One),
            (DType::F16, VecWidth::Two),
            (DType::F16, VecWidth::Four),
            (DType::F32, VecWidth::One),
            (DType::F32, VecWidth::Four),
        ] {
            let all = workgroups(dtype, vec_width);
            assert!(all.is_sorted_by_key(|&(least, _)| std::cmp::Reverse(least)), "{dtype} {vec_width:?}");
            for &(least, Workgroup { lanes, held, staged }) in all {
                assert!(lanes * (held + staged) <= least && staged % 4 == 0, "{dtype} {vec_width:?}");
            }
        }
    }

    #[test]
    fn a_device_is_busy_with_many_rows_or_whole_rounds() {
        let busy =
            [1, UNITS - 1, UNITS, 140, 176, 2 * UNITS, 300, 352, 4096].map(|groups| keep_busy(groups, UNITS));
        assert_eq!(busy, [false, false, true, false, true, true, true, true, true]);
        assert!(keep_busy(1, 1));
    }
}
