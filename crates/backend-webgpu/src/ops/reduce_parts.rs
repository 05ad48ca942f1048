//! Reductions that take long, by outputs, and by the elements of one output.

use backend_api::support::ReduceLoops;

use super::shared::long_work::{Divisible, middle};
use crate::device::DeviceProfile;
use crate::recorder::Window;

/// Some outputs of a reduction, with the windows of the first one.
#[derive(Clone, Debug)]
pub(super) struct Outputs {
    pub(super) loops: ReduceLoops,
    pub(super) input: Window,
    pub(super) output: Window,
}

impl Divisible for Outputs {
    fn seconds(&self, profile: &DeviceProfile) -> f64 {
        seconds(&self.loops, profile)
    }

    fn halves(&self) -> Option<[Self; 2]> {
        let kept = &self.loops.kept;
        let at = (0..kept.len()).max_by_key(|&at| kept[at].0)?;
        let (extent, [x, y]) = kept[at];
        let half = middle(extent)?;
        let part = |first: usize, count: usize| {
            let mut loops = self.loops.clone();
            loops.kept[at].0 = count;
            loops.outputs = loops.outputs / extent * count;
            Self { loops, input: self.input.advanced(first * x), output: self.output.advanced(first * y) }
        };
        Some([part(0, half), part(half, extent - half)])
    }
}

/// Some of the elements that each output is made of, with the window of the first one.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    pub(super) loops: ReduceLoops,
    pub(super) input: Window,
}

impl Divisible for Numbers {
    fn seconds(&self, profile: &DeviceProfile) -> f64 {
        seconds(&self.loops, profile)
    }

    fn halves(&self) -> Option<[Self; 2]> {
        let reduced = &self.loops.reduced;
        let at = (0..reduced.len()).max_by_key(|&at| reduced[at].0)?;
        let (extent, [x]) = reduced[at];
        let half = middle(extent)?;
        let part = |first: usize, count: usize| {
            let mut loops = self.loops.clone();
            loops.reduced[at].0 = count;
            loops.length = loops.length / extent * count;
            Self { loops, input: self.input.advanced(first * x) }
        };
        Some([part(0, half), part(half, extent - half)])
    }
}

fn seconds(loops: &ReduceLoops, profile: &DeviceProfile) -> f64 {
    loops.reads() * size_of::<f32>() as f64 / profile.bandwidth
}
