//! Reductions that take long, by outputs, and by the elements of one output.

use backend_api::support::{Loop, ReduceLoops};

use super::shared::long_work::{Divisible, halves_of};
use crate::device::DeviceProfile;
use crate::recorder::Window;

/// Strides of 0 where outputs are made of no elements: what other extents would reach may be more than a `usize` holds.
pub(super) fn forget_unread(loops: &mut ReduceLoops) {
    if loops.length > 0 {
        return;
    }
    loops.kept.iter_mut().for_each(|(_, [x, _])| *x = 0);
    loops.reduced.iter_mut().for_each(|(_, [x])| *x = 0);
}

/// Some outputs of a reduction, with the window of the first one.
#[derive(Clone, Debug)]
pub(super) struct Outputs {
    /// What they are made of.
    pub(super) numbers: Numbers,
    pub(super) output: Window,
    /// Whether results are indices, which count from the first element on.
    pub(super) is_index: bool,
}

impl Outputs {
    /// The elements from the first to the last result.
    pub(super) fn results(&self) -> usize {
        let reach = |&(extent, [_, y]): &Loop<2>| extent.saturating_sub(1) * y;
        self.numbers.loops.kept.iter().map(reach).sum::<usize>() + 1
    }

    /// Whether the results of so many pieces of each output as can be bound one by one can be bound together.
    fn partials_fit(&self) -> bool {
        // A maximum and a sum of f32.
        const PARTIAL: usize = 8;
        let most = self.numbers.input.max as usize;
        let bytes = elements(&self.numbers.loops).saturating_mul(self.numbers.input.item.into());
        let pieces = (2 * bytes.div_ceil(most.max(1))).min(self.numbers.loops.length);
        self.numbers.loops.outputs.saturating_mul(pieces * PARTIAL) <= most
    }

    fn halves_along(&self, at: usize) -> Option<[Self; 2]> {
        let (extent, [x, y]) = self.numbers.loops.kept[at];
        halves_of(extent, |first, count| {
            let mut loops = self.numbers.loops.clone();
            loops.kept[at].0 = count;
            loops.outputs = loops.outputs / extent * count;
            let numbers = Numbers { loops, input: self.numbers.input.advanced(first * x) };
            Self { numbers, output: self.output.advanced(first * y), is_index: self.is_index }
        })
    }
}

impl Divisible for Outputs {
    fn seconds(&self, profile: &DeviceProfile) -> f64 {
        self.numbers.seconds(profile)
    }

    fn halves(&self) -> Option<[Self; 2]> {
        let kept = &self.numbers.loops.kept;
        self.halves_along((0..kept.len()).max_by_key(|&at| kept[at].0)?)
    }

    fn excess(&self) -> u64 {
        self.numbers.excess() + self.output.excess(self.results())
    }

    /// Along the loop over outputs that reaches furthest. Once one number of each output can be bound together, and so
    /// can the results of pieces, the loops over what an output is made of come next if one of them reaches further in
    /// the input.
    fn smaller_halves(&self) -> Option<[Self; 2]> {
        let ReduceLoops { kept, reduced, .. } = &self.numbers.loops;
        let of_output = self.output.excess(self.results()) > 0;
        let reach = |at: usize| {
            let (extent, [x, y]) = kept[at];
            extent.saturating_sub(1) * if of_output { y } else { x }
        };
        let at = (0..kept.len()).max_by_key(|&at| reach(at))?;
        let further = reduced.iter().any(|&(extent, [x])| extent.saturating_sub(1) * x > reach(at));
        let of_one_number = (0..kept.len()).map(reach).sum::<usize>() + 1;
        let fits = self.numbers.input.excess(of_one_number) == 0 && self.partials_fit();
        if further && fits && !of_output && !self.is_index { None } else { self.halves_along(at) }
    }
}

/// The elements that outputs are made of, or some of those of each, with the window of the first one.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    pub(super) loops: ReduceLoops,
    pub(super) input: Window,
}

impl Numbers {
    /// The window of what is read.
    pub(super) fn bound(&self) -> Window {
        self.input.truncated(elements(&self.loops))
    }

    fn halves_along(&self, at: usize) -> Option<[Self; 2]> {
        let (extent, [x]) = self.loops.reduced[at];
        halves_of(extent, |first, count| {
            let mut loops = self.loops.clone();
            loops.reduced[at].0 = count;
            loops.length = loops.length / extent * count;
            Self { loops, input: self.input.advanced(first * x) }
        })
    }
}

impl Divisible for Numbers {
    fn seconds(&self, profile: &DeviceProfile) -> f64 {
        self.loops.reads() * size_of::<f32>() as f64 / profile.bandwidth
    }

    fn halves(&self) -> Option<[Self; 2]> {
        let reduced = &self.loops.reduced;
        self.halves_along((0..reduced.len()).max_by_key(|&at| reduced[at].0)?)
    }

    fn excess(&self) -> u64 {
        self.input.excess(elements(&self.loops))
    }

    fn smaller_halves(&self) -> Option<[Self; 2]> {
        let reduced = &self.loops.reduced;
        let reach = |at: usize| reduced[at].0.saturating_sub(1) * reduced[at].1[0];
        self.halves_along((0..reduced.len()).max_by_key(|&at| reach(at))?)
    }
}

/// The elements from the first to the last one that is read.
fn elements(loops: &ReduceLoops) -> usize {
    let kept = loops.kept.iter().map(|&(extent, [x, _])| extent.saturating_sub(1) * x);
    let reduced = loops.reduced.iter().map(|&(extent, [x])| extent.saturating_sub(1) * x);
    kept.chain(reduced).sum::<usize>() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_beside_an_empty_one_reach_nothing() {
        let mut empty = ReduceLoops {
            kept: vec![(3, [usize::MAX, 1])],
            reduced: vec![(0, [usize::MAX]), (usize::MAX, [1])],
            outputs: 3,
            length: 0,
        };
        forget_unread(&mut empty);
        assert_eq!(elements(&empty), 1);
        let mut whole =
            ReduceLoops { kept: vec![(3, [4, 1])], reduced: vec![(4, [1])], outputs: 3, length: 4 };
        forget_unread(&mut whole);
        assert_eq!(elements(&whole), 12);
    }
}
