//! Loops over strided tensors in parts, none of which takes long or reaches beyond a binding.

use backend_api::BackendResult;
use backend_api::support::Loop;

use super::long_work::{Divisible, division, in_parts, middle};
use crate::device::DeviceProfile;
use crate::ops::op_context::OpContext;
use crate::recorder::Window;

/// Loops over tensors with the windows of their first elements, of which a part may be iterated over at a time.
#[derive(Clone, Debug)]
pub(in crate::ops) struct Stretch<const N: usize> {
    pub(in crate::ops) loops: Vec<Loop<N>>,
    pub(in crate::ops) windows: [Window; N],
}

impl<const N: usize> Stretch<N> {
    /// Launches the loops in parts, each with what it accesses of the tensors. A tensor that is `in_place` is the last
    /// one, and its window has no other meaning than its offset.
    ///
    /// # Errors
    /// What `launch` returns, and [`Limit`](backend_api::BackendError::Limit) as of [`in_parts`].
    pub(in crate::ops) fn launch_parts(
        self,
        ctx: &OpContext,
        op: &'static str,
        in_place: [bool; N],
        mut launch: impl FnMut(&[Loop<N>], &[Window; N]) -> BackendResult<()>,
    ) -> BackendResult<()> {
        in_parts(ctx, op, self, |part| {
            if !part.windows.iter().any(Window::is_wide) {
                return launch(&part.loops, &part.windows);
            }
            let mut windows: [_; N] = std::array::from_fn(|t| part.windows[t].truncated(part.elements(t)));
            for t in (0..N).filter(|&t| in_place[t]) {
                windows[t].offset = windows[N - 1].offset;
            }
            launch(&part.loops, &windows)
        })
    }

    /// The elements from the first to the last one of tensor `t`.
    fn elements(&self, t: usize) -> usize {
        let reach = |&(extent, strides): &Loop<N>| extent.saturating_sub(1) * strides[t];
        self.loops.iter().map(reach).sum::<usize>() + 1
    }

    /// The first `half` turns of a loop, and the others.
    fn divided(&self, at: usize, half: usize) -> [Self; 2] {
        let (extent, strides) = self.loops[at];
        let part = |first: usize, extent: usize| {
            let mut part = self.clone();
            part.loops[at].0 = extent;
            for (window, stride) in part.windows.iter_mut().zip(strides) {
                *window = window.advanced(first * stride);
            }
            part
        };
        [part(0, half), part(half, extent - half)]
    }
}

impl<const N: usize> Divisible for Stretch<N> {
    fn seconds(&self, profile: &DeviceProfile) -> f64 {
        let elements: f64 = self.loops.iter().map(|&(extent, _)| extent as f64).product();
        elements * (N * size_of::<u32>()) as f64 / profile.bandwidth
    }

    fn halves(&self) -> Option<[Self; 2]> {
        let at = (0..self.loops.len()).max_by_key(|&at| self.loops[at].0)?;
        Some(self.divided(at, middle(self.loops[at].0)?))
    }

    fn excess(&self) -> u64 {
        (0..N).map(|t| self.windows[t].excess(self.elements(t))).sum()
    }

    /// Along the loop that reaches furthest in the tensor that is the most too large.
    fn smaller_halves(&self) -> Option<[Self; 2]> {
        let t = (0..N).max_by_key(|&t| self.windows[t].excess(self.elements(t)))?;
        let reach = |at: usize| self.loops[at].0.saturating_sub(1) * self.loops[at].1[t];
        let at = (0..self.loops.len()).max_by_key(|&at| reach(at))?;
        let (extent, strides) = self.loops[at];
        Some(self.divided(at, division(extent, &[(&self.windows[t], strides[t])])?))
    }
}
