//! Two-dimensional convolution: the filter times a matrix of shifted copies of the input (im2col), made for a block of
//! output pixels at a time.

use std::ops::Range;

use backend_api::BackendResult;
use backend_api::desc::Conv2dDesc;
use bytemuck::cast_slice_mut;

use super::matmul::multiply;
use super::matrix::{RowMajor, row_major, row_major_ref};
use crate::memory::Memory;
use crate::parallel::Cores;

/// Elements of a block of the matrix of shifted copies.
const BLOCK: usize = 1 << 16;

/// `output[n, k, y, x] = Σ input[n, c, y·stride₀ + r − padding₀, x·stride₁ + s − padding₁] · filter[k, c, r, s]`.
pub(crate) fn conv2d(memory: &Memory, op: &'static str, desc: &Conv2dDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    memory.access(op, &operands, |[input, filter, _], output| {
        let (input, output): (&[f32], &mut [f32]) = (input.elements(), cast_slice_mut(output));
        if input.is_empty() {
            return output.fill(0.0);
        }
        let [_, c, h, w] = desc.input_shape;
        let [k, _, r, s] = desc.filter_shape;
        let [_, _, p, q] = desc.output_shape;
        let convolution = Convolution { desc, filter: filter.elements(), taps: c * r * s };
        let steps = output.len().saturating_mul(convolution.taps.max(16)) / 16;
        let (image, result) = (c * h * w, k * p * q);
        Cores::run(steps, |cores| {
            cores.chunks(output, result, result, &|first, output: &mut [f32]| {
                for (n, output) in (first / result..).zip(output.chunks_exact_mut(result)) {
                    let image = &input[n * image..(n + 1) * image];
                    convolution.pixels(cores, image, 0, row_major(output, k, p * q, p * q));
                }
            });
        });
    })
}

struct Convolution<'a> {
    desc: &'a Conv2dDesc,
    filter: &'a [f32],
    /// Products in an output: C·R·S.
    taps: usize,
}

impl Convolution<'_> {
    /// Divides the output pixels, of which the first is `first`.
    fn pixels(&self, cores: Cores, image: &[f32], first: usize, output: RowMajor<'_, f32>) {
        let pixels = output.ncols();
        if pixels <= (BLOCK / self.taps.max(1)).clamp(32, 1024) {
            return self.block(image, first..first + pixels, output);
        }
        let half = pixels / 2;
        let (left, right) = output.split_at_col_mut(half);
        cores.join(
            || self.pixels(cores, image, first, left),
            || self.pixels(cores, image, first + half, right),
        );
    }

    fn block(&self, image: &[f32], pixels: Range<usize>, output: RowMajor<'_, f32>) {
        let filters = self.desc.filter_shape[0];
        let filter = row_major_ref(self.filter, filters, self.taps, self.taps);
        if self.is_pointwise() {
            let [_, channels, h, w] = self.desc.input_shape;
            let input = image.get(pixels.start..).unwrap_or_default();
            let input = row_major_ref(input, channels, pixels.len(), h * w);
            return multiply(filter, input, 1.0, 0.0, output);
        }
        let shifted = self.shifted(image, pixels.clone());
        let shifted = row_major_ref(&shifted, self.taps, pixels.len(), pixels.len());
        multiply(filter, shifted, 1.0, 0.0, output);
    }

    /// Whether output pixels are input pixels.
    fn is_pointwise(&self) -> bool {
        let [_, _, r, s] = self.desc.filter_shape;
        (r, s) == (1, 1) && self.desc.stride == [1, 1] && self.desc.padding == [0, 0]
    }

    /// For each tap (c, r, s) the input number that meets it at each of the pixels.
    fn shifted(&self, image: &[f32], pixels: Range<usize>) -> Vec<f32> {
        let [_, _, h, w] = self.desc.input_shape;
        let [_, _, r, s] = self.desc.filter_shape;
        let width = self.desc.output_shape[3];
        let ([stride_y, stride_x], [padding_y, padding_x]) = (self.desc.stride, self.desc.padding);
        let mut shifted = vec![0.0; self.taps * pixels.len()];
        for (tap, row) in shifted.chunks_exact_mut(pixels.len()).enumerate() {
            let (channel, dy, dx) = (tap / (r * s), tap / s % r, tap % s);
            let channel = &image[channel * h * w..(channel + 1) * h * w];
            let mut rest = row;
            let mut pixel = pixels.start;
            while !rest.is_empty() {
                let (y, x) = (pixel / width, pixel % width);
                let (line, after) = rest.split_at_mut(rest.len().min(width - x));
                pixel += line.len();
                rest = after;
                let source = (y * stride_y + dy).checked_sub(padding_y).filter(|&y| y < h);
                if let Some(y) = source {
                    let source = &channel[y * w..(y + 1) * w];
                    shift(source, x * stride_x + dx, stride_x, padding_x, line);
                }
            }
        }
        shifted
    }
}

/// `to[i] = from[first + i·stride − padding]` where that lies inside; the rest stays 0.
fn shift(from: &[f32], first: usize, stride: usize, padding: usize, to: &mut [f32]) {
    let outside = padding.saturating_sub(first).div_ceil(stride).min(to.len());
    let to = &mut to[outside..];
    if to.is_empty() {
        return;
    }
    let from = from.get(first + outside * stride - padding..).unwrap_or_default();
    for (y, &x) in to.iter_mut().zip(from.iter().step_by(stride)) {
        *y = x;
    }
}
