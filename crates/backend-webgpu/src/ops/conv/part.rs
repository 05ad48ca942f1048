//! A convolution that takes long, by images, groups, filters and rows.

use std::borrow::Cow;

use backend_api::DType;
use backend_api::desc::ImageLayout;
use backend_api::support::ConvGather;

use super::Job;
use crate::device::DeviceProfile;
use crate::ops::shared::long_work::{Divisible, halves_of};
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
        if batch > 1 {
            halves_of(batch, |first, count| self.images(first, count))
        } else if layout != ImageLayout::Nhwc && groups > 1 {
            halves_of(groups, |first, count| self.groups(first, count))
        } else if layout != ImageLayout::Nhwc && filters > 1 {
            // Filters of a transposed convolution are stored the other way round.
            if self.transposed { None } else { halves_of(filters, |first, count| self.filters(first, count)) }
        } else {
            halves_of(result[0], |first, count| self.rows(first, count))
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use backend_api::DeviceKind;
    use backend_api::desc::{ConvShape, ImageShape, Window as FilterWindow};

    use super::*;
    use crate::WebGpuBackend;
    use crate::ops::shared::bound_windows::address;
    use crate::ops::shared::long_work::visit_parts;
    use crate::recorder::UNBINDABLE;

    /// A convolution of f32 with buffers of its own, of which a binding may show `max_bytes`.
    fn job(layout: ImageLayout, [batch, groups]: [usize; 2], max_bytes: u64) -> Job {
        let image = ImageShape { batch, channels: 4 * groups, height: 9, width: 7 };
        let mut shape = ConvShape::new(image, 3 * groups, FilterWindow::new([3, 2])).with_layout(layout);
        shape.groups = groups;
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let gather = ConvGather::forward("test", &shape).unwrap();
        Job::of_buffers(backend.device().unwrap(), gather, false, max_bytes)
    }

    /// What each result is made of, by its address: where the channels of its image begin and end, its filter begins
    /// and ends, its bias is, and its row of the whole result.
    type Results = BTreeMap<u64, ([u64; 2], [u64; 2], u64, usize)>;

    fn add(job: &Job, results: &mut Results) {
        let Job { input, filter, bias, output, .. } = &*job.bound();
        let &ConvGather {
            batch,
            groups,
            channels,
            filters,
            source: [h, w],
            result: [rows, columns],
            layout,
            ..
        } = &job.gather;
        let taps = job.gather.taps();
        for n in 0..batch {
            for (group, of_group) in (0..groups).flat_map(|group| (0..filters).map(move |f| (group, f))) {
                let of_all = group * filters + of_group;
                for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                    let (result, image) = match layout {
                        ImageLayout::Nhwc => {
                            let pixel = (n * rows + row) * columns + column;
                            let first = n * h * w * groups * channels + group * channels;
                            let last = first + (h * w - 1) * groups * channels + channels - 1;
                            (pixel * groups * filters + of_all, [first, last])
                        }
                        _ => {
                            let plane = (n * groups + group) * channels;
                            let of = ((n * groups * filters + of_all) * rows + row) * columns + column;
                            (of, [plane * h * w, (plane + channels) * h * w - 1])
                        }
                    };
                    let made = (
                        image.map(|element| address(input, element)),
                        [of_all * taps, (of_all + 1) * taps - 1].map(|element| address(filter, element)),
                        address(bias, of_all),
                        job.first_row + row,
                    );
                    assert!(results.insert(address(output, result), made).is_none(), "made twice");
                }
            }
        }
    }

    fn divide(job: &Job, results: &mut Results) -> usize {
        visit_parts(job, Job::halves, &mut |part| add(part, results))
    }

    #[test]
    fn parts_make_what_the_whole_makes() {
        for (layout, max_bytes) in [ImageLayout::Nchw, ImageLayout::Nhwc]
            .into_iter()
            .flat_map(|layout| [64, 1 << 20].map(|max| (layout, max)))
        {
            for extents in [[3, 2], [1, 2], [1, 1]] {
                let whole = job(layout, extents, max_bytes);
                let [mut expected, mut found] = [Results::new(), Results::new()];
                add(&whole, &mut expected);
                let parts = divide(&whole, &mut found);
                let [rows, columns] = whole.gather.result;
                assert_eq!([rows, columns], [7, 6]);
                // Single rows, of a plane or of all channels.
                let planes = if layout == ImageLayout::Nhwc { 1 } else { 3 * extents[1] };
                assert_eq!(parts, extents[0] * planes * rows);
                assert_eq!(found, expected, "{layout:?}, {extents:?}, {max_bytes} bytes");
            }
        }
    }

    #[test]
    fn filters_of_a_transposed_convolution_stay_together() {
        let whole = Job { transposed: true, ..job(ImageLayout::Nchw, [1, 1], 1 << 20) };
        assert!(whole.halves().is_none());
        let of_groups = Job { transposed: true, ..job(ImageLayout::Nchw, [1, 2], 1 << 20) };
        let groups = of_groups.halves().map(|parts| parts.map(|part| part.gather.groups));
        assert_eq!(groups, Some([1, 1]));
    }

    #[test]
    fn operands_are_too_large_by_what_passes_a_binding() {
        let job = job(ImageLayout::Nchw, [2, 2], 256);
        let too_large = |bytes: u64| UNBINDABLE + bytes.next_multiple_of(16) - 256;
        let elements = [2 * 8 * 9 * 7, 2 * 3 * 4 * 3 * 2, 2 * 6 * 7 * 6];
        let bytes = [4 + 4 * elements[0], 8 + 4 * elements[1], 16 + 4 * elements[2]];
        assert_eq!(job.excess(), bytes.map(too_large).iter().sum::<u64>());
        assert_eq!(
            job.elements(),
            [elements[0], elements[1], 6, elements[2]].map(|elements| elements as usize)
        );
    }

    #[test]
    fn the_time_is_that_of_the_products() {
        let profile = DeviceProfile::of(DeviceKind::DiscreteGpu, true);
        let single = job(ImageLayout::Nchw, [1, 1], 1 << 20);
        let flops = single.gather.flops();
        assert!(flops > 0.0 && profile.flops != profile.flops_f16);
        assert_eq!(single.seconds(&profile), flops / profile.flops);
        let halves = Job { dtype: DType::F16, ..single };
        assert_eq!(halves.seconds(&profile), flops / profile.flops_f16);
    }

    #[test]
    fn rows_further_down_are_not_those_of_the_source() {
        let mut job = job(ImageLayout::Nchw, [1, 1], 1 << 20);
        assert!(!job.is_pointwise());
        (job.gather.filter, job.gather.result) = ([1, 1], job.gather.source);
        assert!(job.is_pointwise());
        job.first_row = 1;
        assert!(!job.is_pointwise());
    }
}
