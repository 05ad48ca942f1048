//! Walks over strided outputs that give each core a slice of its own.
//!
//! An output's elements are distinct in the sense that, sorted by stride, each stride passes everything that
//! the smaller ones reach. So the halves of the dimension with the largest stride lie in two halves of the
//! memory, and any such output can be divided by `split_at_mut`.

use std::ops::Range;

use backend_api::support::Loop;

use crate::parallel::Cores;

/// Calls `work(ranges, slice)` for boxes of about `grain` elements that together are the output: `dims` are
/// its extents and strides, `ranges` the box in the same order, and `slice` starts at the box's first
/// element.
pub(crate) fn boxes<T: Send>(
    cores: Cores,
    dims: &[(usize, usize)],
    output: &mut [T],
    grain: usize,
    work: &BoxWork<'_, T>,
) {
    let ranges = dims.iter().map(|&(extent, _)| 0..extent).collect();
    let walk = Walk { cores, dims, order: &outermost_first(dims), grain, work };
    walk.divide(ranges, output);
}

/// What is done with a box. One type for all, as every other would have a copy of the walk.
pub(crate) type BoxWork<'a, T> = dyn Fn(&[Range<usize>], &mut [T]) + Sync + 'a;

/// The dimensions from the largest stride to the smallest.
fn outermost_first(dims: &[(usize, usize)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..dims.len()).collect();
    order.sort_by_key(|&k| std::cmp::Reverse(dims[k].1));
    order
}

struct Walk<'a, T> {
    cores: Cores,
    dims: &'a [(usize, usize)],
    order: &'a [usize],
    grain: usize,
    work: &'a BoxWork<'a, T>,
}

impl<T: Send> Walk<'_, T> {
    fn divide(&self, ranges: Vec<Range<usize>>, output: &mut [T]) {
        let elements: usize = ranges.iter().map(ExactSizeIterator::len).product();
        let outermost = self.order.iter().find(|&&k| ranges[k].len() > 1);
        let Some(&k) = outermost.filter(|_| elements > self.grain) else {
            return (self.work)(&ranges, output);
        };
        let half = ranges[k].len() / 2;
        let (left, right) = output.split_at_mut(half * self.dims[k].1);
        let middle = ranges[k].start + half;
        let mut first = ranges.clone();
        let mut second = ranges;
        first[k].end = middle;
        second[k].start = middle;
        self.cores.join(|| self.divide(first, left), || self.divide(second, right));
    }
}

/// One innermost loop: where it starts in each tensor, its length and its strides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<const N: usize> {
    pub(crate) start: [usize; N],
    pub(crate) len: usize,
    pub(crate) stride: [usize; N],
}

impl<const N: usize> Run<N> {
    /// Where element `i` lies in each tensor.
    pub(crate) fn at(&self, i: usize) -> [usize; N] {
        std::array::from_fn(|t| self.start[t] + i * self.stride[t])
    }
}

/// What is done with a run.
pub(crate) type RunWork<'a, T, const N: usize> = dyn Fn(Run<N>, &mut [T]) + Sync + 'a;

/// Calls `work(run, slice)` for every innermost loop of `loops`, of which tensor `N - 1` is the output. In
/// `run` the output's start counts from the start of `slice`, those of the inputs from the start of the
/// tensor.
pub(crate) fn runs<T: Send, const N: usize>(
    cores: Cores,
    loops: Vec<Loop<N>>,
    output: &mut [T],
    grain: usize,
    work: &RunWork<'_, T, N>,
) {
    let loops = in_order_of_output(loops);
    let dims: Vec<(usize, usize)> = loops.iter().map(|&(extent, s)| (extent, s[N - 1])).collect();
    boxes(cores, &dims, output, grain, &|ranges, slice| {
        let start = std::array::from_fn(|tensor| {
            if tensor == N - 1 {
                return 0;
            }
            loops.iter().zip(ranges).map(|(l, range)| range.start * l.1[tensor]).sum()
        });
        let mut inner: Vec<Loop<N>> = loops.iter().zip(ranges).map(|(l, range)| (range.len(), l.1)).collect();
        let (len, stride) = inner.pop().unwrap_or((1, [0; N]));
        nest(&inner, start, &mut |start| {
            work(Run { start, len, stride }, slice);
        });
    });
}

/// The loops in the order of the output's memory.
fn in_order_of_output<const N: usize>(mut loops: Vec<Loop<N>>) -> Vec<Loop<N>> {
    loops.sort_by_key(|&(_, strides)| std::cmp::Reverse(strides[N - 1]));
    loops
}

/// Calls `work` with the starts of every combination of `loops`.
fn nest<const N: usize>(loops: &[Loop<N>], start: [usize; N], work: &mut impl FnMut([usize; N])) {
    let Some((&(extent, stride), inner)) = loops.split_first() else {
        return work(start);
    };
    for i in 0..extent {
        nest(inner, std::array::from_fn(|t| start[t] + i * stride[t]), work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_visited_once_in_any_layout() {
        // Extents 5×7×3, as the strides of a packed, a permuted and a padded output.
        for strides in [[21, 3, 1], [3, 15, 1], [1, 5, 40], [200, 20, 2]] {
            let loops: Vec<Loop<2>> = (0..3).map(|k| ([5, 7, 3][k], [[21, 3, 1][k], strides[k]])).collect();
            let mut output = vec![usize::MAX; 5 * 200];
            runs(Cores::One, loops, &mut output, 4, &|run: Run<2>, slice| {
                for i in 0..run.len {
                    slice[run.start[1] + i * run.stride[1]] = run.start[0] + i * run.stride[0];
                }
            });
            for (x, y, z) in (0..105).map(|i| (i / 21, i / 3 % 7, i % 3)) {
                let at = x * strides[0] + y * strides[1] + z * strides[2];
                assert_eq!(output[at], x * 21 + y * 3 + z);
            }
            assert_eq!(output.iter().filter(|&&x| x != usize::MAX).count(), 105);
        }
    }

    #[test]
    fn a_scalar_is_one_run() {
        let mut output = [0];
        runs::<_, 1>(Cores::One, vec![], &mut output, 4, &|run, slice| {
            slice[run.start[0]] += run.len;
        });
        assert_eq!(output, [1]);
    }
}
