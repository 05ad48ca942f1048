//! The gradient of a convolution's filters: the gradient of its output times the transpose of the matrix of
//! shifted copies of its input.

use std::borrow::Cow;
use std::ops::Range;

use backend_api::BackendResult;
use backend_api::desc::{ConvBackwardFilterDesc, ImageLayout};
use backend_api::support::ConvGather;
use bytemuck::cast_slice_mut;
use faer::MatRef;

use super::matmul::multiply;
use super::matrix::{row_major, row_major_ref};
use super::padding::{Unbounded, met, take_unbounded};
use super::shifted::shifted;
use crate::access::Call;
use crate::bound::require_end;
use crate::element::{Element, widen, with_float};
use crate::parallel::Cores;

/// Elements of a block of the matrix of shifted copies.
const BLOCK: usize = 1 << 16;

/// `grad_filter[k, c, r, s] = Σ grad_output[n, k, p, q] · input[n, c, …]`.
pub(crate) fn backward_filter(call: Call<'_>, desc: &ConvBackwardFilterDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    let gather = ConvGather::forward(call.op, &desc.shape)?;
    require_end(call.op, gather.flops())?;
    call.try_access(&operands, |[input, grad_output, _], grad_filter| {
        let products = [gather.batch, gather.pixels(), gather.taps(), gather.groups, gather.filters];
        let steps = products.into_iter().fold(1, usize::saturating_mul) / 16;
        with_float!(desc.dtype, T => Cores::try_run(steps, |cores| {
            let (source, gradient) = (widen::<T>(cores, input)?, widen::<T>(cores, grad_output)?);
            let work = Work::new(&gather, &source, gradient);
            let filters = gather.filters * gather.taps();
            let groups = cast_slice_mut::<u8, T>(grad_filter);
            cores.chunks(groups, filters, filters, &|first, groups: &mut [T]| {
                for (group, sums) in (first / filters..).zip(groups.chunks_exact_mut(filters)) {
                    T::store(&work.images(cores, group, 0..gather.batch), sums);
                }
            });
            Ok(())
        }))
    })
}

struct Work<'a> {
    gather: &'a ConvGather,
    source: &'a [f32],
    /// The output's gradient, with zeros for what isn't finite.
    gradient: Cow<'a, [f32]>,
    /// What isn't finite of it, by its place.
    unbounded: Vec<Unbounded>,
}

impl<'a> Work<'a> {
    fn new(gather: &'a ConvGather, source: &'a [f32], mut gradient: Cow<'a, [f32]>) -> Self {
        let mut unbounded = Vec::new();
        if gradient.iter().any(|number| !number.is_finite()) {
            // One row for each image.
            let image = gather.groups * gather.filters * gather.pixels();
            unbounded = take_unbounded(gradient.to_mut(), image);
        }
        Self { gather, source, gradient, unbounded }
    }
}

impl Work<'_> {
    /// The sums over some images, which are halved.
    fn images(&self, cores: Cores, group: usize, images: Range<usize>) -> Vec<f32> {
        if images.len() <= 1 {
            return self.image(group, images);
        }
        let middle = images.start + images.len() / 2;
        let (mut sums, others) = cores.join_results(
            || self.images(cores, group, images.start..middle),
            || self.images(cores, group, middle..images.end),
        );
        sums.iter_mut().zip(others).for_each(|(x, y)| *x += y);
        sums
    }

    /// The sums over an image, or over none.
    fn image(&self, group: usize, images: Range<usize>) -> Vec<f32> {
        let (filters, taps, pixels) = (self.gather.filters, self.gather.taps(), self.gather.pixels());
        let mut sums = vec![0.0; filters * taps];
        let step = (BLOCK / taps.max(1)).clamp(32, 1024);
        // Without numbers, every sum is one of nothing.
        let images = if self.source.is_empty() { 0..0 } else { images };
        for image in images {
            for first in (0..pixels).step_by(step) {
                let some = first..pixels.min(first + step);
                let copies = shifted(self.gather, self.source, image, group, some.clone());
                let copies = row_major_ref(&copies, taps, some.len(), some.len()).transpose();
                let gradient = self.gradient(image, group, some);
                multiply(gradient, copies, 1.0, 1.0, row_major(&mut sums, filters, taps, taps));
            }
            self.add_unbounded(image, group, &mut sums);
        }
        sums
    }

    /// Adds the products of gradients that aren't finite with what their taps meet in the image.
    fn add_unbounded(&self, image: usize, group: usize, sums: &mut [f32]) {
        let &ConvGather { groups, filters, layout, .. } = self.gather;
        let (taps, pixels) = (self.gather.taps(), self.gather.pixels());
        for gradient in self.unbounded.iter().filter(|gradient| gradient.row == image) {
            let (channel, pixel) = match layout {
                ImageLayout::Nhwc => {
                    (gradient.column % (groups * filters), gradient.column / (groups * filters))
                }
                _ => (gradient.column / pixels, gradient.column % pixels),
            };
            if channel / filters != group {
                continue;
            }
            for (tap, sum) in sums[channel % filters * taps..][..taps].iter_mut().enumerate() {
                let number = met(self.gather, self.source, [image, group], tap, pixel);
                *sum += number.map_or(0.0, |number| number * gradient.value);
            }
        }
    }

    /// The output's gradient with a row for each filter and a column for each pixel.
    fn gradient(&self, image: usize, group: usize, some: Range<usize>) -> MatRef<'_, f32> {
        let &ConvGather { groups, filters, layout, .. } = self.gather;
        let (all, pixels) = (groups * filters, self.gather.pixels());
        let from = |at: usize| self.gradient.get(at..).unwrap_or_default();
        match layout {
            ImageLayout::Nhwc => {
                let from = from((image * pixels + some.start) * all + group * filters);
                row_major_ref(from, some.len(), filters, all).transpose()
            }
            _ => row_major_ref(
                from((image * all + group * filters) * pixels + some.start),
                filters,
                some.len(),
                pixels,
            ),
        }
    }
}
