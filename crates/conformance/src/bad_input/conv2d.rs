//! conv2d_forward.

use backend_api::{BackendResult, ComputeBackend, DType};

use super::expect::{OVERFLOW, at_least, shape, too_small};
use super::operation::Change;
use super::{Handles, Operation, Role, Slot};

/// The arguments of a convolution of ones.
#[derive(Clone, Copy)]
struct Conv {
    input: [usize; 4],
    filter: [usize; 4],
    output: [usize; 4],
    stride: [usize; 2],
    padding: [usize; 2],
}

const GOOD: Conv =
    Conv { input: [2, 3, 5, 6], filter: [4, 3, 3, 2], output: [2, 4, 3, 3], stride: [1, 2], padding: [0, 0] };

fn call(b: &dyn ComputeBackend, h: &Handles, c: &Conv) -> BackendResult<()> {
    sliced(b, h, [&c.input, &c.filter, &c.output, &c.stride, &c.padding])
}

/// `slices` are the shapes of input, filter and output, stride and padding.
fn sliced(b: &dyn ComputeBackend, h: &Handles, slices: [&[usize]; 5]) -> BackendResult<()> {
    let [input, filter, output, stride, padding] = slices;
    b.conv2d_forward(h[0], input, h[1], filter, h[2], output, stride, padding)
}

const OP: &str = "conv2d_forward";
const BIG: usize = 1 << 62;

pub(super) fn operations() -> Vec<Operation> {
    let slots = vec![
        Slot::new("input", Role::Input, DType::F32, 2 * 3 * 5 * 6),
        Slot::new("filter", Role::Input, DType::F32, 4 * 3 * 3 * 2),
        Slot::new("output", Role::Output, DType::F32, 2 * 4 * 3 * 3),
    ];
    let operation = Operation::of(OP, slots, 18.0, |_| GOOD, call, shapes()).broken(|_| GOOD, call, sizes());
    vec![ranks(operation)]
}

/// Slices of a wrong length, each in the place of one of the good call's.
fn ranks(operation: Operation) -> Operation {
    let ranks: [(&'static str, &'static str, usize, &'static [usize]); 10] = [
        ("input of rank 3", "rank of the input", 0, &[3, 5, 6]),
        ("input of rank 0", "rank of the input", 0, &[]),
        ("input of rank 5", "rank of the input", 0, &[1, 2, 3, 5, 6]),
        ("filter of rank 2", "rank of the filter", 1, &[3, 2]),
        ("output of rank 3", "rank of the output", 2, &[4, 3, 3]),
        ("one stride", "number of strides", 3, &[2]),
        ("no stride", "number of strides", 3, &[]),
        ("three strides", "number of strides", 3, &[1, 2, 1]),
        ("no padding", "number of paddings", 4, &[]),
        ("four paddings", "number of paddings", 4, &[0; 4]),
    ];
    ranks.into_iter().fold(operation, |operation, (name, what, at, slice)| {
        let expected = if at < 3 { 4 } else { 2 };
        operation.bad(name, shape(OP, what, expected, slice.len()), move |b, h| {
            let c = &GOOD;
            let mut slices: [&[usize]; 5] = [&c.input, &c.filter, &c.output, &c.stride, &c.padding];
            slices[at] = slice;
            sliced(b, h, slices)
        })
    })
}

fn shapes() -> Vec<Change<Conv>> {
    vec![
        ("vertical stride 0", at_least(OP, "stride", 1, 0), |c| {
            c.stride = [0, 2];
        }),
        ("horizontal stride 0", at_least(OP, "stride", 1, 0), |c| {
            c.stride = [1, 0];
        }),
        ("stride 0 without a batch", at_least(OP, "stride", 1, 0), |c| {
            (c.input, c.output, c.stride) = ([0, 3, 5, 6], [0, 4, 3, 3], [0, 2]);
        }),
        ("other channels in the filter", shape(OP, "input channels of the filter", 3, 2), |c| {
            c.filter = [4, 2, 3, 2];
        }),
        ("other channels in the input", shape(OP, "input channels of the filter", 2, 3), |c| {
            c.input = [2, 2, 5, 6];
        }),
        ("other batch in the output", shape(OP, "batch of the output", 2, 1), |c| c.output = [1, 4, 3, 3]),
        ("other channels in the output", shape(OP, "channels of the output", 4, 3), |c| {
            c.output = [2, 3, 3, 3];
        }),
        ("output a row higher", shape(OP, "height of the output", 3, 4), |c| c.output = [2, 4, 4, 3]),
        ("output a row lower", shape(OP, "height of the output", 3, 2), |c| c.output = [2, 4, 2, 3]),
        ("output a column wider", shape(OP, "width of the output", 3, 4), |c| c.output = [2, 4, 3, 4]),
        ("output without columns", shape(OP, "width of the output", 3, 0), |c| c.output = [2, 4, 3, 0]),
        ("output 9×9 of an input 5×6", shape(OP, "height of the output", 3, 9), |c| {
            c.output = [2, 4, 9, 9];
        }),
        ("output of the unpadded size", shape(OP, "height of the output", 5, 3), |c| c.padding = [1, 0]),
        ("output of the other stride", shape(OP, "height of the output", 2, 3), |c| c.stride = [2, 2]),
        ("filter higher than the input", at_least(OP, "padded input", 6, 5), |c| {
            c.filter = [4, 3, 6, 2];
        }),
        ("filter wider than the padded input", at_least(OP, "padded input", 9, 8), |c| {
            (c.filter, c.padding) = ([4, 3, 3, 9], [0, 1]);
        }),
        ("filter without rows", at_least(OP, "extent of the filter", 1, 0), |c| {
            c.filter = [4, 3, 0, 2];
        }),
        ("filter without columns", at_least(OP, "extent of the filter", 1, 0), |c| {
            c.filter = [4, 3, 3, 0];
        }),
        ("input without rows", at_least(OP, "padded input", 3, 0), |c| c.input = [2, 3, 0, 6]),
    ]
}

fn sizes() -> Vec<Change<Conv>> {
    vec![
        ("an image more than the input has", too_small(OP, "input", 720, 1080), |c| {
            (c.input, c.output) = ([3, 3, 5, 6], [3, 4, 3, 3]);
        }),
        ("a filter more than there is", too_small(OP, "filter", 288, 360), |c| {
            (c.filter, c.output) = ([5, 3, 3, 2], [2, 5, 3, 3]);
        }),
        ("an output larger than its buffer", too_small(OP, "output", 288, 480), |c| {
            (c.output, c.padding) = ([2, 4, 5, 3], [1, 0]);
        }),
        ("vertical padding usize::MAX", OVERFLOW, |c| {
            c.padding = [usize::MAX, 0];
        }),
        ("horizontal padding half of the range", OVERFLOW, |c| {
            c.padding = [0, usize::MAX / 2 + 1];
        }),
        ("padding that overflows with the input", OVERFLOW, |c| {
            c.padding = [usize::MAX / 2, 0];
        }),
        ("2^62 images", OVERFLOW, |c| {
            (c.input, c.output) = ([BIG, 3, 5, 6], [BIG, 4, 3, 3]);
        }),
        ("2^62 channels", OVERFLOW, |c| {
            (c.input, c.filter) = ([2, BIG, 5, 6], [4, BIG, 3, 2]);
        }),
        ("2^62 filters", OVERFLOW, |c| {
            (c.filter, c.output) = ([BIG, 3, 3, 2], [2, BIG, 3, 3]);
        }),
        ("usize::MAX rows", shape(OP, "height of the output", usize::MAX - 2, 3), |c| {
            c.input = [2, 3, usize::MAX, 6];
        }),
        ("usize::MAX rows in input and output", OVERFLOW, |c| {
            (c.input, c.output) = ([2, 3, usize::MAX, 6], [2, 4, usize::MAX - 2, 3]);
        }),
    ]
}
