//! How a reduction reads its input.

use std::cmp::Reverse;

use backend_api::desc::MAX_RANK;
use backend_api::support::{Loop, ReduceLoops, sort_few_by_key};
use backend_api::{BackendResult, DType};

use super::op_context::WORKGROUP;
use super::reduction::{Access, Rule};
use super::shared::row_groups::{AHEAD, LEAST, RowGroups, SHARE};
use super::shared::vec_width::VecWidth;
use crate::context::MAX_GROUPS;
use crate::ops::op_context::dim;
use crate::recorder::Window;

/// Workgroups that keep a large device busy; more of them only have more to begin and to end.
const BUSY: usize = 512;
/// Loads of an invocation from which on a reduction is worth being cut.
const CUT_SHARE: usize = 32;
/// Elements of a row from which on words of two are read rather than elements.
const LEAST_IN_WORDS: usize = 2048;
/// Loads of an invocation beyond which runs of runs would lose accuracy.
const MAX_SHARE: usize = 4096;

/// How a reduction reads its input.
#[derive(Clone, Debug)]
pub(super) struct ReducePlan {
    pub(super) loops: ReduceLoops,
    pub(super) vec_width: VecWidth,
    /// Whether neighbouring elements are of one output, not of neighbouring ones.
    pub(super) rows: bool,
    /// Whether two results are joined by a few instructions.
    joins_cheaply: bool,
}

impl ReducePlan {
    pub(super) fn new(dtype: DType, input: &Window, mut loops: ReduceLoops, rule: Rule) -> Self {
        // Neighbours in memory come last. An index counts in the order of the axes.
        sort_few_by_key(&mut loops.kept, |&(_, [x, _])| Reverse(x));
        if !rule.is_index() {
            sort_few_by_key(&mut loops.reduced, |&(_, [x])| Reverse(x));
        }
        let kept = loops.kept.last().map_or((1, usize::MAX), |&(extent, [x, _])| (extent, x));
        let reduced = loops.reduced.last().map_or((1, usize::MAX), |&(extent, [x])| (extent, x));
        let rows = loops.kept.is_empty() || reduced.1 < kept.1;
        let (nearest, outer) = if rows { (reduced, 0) } else { (kept, 1) };
        let vec_width = Self::vec_width(dtype, input, &loops, nearest, outer);
        Self { loops, vec_width, rows, joins_cheaply: rule.joins_cheaply() }
    }

    /// Vectors if the loop over neighbours is one of whole vectors, and every other loop starts at one.
    fn vec_width(
        dtype: DType,
        input: &Window,
        loops: &ReduceLoops,
        (extent, stride): (usize, usize),
        side: usize,
    ) -> VecWidth {
        let kept = loops.kept.iter().map(|&(_, [x, _])| x);
        let reduced = loops.reduced.iter().map(|&(_, [x])| x);
        let (near, far): (Vec<usize>, Vec<usize>) =
            if side == 1 { (kept.collect(), reduced.collect()) } else { (reduced.collect(), kept.collect()) };
        let vec_width = VecWidth::of(dtype);
        let several = extent.is_multiple_of(vec_width.width()) && extent > vec_width.width() * side;
        if stride != 1 {
            return VecWidth::One;
        }
        let others = [&near[..near.len() - 1], &far[..]].concat();
        match VecWidth::fitting(dtype, &[input], &others) {
            fitting if several && fitting != VecWidth::One => fitting,
            // Words may begin before a row, and are all of one.
            _ if dtype == DType::F16 && side == 0 && near.len() == 1 && extent >= LEAST_IN_WORDS => {
                VecWidth::Two
            }
            _ => VecWidth::One,
        }
    }

    /// Over the `slices` that the launch of `first` stored, into outputs of these strides.
    pub(super) fn of_slices(
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
        let mut plan = Self::new(dtype, partials, loops, rule);
        if rule.of_partials().reads_pairs() {
            plan.vec_width = VecWidth::One;
        }
        plan
    }

    pub(super) fn access(&self) -> Access {
        let one_loop = self.loops.kept.len() <= 1 && self.loops.reduced.len() <= 1;
        Access { vec_width: self.vec_width, one_loop }
    }

    /// Lets the outputs lie packed in the order of the loops; their strides so far.
    pub(super) fn pack_outputs(&mut self) -> Vec<usize> {
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
    pub(super) fn loads(&self) -> usize {
        if self.rows { self.loops.length / self.vec_width.width() } else { self.loops.length }
    }

    /// Elements of what the kernel counts by: vectors, or elements where rows may begin in the middle of a word.
    pub(super) fn unit(&self) -> usize {
        if self.vec_width == VecWidth::Two { 1 } else { self.vec_width.width() }
    }

    /// What one output is made of, in these units.
    pub(super) fn length(&self) -> usize {
        if self.rows { self.loops.length / self.unit() } else { self.loops.length }
    }

    /// Outputs, or vectors of outputs.
    pub(super) fn outputs(&self) -> usize {
        if self.rows { self.loops.outputs } else { self.loops.outputs / self.vec_width.width() }
    }

    pub(super) fn row_groups(&self) -> RowGroups {
        let abreast = match self.loops.kept.last() {
            Some(&(extent, _)) if !self.rows => extent / self.vec_width.width(),
            _ => 1,
        };
        let members = (BUSY * WORKGROUP / self.outputs().max(1)).max(1);
        let share = self.loads().div_ceil(members);
        let share = match (self.joins_cheaply, self.rows, self.vec_width) {
            (false, ..) => share.max(SHARE),
            // Narrow rows are read the faster the more of a row's neighbours are read at a time.
            (true, true, VecWidth::Two | VecWidth::Four) => share.clamp(AHEAD, SHARE),
            (true, true, VecWidth::One) => share.clamp(AHEAD, 4 * SHARE),
            (true, ..) => share.max(AHEAD),
        };
        RowGroups::with_share(self.loads(), abreast, LEAST, share)
    }

    /// Into how many slices the elements of an output are cut: one if there are enough outputs to keep the
    /// device busy.
    pub(super) fn slices(&self) -> usize {
        let row_groups = self.row_groups();
        let share = row_groups.share(self.loads());
        let busy = BUSY / row_groups.groups(self.outputs()).max(1);
        // The second launch costs the same for few slices as for many, in which each invocation has all of its loads on
        // their way.
        let wanted = if share < CUT_SHARE { 1 } else { busy.min(share / AHEAD) };
        self.at_most(wanted.max(self.fewest_slices()).clamp(1, MAX_GROUPS as usize))
    }

    /// As many slices as keep the accuracy.
    pub(super) fn fewest_slices(&self) -> usize {
        self.row_groups().share(self.loads()).div_ceil(MAX_SHARE)
    }

    /// The slices, of at most so many, of which none is empty.
    pub(super) fn at_most(&self, slices: usize) -> usize {
        self.loads().div_ceil(self.loads().div_ceil(slices).max(1)).max(1)
    }

    /// The loops as the kernel takes them: those over outputs first, the others at the end.
    pub(super) fn packed(&self, op: &'static str) -> BackendResult<[[u32; 4]; MAX_RANK]> {
        let width = self.unit();
        let mut packed = [[1, 0, 0, 0]; MAX_RANK];
        let ReduceLoops { kept, reduced, .. } = &self.loops;
        let kept: Vec<Loop<2>> = self.in_vectors(kept, !self.rows);
        let reduced: Vec<Loop<1>> = self.in_vectors(reduced, self.rows);
        // A stride that leads nowhere may be any number.
        let step = |extent, stride| if extent > 1 { dim(op, "stride", stride) } else { Ok(0) };
        for (slot, &(extent, [x, y])) in packed.iter_mut().zip(&kept) {
            *slot = [dim(op, "extent", extent)?, step(extent, x)?, step(extent, y)?, 0];
        }
        if !self.rows && width > 1 {
            // The innermost outputs of a vector are `stride` apart, their vectors `width` times that.
            let innermost = &mut packed[kept.len() - 1];
            innermost[2] = dim(op, "stride", (innermost[2] as usize).saturating_mul(width))?;
        }
        let first = MAX_RANK - reduced.len();
        for (slot, &(extent, [x])) in packed[first..].iter_mut().zip(&reduced) {
            *slot = [dim(op, "extent", extent)?, step(extent, x)?, 0, 0];
        }
        Ok(packed)
    }

    /// Loops that step over vectors; the innermost has them as its steps if it is over `neighbours`.
    fn in_vectors<const N: usize>(&self, loops: &[Loop<N>], neighbours: bool) -> Vec<Loop<N>> {
        let width = self.unit();
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

#[cfg(test)]
mod tests {
    use backend_api::ReduceOp;
    use backend_api::desc::{ReduceDesc, TensorDesc};

    use super::*;
    use crate::ops::plans::Shapes;
    use crate::ops::shared::bound_windows;

    /// How many elements the slices have, each computed as in shaders/reduce/reduce.wgsl, where nothing may
    /// wrap.
    fn covered(length: u32, slices: u32) -> u64 {
        let chunk = (length - 1) / slices + 1;
        let count = |slice: u32| chunk.min(length - slice.checked_mul(chunk).unwrap().min(length));
        (0..slices).map(|slice| u64::from(count(slice))).sum()
    }

    fn slices(shape: &[usize], axes: &[usize], vec_width: VecWidth) -> usize {
        let desc = ReduceDesc::new(ReduceOp::Sum, TensorDesc::packed(1, DType::F32, shape), axes, 2);
        let (_, loops) = desc.operands("t").unwrap();
        let rows = axes.contains(&(shape.len() - 1));
        ReducePlan { loops, vec_width, rows, joins_cheaply: true }.slices()
    }

    #[test]
    fn rows_have_larger_teams_where_joining_is_cheap() {
        let row_group = |outputs, length, vec_width, joins_cheaply| {
            let kept = vec![(outputs, [length, 1])];
            let loops = ReduceLoops { kept, reduced: vec![(length, [1])], outputs, length };
            ReducePlan { loops, vec_width, rows: true, joins_cheaply }.row_groups().size
        };
        assert_eq!([true, false].map(|cheap| row_group(16_384, 4096, VecWidth::Four, cheap)), [64, 8]);
        assert_eq!(row_group(16_384, 4096, VecWidth::Eight, true), 8);
        assert_eq!([true, false].map(|cheap| row_group(1, 512, VecWidth::Four, cheap)), [32, 8]);
    }

    #[test]
    fn only_long_axes_of_few_outputs_are_cut() {
        assert_eq!(slices(&[1 << 26], &[0], VecWidth::Four), 512);
        assert_eq!(slices(&[1 << 26], &[0], VecWidth::One), 512);
        assert_eq!(slices(&[16_384, 4096], &[0], VecWidth::Four), 16);
        assert_eq!(slices(&[16_384, 4096], &[1], VecWidth::Four), 1);
        assert_eq!(slices(&[4095], &[0], VecWidth::One), 1);
        assert_eq!(slices(&[100_000, 5], &[1], VecWidth::One), 1);
        assert_eq!(slices(&[1], &[0], VecWidth::One), 1);
    }

    #[test]
    fn slices_fit_a_grid_and_none_is_empty() {
        let longest = u32::MAX as usize;
        for (outputs, length, rows) in
            [(1, longest, true), (1, longest - 1295, true), (64, longest, false), (1 << 20, longest, false)]
        {
            let kept = if outputs > 1 { vec![(outputs, [0, 1])] } else { Vec::new() };
            let loops = ReduceLoops { kept, reduced: vec![(length, [0])], outputs, length };
            let slices = ReducePlan { loops, vec_width: VecWidth::One, rows, joins_cheaply: true }.slices();
            assert!(slices <= MAX_GROUPS as usize, "{slices}");
            assert_eq!(covered(length as u32, slices as u32), length as u64, "{slices}");
        }
    }

    /// Where the kernel reads and stores, as in shaders/reduce/reduce.wgsl: the input's and the output's element, for
    /// each element of each output.
    fn visited(plan: &ReducePlan, x_offset: usize) -> Vec<[usize; 2]> {
        let packed = plan.packed("t").unwrap().map(|slot| slot.map(|number| number as usize));
        let (unit, kept) = (plan.unit(), plan.loops.kept.len());
        let one_loop = plan.access().one_loop;
        let start = |output: usize| {
            let (mut rest, mut at) = (output, [x_offset / unit, 0]);
            if one_loop {
                return [at[0] + output * packed[0][1], output * packed[0][2]];
            }
            for d in (0..kept).rev() {
                let extent = packed[d][0];
                let step = if d > 0 { rest % extent } else { rest };
                rest /= extent;
                at = [at[0] + step * packed[d][1], at[1] + step * packed[d][2]];
            }
            at
        };
        let step_to = |r: usize| {
            let (mut rest, mut offset, mut d) = (r, 0, MAX_RANK - 1);
            while !one_loop && rest >= packed[d][0] {
                offset += rest % packed[d][0] * packed[d][1];
                rest /= packed[d][0];
                d -= 1;
            }
            offset + rest * packed[d][1]
        };
        let mut visited = Vec::new();
        for output in 0..plan.outputs() {
            let [base, target] = start(output);
            for r in 0..plan.length() {
                for lane in 0..unit {
                    let step = if plan.rows { 0 } else { packed[kept.max(1) - 1][2] / unit };
                    visited.push([(base + step_to(r)) * unit + lane, target + lane * step]);
                }
            }
        }
        visited
    }

    #[test]
    fn every_element_is_read_once_for_its_output() {
        let backend = crate::WebGpuBackend::open().expect("a WebGPU adapter");
        let [mut window] = bound_windows::windows(backend.device().unwrap(), 1 << 14);
        let mut shapes = Shapes(1);
        let mut below = |n: usize| shapes.below(n);
        let mut seen = std::collections::HashMap::new();
        for _ in 0..3000 {
            let extents: Vec<usize> = (0..=below(4)).map(|_| [1, 2, 3, 4, 8, 16][below(6)]).collect();
            let mut order: Vec<usize> = (0..extents.len()).collect();
            order.rotate_left(below(2));
            let mut stride = [1, 1, 1, 2][below(4)];
            let mut loops = ReduceLoops { kept: Vec::new(), reduced: Vec::new(), outputs: 1, length: 1 };
            for &axis in order.iter().rev() {
                let extent = extents[axis];
                if below(2) == 0 {
                    loops.kept.insert(0, (extent, [stride, 3 * loops.outputs]));
                    loops.outputs *= extent;
                } else {
                    loops.reduced.insert(0, (extent, [stride]));
                    loops.length *= extent;
                }
                stride = stride * extent + [0, 0, 0, 8, 4, 3][below(6)];
            }
            let mut expected = Vec::new();
            for output in 0..loops.outputs {
                for r in 0..loops.length {
                    let (mut at, mut rest) = ([0; 2], output);
                    for &(extent, [x, y]) in loops.kept.iter().rev() {
                        at = [at[0] + rest % extent * x, at[1] + rest % extent * y];
                        rest /= extent;
                    }
                    rest = r;
                    for &(extent, [x]) in loops.reduced.iter().rev() {
                        at[0] += rest % extent * x;
                        rest /= extent;
                    }
                    expected.push(at);
                }
            }
            window.offset = [0, 8, 4, 1][below(4)];
            let dtype = [DType::F32, DType::F16][below(2)];
            let (index, number) = (Rule::Arg { smallest: false, pairs: false }, Rule::LogSumExp);
            for rule in [index, number] {
                let plan = ReducePlan::new(dtype, &window, loops.clone(), rule);
                let mut visited = visited(&plan, window.offset as usize);
                if plan.vec_width != VecWidth::One {
                    assert!(window.offset.is_multiple_of(plan.vec_width.width() as u32), "{plan:?}");
                }
                expected.iter_mut().for_each(|place| place[0] += window.offset as usize);
                // Of one output, indices count in the order of the axes.
                if rule == index && plan.rows {
                    let of = |places: &[[usize; 2]]| {
                        let mut by_output = std::collections::BTreeMap::<_, Vec<_>>::new();
                        places.iter().for_each(|place| by_output.entry(place[1]).or_default().push(place[0]));
                        by_output
                    };
                    assert_eq!(of(&visited), of(&expected), "{plan:?}");
                }
                let mut all = expected.clone();
                visited.sort_unstable();
                all.sort_unstable();
                assert_eq!(visited, all, "{plan:?} of {loops:?}");
                expected.iter_mut().for_each(|place| place[0] -= window.offset as usize);
                *seen.entry((plan.vec_width.width(), plan.rows)).or_insert(0) += 1;
            }
        }
        let kinds = [(1, true), (1, false), (4, true), (4, false), (8, true), (8, false)];
        assert!(kinds.iter().all(|kind| seen.get(kind) > Some(&20)), "{seen:?}");
    }

    /// Vectors pay for more than one of them side by side, and words of long rows of f16 that begin anywhere.
    #[test]
    fn rows_are_read_as_wide_as_they_lie() {
        let backend = crate::WebGpuBackend::open().expect("a WebGPU adapter");
        let [mut window] = bound_windows::windows(backend.device().unwrap(), 1 << 14);
        let mut width = |dtype, offset, kept: (usize, usize), reduced: (usize, usize)| {
            window.offset = offset;
            let (outputs, length) = (kept.0, reduced.0);
            let (kept, reduced) = (vec![(kept.0, [kept.1, 1])], vec![(reduced.0, [reduced.1])]);
            let loops = ReduceLoops { kept, reduced, outputs, length };
            let plan = ReducePlan::new(dtype, &window, loops, Rule::LogSumExp);
            assert_eq!(plan.loads(), if plan.rows { length / plan.vec_width.width() } else { length });
            (plan.vec_width.width(), plan.rows)
        };
        let rows = |length| ((3, length), (length, 1));
        for (dtype, offset, (kept, reduced), expected) in [
            (DType::F32, 0, rows(4), (4, true)),
            (DType::F32, 0, rows(6), (1, true)),
            (DType::F32, 2, rows(8), (1, true)),
            (DType::F16, 0, rows(8), (8, true)),
            (DType::F16, 0, rows(2047), (1, true)),
            (DType::F16, 0, rows(2049), (2, true)),
            (DType::F16, 1, rows(2048), (2, true)),
            (DType::F32, 0, rows(2049), (1, true)),
            // Outputs side by side.
            (DType::F32, 0, ((8, 1), (5, 8)), (4, false)),
            (DType::F32, 0, ((4, 1), (5, 4)), (1, false)),
            (DType::F16, 0, ((16, 1), (5, 16)), (8, false)),
            (DType::F16, 0, ((8, 1), (5, 8)), (1, false)),
            (DType::F16, 1, ((4096, 1), (5, 4096)), (1, false)),
            // No neighbours.
            (DType::F32, 0, ((8, 16), (8, 2)), (1, true)),
        ] {
            assert_eq!(
                width(dtype, offset, kept, reduced),
                expected,
                "{dtype} {offset} {kept:?} {reduced:?}"
            );
        }
    }
}
