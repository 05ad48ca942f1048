//! conv2d, conv_transpose2d and the gradients.

use backend_api::DType;
use backend_api::desc::{
    ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvShape, ConvTransposeDesc, ImageLayout,
    ImageShape, Window,
};

use super::expect::{OVERFLOW, SHAPE, at_least, dtype, multiple, too_small, too_small_by_half};
use super::operation::Change;
use super::window::{self, Windowed};
use super::{Handles, Operation, Role, Slot};
use DType::{F16, F32, I32, U32};

const BIG: usize = 1 << 62;

/// A convolution of ones whose windows lie side by side: `[2, 4, 6, 6]` to `[2, 4, 2, 3]` in two groups, each
/// result of 12 products.
fn extents() -> ConvShape {
    ConvShape::new(ImageShape::nchw([2, 4, 6, 6]), 4, Window::new([3, 2]).with_stride([3, 2])).with_groups(2)
}

const INPUT: usize = 2 * 4 * 6 * 6;
const FILTER: usize = 4 * 2 * 3 * 2;
const OUTPUT: usize = 2 * 4 * 2 * 3;

pub(super) fn operations() -> Vec<Operation> {
    let of =
        |element| [forward(element), transpose(element), backward_data(element), backward_filter(element)];
    [F32, F16].into_iter().flat_map(of).collect()
}

trait Shaped {
    fn shape(&mut self) -> &mut ConvShape;
}

macro_rules! shaped {
    ($($name:ident),+) => {
        $(impl Shaped for $name {
            fn shape(&mut self) -> &mut ConvShape {
                &mut self.shape
            }
        })+
    };
}

shaped!(ConvDesc, ConvTransposeDesc, ConvBackwardDataDesc, ConvBackwardFilterDesc);

/// What is wrong for every operation.
fn geometry<D: Shaped + Windowed>(op: &'static str) -> Vec<Change<D>> {
    let mut changes: Vec<Change<D>> = vec![
        ("no groups", at_least(op, "groups", 1, 0), |d| d.shape().groups = 0),
        ("three groups", multiple(op, "number of channels", 3, 4), |d| d.shape().groups = 3),
        ("five filters", multiple(op, "number of filters", 2, 5), |d| d.shape().filters = 5),
        ("2^62 images", OVERFLOW, |d| d.shape().batch = BIG),
        ("2^62 channels", OVERFLOW, |d| d.shape().channels = BIG),
        ("2^62 filters", OVERFLOW, |d| d.shape().filters = BIG),
    ];
    changes.extend(window::changes(op));
    changes
}

/// What is wrong where the image read is the convolution's.
fn reading<D: Shaped + Windowed>(op: &'static str) -> Vec<Change<D>> {
    let mut changes = geometry(op);
    let of_input: [Change<D>; 3] = [
        ("filter higher than the input", at_least(op, "padded input", 7, 6), |d| {
            d.shape().window.size = [7, 2];
        }),
        ("dilated filter wider than the padded input", at_least(op, "padded input", 9, 7), |d| {
            (d.shape().window.dilation, d.shape().window.after) = ([1, 8], [0, 1]);
        }),
        ("input without rows", at_least(op, "padded input", 3, 0), |d| d.shape().input = [0, 6]),
    ];
    changes.extend(of_input);
    changes
}

fn slots(element: DType, [input, filter, output]: [(&'static str, Role); 3]) -> [Slot; 3] {
    [
        Slot::new(input.0, input.1, element, INPUT),
        Slot::new(filter.0, filter.1, element, FILTER),
        Slot::new(output.0, output.1, element, OUTPUT),
    ]
}

fn forward(element: DType) -> Operation {
    let (op, bytes) = ("conv2d", element.size());
    let roles = [("input", Role::Input), ("filter", Role::Input), ("output", Role::Output)];
    let [input, filter, output] = slots(element, roles);
    let bias = Slot::new("bias", Role::Input, element, 4);
    let good = move |h: &Handles| ConvDesc::new(element, h[0], h[1], h[2], extents()).with_bias(h[3]);
    let mut changes: Vec<Change<ConvDesc>> = vec![
        ("of i32", dtype(op, "dtype", I32), |d| d.dtype = I32),
        ("of u32", dtype(op, "dtype", U32), |d| d.dtype = U32),
        ("an image more", too_small_by_half(op, "input", INPUT * bytes), |d| d.shape.batch = 3),
        ("interleaved, an image more", too_small_by_half(op, "input", INPUT * bytes), |d| {
            (d.shape.batch, d.shape.layout) = (3, ImageLayout::Nhwc);
        }),
        ("two filters more", too_small_by_half(op, "filter", FILTER * bytes), |d| d.shape.filters = 6),
        ("three rows of padding", too_small_by_half(op, "output", OUTPUT * bytes), |d| {
            d.shape.window.after = [3, 0];
        }),
    ];
    changes.extend(reading(op));
    Operation::of(op, vec![input, filter, output, bias], 13.0, good, |b, _, d| b.conv2d(d), changes)
        .variant(element)
}

fn transpose(element: DType) -> Operation {
    let (op, bytes) = ("conv_transpose2d", element.size());
    let roles = [("output", Role::Output), ("filter", Role::Input), ("input", Role::Input)];
    let [output, filter, input] = slots(element, roles);
    let bias = Slot::new("bias", Role::Input, element, 4);
    let of = ConvShape::new(ImageShape::nchw([2, 4, 2, 3]), 4, extents().window).with_groups(2);
    let good = move |h: &Handles| ConvTransposeDesc::new(element, h[0], h[1], h[2], of).with_bias(h[3]);
    let mut changes: Vec<Change<ConvTransposeDesc>> = vec![
        ("of i32", dtype(op, "dtype", I32), |d| d.dtype = I32),
        ("of u32", dtype(op, "dtype", U32), |d| d.dtype = U32),
        ("an image more", too_small_by_half(op, "input", OUTPUT * bytes), |d| d.shape.batch = 3),
        ("output padding", too_small(op, "output", INPUT * bytes, INPUT / 6 * 8 * bytes), |d| {
            d.output_padding = [2, 0];
        }),
        ("output padding of a stride", at_least(op, "stride beyond the output padding", 3, 2), |d| {
            d.output_padding = [0, 2];
        }),
        ("padding of all", at_least(op, "output before its padding is cut off", 7, 6), |d| {
            d.shape.window = d.shape.window.with_padding([3, 0]);
        }),
        ("input without columns", at_least(op, "extent of the input", 1, 0), |d| {
            d.shape.input = [2, 0];
        }),
        ("usize::MAX rows", OVERFLOW, |d| d.shape.input = [usize::MAX, 3]),
    ];
    changes.extend(geometry(op));
    Operation::of(op, vec![input, filter, output, bias], 3.0, good, |b, _, d| b.conv_transpose2d(d), changes)
        .variant(element)
}

fn backward_data(element: DType) -> Operation {
    let (op, bytes) = ("conv2d_backward_data", element.size());
    let roles = [("grad_input", Role::Output), ("filter", Role::Input), ("grad_output", Role::Input)];
    let [grad_input, filter, grad_output] = slots(element, roles);
    let good = move |h: &Handles| ConvBackwardDataDesc::new(element, h[0], h[1], h[2], extents());
    let mut changes: Vec<Change<ConvBackwardDataDesc>> = vec![
        ("of i32", dtype(op, "dtype", I32), |d| d.dtype = I32),
        ("an image more", too_small_by_half(op, "grad_output", OUTPUT * bytes), |d| d.shape.batch = 3),
        (
            "a row that no window reaches",
            too_small(op, "grad_input", INPUT * bytes, INPUT / 6 * 7 * bytes),
            |d| {
                d.shape.input = [7, 6];
            },
        ),
    ];
    changes.extend(reading(op));
    let slots = vec![filter, grad_output, grad_input];
    Operation::of(op, slots, 2.0, good, |b, _, d| b.conv2d_backward_data(d), changes).variant(element)
}

fn backward_filter(element: DType) -> Operation {
    let (op, bytes) = ("conv2d_backward_filter", element.size());
    let roles = [("input", Role::Input), ("grad_filter", Role::Output), ("grad_output", Role::Input)];
    let [input, grad_filter, grad_output] = slots(element, roles);
    let good = move |h: &Handles| ConvBackwardFilterDesc::new(element, h[0], h[1], h[2], extents());
    let mut changes: Vec<Change<ConvBackwardFilterDesc>> = vec![
        ("of i32", dtype(op, "dtype", I32), |d| d.dtype = I32),
        ("an image more", too_small_by_half(op, "input", INPUT * bytes), |d| d.shape.batch = 3),
        ("windows beside each other", SHAPE, |d| d.shape.window.dilation = [6, 6]),
    ];
    changes.extend(reading(op));
    let slots = vec![input, grad_output, grad_filter];
    Operation::of(op, slots, 12.0, good, |b, _, d| b.conv2d_backward_filter(d), changes).variant(element)
}
