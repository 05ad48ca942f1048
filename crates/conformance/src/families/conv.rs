//! `conv2d`, `conv_transpose2d` and the gradients: every mix of stride, padding, dilation and groups at odd
//! sizes, both layouts, both element types, biases and activations.

use backend_api::desc::{
    ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvShape, ConvTransposeDesc, ImageLayout,
    ImageShape, Window,
};
use backend_api::{Activation, BackendResult, ComputeBackend, DType};

use crate::case::Case;
use crate::data::Data;
use crate::grid::pairwise;
use crate::oracle::conv::{Finish, Sum, elements, output, wants};
use crate::rng::Rng;
use crate::trial::Trial;

const LAYOUTS: [ImageLayout; 2] = [ImageLayout::Nchw, ImageLayout::Nhwc];
const DTYPES: [DType; 2] = [DType::F32, DType::F16];

/// Each is a kernel of its own, and the same code as in a matrix product.
const ACTIVATIONS: [Activation; 3] = [Activation::Identity, Activation::Relu, Activation::Silu];

/// Channels and filters of a group, and groups.
const CHANNELS: [usize; 6] = [1, 2, 3, 4, 5, 8];
const GROUPS: [usize; 4] = [1, 2, 3, 4];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Forward,
    Transpose,
    Data,
    Filter,
}

#[derive(Clone, Copy, Debug)]
struct Conv {
    operation: Operation,
    /// The convolution, also where its transposition is tested.
    shape: ConvShape,
    dtype: DType,
    bias: bool,
    activation: Activation,
    data: Data,
}

pub(super) fn cases() -> Vec<Case> {
    use Operation::{Data, Filter, Forward, Transpose};
    let covering =
        [(Forward, 3), (Transpose, 2), (Data, 2), (Filter, 2)].into_iter().flat_map(|(operation, grids)| {
            (0..grids).flat_map(move |i| grid(operation, format!("conv {operation:?} {i}")))
        });
    let edges = [Forward, Transpose, Data, Filter].into_iter().flat_map(|operation| {
        edges().into_iter().flat_map(move |shape| {
            DTYPES.into_iter().flat_map(move |dtype| {
                LAYOUTS.map(|layout| Conv {
                    operation,
                    shape: shape.with_layout(layout),
                    dtype,
                    bias: true,
                    activation: Activation::Identity,
                    data: crate::data::Data::Uniform,
                })
            })
        })
    });
    covering.chain(edges).chain(long_sums()).map(Conv::case).collect()
}

/// Sums longer than 65,535 terms, after which some drivers leave a loop: of pointwise filters, of others, in
/// groups, and of gradients and transpositions, whose sums are over the filters.
fn long_sums() -> impl Iterator<Item = Conv> {
    use Operation::{Data, Forward, Transpose};
    let padded = Window::new([3, 3]).with_padding([1, 1]);
    let plain = Conv {
        operation: Forward,
        shape: ConvShape::new(ImageShape::nchw([1, 70_001, 1, 2]), 2, Window::new([1, 1])),
        dtype: DType::F32,
        bias: true,
        activation: Activation::Identity,
        data: crate::data::Data::Integers,
    };
    let of = |operation, shape| Conv { operation, shape, ..plain };
    let nhwc = |conv: Conv| Conv { shape: conv.shape.with_layout(ImageLayout::Nhwc), ..conv };
    let many = of(Forward, ConvShape::new(ImageShape::nchw([1, 7300, 2, 3]), 9, padded));
    let few = of(
        Forward,
        ConvShape::new(
            ImageShape::nchw([2, 7300, 1, 3]),
            2,
            padded.with_dilation([1, 2]).with_padding([1, 2]),
        ),
    );
    let halves = Conv { dtype: DType::F16, activation: Activation::Relu, ..few };
    let groups = of(Forward, ConvShape::new(ImageShape::nchw([1, 14_600, 2, 2]), 2, padded).with_groups(2));
    let transposed =
        of(Transpose, ConvShape::new(ImageShape::nchw([1, 1, 3, 3]), 16_500, Window::new([2, 2])));
    let strided = of(
        Transpose,
        ConvShape::new(ImageShape::nchw([1, 1, 6, 6]), 16_500, Window::new([4, 4]).with_stride([2, 2])),
    );
    let gradient = of(Data, ConvShape::new(ImageShape::nchw([1, 3, 1, 2]), 90_001, Window::new([1, 2])));
    [plain, many, nhwc(few), halves, groups, nhwc(transposed), strided, gradient].into_iter()
}

/// Convolutions and gradients of inputs that every kernel has to get right: without activations, whose
/// kernels differ in nothing else.
#[must_use]
pub fn conv_in_small() -> Vec<Case> {
    let plain = |conv: Conv| Conv { activation: Activation::Identity, ..conv };
    let grids = [Operation::Forward, Operation::Data]
        .into_iter()
        .flat_map(|operation| grid(operation, format!("kernels {operation:?}")));
    let edges = edges().into_iter().flat_map(|shape| {
        let of = move |(dtype, layout)| Conv {
            operation: Operation::Forward,
            shape: shape.with_layout(layout),
            dtype,
            bias: true,
            activation: Activation::Identity,
            data: Data::Uniform,
        };
        [(DType::F16, ImageLayout::Nchw), (DType::F16, ImageLayout::Nhwc), (DType::F32, ImageLayout::Nchw)]
            .map(of)
    });
    grids.map(plain).chain(edges).map(Conv::case).collect()
}

fn grid(operation: Operation, seed: String) -> impl Iterator<Item = Conv> {
    let extents = [1, 2, 4, 5, 7, 9, 11];
    let sizes = [1, 2, 3, 5];
    let counts = [2, 6, 4, 6, 7, 7, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, ACTIVATIONS.len(), 2];
    pairwise(&counts, &seed).into_iter().map(move |row| {
        let groups = GROUPS[row[2]];
        let (size, dilation) = ([sizes[row[6]], sizes[row[7]]], [row[14] + 1, row[15] + 1]);
        let (before, after) = ([row[10], row[11]], [row[12], row[13]]);
        // An input that the filter doesn't fit into is made larger.
        let extent = |at: usize, axis: usize| {
            let span = dilation[axis] * (size[axis] - 1) + 1;
            extents[at].max(span.saturating_sub(before[axis] + after[axis]))
        };
        let window = Window::new(size)
            .with_stride([row[8] + 1, row[9] + 1])
            .with_asymmetric_padding(before, after)
            .with_dilation(dilation);
        let input = ImageShape {
            batch: row[0] + 1,
            channels: CHANNELS[row[1]] * groups,
            height: extent(row[4], 0),
            width: extent(row[5], 1),
        };
        Conv {
            operation,
            shape: ConvShape::new(input, CHANNELS[row[3]] * groups, window)
                .with_groups(groups)
                .with_layout(LAYOUTS[row[17]]),
            dtype: DTYPES[row[16]],
            bias: row[18] == 1,
            activation: ACTIVATIONS[row[19]],
            data: [Data::Uniform, Data::Integers][row[20]],
        }
    })
}

/// No images, a filter larger than the image, one pixel, sequences, a filter longer than 32, pointwise
/// filters in groups, depthwise filters of several per channel, sizes beyond a tile, filters that tensor cores
/// take row by row, and what has kernels of its own.
fn edges() -> Vec<ConvShape> {
    let padded = |size, padding| Window::new(size).with_padding(padding);
    vec![
        ConvShape::new(ImageShape::nchw([0, 3, 8, 8]), 4, padded([3, 3], [1, 1])),
        ConvShape::new(ImageShape::nchw([1, 2, 2, 3]), 3, padded([5, 6], [2, 2])),
        ConvShape::new(ImageShape::nchw([2, 3, 1, 1]), 5, Window::new([1, 1])),
        ConvShape::new(ImageShape::nchw([2, 8, 4, 6]), 16, Window::new([1, 1])),
        ConvShape::new(ImageShape::nchw([2, 8, 4, 6]), 4, Window::new([1, 1])).with_groups(2),
        ConvShape::new(ImageShape::nchw([3, 40, 5, 8]), 72, Window::new([1, 1])),
        ConvShape::new(ImageShape::nchw([2, 48, 4, 10]), 20, Window::new([1, 1])).with_groups(2),
        ConvShape::new(ImageShape::nchw([2, 3, 5, 5]), 4, Window::new([1, 1]).with_stride([2, 2])),
        ConvShape::new(
            ImageShape::nchw([2, 4, 1, 37]),
            6,
            Window::line(5).with_stride([1, 3]).with_dilation([1, 2]),
        ),
        ConvShape::new(ImageShape::nchw([1, 2, 1, 50]), 3, Window::line(40).with_padding([0, 7])),
        ConvShape::new(ImageShape::nchw([2, 6, 9, 12]), 6, padded([3, 3], [1, 1])).with_groups(6),
        ConvShape::new(ImageShape::nchw([1, 3, 10, 9]), 6, padded([5, 5], [2, 2]).with_stride([2, 2]))
            .with_groups(3),
        ConvShape::new(ImageShape::nchw([1, 4, 8, 8]), 8, padded([3, 3], [1, 1])).with_groups(4),
        ConvShape::new(ImageShape::nchw([2, 16, 9, 10]), 70, padded([3, 3], [1, 1])),
        ConvShape::new(ImageShape::nchw([1, 36, 12, 12]), 33, padded([3, 3], [1, 1]).with_stride([2, 2])),
        // Three columns of filters, multiples of sixteen channels, results of multiples of four columns.
        ConvShape::new(ImageShape::nchw([2, 32, 5, 28]), 48, padded([3, 3], [1, 1])),
        ConvShape::new(ImageShape::nchw([1, 5, 7, 20]), 70, padded([3, 3], [1, 1])),
        ConvShape::new(ImageShape::nchw([2, 11, 3, 4]), 6, padded([3, 3], [1, 1])),
        ConvShape::new(ImageShape::nchw([2, 9, 6, 8]), 5, padded([1, 3], [0, 1])),
        ConvShape::new(ImageShape::nchw([2, 8, 9, 12]), 5, padded([5, 3], [3, 1]).with_dilation([2, 1])),
        ConvShape::new(ImageShape::nchw([1, 32, 9, 12]), 64, padded([3, 3], [1, 1]).with_stride([2, 1]))
            .with_groups(2),
        ConvShape::new(ImageShape::nchw([3, 16, 6, 6]), 16, padded([5, 3], [3, 4])),
        ConvShape::new(ImageShape::nchw([1, 16, 4, 66]), 32, Window::new([1, 3])),
        ConvShape::new(
            ImageShape::nchw([1, 48, 8, 13]),
            32,
            Window::new([3, 3]).with_asymmetric_padding([0, 2], [1, 3]).with_dilation([2, 3]),
        ),
        ConvShape::new(ImageShape::nchw([1, 3, 20, 18]), 40, padded([7, 7], [3, 3]).with_stride([2, 2])),
        // Depthwise in fours of channels: blocks of results that are whole, and that aren't; enough of them
        // for large blocks.
        ConvShape::new(ImageShape::nchw([2, 8, 9, 11]), 8, padded([3, 3], [1, 1])).with_groups(8),
        ConvShape::new(ImageShape::nchw([1, 12, 9, 6]), 12, padded([3, 3], [1, 0]).with_stride([2, 2]))
            .with_groups(12),
        ConvShape::new(ImageShape::nchw([2, 4, 6, 9]), 4, padded([5, 5], [2, 2])).with_groups(4),
        ConvShape::new(ImageShape::nchw([1, 8, 11, 8]), 8, padded([5, 5], [2, 1]).with_stride([2, 2]))
            .with_groups(8),
        ConvShape::new(ImageShape::nchw([1, 48, 33, 22]), 48, padded([3, 3], [1, 1])).with_groups(48),
        // Depthwise one by one, of planes and of channels that are no fours: each side and stride, and enough for
        // copies of the filters.
        ConvShape::new(ImageShape::nchw([2, 5, 9, 6]), 5, Window::new([1, 1])).with_groups(5),
        ConvShape::new(ImageShape::nchw([1, 3, 17, 10]), 3, padded([7, 7], [3, 3])).with_groups(3),
        ConvShape::new(ImageShape::nchw([1, 5, 12, 9]), 5, padded([3, 3], [1, 1]).with_stride([2, 2]))
            .with_groups(5),
        ConvShape::new(ImageShape::nchw([2, 3, 13, 8]), 3, padded([5, 5], [2, 1]).with_stride([2, 1]))
            .with_groups(3),
        ConvShape::new(ImageShape::nchw([1, 3, 15, 11]), 6, padded([7, 7], [3, 3]).with_stride([2, 2]))
            .with_groups(3),
        ConvShape::new(ImageShape::nchw([1, 67, 65, 65]), 67, padded([3, 3], [1, 1])).with_groups(67),
        ConvShape::new(ImageShape::nchw([1, 16, 9, 5]), 16, Window::new([1, 1])).with_groups(16),
        // Few filters: of channels that are no fours, of more than a block, and of sums that are shared.
        ConvShape::new(ImageShape::nchw([2, 13, 11, 14]), 5, padded([3, 3], [1, 1])),
        ConvShape::new(ImageShape::nchw([1, 70, 5, 6]), 3, padded([5, 5], [2, 2])),
        ConvShape::new(ImageShape::nchw([1, 24, 7, 9]), 18, padded([3, 3], [0, 1])).with_groups(2),
        // Strides of which several pixels of few channels are folded into eight channels.
        ConvShape::new(ImageShape::nchw([2, 4, 9, 11]), 16, padded([3, 3], [1, 1]).with_stride([2, 2])),
        ConvShape::new(ImageShape::nchw([1, 1, 12, 37]), 9, padded([5, 6], [2, 3]).with_stride([3, 4])),
        // Rows of whole vectors, beyond a run of pixels, and filters beyond a tile.
        ConvShape::new(ImageShape::nchw([2, 16, 6, 24]), 40, padded([3, 3], [1, 1])),
        ConvShape::new(ImageShape::nchw([1, 16, 5, 72]), 24, padded([3, 3], [1, 1])),
        ConvShape::new(ImageShape::nchw([1, 16, 4, 8]), 176, padded([3, 3], [1, 1])),
    ]
}

impl Conv {
    fn case(self) -> Case {
        let ConvShape { batch: n, channels: c, input: [h, w], filters: k, groups, window, layout, .. } =
            self.shape;
        let ([r, s], [sy, sx]) = (window.size, window.stride);
        let ([top, left], [bottom, right]) = (window.before, window.after);
        let [dy, dx] = window.dilation;
        let family = match self.operation {
            Operation::Forward => "conv2d",
            Operation::Transpose => "conv_transpose2d",
            Operation::Data => "conv2d_backward_data",
            Operation::Filter => "conv2d_backward_filter",
        };
        let (dtype, layout) = (self.dtype, super::flag(layout == ImageLayout::Nhwc, "nhwc", "nchw"));
        let (bias, activation) = (super::flag(self.bias, "bias", "nobias"), self.activation.name());
        let epilogue = match self.operation {
            Operation::Forward | Operation::Transpose => format!("_{bias}_{activation}"),
            _ => String::new(),
        };
        let name = format!(
            "{dtype}_{layout}_n{n}_c{c}_{h}x{w}_k{k}_{r}x{s}_g{groups}_stride{sy}-{sx}_pad{top}-{left}-{bottom}-{right}\
             _dil{dy}-{dx}{epilogue}_{}",
            self.data.name()
        );
        Case::new(family, name, move |rng| self.trial(rng))
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let Self { operation, shape, dtype, activation, .. } = self;
        let [inputs, filters, outputs] = elements(&shape);
        let (sum, left, right, channels) = match operation {
            Operation::Forward => (Sum::Output, ("input", inputs), ("filter", filters), shape.filters),
            Operation::Transpose => (Sum::Input, ("filter", filters), ("input", outputs), shape.channels),
            Operation::Data => (Sum::Input, ("filter", filters), ("grad_output", outputs), 0),
            Operation::Filter => (Sum::Filter, ("input", inputs), ("grad_output", outputs), 0),
        };
        let exact = self.data == Data::Integers && activation == Activation::Identity;
        let finishes = matches!(operation, Operation::Forward | Operation::Transpose);
        let [left_values, right_values, bias] =
            [left.1, right.1, channels].map(|count| self.data.values(rng, dtype, count));
        let with_bias = self.bias && finishes;
        let finish = if finishes {
            Finish { bias: with_bias.then_some(&bias), activation, exact }
        } else {
            Finish::plain(self.data == Data::Integers)
        };
        let wanted = wants(&shape, sum, [&left_values, &right_values], finish);
        let mut trial = Trial::new();
        trial.input(left.0, dtype, &left_values);
        trial.input(right.0, dtype, &right_values);
        trial.output("result", dtype, wanted);
        if self.data == Data::Uniform && activation == Activation::Identity {
            trial.with_nmse();
        }
        if with_bias {
            trial.input("bias", dtype, &bias);
        }
        trial.calling(move |backend, p| {
            let bias = with_bias.then(|| p[3]);
            self.call(backend, [p[0], p[1], p[2]], bias)
        })
    }

    fn call(&self, backend: &dyn ComputeBackend, ptrs: [u64; 3], bias: Option<u64>) -> BackendResult<()> {
        let &Self { shape, dtype, activation, .. } = self;
        let [left, right, result] = ptrs;
        match self.operation {
            Operation::Forward => {
                let mut desc =
                    ConvDesc::new(dtype, ptrs[0], ptrs[1], ptrs[2], shape).with_activation(activation);
                desc.bias = bias;
                backend.conv2d(&desc)
            }
            Operation::Transpose => {
                // What the convolution's last step leaves over of the input.
                let mut of = shape;
                (of.channels, of.filters, of.input) = (shape.filters, shape.channels, output(&shape));
                let window = shape.window;
                let left_over = [0, 1].map(|axis| {
                    let padded = shape.input[axis] + window.before[axis] + window.after[axis];
                    (padded - window.dilation[axis] * (window.size[axis] - 1) - 1) % window.stride[axis]
                });
                let mut desc = ConvTransposeDesc::new(dtype, right, left, result, of)
                    .with_output_padding(left_over)
                    .with_activation(activation);
                desc.bias = bias;
                backend.conv_transpose2d(&desc)
            }
            Operation::Data => backend
                .conv2d_backward_data(&ConvBackwardDataDesc::new(dtype, ptrs[0], ptrs[1], ptrs[2], shape)),
            Operation::Filter => backend.conv2d_backward_filter(&ConvBackwardFilterDesc::new(
                dtype, ptrs[0], ptrs[1], ptrs[2], shape,
            )),
        }
    }
}
