//! Convolutions of many images, with many filters, and to many channels; and what may refuse large operands.

use backend_api::desc::{
    ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvShape, ConvTransposeDesc, ImageShape,
    PoolBackwardDesc, PoolDesc, PoolOp, PoolShape, Window,
};
use backend_api::{Command, DType};

use super::family::Operand::{Items, Shared};
use super::family::{Family, Size, along, numbers, results};

const F32: DType = DType::F32;
const SIDE: usize = 32;

/// Channels of the images that are many.
fn channels(size: &Size) -> usize {
    if size.is_large() { 16 } else { 4 }
}

/// 3×3 taps over images of as many channels as there are filters.
fn shape(batch: usize, channels: usize) -> ConvShape {
    let window = Window::new([3, 3]).with_padding([1, 1]);
    ConvShape::new(ImageShape::nchw([batch, channels, SIDE, SIDE]), channels, window)
}

/// A call on many images, filters, and as many results.
fn over_images(
    size: &Size,
    make: impl Fn(usize, usize, &mut dyn FnMut(&'static str, Command<'_>)) + 'static,
) -> Family {
    let channels = channels(size);
    let elements = channels * SIDE * SIDE;
    let items = size.numbers() / elements;
    let buffers =
        vec![numbers(items * elements), numbers(channels * channels * 9), results(items * elements)];
    let operands = [Items(0, 4 * elements), Shared(1), Items(2, 4 * elements)];
    along(size, buffers, items, 1, &operands, move |_, batch, run| make(batch, channels, run))
}

pub(super) fn images(size: &Size) -> Family {
    over_images(size, |batch, channels, run| {
        run("conv2d", Command::Conv(&ConvDesc::new(F32, 1, 2, 3, shape(batch, channels))));
    })
}

pub(super) fn transposed(size: &Size) -> Family {
    over_images(size, |batch, channels, run| {
        let desc = ConvTransposeDesc::new(F32, 1, 2, 3, shape(batch, channels));
        run("conv_transpose2d", Command::ConvTranspose(&desc));
    })
}

pub(super) fn gradients(size: &Size) -> Family {
    over_images(size, |batch, channels, run| {
        let desc = ConvBackwardDataDesc::new(F32, 2, 1, 3, shape(batch, channels));
        run("conv2d_backward_data", Command::ConvBackwardData(&desc));
    })
}

/// One image, many filters.
fn over_filters(size: &Size, channels: usize, side: usize, filters: usize) -> Family {
    let taps = channels * 9;
    let pixels = side * side;
    let buffers = vec![numbers(channels * pixels), numbers(filters * taps), results(filters * pixels)];
    let operands = [Shared(0), Items(1, 4 * taps), Items(2, 4 * pixels)];
    along(size, buffers, filters, 1, &operands, move |_, filters, run| {
        let image = ImageShape::nchw([1, channels, side, side]);
        let shape = ConvShape::new(image, filters, Window::new([3, 3]).with_padding([1, 1]));
        run("conv2d", Command::Conv(&ConvDesc::new(F32, 1, 2, 3, shape)));
    })
}

pub(super) fn filters(size: &Size) -> Family {
    let channels = size.columns() / 8;
    over_filters(size, channels, 8, size.numbers() / (channels * 9))
}

pub(super) fn outputs(size: &Size) -> Family {
    let side = (size.columns() / 8).max(16);
    over_filters(size, 4, side, size.numbers() / (side * side))
}

/// Sums over all images.
pub(super) fn filter_gradients(size: &Size) -> Family {
    let channels = channels(size);
    let elements = channels * SIDE * SIDE;
    let items = size.numbers() / elements;
    let buffers =
        vec![numbers(items * elements), numbers(items * elements), results(channels * channels * 9)];
    let operands = [Items(0, 4 * elements), Items(1, 4 * elements), Shared(2)];
    let mut family = along(size, buffers, items, 1, &operands, move |_, batch, run| {
        let desc = ConvBackwardFilterDesc::new(F32, 1, 2, 3, shape(batch, channels));
        run("conv2d_backward_filter", Command::ConvBackwardFilter(&desc));
    });
    family.samples.clear();
    family.refused()
}

fn pool_shape(batch: usize, channels: usize) -> PoolShape {
    let window = Window::new([3, 3]).with_padding([1, 1]);
    PoolShape::new(ImageShape::nchw([batch, channels, SIDE, SIDE]), [SIDE, SIDE], window)
}

pub(super) fn pool(size: &Size) -> Family {
    let family = over_images(size, |batch, channels, run| {
        let desc = PoolDesc::new(PoolOp::Max, F32, 1, 3, pool_shape(batch, channels));
        run("pool2d", Command::Pool(&desc));
    });
    family.refused()
}

pub(super) fn pool_gradients(size: &Size) -> Family {
    let channels = channels(size);
    let elements = channels * SIDE * SIDE;
    let items = size.numbers() / elements;
    let buffers = vec![numbers(items * elements), numbers(items * elements), results(items * elements)];
    let operands = [0, 1, 2].map(|buffer| Items(buffer, 4 * elements));
    let family = along(size, buffers, items, 1, &operands, move |_, batch, run| {
        let forward = PoolDesc::new(PoolOp::Average, F32, 1, 0, pool_shape(batch, channels));
        run("pool2d_backward", Command::PoolBackward(&PoolBackwardDesc::of(&forward, 2, 3)));
    });
    family.refused()
}
