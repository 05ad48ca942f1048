//! A convolution that takes long, by images, groups, filters and rows.

use std::borrow::Cow;

use backend_api::DType;
use backend_api::desc::ImageLayout;
use backend_api::support::ConvGather;

use super::Job;
use crate::device::DeviceProfile;
use crate::ops::shared::long_work::{Divisible, middle};
use crate::recorder::Window;

impl Divisible for Job {
    fn seconds(&self, profile: &DeviceProfile) -> f64 {
        let halves = self.dtype == DType::F16;
        self.gather.flops() / if halves { profile.flops_f16 } else { profile.flops }
    }

    /// The results of a part follow each other in memory, as the kernels know no gaps between images, planes
    /// or rows.
    fn halves(&self) -> Option<[Self; 2]> {
        let &ConvGather { batch, groups, filters, result, layout, .. } = &self.gather;
        let images = |first, count| self.images(first, count);
        let by_groups = |first, count| self.groups(first, count);
        let by_filters = |first, count| self.filters(first, count);
        let rows = |first, count| self.rows(first, count);
        let both = |total: usize, part: &dyn Fn(usize, usize) -> Self| {
            let first = middle(total)?;
            Some([part(0, first), part(first, total - first)])
        };
        if batch > 1 {
            both(batch, &images)
        } else if layout != ImageLayout::Nhwc && groups > 1 {
            both(groups, &by_groups)
        } else if layout != ImageLayout::Nhwc && filters > 1 {
            // Filters of a transposed convolution are stored the other way round.
            if self.transposed { None } else { both(filters, &by_filters) }
        } else {
            both(result[0], &rows)
        }
    }

    fn excess(&self) -> u64 {
        let Self { input, filter, bias, output, .. } = self;
        let excess = |(window, elements): (&Window, usize)| window.excess(elements);
        [input, filter, bias, output].into_iter().zip(self.elements()).map(excess).sum()
    }
}

/// Elements from the start of input, filter, bias and output.
#[derive(Clone, Copy, Debug, Default)]
struct Starts {
    input: usize,
    filter: usize,
    bias: usize,
    output: usize,
}

impl Job {
    /// The elements of input, filter, bias and output.
    fn elements(&self) -> [usize; 4] {
        let &ConvGather { batch, groups, channels, filters, source: [height, width], .. } = &self.gather;
        [
            batch * groups * channels * height * width,
            groups * filters * self.gather.taps(),
            groups * filters,
            batch * groups * filters * self.gather.pixels(),
        ]
    }

    /// The part with the windows of what it accesses.
    pub(super) fn bound(&self) -> Cow<'_, Self> {
        let Self { input, filter, bias, output, .. } = self;
        if ![input, filter, bias, output].into_iter().any(Window::is_wide) {
            return Cow::Borrowed(self);
        }
        let [of_input, of_filter, of_bias, of_output] = self.elements();
        Cow::Owned(Self {
            input: input.truncated(of_input),
            filter: filter.truncated(of_filter),
            bias: bias.truncated(of_bias),
            output: output.truncated(of_output),
            ..self.clone()
        })
    }

    /// Whether each position of the result is made of the same position of the source: of rows further down,
    /// another may have the same number there.
    pub(super) fn is_pointwise(&self) -> bool {
        self.first_row == 0 && self.gather.is_pointwise()
    }

    fn images(&self, first: usize, batch: usize) -> Self {
        let &ConvGather { groups, channels, filters, source: [height, width], .. } = &self.gather;
        let starts = Starts {
            input: first * groups * channels * height * width,
            output: first * groups * filters * self.gather.pixels(),
            ..Starts::default()
        };
        self.part(starts, |job| job.gather.batch = batch)
    }

    /// Groups of one NCHW image.
    fn groups(&self, first: usize, groups: usize) -> Self {
        let &ConvGather { channels, filters, source: [height, width], .. } = &self.gather;
        let starts = Starts {
            input: first * channels * height * width,
            filter: first * filters * self.gather.taps(),
            bias: first * filters,
            output: first * filters * self.gather.pixels(),
        };
        self.part(starts, |job| job.gather.groups = groups)
    }

    /// Filters of one group of one NCHW image.
    fn filters(&self, first: usize, filters: usize) -> Self {
        let starts = Starts {
            input: 0,
            filter: first * self.gather.taps(),
            bias: first,
            output: first * self.gather.pixels(),
        };
        self.part(starts, |job| job.gather.filters = filters)
    }

    /// Rows of one NCHW plane, or of one NHWC image.
    fn rows(&self, first: usize, rows: usize) -> Self {
        let &ConvGather { groups, filters, result: [_, width], .. } = &self.gather;
        let starts = Starts { output: first * width * groups * filters, ..Starts::default() };
        self.part(starts, |job| {
            job.first_row += first;
            job.gather.result[0] = rows;
        })
    }

    fn part(&self, starts: Starts, change: impl FnOnce(&mut Self)) -> Self {
        let mut part = self.clone();
        // Without channels or taps, these have no memory.
        if self.gather.taps() > 0 {
            part.input = self.input.advanced(starts.input);
            part.filter = self.filter.advanced(starts.filter);
        }
        if self.biased {
            part.bias = self.bias.advanced(starts.bias);
        }
        part.output = self.output.advanced(starts.output);
        change(&mut part);
        part
    }
}
