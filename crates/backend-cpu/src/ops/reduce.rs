//! Reductions over one axis, accumulated in f64.

use backend_api::desc::ReduceDesc;
use backend_api::{BackendResult, ReduceOp};
use bytemuck::cast_slice_mut;

use crate::math;
use crate::memory::Memory;
use crate::parallel::Cores;

/// Numbers in the share of one thread.
const GRAIN: usize = 1 << 16;

/// Columns that are reduced together, so that their sums stay in the first-level cache.
const COLUMNS: usize = 256;

/// `output[outer, inner] = op over axis of input[outer, axis, inner]`.
pub(crate) fn reduce(memory: &Memory, op: &'static str, desc: &ReduceDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    memory.access(op, &operands, |[input, _], output| {
        let input: &[f32] = input.elements();
        let output: &mut [f32] = cast_slice_mut(output);
        Cores::run(input.len(), |cores| {
            let axis = Axis { cores, input, desc };
            match desc.op {
                ReduceOp::Max => axis.reduce(output, f64::NEG_INFINITY, larger),
                ReduceOp::Min => axis.reduce(output, f64::INFINITY, smaller),
                ReduceOp::Prod => axis.reduce(output, 1.0, |a, b| a * b),
                _ => axis.reduce(output, 0.0, |a, b| a + b),
            }
        });
    })
}

#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

#[inline(always)]
fn smaller(a: f64, b: f64) -> f64 {
    if b < a || b.is_nan() { b } else { a }
}

#[derive(Clone, Copy)]
struct Axis<'a> {
    cores: Cores,
    input: &'a [f32],
    desc: &'a ReduceDesc,
}

/// Combines two partial results.
trait Rule: Fn(f64, f64) -> f64 + Copy + Sync {}
impl<F: Fn(f64, f64) -> f64 + Copy + Sync> Rule for F {}

impl Axis<'_> {
    fn reduce(self, output: &mut [f32], identity: f64, rule: impl Rule) {
        let ReduceDesc { length, inner, .. } = *self.desc;
        // The mean over an empty axis is 0/0.
        let divisor = if self.desc.op == ReduceOp::Mean { length as f64 } else { 1.0 };
        let finish = |x: f64| (x / divisor) as f32;
        let grain = GRAIN / length.max(1);
        if inner == 1 {
            return self.cores.chunks(output, 1, grain.max(1), &|first, chunk: &mut [f32]| {
                for (i, y) in (first..).zip(chunk) {
                    let line = &self.input[i * length..(i + 1) * length];
                    *y = finish(self.line(line, identity, rule));
                }
            });
        }
        self.cores.chunks(output, 1, grain.max(COLUMNS), &|first, chunk: &mut [f32]| {
            let mut done = 0;
            while done < chunk.len() {
                let (outer, column) = ((first + done) / inner, (first + done) % inner);
                let width = COLUMNS.min(inner - column).min(chunk.len() - done);
                let start = outer * length * inner + column;
                let results = self.columns(start, length, width, identity, rule);
                for (y, x) in chunk[done..].iter_mut().zip(results) {
                    *y = finish(x);
                }
                done += width;
            }
        });
    }

    /// One line of adjacent numbers.
    fn line(self, line: &[f32], identity: f64, rule: impl Rule) -> f64 {
        if line.len() <= GRAIN {
            return math::fold(line, identity, f64::from, rule);
        }
        let (left, right) = line.split_at(line.len() / 2);
        self.cores.fold(|| self.line(left, identity, rule), || self.line(right, identity, rule), rule)
    }

    /// `width` adjacent columns of `lines` lines from the element `start` on.
    fn columns(self, start: usize, lines: usize, width: usize, identity: f64, rule: impl Rule) -> Vec<f64> {
        let inner = self.desc.inner;
        if lines > 1 && lines * width > 2 * GRAIN {
            let half = lines / 2;
            return self.cores.fold(
                || self.columns(start, half, width, identity, rule),
                || self.columns(start + half * inner, lines - half, width, identity, rule),
                |left, right| left.into_iter().zip(right).map(|(a, b)| rule(a, b)).collect(),
            );
        }
        let mut results = vec![identity; width];
        for line in 0..lines {
            let line = &self.input[start + line * inner..][..width];
            for (y, &x) in results.iter_mut().zip(line) {
                *y = rule(*y, f64::from(x));
            }
        }
        results
    }
}
