//! Convolution and its transposition: the filters times a matrix of shifted copies of the source (im2col),
//! made for a block of result pixels at a time.

use std::borrow::Cow;
use std::ops::Range;

use backend_api::desc::{ConvBackwardDataDesc, ConvDesc, ConvTransposeDesc, ImageLayout};
use backend_api::support::{ConvGather, Operand};
use backend_api::{Activation, BackendResult, DType};
use bytemuck::cast_slice_mut;
use faer::MatRef;

use super::matmul::multiply;
use super::matrix::{RowMajor, for_each_row, row_major, row_major_ref};
use super::padding::{Unbounded, met, take_unbounded};
use super::shifted::{exchanged, shifted};
use crate::access::{Call, Input};
use crate::bound::require_end;
use crate::element::{Element, widen, with_float};
use crate::math::apply_unary;
use crate::parallel::Cores;
use crate::room::NoRoom;

/// Elements of a block of the matrix of shifted copies.
const BLOCK: usize = 1 << 16;

/// `output = activation(input ∗ filter + bias)`.
pub(crate) fn conv2d(call: Call<'_>, desc: &ConvDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    let gather = ConvGather::forward(call.op, &desc.shape)?;
    with_bias(call, operands, &gather, desc.dtype, (false, desc.activation))
}

/// `output = activation(Tᵀ · input + bias)`.
pub(crate) fn conv_transpose2d(call: Call<'_>, desc: &ConvTransposeDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    let gather = ConvGather::transposed(call.op, &desc.transposes(call.op)?)?;
    with_bias(call, operands, &gather, desc.dtype, (true, desc.activation))
}

/// `output = activation(input ∗ filter + bias)` of operands in this order: input, filter, output and bias.
fn with_bias(
    call: Call<'_>,
    operands: [Operand; 4],
    gather: &ConvGather,
    dtype: DType,
    form: (bool, Activation),
) -> BackendResult<()> {
    require_end(call.op, gather.flops())?;
    call.try_access(&operands, |[input, filter, _, bias], output| {
        convolve(gather, dtype, form, [input, filter, bias], output)
    })
}

/// `grad_input = Tᵀ · grad_output`.
pub(crate) fn backward_data(call: Call<'_>, desc: &ConvBackwardDataDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    let gather = ConvGather::transposed(call.op, &desc.shape)?;
    require_end(call.op, gather.flops())?;
    call.try_access(&operands, |[filter, grad_output, _], grad_input| {
        let inputs = [grad_output, filter, Input::Bytes(&[])];
        convolve(&gather, desc.dtype, (true, Activation::Identity), inputs, grad_input)
    })
}

/// `output = activation(source ∗ filter + bias)`, with the filters of a transposition exchanged.
fn convolve(
    gather: &ConvGather,
    dtype: DType,
    (transposed, activation): (bool, Activation),
    [source, filter, bias]: [Input<'_>; 3],
    output: &mut [u8],
) -> Result<(), NoRoom> {
    with_float!(dtype, T => Cores::try_run(steps(gather), |cores| {
        let [source, filter, bias] = [source, filter, bias].map(|input| widen::<T>(cores, input));
        let (source, filter, bias) = (source?, filter?, bias?);
        let factor = if transposed { Cow::Owned(exchanged(gather, &filter)?) } else { filter };
        let work = Work::new(gather, &source, &factor, &bias, activation);
        work.run(cores, cast_slice_mut::<u8, T>(output));
        Ok(())
    }))
}

/// Steps of the work: sixteen products take about as long as one step of an element-wise loop.
fn steps(gather: &ConvGather) -> usize {
    let &ConvGather { batch, groups, filters, result: [height, width], .. } = gather;
    let extents = [batch, groups, filters, height, width];
    let [r, s] = gather.filter;
    let taps = gather.channels.saturating_mul(r).saturating_mul(s);
    extents.into_iter().fold(taps.max(16), usize::saturating_mul) / 16
}

struct Work<'a> {
    gather: &'a ConvGather,
    source: &'a [f32],
    /// The factors of each filter of each group, the unbounded ones as zeros.
    factor: Cow<'a, [f32]>,
    /// Factors that are infinite or NaN, by their filter among those of all groups and their tap.
    unbounded: Vec<Unbounded>,
    /// A number for each channel of the result, or none.
    bias: &'a [f32],
    activation: Activation,
}

/// A block of results: the filters of a group at some pixels of an image.
#[derive(Clone)]
struct Place {
    image: usize,
    group: usize,
    pixels: Range<usize>,
}

impl<'a> Work<'a> {
    fn new(
        gather: &'a ConvGather,
        source: &'a [f32],
        factor: &'a [f32],
        bias: &'a [f32],
        activation: Activation,
    ) -> Self {
        let mut factor = Cow::Borrowed(factor);
        let mut unbounded = Vec::new();
        // A pointwise convolution has no padding, so that every factor meets a number.
        if !gather.is_pointwise() && factor.iter().any(|number| !number.is_finite()) {
            unbounded = take_unbounded(factor.to_mut(), gather.taps());
        }
        Self { gather, source, factor, unbounded, bias, activation }
    }
}

impl Work<'_> {
    fn run<T: Element>(&self, cores: Cores, output: &mut [T]) {
        let &ConvGather { groups, filters, layout, .. } = self.gather;
        let (channels, pixels) = (groups * filters, self.gather.pixels());
        let image = channels * pixels;
        cores.chunks(output, image, image, &|first, output: &mut [T]| {
            for (n, output) in (first / image.max(1)..).zip(output.chunks_exact_mut(image.max(1))) {
                for group in 0..groups {
                    let results = match layout {
                        ImageLayout::Nhwc => row_major(&mut *output, pixels, channels, channels)
                            .subcols_mut(group * filters, filters)
                            .transpose_mut(),
                        _ => row_major(&mut *output, channels, pixels, pixels)
                            .subrows_mut(group * filters, filters),
                    };
                    self.pixels(cores, Place { image: n, group, pixels: 0..pixels }, results);
                }
            }
        });
    }

    /// Divides the pixels. The results have a row for each filter and a column for each pixel, however they
    /// lie.
    fn pixels<T: Element>(&self, cores: Cores, place: Place, results: RowMajor<'_, T>) {
        let pixels = place.pixels.len();
        if pixels <= (BLOCK / self.gather.taps().max(1)).clamp(32, 1024) {
            return self.block(&place, results);
        }
        let half = pixels / 2;
        let middle = place.pixels.start + half;
        let (left, right) = results.split_at_col_mut(half);
        let (first, second) = (place.pixels.start..middle, middle..place.pixels.end);
        cores.join(
            || self.pixels(cores, Place { pixels: first, ..place.clone() }, left),
            || self.pixels(cores, Place { pixels: second, ..place.clone() }, right),
        );
    }

    fn block<T: Element>(&self, place: &Place, results: RowMajor<'_, T>) {
        let (filters, taps, count) = (self.gather.filters, self.gather.taps(), place.pixels.len());
        let factor = self.factor.get(place.group * filters * taps..).unwrap_or_default();
        let factor = row_major_ref(factor, filters, taps, taps);
        let mut sums = vec![0.0; filters * count];
        let target = row_major(&mut sums, filters, count, count);
        if self.source.is_empty() || taps == 0 {
            // The sums of nothing.
        } else if let Some(source) = self.as_it_lies(place) {
            multiply(factor, source, 1.0, 0.0, target);
        } else {
            let copies = shifted(self.gather, self.source, place.image, place.group, place.pixels.clone());
            multiply(factor, row_major_ref(&copies, taps, count, count), 1.0, 0.0, target);
            self.add_unbounded(place, &mut sums);
        }
        for (i, row) in sums.chunks_exact_mut(count).enumerate() {
            if let Some(bias) = self.bias.get(place.group * filters + i) {
                row.iter_mut().for_each(|x| *x += bias);
            }
            if let Some(activation) = self.activation.unary() {
                apply_unary(activation, row);
            }
        }
        store(&sums, results);
    }

    /// Adds the products of factors that aren't finite, of which a pixel has those that don't meet padding.
    fn add_unbounded(&self, place: &Place, sums: &mut [f32]) {
        let (filters, count) = (self.gather.filters, place.pixels.len());
        let of_group = place.group * filters..(place.group + 1) * filters;
        for factor in self.unbounded.iter().filter(|factor| of_group.contains(&factor.row)) {
            let row = &mut sums[(factor.row - of_group.start) * count..][..count];
            for (sum, pixel) in row.iter_mut().zip(place.pixels.clone()) {
                let number = met(self.gather, self.source, [place.image, place.group], factor.column, pixel);
                *sum += number.map_or(0.0, |number| number * factor.value);
            }
        }
    }

    /// The source's pixels where they are already what the filters meet.
    fn as_it_lies(&self, place: &Place) -> Option<MatRef<'_, f32>> {
        if !self.gather.is_pointwise() {
            return None;
        }
        let &ConvGather { groups, channels, layout, .. } = self.gather;
        let (pixels, all, count) = (self.gather.pixels(), groups * channels, place.pixels.len());
        let first = place.group * channels;
        match layout {
            ImageLayout::Nhwc => {
                let from = self.source.get((place.image * pixels + place.pixels.start) * all + first..)?;
                Some(row_major_ref(from, count, channels, all).transpose())
            }
            _ => {
                let from = self.source.get((place.image * all + first) * pixels + place.pixels.start..)?;
                Some(row_major_ref(from, channels, count, pixels))
            }
        }
    }
}

/// Rounds packed numbers to where they belong.
fn store<T: Element>(from: &[f32], mut to: RowMajor<'_, T>) {
    let columns = to.ncols();
    if to.col_stride() == 1 {
        return for_each_row(to, |i, row| T::store(&from[i * columns..(i + 1) * columns], row));
    }
    for (i, row) in from.chunks_exact(columns).enumerate() {
        for (j, &x) in row.iter().enumerate() {
            to[(i, j)] = T::from_f32(x);
        }
    }
}
