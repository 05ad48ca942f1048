//! Convolutions, poolings and their gradients.

use backend_api::desc::{
    ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvShape, ConvTransposeDesc, ImageLayout,
    ImageShape, PoolBackwardDesc, PoolDesc, PoolOp, PoolShape, Window,
};
use backend_api::{Activation, Command, DType};

use super::Run;
use super::draw::Draw;

/// A window that fits into an image of these rows and columns.
fn window(draw: &mut Draw, image: [usize; 2], most: usize) -> Window {
    let size = image.map(|extent| draw.up_to(extent.min(most)));
    let padding = size.map(|extent| draw.below(extent.min(3)));
    let stride = [(); 2].map(|()| draw.pick(&[1, 1, 2, 3]));
    Window::new(size).with_padding(padding).with_stride(stride)
}

/// Images of about so many elements; rows and columns are small beside the rest, most of the time.
fn images(draw: &mut Draw, dtype: DType) -> ImageShape {
    let total = draw.elements(dtype);
    let [height, width] = [(); 2].map(|()| if draw.one_in(4) { draw.up_to(70) } else { draw.up_to(20) });
    let [batch, channels] = draw.extents((total / (height * width)).max(1));
    ImageShape { batch, channels, height, width }
}

/// Small images of so many channels that filters are large.
fn deep_images(draw: &mut Draw) -> ImageShape {
    let [height, width] = [(); 2].map(|()| draw.up_to(7));
    ImageShape { batch: draw.up_to(3), channels: draw.up_to(300), height, width }
}

fn conv_shape(draw: &mut Draw, dtype: DType) -> ConvShape {
    let image = if draw.one_in(3) { deep_images(draw) } else { images(draw, dtype) };
    let size = draw.pick(&[1, 1, 3, 5]);
    let window = window(draw, [image.height, image.width], size);
    let groups = if draw.one_in(3) {
        [image.channels, 4, 3, 2]
            .into_iter()
            .find(|groups| image.channels.is_multiple_of(*groups))
            .unwrap_or(1)
    } else {
        1
    };
    let work =
        image.batch * image.channels * image.height * image.width * window.size[0] * window.size[1] / groups;
    let filters = groups * draw.up_to((20_000_000 / work.max(1) / groups).clamp(1, 160));
    let layout = draw.pick(&[ImageLayout::Nchw, ImageLayout::Nhwc]);
    ConvShape::new(image, filters, window).with_groups(groups).with_layout(layout)
}

/// Elements of input, filter and output of a convolution.
fn elements(shape: &ConvShape) -> [usize; 3] {
    let ConvShape { batch, channels, input: [height, width], filters, groups, window, .. } = *shape;
    let [rows, columns] = shape.output("conv2d").unwrap_or_default();
    [
        batch * channels * height * width,
        filters * channels / groups * window.size[0] * window.size[1],
        batch * filters * rows * columns,
    ]
}

pub(super) fn conv2d(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.float();
    let shape = conv_shape(draw, dtype);
    let [input, filter, output] = elements(&shape).map(|n| draw.memory(dtype, n));
    let mut desc = ConvDesc::new(dtype, input, filter, output, shape);
    desc.bias = draw.maybe(|draw| draw.memory(dtype, shape.filters));
    desc.activation = draw.pick(&[Activation::Identity, Activation::Relu]);
    run(draw, "conv2d", Command::Conv(&desc));
}

pub(super) fn conv_transpose2d(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.float();
    let mut shape = conv_shape(draw, dtype);
    shape.window.before = shape.window.size.map(|extent| draw.below(extent.min(2)));
    shape.window.after = shape.window.before;
    let ConvShape { batch, channels, input: [height, width], filters, groups, window, .. } = shape;
    let result = |axis: usize, extent: usize| {
        ((extent - 1) * window.stride[axis] + window.size[axis]).saturating_sub(2 * window.before[axis])
    };
    let n = [
        batch * channels * height * width,
        channels * filters / groups * window.size[0] * window.size[1],
        batch * filters * result(0, height) * result(1, width),
    ];
    let [input, filter, output] = n.map(|n| draw.memory(dtype, n));
    let mut desc = ConvTransposeDesc::new(dtype, input, filter, output, shape);
    desc.bias = draw.maybe(|draw| draw.memory(dtype, filters));
    run(draw, "conv_transpose2d", Command::ConvTranspose(&desc));
}

pub(super) fn conv_backward(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.float();
    let shape = conv_shape(draw, dtype);
    let [input, filter, output] = elements(&shape).map(|n| draw.memory(dtype, n));
    if draw.one_in(2) {
        let desc = ConvBackwardDataDesc::new(dtype, filter, output, input, shape);
        return run(draw, "conv2d_backward_data", Command::ConvBackwardData(&desc));
    }
    let desc = ConvBackwardFilterDesc::new(dtype, input, output, filter, shape);
    run(draw, "conv2d_backward_filter", Command::ConvBackwardFilter(&desc));
}

/// A pooling, and the elements of its input and output.
fn pooling(draw: &mut Draw) -> (PoolDesc, [usize; 2]) {
    let dtype = draw.float();
    let image = images(draw, dtype);
    let window = window(draw, [image.height, image.width], 7);
    let places = |axis: usize, extent: usize| {
        (extent + window.before[axis] + window.after[axis] - window.size[axis]) / window.stride[axis] + 1
    };
    let result = [places(0, image.height), places(1, image.width)];
    let layout = draw.pick(&[ImageLayout::Nchw, ImageLayout::Nhwc]);
    let shape = PoolShape::new(image, result, window).with_layout(layout);
    let planes = image.batch * image.channels;
    let n = [planes * image.height * image.width, planes * result[0] * result[1]];
    let [input, output] = n.map(|n| draw.memory(dtype, n));
    let op = draw.pick(&[PoolOp::Max, PoolOp::Average, PoolOp::AverageWithPadding]);
    (PoolDesc::new(op, dtype, input, output, shape), n)
}

pub(super) fn pool2d(draw: &mut Draw, run: Run<'_>) {
    let (desc, _) = pooling(draw);
    run(draw, "pool2d", Command::Pool(&desc));
}

pub(super) fn pool2d_backward(draw: &mut Draw, run: Run<'_>) {
    let (forward, [input, _]) = pooling(draw);
    let grad_input = draw.memory(forward.dtype, input);
    let desc = PoolBackwardDesc::of(&forward, forward.output, grad_input);
    run(draw, "pool2d_backward", Command::PoolBackward(&desc));
}
