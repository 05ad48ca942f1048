//! `conv2d_forward`: odd sizes, strides, paddings and filters that are not square.

use backend_api::DType;

use crate::case::Case;
use crate::data::Data;
use crate::grid::pairwise;
use crate::oracle::conv2d::Conv2d;
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
        let conv = Conv2d {
            input: [batches[row[0]], channels[row[1]], extent(row[2], 0), extent(row[3], 1)],
            filter: [channels[row[4]], channels[row[1]], filter[0], filter[1]],
            stride: [row[7] + 1, row[8] + 1],
            padding,
        };
        case(conv, DATA[row[11]])
    });
    let edges = edges().into_iter().map(|conv| case(conv, Data::Uniform));
    covering.chain(edges).collect()
}

/// Zero extents, a filter in the padding alone, and the shapes of real networks in small.
fn edges() -> Vec<Conv2d> {
    let plain = |input, filter, stride, padding| Conv2d {
        input,
        filter,
        stride: [stride, stride],
        padding: [padding, padding],
    };
    vec![
        plain([0, 3, 8, 8], [4, 3, 3, 3], 1, 1),
        plain([2, 3, 8, 8], [0, 3, 3, 3], 1, 1),
        plain([1, 0, 4, 5], [2, 0, 3, 3], 1, 1),
        plain([1, 2, 0, 4], [3, 2, 1, 1], 1, 1),
        plain([1, 1, 1, 1], [1, 1, 1, 1], 4, 3),
        plain([1, 3, 33, 31], [8, 3, 7, 7], 2, 3),
        plain([1, 64, 9, 9], [16, 64, 1, 1], 1, 0),
        plain([1, 32, 14, 14], [32, 32, 3, 3], 1, 1),
        plain([2, 3, 32, 32], [16, 3, 4, 4], 4, 0),
        plain([1, 1, 1, 300], [2, 1, 1, 9], 1, 0),
        plain([1, 1, 300, 1], [2, 1, 9, 1], 1, 0),
        plain([1, 129, 5, 5], [33, 129, 3, 3], 1, 1),
    ]
}

fn case(conv: Conv2d, data: Data) -> Case {
    let [n, c, h, w] = conv.input;
    let [k, _, r, s] = conv.filter;
    let ([sy, sx], [py, px]) = (conv.stride, conv.padding);
    let name = format!("n{n}_c{c}_{h}x{w}_k{k}_{r}x{s}_stride{sy}-{sx}_pad{py}-{px}_{}", data.name());
    Case::new("conv2d", name, move |rng| {
        let input = data.values(rng, DType::F32, conv.input.iter().product());
        let filter = data.values(rng, DType::F32, conv.filter.iter().product());
        let mut trial = Trial::new();
        trial.input("input", DType::F32, &input);
        trial.input("filter", DType::F32, &filter);
        trial.output("output", DType::F32, conv.wants(&input, &filter, data == Data::Integers));
        if data == Data::Uniform {
            trial.with_nmse();
        }
        trial.calling(move |backend, ptrs| {
            let (output, stride, padding) = (conv.output(), conv.stride, conv.padding);
            backend.conv2d_forward(
                ptrs[0],
                &conv.input,
                ptrs[1],
                &conv.filter,
                ptrs[2],
                &output,
                &stride,
                &padding,
            )
        })
    })
}
