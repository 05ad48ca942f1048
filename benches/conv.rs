//! Convolutions: 3×3, pointwise, the first layer of an image network, depthwise, and the gradients; poolings.
//!
//! `cargo bench --bench conv`; `COMPUTE_BACKEND=webgpu:0` chooses a device. Each line comes twice: by the
//! host's clock, waiting included, and as `…/device` by the device's own where it has one. The throughput of
//! depthwise convolutions and poolings is bytes, of the others operations.

use backend_api::desc::{
    ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvShape, ConvTransposeDesc, ImageLayout,
    ImageShape, PoolBackwardDesc, PoolDesc, PoolOp, PoolShape, Window,
};
use backend_api::{Activation, BackendResult, ComputeBackend, DType};
use benches::{Subject, criterion};
use criterion::{Criterion, Throughput};

/// A line of the benchmark.
struct Line<'a> {
    group: &'a str,
    name: &'a str,
    dtype: DType,
    throughput: Throughput,
}

fn measure(
    criterion: &mut Criterion,
    subject: &Subject,
    line: &Line<'_>,
    work: impl Fn(&dyn ComputeBackend) -> BackendResult<()>,
) {
    let group = format!("{}/{}", line.group, line.dtype);
    subject.measure(criterion, &group, line.name, line.throughput.clone(), work);
}

/// Elements of input, filter and output of a convolution.
fn elements(shape: &ConvShape) -> [usize; 3] {
    let [p, q] = shape.output("conv").expect("the filter fits");
    let [r, s] = shape.window.size;
    [
        shape.batch * shape.channels * shape.input[0] * shape.input[1],
        shape.filters * (shape.channels / shape.groups) * r * s,
        shape.batch * shape.filters * p * q,
    ]
}

/// Operations, or for depthwise convolutions bytes.
fn throughput(shape: &ConvShape, dtype: DType) -> Throughput {
    let [input, filter, output] = elements(shape);
    if shape.groups > 1 {
        Throughput::Bytes(((input + filter + output) * dtype.size()) as u64)
    } else {
        Throughput::Elements(2 * (output * filter / shape.filters) as u64)
    }
}

/// The lines of the published table, smaller on a slow device.
fn shapes(small: bool) -> Vec<(&'static str, ConvShape)> {
    let (batch, part) = if small { (1, 4) } else { (16, 1) };
    let three = Window::new([3, 3]).with_padding([1, 1]);
    let image = |channels: usize, side: usize| {
        let side = side / part;
        ImageShape { batch, channels: channels / part, height: side, width: side }
    };
    let of = |channels, side, filters: usize, window| {
        ConvShape::new(image(channels, side), filters / part, window)
    };
    let first = Window::new([7, 7]).with_stride([2, 2]).with_padding([3, 3]);
    vec![
        ("3x3/64x56x56", of(64, 56, 64, three)),
        ("3x3/128x28x28", of(128, 28, 128, three)),
        ("1x1/256x56x56", of(256, 56, 64, Window::new([1, 1]))),
        ("7x7s2/3x224x224", ConvShape::new(image(3 * part, 224), 64 / part, first)),
        ("depthwise/256x56x56", of(256, 56, 256, three).with_groups(256 / part)),
    ]
}

fn forward(criterion: &mut Criterion, subject: &Subject, dtype: DType, (name, shape): (&str, ConvShape)) {
    let [input, filter, output] = elements(&shape).map(|elements| subject.operand(dtype, elements));
    let bias = subject.operand(dtype, shape.filters);
    let desc = ConvDesc::new(dtype, input, filter, output, shape);
    let line = Line { group: "conv", name, dtype, throughput: throughput(&shape, dtype) };
    measure(criterion, subject, &line, |backend| backend.conv2d(&desc));
    let fused = desc.with_bias(bias).with_activation(Activation::Relu);
    let line = Line { group: "conv_bias_relu", ..line };
    measure(criterion, subject, &line, |backend| backend.conv2d(&fused));
    let mut interleaved = desc;
    interleaved.shape = shape.with_layout(ImageLayout::Nhwc);
    let line = Line { group: "conv_nhwc", ..line };
    measure(criterion, subject, &line, |backend| backend.conv2d(&interleaved));
    subject.free(&[input, filter, output, bias]);
}

fn gradients(criterion: &mut Criterion, subject: &Subject, dtype: DType, (name, shape): (&str, ConvShape)) {
    let [input, filter, output] = elements(&shape).map(|elements| subject.operand(dtype, elements));
    let line = Line { group: "conv_backward_data", name, dtype, throughput: throughput(&shape, dtype) };
    let data = ConvBackwardDataDesc::new(dtype, filter, output, input, shape);
    measure(criterion, subject, &line, |backend| backend.conv2d_backward_data(&data));
    let line = Line { group: "conv_backward_filter", ..line };
    let gradient = ConvBackwardFilterDesc::new(dtype, input, output, filter, shape);
    measure(criterion, subject, &line, |backend| backend.conv2d_backward_filter(&gradient));
    subject.free(&[input, filter, output]);
}

/// An upsampling by two, as decoders of images have.
fn transposed(criterion: &mut Criterion, subject: &Subject, dtype: DType, small: bool) {
    let (batch, channels, side) = if small { (1, 16, 14) } else { (16, 128, 28) };
    let window = Window::new([4, 4]).with_stride([2, 2]).with_padding([1, 1]);
    let shape = ConvShape::new(ImageShape { batch, channels, height: side, width: side }, channels, window);
    let desc = ConvTransposeDesc::new(dtype, 0, 0, 0, shape);
    let of = desc.transposes("conv").expect("the filter fits");
    let [output, filter, input] = elements(&of).map(|elements| subject.operand(dtype, elements));
    let desc = ConvTransposeDesc::new(dtype, input, filter, output, shape);
    let name = format!("4x4s2/{channels}x{side}x{side}");
    let throughput = throughput(&of, dtype);
    let line = Line { group: "conv_transpose", name: &name, dtype, throughput };
    measure(criterion, subject, &line, |backend| backend.conv_transpose2d(&desc));
    subject.free(&[input, filter, output]);
}

fn pooling(criterion: &mut Criterion, subject: &Subject, dtype: DType, small: bool) {
    let (batch, channels, side) = if small { (1, 16, 28) } else { (16, 64, 112) };
    let window = Window::new([3, 3]).with_stride([2, 2]).with_padding([1, 1]);
    let shape =
        PoolShape::new(ImageShape { batch, channels, height: side, width: side }, [side / 2; 2], window);
    let input = batch * channels * side * side;
    let [x, y, gradient] = [input, input / 4, input].map(|elements| subject.operand(dtype, elements));
    for op in [PoolOp::Max, PoolOp::Average] {
        let name = format!("{}/3x3s2/{channels}x{side}x{side}", op.name());
        let throughput = Throughput::Bytes((input / 4 * 5 * dtype.size()) as u64);
        let line = Line { group: "pool", name: &name, dtype, throughput };
        let desc = PoolDesc::new(op, dtype, x, y, shape);
        measure(criterion, subject, &line, |backend| backend.pool2d(&desc));
        let backward = PoolBackwardDesc::of(&desc, y, gradient);
        let line = Line { group: "pool_backward", ..line };
        measure(criterion, subject, &line, |backend| backend.pool2d_backward(&backward));
    }
    subject.free(&[x, y, gradient]);
}

fn main() {
    let subject = Subject::open();
    let small = subject.device().kind.rank() >= 4;
    let mut criterion = criterion(2);
    for dtype in [DType::F32, DType::F16] {
        if !subject.supports(dtype) {
            eprintln!("{dtype} is not supported by {}", subject.device().name);
            continue;
        }
        for shape in shapes(small) {
            forward(&mut criterion, &subject, dtype, shape);
        }
        for shape in shapes(small).into_iter().filter(|(_, shape)| shape.groups == 1) {
            gradients(&mut criterion, &subject, dtype, shape);
        }
        transposed(&mut criterion, &subject, dtype, small);
        pooling(&mut criterion, &subject, dtype, small);
    }
    criterion.final_summary();
}
