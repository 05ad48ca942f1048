//! `conv2d_forward`: odd sizes, strides, paddings and filters that are not square.

use backend_api::DType;
use backend_api::desc::{ConvShape, ImageShape, Window};

use crate::case::Case;
use crate::data::Data;
use crate::grid::pairwise;
use crate::oracle::conv::{Finish, Sum, elements, output, wants};
use crate::trial::Trial;

const DATA: [Data; 3] = [Data::Uniform, Data::Integers, Data::Cancelling];

pub(super) fn cases() -> Vec<Case> {
    let batches = [1, 2, 3];
    let channels = [1, 2, 3, 4, 5, 16];
    let extents = [1, 2, 5, 7, 8, 13, 16, 17];
    let filters = [1, 2, 3, 5, 7];
    let counts = [3, 6, 8, 8, 6, 5, 5, 3, 3, 4, 4, 3];
    let grids = ["conv 1", "conv 2", "conv 3", "conv 4"].map(|seed| pairwise(&counts, seed));
    let covering = grids.into_iter().flatten().map(|row| {
        let (filter, padding) = ([filters[row[5]], filters[row[6]]], [row[9], row[10]]);
        // An input that the filter doesn't fit into is made larger.
        let extent =
            |at: usize, axis: usize| extents[at].max(filter[axis] - filter[axis].min(2 * padding[axis]));
        let window = Window::new(filter).with_stride([row[7] + 1, row[8] + 1]).with_padding(padding);
        let input = ImageShape {
            batch: batches[row[0]],
            channels: channels[row[1]],
            height: extent(row[2], 0),
            width: extent(row[3], 1),
        };
        case(ConvShape::new(input, channels[row[4]], window), DATA[row[11]])
    });
    let edges = edges().into_iter().map(|shape| case(shape, Data::Uniform));
    covering.chain(edges).collect()
}

/// Zero extents, a filter in the padding alone, and the shapes of real networks in small.
fn edges() -> Vec<ConvShape> {
    let plain = |input, filters, size, stride: usize, padding: usize| {
        let window = Window::new(size).with_stride([stride; 2]).with_padding([padding; 2]);
        ConvShape::new(ImageShape::nchw(input), filters, window)
    };
    vec![
        plain([0, 3, 8, 8], 4, [3, 3], 1, 1),
        plain([2, 3, 8, 8], 0, [3, 3], 1, 1),
        plain([1, 0, 4, 5], 2, [3, 3], 1, 1),
        plain([1, 2, 0, 4], 3, [1, 1], 1, 1),
        plain([1, 1, 1, 1], 1, [1, 1], 4, 3),
        plain([1, 3, 33, 31], 8, [7, 7], 2, 3),
        plain([1, 64, 9, 9], 16, [1, 1], 1, 0),
        plain([1, 32, 14, 14], 32, [3, 3], 1, 1),
        plain([2, 3, 32, 32], 16, [4, 4], 4, 0),
        plain([1, 1, 1, 300], 2, [1, 9], 1, 0),
        plain([1, 1, 300, 1], 2, [9, 1], 1, 0),
        plain([1, 129, 5, 5], 33, [3, 3], 1, 1),
    ]
}

fn case(shape: ConvShape, data: Data) -> Case {
    let ConvShape { batch: n, channels: c, input: [h, w], filters: k, window, .. } = shape;
    let ([r, s], [sy, sx], [py, px]) = (window.size, window.stride, window.before);
    let name = format!("n{n}_c{c}_{h}x{w}_k{k}_{r}x{s}_stride{sy}-{sx}_pad{py}-{px}_{}", data.name());
    Case::new("conv2d_forward", name, move |rng| {
        let [inputs, filters, _] = elements(&shape);
        let input = data.values(rng, DType::F32, inputs);
        let filter = data.values(rng, DType::F32, filters);
        let finish = Finish::plain(data == Data::Integers);
        let mut trial = Trial::new();
        trial.input("input", DType::F32, &input);
        trial.input("filter", DType::F32, &filter);
        trial.output("output", DType::F32, wants(&shape, Sum::Output, [&input, &filter], finish));
        if data == Data::Uniform {
            trial.with_nmse();
        }
        trial.calling(move |backend, ptrs| {
            let [p, q] = output(&shape);
            backend.conv2d_forward(
                ptrs[0],
                &[n, c, h, w],
                ptrs[1],
                &[k, c, r, s],
                ptrs[2],
                &[n, k, p, q],
                &window.stride,
                &window.before,
            )
        })
    })
}
