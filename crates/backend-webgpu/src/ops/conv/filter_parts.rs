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
    use std::cell::RefCell;

    use backend_api::desc::{ConvShape, ImageShape, Window as FilterWindow};

    use super::*;
    use crate::WebGpuBackend;
    use crate::ops::plans;
    use crate::ops::shared::bound_windows::address;

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

    /// A convolution of f32 with biases and buffers of its own, of which a binding may show `max_bytes`.
    fn job(
        backend: &WebGpuBackend,
        [batch, groups, filters]: [usize; 3],
        (layout, transposed): (ImageLayout, bool),
        max_bytes: u64,
    ) -> Job {
        let [from, to] = if transposed { [filters, 3] } else { [3, filters] };
        let image = ImageShape { batch, channels: groups * from, height: 5, width: 4 };
        let shape = ConvShape::new(image, groups * to, FilterWindow::new([2, 3]));
        let shape = shape.with_groups(groups).with_layout(layout);
        let gather =
            if transposed { ConvGather::transposed } else { ConvGather::forward }("test", &shape).unwrap();
        assert_eq!([gather.groups, gather.channels, gather.filters], [groups, 3, filters]);
        Job::of_buffers(backend.device().unwrap(), gather, transposed, max_bytes)
    }

    const KINDS: [(ImageLayout, bool); 4] = [
        (ImageLayout::Nchw, false),
        (ImageLayout::Nchw, true),
        (ImageLayout::Nhwc, false),
        (ImageLayout::Nhwc, true),
    ];

    /// The filters of the parts are those of the whole, one after the other, with their biases, inputs and results.
    #[test]
    fn parts_have_each_filter_once() {
        let backend = plans::of_h200();
        let call = backend.context("test").unwrap();
        let ctx = &call.context;
        let byte = |window: &Window| window.bound.start + u64::from(window.offset) * u64::from(window.item);
        for (sizes, parts) in [
            ([1, 5, 2], FilterParts::Groups(2)),
            ([3, 5, 2], FilterParts::Groups(2)),
            ([1, 1, 10], FilterParts::Filters(4)),
            ([2, 1, 10], FilterParts::Filters(4)),
        ] {
            for (kind, biased) in KINDS.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
                let whole = Job { biased, ..job(&backend, sizes, kind, 1 << 20) };
                let made = RefCell::new(Vec::new());
                let make = |part: &Job| {
                    made.borrow_mut().push((part.clone(), ctx.take_variants().len()));
                    Ok(())
                };
                parts.run(ctx, "test", &whole, make).unwrap();
                let what = format!("{sizes:?} {kind:?} {biased}");
                let ([batch, groups, filters], (layout, transposed)) = (sizes, kind);
                let of_groups = groups > 1;
                let [height, width] = whole.gather.source;
                let (taps, pixels) = (whole.gather.taps(), whole.gather.pixels());
                // What belongs to the groups of one image of planes follows each other. Filters of a group that aren't stored
                // one after the other are copied.
                let in_place = batch == 1 && layout == ImageLayout::Nchw;
                let is_stored = of_groups || !transposed;
                let copies = !is_stored || of_groups && !in_place;
                let mut first = 0;
                for (number, (part, launched)) in made.into_inner().into_iter().enumerate() {
                    let count = part.gather.groups * part.gather.filters;
                    // The results of the part before have been copied to their place.
                    let has_put_back = !in_place && number > 0;
                    assert_eq!(launched > 0, copies || has_put_back, "copies of {what}");
                    assert_eq!([part.gather.channels, part.gather.batch], [3, batch], "{what}");
                    let kept = if of_groups { part.gather.filters } else { part.gather.groups };
                    assert_eq!(kept, if of_groups { filters } else { 1 }, "{what}");
                    if is_stored {
                        assert_eq!(byte(&part.filter), address(&whole.filter, first * taps), "{what}");
                    } else {
                        assert!(part.filter.size() >= (count * taps * 4) as u64, "{what}");
                    }
                    let of_bias = if biased { first } else { 0 };
                    assert_eq!(byte(&part.bias), address(&whole.bias, of_bias), "biases of {what}");
                    if in_place {
                        let channel = if of_groups { first / filters * 3 } else { 0 };
                        let image = address(&whole.input, channel * height * width);
                        assert_eq!(byte(&part.input), image, "images of {what}");
                        assert_eq!(byte(&part.output), address(&whole.output, first * pixels), "{what}");
                    } else {
                        assert!(part.output.size() >= (batch * count * pixels * 4) as u64, "{what}");
                        assert!(!part.output.shares_buffer(&whole.output), "{what}");
                    }
                    first += count;
                }
                assert_eq!(first, groups * filters, "{what}");
                assert_eq!(ctx.take_variants().is_empty(), in_place, "the last results of {what}");
            }
        }
    }

    /// As many filters of 2 × 3 × 8 places, and elements of a row of results, are in a part as can be bound with 272 bytes more.
    #[test]
    fn parts_can_be_bound() {
        let backend = plans::of_h200();
        for max_bytes in [512, 700, 1024, 2048, 4096, 1 << 20] {
            for (sizes, kind) in [[1, 5, 8], [1, 1, 40], [2, 1, 41]]
                .into_iter()
                .flat_map(|sizes| KINDS.map(|kind| (sizes, kind)))
            {
                let job = job(&backend, sizes, kind, max_bytes);
                let (layout, transposed) = kind;
                let [_, groups, filters] = sizes;
                let all = groups * filters;
                let room = max_bytes as usize - 272;
                let interleaved = layout == ImageLayout::Nhwc;
                // One of 2 × 3 × 3 is 72 bytes; the first begins 8 bytes into its buffer.
                let is_wide = (8 + all * 72).next_multiple_of(16) > max_bytes as usize;
                let (divides_filters, is_large) =
                    (is_wide && (interleaved || transposed), max_bytes < 1 << 14);
                let of_filters = if divides_filters { room / (2 * 3 * 8 * 4) } else { usize::MAX };
                let of_row =
                    if interleaved && is_large { room / (job.gather.result[1] * 4) } else { usize::MAX };
                let most = of_filters.min(of_row);
                let expected = if most < all { FilterParts::of_most(&job.gather, most) } else { None };
                let parts = FilterParts::of_wide(&job);
                assert_eq!(parts, expected, "{sizes:?} {kind:?} in {max_bytes} bytes");
                let Some(parts) = parts else { continue };
                let first = parts.first(&job);
                let count = first.gather.groups * first.gather.filters;
                let step = match parts {
                    FilterParts::Groups(step) => step * filters,
                    FilterParts::Filters(step) => step,
                };
                assert_eq!((count, first.gather.channels), (step, 3));
                assert!(step < all && (step <= most || step == 1 || groups > 1), "{parts} of {most}");
                if divides_filters {
                    assert_eq!(first.filter.size(), (8 + step as u64 * 72).next_multiple_of(16), "{parts}");
                }
            }
        }
    }
}
