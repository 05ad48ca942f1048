//! Random convolutions and poolings.

use backend_api::Activation;
use backend_api::desc::{
    ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvShape, ConvTransposeDesc, ImageLayout,
    ImageShape, PoolBackwardDesc, PoolDesc, PoolOp, PoolShape, Window,
};

use super::Call;
use super::calls::{Method, call};
use super::draw::{dtype, maybe, size, sizes};
use super::pool::Pool;
use crate::rng::Rng;

pub(super) const METHODS: &[Method] = &[conv2d, conv_transpose2d, backward_data, backward_filter, pool2d];

const LAYOUTS: [ImageLayout; 2] = [ImageLayout::Nchw, ImageLayout::Nhwc];

fn window(rng: &mut Rng) -> Window {
    let mut at_least_one = || [(); 2].map(|()| size(rng).max(1));
    let (size, stride, dilation) = (at_least_one(), at_least_one(), at_least_one());
    let (before, after) = (sizes(rng), sizes(rng));
    Window::new(size).with_stride(stride).with_dilation(dilation).with_asymmetric_padding(before, after)
}

fn shape(rng: &mut Rng) -> ConvShape {
    let mut window = window(rng);
    let mut input = sizes(rng);
    if rng.one_in(2) {
        // Small enough to fit most of the time.
        (window.size, window.dilation) = ([1 + rng.below(3), 1 + rng.below(3)], [1, 1]);
        (input[2], input[3]) = (3 + rng.below(4), 3 + rng.below(4));
    }
    let groups = size(rng);
    input[1] = usize::saturating_mul(input[1], groups);
    let filters = size(rng).saturating_mul(groups);
    ConvShape::new(ImageShape::nchw(input), filters, window)
        .with_groups(groups)
        .with_layout(rng.pick(&LAYOUTS))
}

fn handles(rng: &mut Rng, pool: &Pool<'_>) -> [u64; 3] {
    std::array::from_fn(|_| pool.pick(rng))
}

fn conv2d<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (of, [x, y, z]) = (dtype(rng), handles(rng, pool));
    let mut d = ConvDesc::new(of, x, y, z, shape(rng));
    let bias = pool.pick(rng);
    d.bias = maybe(rng, bias);
    d.activation = rng.pick(Activation::ALL);
    let verdict = pool.check("conv2d", d.operands("conv2d"));
    call(format!("{d:?}"), verdict, move |b| b.conv2d(&d))
}

fn conv_transpose2d<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (of, [x, y, z]) = (dtype(rng), handles(rng, pool));
    let mut d = ConvTransposeDesc::new(of, x, y, z, shape(rng));
    d.output_padding = [rng.below(2), rng.below(2)];
    let bias = pool.pick(rng);
    d.bias = maybe(rng, bias);
    let verdict = pool.check("conv_transpose2d", d.operands("conv_transpose2d"));
    call(format!("{d:?}"), verdict, move |b| b.conv_transpose2d(&d))
}

fn backward_data<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (of, [x, y, z]) = (dtype(rng), handles(rng, pool));
    let d = ConvBackwardDataDesc::new(of, x, y, z, shape(rng));
    let verdict = pool.check("conv2d_backward_data", d.operands("conv2d_backward_data"));
    call(format!("{d:?}"), verdict, move |b| b.conv2d_backward_data(&d))
}

fn backward_filter<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (of, [x, y, z]) = (dtype(rng), handles(rng, pool));
    let d = ConvBackwardFilterDesc::new(of, x, y, z, shape(rng));
    let verdict = pool.check("conv2d_backward_filter", d.operands("conv2d_backward_filter"));
    call(format!("{d:?}"), verdict, move |b| b.conv2d_backward_filter(&d))
}

fn pool2d<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (input, window) = (sizes(rng), window(rng));
    let output: [usize; 2] = std::array::from_fn(|axis| {
        let padded =
            usize::saturating_add(input[2 + axis], window.before[axis]).saturating_add(window.after[axis]);
        let span = window.dilation[axis].saturating_mul(window.size[axis] - 1).saturating_add(1);
        (padded.saturating_sub(span) / window.stride[axis]).saturating_add(1 + rng.below(4) / 3)
    });
    let shape = PoolShape::new(ImageShape::nchw(input), output, window).with_layout(rng.pick(&LAYOUTS));
    let [input, output, _] = handles(rng, pool);
    let d = PoolDesc::new(rng.pick(&PoolOp::ALL), dtype(rng), input, output, shape);
    if rng.one_in(3) {
        let backward = PoolBackwardDesc::of(&d, pool.pick(rng), pool.pick(rng));
        let op = "pool2d_backward";
        let verdict = pool.check(op, backward.operands(op));
        return call(format!("{backward:?}"), verdict, move |b| b.pool2d_backward(&backward));
    }
    let verdict = pool.check("pool2d", d.operands("pool2d"));
    call(format!("{d:?}"), verdict, move |b| b.pool2d(&d))
}
