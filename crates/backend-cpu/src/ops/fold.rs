//! The walk of a reduction: each output's numbers in an order that depends on sizes only.

use backend_api::support::{Loop, ReduceLoops};

use crate::parallel::Cores;
use crate::strided::{Run, runs};

/// Numbers in the share of one thread.
const GRAIN: usize = 1 << 16;

/// Columns that are reduced together, so that their sums stay in the first-level cache.
const COLUMNS: usize = 256;

/// Numbers of a line that are reduced side by side.
const STRANDS: usize = 8;

/// What becomes of an output's numbers: `join` of what `take` makes of each number and its index.
#[derive(Clone, Copy)]
pub(crate) struct Rule<S, M, J> {
    pub(crate) identity: S,
    pub(crate) take: M,
    pub(crate) join: J,
}

/// A reduction's input and its loops.
pub(crate) struct Walk<'a, T> {
    pub(crate) cores: Cores,
    pub(crate) loops: ReduceLoops,
    pub(crate) input: &'a [T],
}

/// A part of the reduced loops, for some outputs side by side.
#[derive(Clone, Copy)]
struct Part<'a> {
    /// The first element of the first output.
    start: usize,
    /// The index of that element among the reduced.
    index: usize,
    loops: &'a [Loop<1>],
    width: usize,
    /// Distance between the outputs' elements.
    step: usize,
}

impl<T: Copy + Sync> Walk<'_, T> {
    /// `output = finish(rule over the reduced loops)` for each output.
    pub(crate) fn run<U: Send, S: Copy + Send + Sync>(
        self,
        output: &mut [U],
        rule: Rule<S, impl Fn(T, usize) -> S + Copy + Sync, impl Fn(S, S) -> S + Copy + Sync>,
        finish: impl Fn(S) -> U + Sync,
    ) {
        let length = self.loops.length.max(1);
        // Lines of adjacent numbers are walked along, all others side by side.
        let is_line = self.loops.reduced.last().is_some_and(|&(_, [stride])| stride == 1);
        let width = if is_line { 1 } else { COLUMNS };
        let grain = (GRAIN / length).max(width);
        let reduced = &self.loops.reduced[..];
        runs(self.cores, self.loops.kept.clone(), output, grain, &|run: Run<2>, output| {
            let mut done = 0;
            while done < run.len {
                let part = Part {
                    start: run.start[0] + done * run.stride[0],
                    index: 0,
                    loops: reduced,
                    width: width.min(run.len - done),
                    step: run.stride[0],
                };
                for (i, state) in self.part(part, rule).into_iter().enumerate() {
                    output[run.start[1] + (done + i) * run.stride[1]] = finish(state);
                }
                done += part.width;
            }
        });
    }

    fn part<S: Copy + Send + Sync>(
        &self,
        part: Part<'_>,
        rule: Rule<S, impl Fn(T, usize) -> S + Copy + Sync, impl Fn(S, S) -> S + Copy + Sync>,
    ) -> Vec<S> {
        let Part { start, index, loops, width, step } = part;
        let Some((&(extent, [stride]), inner)) = loops.split_first() else {
            return (0..width).map(|c| (rule.take)(self.input[start + c * step], index)).collect();
        };
        let count: usize = inner.iter().map(|&(extent, _)| extent).product();
        let join = |left: Vec<S>, right: Vec<S>| -> Vec<S> {
            left.into_iter().zip(right).map(|(a, b)| (rule.join)(a, b)).collect()
        };
        if extent > 1 && extent.saturating_mul(count).saturating_mul(width) > 2 * GRAIN {
            let half = extent / 2;
            let split = |first: usize, extent: usize| {
                let mut loops = loops.to_vec();
                loops[0].0 = extent;
                let part = Part {
                    start: start + first * stride,
                    index: index + first * count,
                    loops: &loops,
                    ..part
                };
                self.part(part, rule)
            };
            return self.cores.fold(|| split(0, half), || split(half, extent - half), join);
        }
        if inner.is_empty() && stride == 1 && width == 1 {
            return vec![line(&self.input[start..start + extent], index, rule)];
        }
        let mut states = vec![rule.identity; width];
        for i in 0..extent {
            let (start, index) = (start + i * stride, index + i * count);
            if inner.is_empty() {
                for (c, state) in states.iter_mut().enumerate() {
                    *state = (rule.join)(*state, (rule.take)(self.input[start + c * step], index));
                }
            } else {
                states = join(states, self.part(Part { start, index, loops: inner, ..part }, rule));
            }
        }
        states
    }
}

/// One line of adjacent numbers.
fn line<T: Copy, S: Copy>(
    line: &[T],
    first: usize,
    rule: Rule<S, impl Fn(T, usize) -> S, impl Fn(S, S) -> S>,
) -> S {
    let mut strands = [rule.identity; STRANDS];
    for (k, chunk) in line.chunks(STRANDS).enumerate() {
        for (i, (strand, &x)) in strands.iter_mut().zip(chunk).enumerate() {
            *strand = (rule.join)(*strand, (rule.take)(x, first + k * STRANDS + i));
        }
    }
    strands.into_iter().fold(rule.identity, |a, b| (rule.join)(a, b))
}
