//! `pool2d` and its gradient: every mix of window, stride, padding and dilation, last windows that pass the
//! end, ties, NaN, and windows in the padding alone.

use backend_api::DType;
use backend_api::desc::{ImageLayout, ImageShape, PoolBackwardDesc, PoolDesc, PoolOp, PoolShape, Window};

use crate::case::Case;
use crate::data::{Data, specials};
use crate::grid::pairwise;
use crate::oracle::pool::{backward, forward};
use crate::rng::Rng;
use crate::trial::Trial;

#[derive(Clone, Copy, Debug)]
struct Pool {
    op: PoolOp,
    shape: PoolShape,
    dtype: DType,
    content: Content,
    backward: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Numbers(Data),
    /// Among them NaN, infinities and zeros of both signs; for maxima.
    Specials,
    /// The larger, the further behind: the last ones matter most.
    Ascending,
}

pub(super) fn cases() -> Vec<Case> {
    let grids = ["pool 1", "pool 2", "pool 3"].into_iter().flat_map(|seed| [(seed, false), (seed, true)]);
    let covering = grids.flat_map(|(seed, backward)| grid(format!("{seed} {backward}"), backward));
    let edges =
        PoolOp::ALL.into_iter().flat_map(|op| [(op, false), (op, true)]).flat_map(|(op, backward)| {
            let content = Content::Numbers(Data::Uniform);
            edges().into_iter().map(move |shape| Pool { op, shape, dtype: DType::F32, content, backward })
        });
    covering.chain(edges).chain(large_windows()).chain(planes()).map(Pool::case).collect()
}

/// Planes that fall into several tiles, of which the last ones are narrower and lower.
fn planes() -> impl Iterator<Item = Pool> {
    let padded = |size, padding| Window::new(size).with_padding(padding);
    let shapes = [
        PoolShape::new(
            ImageShape::nchw([2, 3, 57, 101]),
            [29, 51],
            padded([3, 3], [1, 1]).with_stride([2, 2]),
        ),
        PoolShape::new(ImageShape::nchw([1, 2, 41, 70]), [41, 70], padded([3, 3], [1, 1])),
        PoolShape::new(
            ImageShape::nchw([1, 2, 37, 120]),
            [37, 112],
            padded([5, 5], [4, 2]).with_dilation([2, 3]),
        ),
        PoolShape::new(ImageShape::nchw([1, 2, 70, 66]), [18, 14], Window::new([2, 1]).with_stride([4, 5])),
    ];
    shapes.into_iter().flat_map(|shape| {
        [Content::Numbers(Data::Uniform), Content::Numbers(Data::Integers), Content::Specials]
            .into_iter()
            .flat_map(move |content| {
                let pool = |dtype| Pool { op: PoolOp::Max, shape, dtype, content, backward: true };
                [DType::F32, DType::F16].map(pool)
            })
    })
}

fn grid(seed: String, backward: bool) -> impl Iterator<Item = Pool> {
    let extents = [1, 2, 4, 5, 7, 9, 12];
    let sizes = [1, 2, 3, 4];
    let counts = [3, 2, 2, 2, 5, 7, 7, 4, 4, 3, 3, 2, 2, 2, 2, 2, 2, 2, 3];
    pairwise(&counts, &seed).into_iter().map(move |row| {
        let (size, dilation) = ([sizes[row[7]], sizes[row[8]]], [row[15] + 1, row[16] + 1]);
        let (before, after) = ([row[11], row[12]], [row[13], row[14]]);
        let stride = [row[9] + 1, row[10] + 1];
        let span = [0, 1].map(|axis| dilation[axis] * (size[axis] - 1) + 1);
        let input = [0, 1]
            .map(|axis| extents[row[5 + axis]].max(span[axis].saturating_sub(before[axis] + after[axis])));
        let window = Window::new(size)
            .with_stride(stride)
            .with_asymmetric_padding(before, after)
            .with_dilation(dilation);
        // With a last window that begins inside, where there is one.
        let output = [0, 1].map(|axis| {
            let left = input[axis] + before[axis] + after[axis] - span[axis];
            let (floor, ceil) = (left / stride[axis] + 1, left.div_ceil(stride[axis]) + 1);
            let inside = (ceil - 1) * stride[axis] < input[axis] + before[axis];
            if row[17] == 1 && inside { ceil } else { floor }
        });
        let op = PoolOp::ALL[row[0]];
        let content = match row[18] {
            0 => Content::Numbers(Data::Uniform),
            1 => Content::Numbers(Data::Integers),
            _ if op == PoolOp::Max => Content::Specials,
            _ => Content::Numbers(Data::Uniform),
        };
        let layout = [ImageLayout::Nchw, ImageLayout::Nhwc][row[2]];
        let input = ImageShape {
            batch: row[3] + 1,
            channels: [1, 2, 3, 4, 8][row[4]],
            height: input[0],
            width: input[1],
        };
        let shape = PoolShape::new(input, output, window).with_layout(layout);
        Pool { op, shape, dtype: [DType::F32, DType::F16][row[1]], content, backward }
    })
}

/// Nothing, windows in the padding alone, the whole image, and the shapes of real networks in small.
fn edges() -> Vec<PoolShape> {
    let padded = |size, padding| Window::new(size).with_padding(padding);
    vec![
        PoolShape::new(ImageShape::nchw([0, 3, 4, 4]), [2, 2], Window::new([2, 2]).with_stride([2, 2])),
        PoolShape::new(ImageShape::nchw([2, 0, 4, 4]), [2, 2], Window::new([2, 2]).with_stride([2, 2])),
        PoolShape::new(ImageShape::nchw([1, 2, 2, 3]), [7, 8], padded([2, 2], [3, 3])),
        PoolShape::new(ImageShape::nchw([1, 1, 0, 3]), [1, 2], padded([2, 2], [1, 0])),
        PoolShape::new(ImageShape::nchw([2, 3, 7, 5]), [1, 1], Window::new([7, 5])),
        PoolShape::new(
            ImageShape::nchw([1, 8, 28, 24]),
            [14, 12],
            padded([3, 3], [1, 1]).with_stride([2, 2]),
        ),
        PoolShape::new(ImageShape::nchw([1, 4, 1, 300]), [1, 100], Window::line(3).with_stride([1, 3])),
    ]
}

/// Windows of more than 65,535 positions, after which some drivers leave a loop, and gradients that look at
/// as many.
fn large_windows() -> impl Iterator<Item = Pool> {
    let forward = PoolShape::new(ImageShape::nchw([1, 2, 300, 300]), [1, 1], Window::new([300, 300]));
    let padded = Window::new([290, 280]).with_asymmetric_padding([3, 1], [0, 2]).with_stride([4, 9]);
    let padded = PoolShape::new(ImageShape::nchw([1, 1, 295, 286]), [3, 2], padded);
    let backward = PoolShape::new(ImageShape::nchw([1, 1, 36, 40]), [17, 21], Window::new([20, 20]));
    let shapes =
        [(forward, false), (padded, false), (padded.with_layout(ImageLayout::Nhwc), true), (backward, true)];
    PoolOp::ALL.into_iter().flat_map(move |op| {
        shapes.into_iter().flat_map(move |(shape, backward)| {
            let content = if backward { Content::Numbers(Data::Uniform) } else { Content::Ascending };
            [DType::F32, DType::F16].map(|dtype| Pool { op, shape, dtype, content, backward })
        })
    })
}

impl Pool {
    fn case(self) -> Case {
        let Self { op, shape, dtype, content, .. } = self;
        let PoolShape { batch: n, channels: c, input: [h, w], output: [p, q], window, layout, .. } = shape;
        let ([r, s], [sy, sx]) = (window.size, window.stride);
        let ([top, left], [bottom, right]) = (window.before, window.after);
        let [dy, dx] = window.dilation;
        let layout = super::flag(layout == ImageLayout::Nhwc, "nhwc", "nchw");
        let data = match content {
            Content::Numbers(data) => data.name(),
            Content::Specials => "specials",
            Content::Ascending => "ascending",
        };
        let name = format!(
            "{}_{dtype}_{layout}_n{n}_c{c}_{h}x{w}_{p}x{q}_{r}x{s}_stride{sy}-{sx}_pad{top}-{left}-{bottom}-{right}\
             _dil{dy}-{dx}_{data}",
            op.name()
        );
        Case::new(super::flag(self.backward, "pool2d_backward", "pool2d"), name, move |rng| self.trial(rng))
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let Self { op, shape, dtype, .. } = self;
        let [inputs, outputs] =
            [shape.input, shape.output].map(|extents| shape.batch * shape.channels * extents[0] * extents[1]);
        let input = match self.content {
            Content::Numbers(data) => data.values(rng, dtype, inputs),
            Content::Ascending => (0..inputs).map(|i| (i / 128) as f64).collect(),
            Content::Specials => {
                let all: Vec<f64> = specials(dtype).into_iter().filter(|x| is_plain(dtype, *x)).collect();
                (0..inputs)
                    .map(|_| if rng.one_in(3) { rng.pick(&all) } else { rng.below(3) as f64 })
                    .collect()
            }
        };
        let mut trial = Trial::new();
        if !self.backward {
            trial.input("input", dtype, &input);
            trial.output("output", dtype, forward(&shape, op, &input));
            return trial
                .calling(move |backend, p| backend.pool2d(&PoolDesc::new(op, dtype, p[0], p[1], shape)));
        }
        let gradient = Data::Uniform.values(rng, dtype, outputs);
        trial.input("input", dtype, &input);
        trial.input("grad_output", dtype, &gradient);
        trial.output("grad_input", dtype, backward(&shape, op, &input, &gradient));
        trial.calling(move |backend, p| {
            let pooling = PoolDesc::new(op, dtype, p[0], 0, shape);
            backend.pool2d_backward(&PoolBackwardDesc::of(&pooling, p[1], p[2]))
        })
    }
}

/// Whether a number compares the same on every device: subnormal ones may be taken for zero.
fn is_plain(dtype: DType, x: f64) -> bool {
    !crate::float::is_subnormal(dtype, x)
}
