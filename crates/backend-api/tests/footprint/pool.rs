//! Poolings.

use backend_api::desc::{ImageLayout, ImageShape, PoolBackwardDesc, PoolDesc, PoolOp, PoolShape};

use crate::conv::{packed, padded_and_span, places, window};
use crate::judge::{Call, OP, shape};
use crate::random::Gen;

fn pool_shape(g: &mut Gen, call: &mut Call) -> PoolShape {
    let ([batch, channels, height, width], window) = (g.extents(), window(g));
    let input = [height, width];
    let output = [0, 1].map(|axis| {
        let fits = places(call, &window, axis, input[axis]);
        let usual = fits.saturating_add(g.below(2));
        let got = g.about(usual);
        if let Some([padded, span]) = padded_and_span(&mut Call::default(), &window, axis, input[axis]) {
            let (stride, fits) = (window.stride[axis] as u128, fits as u128);
            // One more where the last window doesn't end with the padding, if it begins before that behind
            // the image.
            let ends = (fits.max(1) - 1) * stride + span;
            let begins = input[axis] as u128 + window.before[axis] as u128;
            let more = ends < padded && fits * stride < begins;
            let most = fits as usize + usize::from(more);
            call.require_at_least(fits as usize, got);
            call.fault_if(got > most, shape(most, got));
        }
        got
    });
    let layout = g.pick(&[ImageLayout::Nchw, ImageLayout::Nhwc]);
    let shape =
        PoolShape::new(ImageShape { batch, channels, height, width }, output, window).with_layout(layout);
    assert_eq!(shape.layout, layout);
    let seen = window.size[0].min(height) as f64 * window.size[1].min(width) as f64;
    assert_eq!(shape.window_elements(), seen);
    let windows = batch as f64 * channels as f64 * output[0] as f64 * output[1] as f64;
    assert_eq!(shape.reads(), windows * seen);
    shape
}

/// The extents of input and output.
fn pool_extents(shape: &PoolShape) -> [[usize; 4]; 2] {
    let &PoolShape { batch, channels, input, output, .. } = shape;
    [input, output].map(|[height, width]| [batch, channels, height, width])
}

pub(crate) fn pool2d(g: &mut Gen) -> bool {
    let (of, op, mut call) = (g.float(), g.pick(&PoolOp::ALL), Call::default());
    call.require_float("dtype", of);
    let shape = pool_shape(g, &mut call);
    let [input, output] = pool_extents(&shape);
    packed(&mut call, of, [("input", &input, true), ("output", &output, true)], 1);
    call.judge_operands(PoolDesc::new(op, of, 1, 2, shape).operands(OP))
}

pub(crate) fn pool2d_backward(g: &mut Gen) -> bool {
    let (of, op, mut call) = (g.float(), g.pick(&PoolOp::ALL), Call::default());
    call.require_float("dtype", of);
    let shape = pool_shape(g, &mut call);
    let [input, output] = pool_extents(&shape);
    let operands = [
        ("input", &input[..], op == PoolOp::Max),
        ("grad_output", &output, true),
        ("grad_input", &input, true),
    ];
    packed(&mut call, of, operands, 2);
    let forward = PoolDesc::new(op, of, 1, 9, shape);
    call.judge_operands(PoolBackwardDesc::of(&forward, 2, 3).operands(OP))
}
