//! Convolutions.

use backend_api::desc::{
    ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvShape, ConvTransposeDesc, ImageLayout,
    ImageShape, Window,
};
use backend_api::support::Access::{Read, Write};
use backend_api::support::{ConvGather, Operand};
use backend_api::{Activation, BackendResult, DType};

use crate::judge::{Call, Named, OP, overflow, packed_dims, shape, volume};
use crate::random::Gen;

fn some(extents: &[usize]) -> bool {
    volume(&packed_dims(extents)) > 0
}

pub(crate) fn window(g: &mut Gen) -> Window {
    let size = [g.count(), g.count()];
    let (before, after) = ([g.extent() / 2, g.extent() / 2], [g.extent() / 2, g.extent() / 2]);
    let moved = Window::new(size).with_stride([g.count(), g.count()]).with_dilation([g.count(), g.count()]);
    let window = moved.with_asymmetric_padding(before, after);
    assert_eq!(moved.with_padding(before), moved.with_asymmetric_padding(before, before));
    assert_eq!(Window::line(3), Window::new([1, 3]));
    window
}

/// Along one axis, in u128: the image with its padding, and from the window's first position to its last.
pub(crate) fn padded_and_span(
    call: &mut Call,
    window: &Window,
    axis: usize,
    extent: usize,
) -> Option<[u128; 2]> {
    for least in [window.stride[axis], window.size[axis], window.dilation[axis]] {
        call.require_at_least(1, least);
    }
    let span = (window.size[axis].max(1) as u128 - 1) * window.dilation[axis] as u128 + 1;
    let padded = extent as u128 + window.before[axis] as u128 + window.after[axis] as u128;
    call.fault_if(padded.max(span) > usize::MAX as u128, overflow());
    let least = [window.stride[axis], window.size[axis], window.dilation[axis]].into_iter().min();
    (padded.max(span) <= usize::MAX as u128 && least > Some(0)).then_some([padded, span])
}

/// How often the window fits, by trying where there are few positions.
pub(crate) fn places(call: &mut Call, window: &Window, axis: usize, extent: usize) -> usize {
    let Some([padded, span]) = padded_and_span(call, window, axis, extent) else { return 1 };
    call.fault_if(span > padded, shape(span as usize, padded as usize));
    let stride = window.stride[axis] as u128;
    if padded < 1000 {
        return (0..padded).step_by(window.stride[axis]).filter(|start| start + span <= padded).count();
    }
    (padded.saturating_sub(span) / stride + 1) as usize
}

fn conv_shape(g: &mut Gen) -> ConvShape {
    let [batch, channels, height, width] = g.extents();
    let groups = if g.one_in(8) { g.extent() } else { g.pick(&[1, 1, 2, channels]) };
    let channels = if g.one_in(8) { channels } else { channels.saturating_mul(groups) };
    let filters = g.count().saturating_mul(groups);
    let filters = g.about(filters);
    let layout = g.pick(&[ImageLayout::Nchw, ImageLayout::Nhwc]);
    let window = window(g);
    let shape = if g.one_in(8) {
        ConvShape::new(ImageShape { batch, channels, height: 1, width }, filters, window)
    } else {
        ConvShape::new(ImageShape { batch, channels, height, width }, filters, window)
    };
    shape.with_groups(groups).with_layout(layout)
}

fn check_groups(call: &mut Call, shape: &ConvShape) {
    call.require_at_least(1, shape.groups);
    for divided in [shape.channels, shape.filters] {
        call.require_eq(0, divided.checked_rem(shape.groups).unwrap_or(0));
    }
}

/// The extents of input, filter and output.
fn conv_extents(call: &mut Call, shape: &ConvShape) -> [[usize; 4]; 3] {
    let &ConvShape { batch, channels, input, filters, groups, window, .. } = shape;
    check_groups(call, shape);
    let output = [0, 1].map(|axis| places(call, &window, axis, input[axis]));
    [
        [batch, channels, input[0], input[1]],
        [filters, channels.checked_div(groups).unwrap_or(0), window.size[0], window.size[1]],
        [batch, filters, output[0], output[1]],
    ]
}

/// Names packed operands, the one that is written among them; without elements of that, nothing is looked at.
pub(crate) fn packed<const N: usize>(
    call: &mut Call,
    of: DType,
    operands: [(&'static str, &[usize], bool); N],
    written: usize,
) {
    let is_work = some(operands[written].1);
    for (i, (arg, extents, is_given)) in operands.into_iter().enumerate() {
        let access = if i == written { Write } else { Read };
        let named = Named::packed(arg, i as u64 + 1, of, access, extents);
        if !is_work {
            // What isn't looked at may be beyond counting.
            if volume(&packed_dims(extents)) > usize::MAX as u128 / 4 {
                call.tolerate(overflow());
            }
        }
        call.name(named.only_if(is_work && is_given));
    }
}

pub(crate) fn conv2d(g: &mut Gen) -> bool {
    let (of, shape) = (g.float(), conv_shape(g));
    let mut desc = ConvDesc::new(of, 1, 2, 3, shape).with_activation(Activation::Silu);
    assert_eq!((desc.activation, desc.bias), (Activation::Silu, None));
    if g.one_in(2) {
        desc = desc.with_bias(4);
    }
    let mut call = Call::default();
    call.require_float("dtype", of);
    let [input, filter, output] = conv_extents(&mut call, &shape);
    if let Ok(extents) = shape.output(OP) {
        assert_eq!(extents, output[2..]);
    }
    let bias = desc.bias.is_some();
    let operands = [
        ("input", &input[..], true),
        ("filter", &filter, true),
        ("output", &output, true),
        ("bias", &filter[..1], bias),
    ];
    packed(&mut call, of, operands, 2);
    call.judge_operands(desc.operands(OP))
}

/// A gradient, whose operands are named from the extents of input, filter and output.
fn backward(
    g: &mut Gen,
    operands: impl FnOnce(&[[usize; 4]; 3]) -> [(&'static str, &[usize]); 3],
    got: impl FnOnce(DType, ConvShape) -> BackendResult<[Operand; 3]>,
) -> bool {
    let (of, shape) = (g.float(), conv_shape(g));
    let mut call = Call::default();
    call.require_float("dtype", of);
    let extents = conv_extents(&mut call, &shape);
    packed(&mut call, of, operands(&extents).map(|(arg, extents)| (arg, extents, true)), 2);
    call.judge_operands(got(of, shape))
}

pub(crate) fn conv2d_backward_data(g: &mut Gen) -> bool {
    backward(
        g,
        |[input, filter, output]| [("filter", filter), ("grad_output", output), ("grad_input", input)],
        |of, shape| ConvBackwardDataDesc::new(of, 1, 2, 3, shape).operands(OP),
    )
}

pub(crate) fn conv2d_backward_filter(g: &mut Gen) -> bool {
    backward(
        g,
        |[input, filter, output]| [("input", input), ("grad_output", output), ("grad_filter", filter)],
        |of, shape| ConvBackwardFilterDesc::new(of, 1, 2, 3, shape).operands(OP),
    )
}

pub(crate) fn conv2d_forward(g: &mut Gen) -> bool {
    let [batch, channels, height, width, filters, rows, columns] = g.extents();
    let (stride, padding) = ([g.count(), g.count()], [g.extent() / 2, g.extent() / 2]);
    let window = Window::new([rows, columns]).with_stride(stride).with_padding(padding);
    let of = ConvShape::new(ImageShape { batch, channels, height, width }, filters, window);
    let mut call = Call::default();
    let [input, filter, output] = conv_extents(&mut call, &of);
    // Each slice with a number changed, one too many or one too few, now and then.
    let slices: Vec<Vec<usize>> = [&input[..], &filter, &output, &stride, &padding]
        .into_iter()
        .map(|right| {
            let mut slice = right.to_vec();
            match g.below(24) {
                0 => slice.push(1),
                1 => drop(slice.pop()),
                2..=4 => {
                    let k = g.below(slice.len());
                    slice[k] = g.extent();
                }
                _ => {}
            }
            slice
        })
        .collect();
    let got = ConvDesc::from_slices(OP, 1, &slices[0], 2, &slices[1], 3, &slices[2], &slices[3], &slices[4]);

    let mut call = Call::default();
    for (slice, length) in slices.iter().zip([4, 4, 4, 2, 2]) {
        call.require_eq(length, slice.len());
    }
    let given = |slice: usize, k: usize| slices[slice].get(k).copied().unwrap_or(1);
    call.require_eq(given(0, 1), given(1, 1));
    call.require_eq(given(0, 0), given(2, 0));
    call.require_eq(given(1, 0), given(2, 1));
    let pair = |slice, k| [given(slice, k), given(slice, k + 1)];
    let window = Window::new(pair(1, 2)).with_stride(pair(3, 0)).with_padding(pair(4, 0));
    for axis in 0..2 {
        let places = places(&mut call, &window, axis, given(0, axis + 2));
        call.require_eq(places, given(2, axis + 2));
    }
    let Some(desc) = call.answer(got) else { return false };
    assert_eq!((desc.dtype, [desc.input, desc.filter, desc.output]), (DType::F32, [1, 2, 3]));
    assert_eq!(
        desc.shape,
        ConvShape::new(
            ImageShape::nchw([given(0, 0), given(0, 1), given(0, 2), given(0, 3)]),
            given(1, 0),
            window
        )
    );
    true
}

pub(crate) fn conv_transpose2d(g: &mut Gen) -> bool {
    let (of, shape) = (g.float(), conv_shape(g));
    let more = [g.extent(), g.extent()].map(|n| if n > 1 && g.one_in(2) { 0 } else { n });
    let mut desc = ConvTransposeDesc::new(of, 1, 2, 3, shape)
        .with_output_padding(more)
        .with_activation(Activation::Relu);
    assert_eq!((desc.activation, desc.bias), (Activation::Relu, None));
    if g.one_in(2) {
        desc = desc.with_bias(4);
    }
    let mut call = Call::default();
    call.require_float("dtype", of);
    check_groups(&mut call, &shape);
    let window = shape.window;
    let output = [0, 1].map(|axis| {
        let (extent, stride) = (shape.input[axis], window.stride[axis]);
        let padded = padded_and_span(&mut call, &window, axis, 0);
        call.require_at_least(1, extent);
        call.require_at_least(more[axis].saturating_add(1), stride);
        let Some([padding, span]) = padded else { return 1 };
        let full = (extent.max(1) as u128 - 1) * stride as u128 + span + more[axis] as u128;
        call.fault_if(full > usize::MAX as u128 || padding + 1 > usize::MAX as u128, overflow());
        // As many as are left when the padding is cut off, at least one.
        call.fault_if(full < padding + 1, crate::judge::shape((padding + 1) as usize, full as usize));
        full.saturating_sub(padding) as usize
    });
    // That convolution's padded input may be beyond counting where the output isn't.
    let input = [shape.batch, shape.channels, shape.input[0], shape.input[1]];
    let grouped = shape.filters.checked_div(shape.groups).unwrap_or(0);
    let filter = [shape.channels, grouped, window.size[0], window.size[1]];
    let output = [shape.batch, shape.filters, output[0], output[1]];
    let bias = desc.bias.is_some();
    let operands = [
        ("input", &input[..], true),
        ("filter", &filter, true),
        ("output", &output, true),
        ("bias", &output[1..2], bias),
    ];
    packed(&mut call, of, operands, 2);
    let accepted = call.judge_operands(desc.operands(OP));
    if accepted {
        // The convolution that it transposes gives back the input's extents.
        let of = desc.transposes(OP).unwrap();
        assert_eq!(of.output(OP).unwrap(), shape.input);
        assert_eq!(
            (of.channels, of.filters, of.input),
            (shape.filters, shape.channels, [output[2], output[3]])
        );
    }
    accepted
}

/// Every result of a convolution and of its transposition gathers what the formula says.
pub(crate) fn conv_gather(g: &mut Gen) -> bool {
    let shape = conv_shape(g);
    let mut call = Call::default();
    let output = [0, 1].map(|axis| places(&mut call, &shape.window, axis, shape.input[axis]));
    let Some(forward) = call.answer(ConvGather::forward(OP, &shape)) else { return false };
    let transposed = call.answer(ConvGather::transposed(OP, &shape)).unwrap();
    assert_eq!((forward.source, forward.result), (shape.input, output));
    assert_eq!((transposed.source, transposed.result), (output, shape.input));
    let groups = shape.groups.max(1);
    let parts = [shape.channels / groups, shape.filters / groups];
    assert_eq!([forward.channels, forward.filters], parts);
    assert_eq!([transposed.filters, transposed.channels], parts);
    let window = shape.window;
    for (axis, places) in output.into_iter().enumerate() {
        let (input, taps) = (shape.input[axis], window.size[axis]);
        for of in [&forward, &transposed] {
            // Strides and dilations that are never taken are 1.
            assert_eq!(of.axes[axis].stride, if places > 1 { window.stride[axis] } else { 1 });
            assert_eq!(of.axes[axis].dilation, if taps > 1 { window.dilation[axis] } else { 1 });
        }
        if input.max(places).max(taps).max(window.stride[axis]).max(window.dilation[axis]) > 40 {
            continue;
        }
        for (y, tap) in (0..places).flat_map(|y| (0..taps).map(move |tap| (y, tap))) {
            let at = (y * window.stride[axis] + tap * window.dilation[axis]) as u128;
            let read = (0..input).find(|&x| x as u128 + window.before[axis] as u128 == at);
            assert_eq!(forward.axes[axis].source(y, tap, input), read);
            for x in 0..input {
                let back = transposed.axes[axis].source(x, tap, places);
                assert_eq!(back == Some(y), read == Some(x));
            }
        }
    }
    for of in [&forward, &transposed] {
        let pixels = volume(&packed_dims(&of.result));
        let taps = volume(&packed_dims(&[of.channels, of.filter[0], of.filter[1]]));
        if pixels.max(taps) < usize::MAX as u128 {
            assert_eq!((of.pixels() as u128, of.taps() as u128), (pixels, taps));
        }
        let results = (of.batch as f64) * (of.groups as f64) * (of.filters as f64) * pixels as f64;
        assert!((of.flops() - 2.0 * results * taps as f64).abs() <= 1e-9 * of.flops());
        if pixels < 1000 {
            let same = |axis: usize| {
                let source = |x| of.axes[axis].source(x, 0, of.source[axis]);
                of.source[axis] == of.result[axis] && (0..of.result[axis]).all(|x| source(x) == Some(x))
            };
            let is_pointwise = of.filter == [1, 1] && same(0) && same(1);
            assert_eq!(of.is_pointwise(), is_pointwise, "{of:?}");
        }
    }
    true
}
