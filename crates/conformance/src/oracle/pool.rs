//! Pooling.

use backend_api::desc::{PoolBackwardDesc, PoolDesc, PoolOp, PoolShape};

use super::conv::image_at;
use super::expected::{Bytes, Expected};
use crate::float::{MIN_NORMAL_F32, gamma, sum_error};
use crate::want::Want;

/// The places in the input that a window covers, row by row, and by how much its average divides.
fn window(shape: &PoolShape, op: PoolOp, [n, c, y, x]: [usize; 4]) -> (Vec<usize>, usize) {
    let ([height, width], window) = (shape.input, &shape.window);
    let (mut places, mut padded) = (Vec::new(), 0);
    for (r, s) in (0..window.size[0]).flat_map(|r| (0..window.size[1]).map(move |s| (r, s))) {
        let row = y * window.stride[0] + r * window.dilation[0];
        let column = x * window.stride[1] + s * window.dilation[1];
        let end = |axis: usize| window.before[axis] + shape.input[axis] + window.after[axis];
        padded += usize::from(row < end(0) && column < end(1));
        let inside =
            |at: usize, axis: usize| at.checked_sub(window.before[axis]).filter(|&at| at < shape.input[axis]);
        if let (Some(row), Some(column)) = (inside(row, 0), inside(column, 1)) {
            places.push(image_at(shape.layout, [shape.channels, height, width], [n, c, row, column]));
        }
    }
    let count = if op == PoolOp::AverageWithPadding { padded } else { places.len() };
    (places, count)
}

/// Every place of the output: its coordinates and where it lies.
fn results(shape: &PoolShape) -> impl Iterator<Item = ([usize; 4], usize)> + '_ {
    let ([p, q], channels) = (shape.output, shape.channels);
    (0..shape.batch * channels * p * q).map(move |i| {
        let at = [i / q / p / channels, i / q / p % channels, i / q % p, i % q];
        (at, image_at(shape.layout, [channels, p, q], at))
    })
}

/// The pooling of `input`. An average of n numbers makes the roundings of a sum and a division, of at most 4.
pub(crate) fn forward(shape: &PoolShape, op: PoolOp, input: &[f64]) -> Vec<Want> {
    let count = shape.batch * shape.channels * shape.output.iter().product::<usize>();
    let mut wants = vec![Want::number(0.0); count];
    for (at, place) in results(shape) {
        let (places, divisor) = window(shape, op, at);
        let values = places.iter().map(|&place| input[place]);
        let (sum, error) = (values.clone().sum::<f64>(), sum_error(values));
        wants[place] = match op {
            PoolOp::Max => match first_largest(input, &places) {
                Some(largest) => Want::number(input[largest]),
                None => Want::Exact(f64::NEG_INFINITY),
            },
            _ if divisor == 0 => Want::Exact(f64::NAN),
            _ => {
                let bound = error + gamma(4) * (sum.abs() + error);
                Want::near(sum / divisor as f64, bound / divisor as f64)
            }
        };
    }
    wants
}

/// The gradient of the input: sums of the gradients of results, or of quotients with an error of at most 4
/// roundings.
pub(crate) fn backward(shape: &PoolShape, op: PoolOp, input: &[f64], gradient: &[f64]) -> Vec<Want> {
    let count = shape.batch * shape.channels * shape.input.iter().product::<usize>();
    let mut sums = vec![(0.0, 0.0, 0); count];
    let mut add = |place: usize, x: f64| {
        let (sum, magnitude, terms) = sums[place];
        sums[place] = (sum + x, magnitude + x.abs(), terms + 1);
    };
    for (at, place) in results(shape) {
        let (places, divisor) = window(shape, op, at);
        if op == PoolOp::Max {
            if let Some(largest) = first_largest(input, &places) {
                add(largest, gradient[place]);
            }
        } else {
            places.iter().for_each(|&to| add(to, gradient[place] / divisor as f64));
        }
    }
    let rounded = if op == PoolOp::Max { 0 } else { 4 };
    let want = |(sum, magnitude, terms): (f64, f64, usize)| {
        Want::near(sum, gamma(terms + rounded) * magnitude + terms as f64 * MIN_NORMAL_F32)
    };
    sums.into_iter().map(want).collect()
}

/// The first place of the largest number, or of a NaN.
fn first_largest(input: &[f64], places: &[usize]) -> Option<usize> {
    let nan = places.iter().copied().find(|&place| input[place].is_nan());
    let largest = places.iter().map(|&place| input[place]).fold(f64::NEG_INFINITY, f64::max);
    nan.or_else(|| places.iter().copied().find(|&place| input[place] == largest))
}

pub(super) fn expect_pool(desc: &PoolDesc, memory: &Bytes) -> Expected {
    let input = memory.numbers(desc.input, desc.dtype);
    Expected::packed(desc.output, desc.dtype, forward(&desc.shape, desc.op, &input))
}

pub(super) fn expect_pool_backward(desc: &PoolBackwardDesc, memory: &Bytes) -> Expected {
    let [input, gradient] = [desc.input, desc.grad_output].map(|ptr| memory.numbers(ptr, desc.dtype));
    let wants = backward(&desc.shape, desc.op, &input, &gradient);
    Expected::packed(desc.grad_input, desc.dtype, wants)
}
