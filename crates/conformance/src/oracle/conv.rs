//! Convolution, its transposition and its gradients: all of them sums of the same products, by what the
//! product is added to.

use backend_api::desc::{
    ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvShape, ConvTransposeDesc, ImageLayout,
};
use backend_api::{Activation, BackendResult};

use super::expected::{Bytes, Expected};
use super::product::{Element, Products};
use crate::want::Want;

/// A convolution's operands, one of which is what the products of the other two add up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    Output,
    Input,
    Filter,
}

/// What is done to a sum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finish<'a> {
    /// A number for each channel of the image that results.
    pub(crate) bias: Option<&'a [f64]>,
    pub(crate) activation: Activation,
    /// Whether every number is a small integer, so that nothing is rounded.
    pub(crate) exact: bool,
}

impl Finish<'_> {
    /// Nothing.
    pub(crate) const fn plain(exact: bool) -> Self {
        Self { bias: None, activation: Activation::Identity, exact }
    }
}

/// Where an element of an image lies.
pub(crate) fn image_at(
    layout: ImageLayout,
    [channels, height, width]: [usize; 3],
    [n, c, y, x]: [usize; 4],
) -> usize {
    match layout {
        ImageLayout::Nhwc => ((n * height + y) * width + x) * channels + c,
        _ => ((n * channels + c) * height + y) * width + x,
    }
}

/// The output's extents, by trying where the dilated filter still fits.
pub(crate) fn output(shape: &ConvShape) -> [usize; 2] {
    let window = &shape.window;
    [0, 1].map(|axis| {
        let padded = shape.input[axis] + window.before[axis] + window.after[axis];
        let last = (window.size[axis] - 1) * window.dilation[axis];
        (0..).take_while(|at| at * window.stride[axis] + last < padded).count()
    })
}

/// Elements of input, filter and output.
pub(crate) fn elements(shape: &ConvShape) -> [usize; 3] {
    let &ConvShape { batch, channels, input: [height, width], filters, groups, window, .. } = shape;
    let [p, q] = output(shape);
    let [r, s] = window.size;
    [batch * channels * height * width, filters * (channels / groups) * r * s, batch * filters * p * q]
}

/// The sums of the products of two operands, given in the order of input, filter, output.
pub(crate) fn wants(shape: &ConvShape, of: Sum, [left, right]: [&[f64]; 2], finish: Finish<'_>) -> Vec<Want> {
    let [input, filter, results] = elements(shape);
    let count = match of {
        Sum::Output => results,
        Sum::Input => input,
        Sum::Filter => filter,
    };
    let mut sums = vec![Products::default(); count];
    for_each_product(shape, |input, filter, output| {
        let (at, term) = match of {
            Sum::Output => (output, (left[input], right[filter])),
            Sum::Input => (input, (left[filter], right[output])),
            Sum::Filter => (filter, (left[input], right[output])),
        };
        sums[at].add(term.0, term.1);
    });
    let (channels, pixels) = match of {
        Sum::Output => (shape.filters, output(shape).iter().product()),
        _ => (shape.channels, shape.input.iter().product::<usize>()),
    };
    let channel = |at: usize| match shape.layout {
        ImageLayout::Nhwc => at % channels,
        _ => at / pixels % channels,
    };
    let want = |(at, sum): (usize, Products)| {
        let bias = finish.bias.map(|bias| bias[channel(at)]);
        let element = Element { bias, activation: finish.activation, exact: finish.exact, ..Element::PLAIN };
        element.of_sum(sum)
    };
    sums.into_iter().enumerate().map(want).collect()
}

/// Calls `each(input, filter, output)` with the places of the factors and of the result of every product.
fn for_each_product(shape: &ConvShape, mut each: impl FnMut(usize, usize, usize)) {
    let &ConvShape { batch, channels, input: [height, width], filters, groups, window, layout, .. } = shape;
    let [p, q] = output(shape);
    let [r, s] = window.size;
    let (per_group, filters_per_group) = (channels / groups, filters / groups);
    for (n, k, y, x) in indices([batch, filters, p, q]) {
        for (c, _, dy, dx) in indices([per_group, 1, r, s]) {
            let row = (y * window.stride[0] + dy * window.dilation[0]).checked_sub(window.before[0]);
            let column = (x * window.stride[1] + dx * window.dilation[1]).checked_sub(window.before[1]);
            let (Some(row), Some(column)) = (row, column) else { continue };
            if row < height && column < width {
                let channel = k / filters_per_group * per_group + c;
                each(
                    image_at(layout, [channels, height, width], [n, channel, row, column]),
                    image_at(layout, [per_group, r, s], [k, c, dy, dx]),
                    image_at(layout, [filters, p, q], [n, k, y, x]),
                );
            }
        }
    }
}

fn indices([a, b, c, d]: [usize; 4]) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    (0..a * b * c * d).map(move |i| (i / d / c / b, i / d / c % b, i / d % c, i % d))
}

pub(super) fn expect_conv(desc: &ConvDesc, memory: &Bytes) -> Expected {
    let [input, filter] = [desc.input, desc.filter].map(|ptr| memory.numbers(ptr, desc.dtype));
    let bias = desc.bias.map(|ptr| memory.numbers(ptr, desc.dtype));
    let finish = Finish { bias: bias.as_deref(), activation: desc.activation, exact: false };
    Expected::packed(desc.output, desc.dtype, wants(&desc.shape, Sum::Output, [&input, &filter], finish))
}

pub(super) fn expect_conv_transpose(
    op: &'static str,
    desc: &ConvTransposeDesc,
    memory: &Bytes,
) -> BackendResult<Expected> {
    let [input, filter] = [desc.input, desc.filter].map(|ptr| memory.numbers(ptr, desc.dtype));
    let bias = desc.bias.map(|ptr| memory.numbers(ptr, desc.dtype));
    let finish = Finish { bias: bias.as_deref(), activation: desc.activation, exact: false };
    let wants = wants(&desc.transposes(op)?, Sum::Input, [&filter, &input], finish);
    Ok(Expected::packed(desc.output, desc.dtype, wants))
}

pub(super) fn expect_conv_backward_data(desc: &ConvBackwardDataDesc, memory: &Bytes) -> Expected {
    let [filter, gradient] = [desc.filter, desc.grad_output].map(|ptr| memory.numbers(ptr, desc.dtype));
    let wants = wants(&desc.shape, Sum::Input, [&filter, &gradient], Finish::plain(false));
    Expected::packed(desc.grad_input, desc.dtype, wants)
}

pub(super) fn expect_conv_backward_filter(desc: &ConvBackwardFilterDesc, memory: &Bytes) -> Expected {
    let [input, gradient] = [desc.input, desc.grad_output].map(|ptr| memory.numbers(ptr, desc.dtype));
    let wants = wants(&desc.shape, Sum::Filter, [&input, &gradient], Finish::plain(false));
    Expected::packed(desc.grad_filter, desc.dtype, wants)
}
