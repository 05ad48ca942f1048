//! Counts what kernels access outside of their operands: the evidence for compiling them without bounds
//! checks.
//!
//! With the feature `count-out-of-bounds`, [`instrument`](instrument::instrument) adds a comparison to every
//! access of every kernel. An access of a binding is compared with the bytes of the operand, which the launch
//! passes behind the kernel's parameters, and not with the whole buffer; an access of any other array with
//! the array's length. What lies outside is counted in a buffer, bound behind the kernel's own, and the next
//! read or `synchronize` returns it as an error. Words that an operand only partly fills belong to it, as f16
//! is read and written in words too.

mod counters;
mod instrument;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrayvec::ArrayVec;

use crate::kernels::Variant;
use crate::memory::Block;
use crate::recorder::Window;

pub(crate) use counters::Counters;

/// Storage bindings of a kernel, at most: an even number, as ranges are passed two at a time.
const OPERANDS: usize = 16;

const _: () = assert!(OPERANDS.is_multiple_of(2) && OPERANDS + 1 >= crate::device::MAX_BINDINGS);

/// Bytes that a launch adds to the parameters: for each binding, as words, where the operand begins and ends
/// in it.
pub(crate) const RANGES: usize = OPERANDS * 8;

/// What a kernel needs so that its accesses are counted.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The counters, to be bound behind the kernel's own bindings.
    counters: Window,
    /// Where the ranges are among the parameters, in bytes.
    ranges_at: usize,
}

impl Watch {
    fn new(variant: &Variant, counters: &Arc<Block>) -> Self {
        let bytes = 0..counters.size() as u64;
        Self { counters: Window::of_bound(counters, bytes, 4, u32::MAX), ranges_at: ranges_at(variant) }
    }

    /// Adds the ranges of a dispatch's operands to its parameters, and binds the counters.
    pub(crate) fn count<const W: usize, const P: usize>(
        &self,
        windows: &mut ArrayVec<Window, W>,
        params: &mut ArrayVec<u8, P>,
    ) {
        // A binding has at most 2 GiB.
        let ends = windows.iter().flat_map(|window| [window.operand.start, window.operand.end]);
        let ranges = ends.flat_map(|end| (end as u32).to_ne_bytes()).chain(std::iter::repeat(0));
        params.extend(std::iter::repeat_n(0, self.ranges_at.saturating_sub(params.len())));
        params.extend(ranges.take(RANGES));
        windows.push(self.counters.clone());
    }
}

/// Behind the last parameter, where WGSL puts an array of vectors.
fn ranges_at(variant: &Variant) -> usize {
    variant.source.params.last().map_or(0, |last| last.offset + last.size).next_multiple_of(16)
}
