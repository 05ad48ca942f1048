//! Convolutions with filters, or a row of results, that can't be bound at once, where results or filters of a part don't
//! follow each other in memory: of images whose channels are adjacent, and of transposed convolutions, whose filters are
//! stored by the channels of what is read. Groups, or filters of the only group, are convolved one part after the other, and their results
//! copied to where they belong.

use std::fmt;
use std::ops::Range;

use backend_api::BackendResult;
use backend_api::desc::ImageLayout;
use backend_api::support::{ConvGather, checked_product};

use super::Job;
use super::ranges::{copied, put_back, scratch};
use crate::ops::op_context::OpContext;
use crate::recorder::{UNBINDABLE, Window};

/// How a convolution is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilterParts {
    /// Groups, at most as many in a part.
    Groups(usize),
    /// Filters of the only group, at most as many in a part.
    Filters(usize),
}

impl fmt::Display for FilterParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Groups(step) => write!(f, "{step} groups"),
            Self::Filters(step) => write!(f, "{step} filters"),
        }
    }
}

impl FilterParts {
    /// The parts whose filters, and rows of results, can be bound, where those of the whole can't, and [`halves`] leaves
    /// them whole.
    ///
    /// [`halves`]: crate::ops::shared::long_work::Divisible::halves
    pub(super) fn of_wide(job: &Job) -> Option<Self> {
        let gather = &job.gather;
        let all = gather.groups * gather.filters;
        let interleaved = gather.layout == ImageLayout::Nhwc;
        let is_wide = job.filter.excess(all * gather.taps()) >= UNBINDABLE;
        let of_filters = if is_wide && (job.transposed || interleaved) {
            // Kernels on tensor cores fill up channels to a multiple of eight.
            let padded = gather.filter[0] * gather.filter[1] * gather.channels.next_multiple_of(8);
            job.filter.most_items(padded)
        } else {
            usize::MAX
        };
        let of_rows = if interleaved { job.output.most_items(gather.result[1]) } else { usize::MAX };
        let most = of_filters.min(of_rows);
        (most < all).then(|| Self::of_most(gather, most))?
    }

    /// Parts of at most so many filters, or of one; `None` for a single filter.
    pub(super) fn of_most(&ConvGather { groups, filters, .. }: &ConvGather, most: usize) -> Option<Self> {
        if groups > 1 {
            return Some(Self::Groups((most / filters.max(1)).clamp(1, groups - 1)));
        }
        // As aligned as tiles are, where there are enough of them.
        let step = [64, 16, 4].into_iter().find(|&step| most >= step).unwrap_or(1);
        (filters > 1).then(|| Self::Filters((most / step * step).clamp(1, filters - 1)))
    }

    /// The first part, as its kernel is chosen.
    pub(super) fn first(self, job: &Job) -> Job {
        let mut gather = job.gather;
        let elements = match self {
            Self::Groups(step) => {
                gather.groups = step;
                step * job.gather.filters * job.gather.taps()
            }
            Self::Filters(step) => {
                gather.filters = step;
                step * job.gather.taps()
            }
        };
        Job { gather, filter: job.filter.truncated(elements), ..job.clone() }
    }

    /// Has each part made by `make`.
    pub(super) fn run(
        self,
        ctx: &OpContext,
        op: &'static str,
        job: &Job,
        make: impl Fn(&Job) -> BackendResult<()>,
    ) -> BackendResult<()> {
        let (whole, step) = match self {
            Self::Groups(step) => (job.gather.groups, step),
            Self::Filters(step) => (job.gather.filters, step),
        };
        let [_, results] = self.dims(&job.gather);
        let [outer, _, inner] = results;
        for first in (0..whole).step_by(step) {
            let _part = ctx.begin_part();
            let range = first..whole.min(first + step);
            // Of one image whose channels are planes, the results follow each other.
            let output = if outer == 1 {
                job.output.advanced(first * inner)
            } else {
                scratch(ctx, op, job.dtype, checked_product(op, "scratch", &[outer, range.len(), inner])?)?
            };
            make(&self.part(ctx, op, job, range.clone(), output.clone())?)?;
            if outer > 1 {
                put_back(ctx, op, job.dtype, &output, (&job.output, results, range))?;
            }
        }
        Ok(())
    }

    /// What lies around the groups in what is read, and around groups or filters in the results.
    fn dims(self, gather: &ConvGather) -> [[usize; 3]; 2] {
        let &ConvGather { batch, channels, filters, source: [height, width], layout, .. } = gather;
        let (read, written) = (height * width, gather.pixels());
        let extent = if let Self::Groups(_) = self { gather.groups } else { filters };
        let each = if let Self::Groups(_) = self { filters } else { 1 };
        if layout == ImageLayout::Nhwc {
            [[batch * read, gather.groups, channels], [batch * written, extent, each]]
        } else {
            [[batch, gather.groups, channels * read], [batch, extent, each * written]]
        }
    }

    fn part(
        self,
        ctx: &OpContext,
        op: &'static str,
        job: &Job,
        range: Range<usize>,
        output: Window,
    ) -> BackendResult<Job> {
        let mut gather = job.gather;
        let &ConvGather { channels, filters, filter: [height, width], layout, .. } = &job.gather;
        let [read, _] = self.dims(&job.gather);
        let types = [job.dtype; 2];
        let (input, each) = match self {
            Self::Groups(_) => {
                gather.groups = range.len();
                let input = match read {
                    [1, _, inner] => job.input.advanced(range.start * inner),
                    _ => copied(ctx, op, types, &job.input, read, range.clone())?,
                };
                (input, filters)
            }
            Self::Filters(_) => {
                gather.filters = range.len();
                (job.input.clone(), 1)
            }
        };
        let filter = if job.transposed && matches!(self, Self::Filters(_)) {
            let places = height * width;
            let stored = match layout {
                ImageLayout::Nhwc => [channels * places, filters, 1],
                _ => [channels, filters, places],
            };
            copied(ctx, op, types, &job.filter, stored, range.clone())?
        } else {
            let elements = each * job.gather.taps();
            job.filter.advanced(range.start * elements).truncated(range.len() * elements)
        };
        let bias = if job.biased { job.bias.advanced(range.start * each) } else { job.bias.clone() };
        Ok(Job { gather, input, filter, bias, output, ..job.clone() })
    }
}

#[cfg(test)]
mod tests {
    use backend_api::desc::{ConvShape, ImageShape, Window as FilterWindow};

    use super::*;

    #[test]
    fn groups_come_before_filters_and_parts_are_smaller() {
        let gather = |groups: usize, filters: usize| {
            let image = ImageShape { batch: 1, channels: groups, height: 4, width: 4 };
            let shape =
                ConvShape::new(image, groups * filters, FilterWindow::new([1, 1])).with_groups(groups);
            ConvGather::forward("test", &shape).unwrap()
        };
        let of = |groups, filters, most| FilterParts::of_most(&gather(groups, filters), most);
        assert_eq!(of(1, 1, 0), None);
        assert_eq!([of(1, 100, 0), of(1, 100, 3)], [1, 3].map(|n| Some(FilterParts::Filters(n))));
        assert_eq!([of(1, 100, 99), of(1, 100, 300)], [64, 99].map(|n| Some(FilterParts::Filters(n))));
        assert_eq!([of(7, 100, 99), of(7, 100, 350)], [1, 3].map(|n| Some(FilterParts::Groups(n))));
        assert_eq!(of(7, 1, 700), Some(FilterParts::Groups(6)));
    }
}
