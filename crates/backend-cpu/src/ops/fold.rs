//! The walk of a reduction: each output's numbers in an order that depends on sizes only.

use backend_api::support::{Loop, ReduceLoops};

use crate::parallel::Cores;
use crate::strided::{Run, runs};

/// Numbers in the share of one thread.
const GRAIN: usize = 1 << 16;

/// Numbers up to which threads don't share an output.
const WHOLE: usize = 2 * GRAIN;

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

impl<T: Copy + Sync> Walk<'_, T> {
    /// `output = finish(rule over the reduced loops)` for each output.
    pub(crate) fn run<U: Send, S: Copy + Send + Sync>(
        self,
        output: &mut [U],
        rule: Rule<S, impl Fn(T, usize) -> S + Copy + Sync, impl Fn(S, S) -> S + Copy + Sync>,
        finish: impl Fn(S) -> U + Sync,
    ) {
        let Rule { identity, take, join } = rule;
        let input = self.input;
        let steps = Steps {
            identity,
            number: &|at| take(input[at.element], at.index),
            line: &|at, extent| line(&input[at.element..at.element + extent], at.index, rule),
            side_by_side: &|states, at, step| {
                for (c, state) in states.iter_mut().enumerate() {
                    *state = join(*state, take(input[at.element + c * step], at.index));
                }
            },
            join: &|states, others| {
                states.iter_mut().zip(others).for_each(|(state, &other)| *state = join(*state, other));
            },
        };
        outputs(self.cores, &self.loops, &steps, output, &finish);
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

/// A number: its element of the input, and its index among those of one output.
#[derive(Clone, Copy)]
struct At {
    element: usize,
    index: usize,
}

/// What a walk does with the numbers of an input by a rule. One type for all rules and inputs, as every other would
/// have a copy of the walk.
struct Steps<'a, S> {
    identity: S,
    /// The state of a number.
    number: &'a (dyn Fn(At) -> S + Sync),
    /// The state of so many adjacent numbers.
    line: &'a (dyn Fn(At, usize) -> S + Sync),
    /// Joins a number of each output, so many elements apart, to its state.
    side_by_side: &'a (dyn Fn(&mut [S], At, usize) + Sync),
    /// Joins others to states.
    join: &'a (dyn Fn(&mut [S], &[S]) + Sync),
}

/// A part of the reduced loops, for some outputs side by side.
#[derive(Clone, Copy)]
struct Part<'a> {
    /// The first number of the first output.
    start: At,
    loops: &'a [Loop<1>],
    width: usize,
    /// Distance between the outputs' elements.
    step: usize,
}

/// Reduces each output's numbers by the steps of a rule, and writes what `finish` makes of its state.
fn outputs<U: Send, S: Copy + Send + Sync>(
    cores: Cores,
    loops: &ReduceLoops,
    steps: &Steps<'_, S>,
    output: &mut [U],
    finish: &(dyn Fn(S) -> U + Sync),
) {
    let length = loops.length.max(1);
    // Lines of adjacent numbers are walked along, all others side by side.
    let is_line = loops.reduced.last().is_some_and(|&(_, [stride])| stride == 1);
    let width = if is_line { 1 } else { COLUMNS };
    let grain = (GRAIN / length).max(width);
    runs(cores, loops.kept.clone(), output, grain, &|run: Run<2>, output| {
        if let [(extent, [1])] = loops.reduced[..]
            && extent <= WHOLE
        {
            for i in 0..run.len {
                let [from, to] = run.at(i);
                output[to] = finish((steps.line)(At { element: from, index: 0 }, extent));
            }
            return;
        }
        let mut done = 0;
        while done < run.len {
            let part = Part {
                start: At { element: run.start[0] + done * run.stride[0], index: 0 },
                loops: &loops.reduced,
                width: width.min(run.len - done),
                step: run.stride[0],
            };
            for (i, state) in steps.part(cores, part).into_iter().enumerate() {
                output[run.start[1] + (done + i) * run.stride[1]] = finish(state);
            }
            done += part.width;
        }
    });
}

impl<S: Copy + Send + Sync> Steps<'_, S> {
    /// The states of the outputs of a part.
    fn part(&self, cores: Cores, part: Part<'_>) -> Vec<S> {
        let Part { start, loops, width, step } = part;
        let Some((&(extent, [stride]), inner)) = loops.split_first() else {
            let number = |c| (self.number)(At { element: start.element + c * step, ..start });
            return (0..width).map(number).collect();
        };
        let count: usize = inner.iter().map(|&(extent, _)| extent).product();
        let at = |i| At { element: start.element + i * stride, index: start.index + i * count };
        if extent > 1 && extent.saturating_mul(count).saturating_mul(width) > WHOLE {
            let half = extent / 2;
            let split = |first: usize, extent: usize| {
                let mut loops = loops.to_vec();
                loops[0].0 = extent;
                self.part(cores, Part { start: at(first), loops: &loops, ..part })
            };
            let (mut states, others) = cores.join_results(|| split(0, half), || split(half, extent - half));
            (self.join)(&mut states, &others);
            return states;
        }
        if inner.is_empty() && stride == 1 && width == 1 {
            return vec![(self.line)(start, extent)];
        }
        let mut states = vec![self.identity; width];
        for i in 0..extent {
            if inner.is_empty() {
                (self.side_by_side)(&mut states, at(i), step);
            } else {
                (self.join)(&mut states, &self.part(cores, Part { start: at(i), loops: inner, ..part }));
            }
        }
        states
    }
}
