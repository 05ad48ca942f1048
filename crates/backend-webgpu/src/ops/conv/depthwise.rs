//! Depthwise convolutions of adjacent channels, four of them at a time.

use backend_api::desc::ImageLayout;
use backend_api::support::{ConvGather, checked_product};
use backend_api::{Activation, BackendResult, DType};

use super::job::launch_unshared;
use super::params::Params;
use super::{Job, direct};
use crate::kernels::{Constant as _, KernelSource, Target, Values, Variant, constants, kernel};
use crate::ops::op_context::{OpContext, dim};
use crate::ops::shared::text::{lines, pairs};

constants! {
    struct Constants { rows: usize, columns: usize, side: usize, step: usize, activation: Activation }
}

pub(super) static DEPTHWISE: KernelSource = KernelSource {
    unrolled: Some(make),
    ..kernel!(
        "conv/depthwise", libs: [GRID, ACTIVATE],
        types: ["T"], constants: Constants, params: Params,
        reads: ["input4: vec4<T>", "filter4: vec4<T>", "bias: T"], writes: ["output4: vec4<T>"],
    )
};

/// Channels of an invocation.
const FOUR: usize = 4;

/// A filter's side and stride, with the rows and columns of results that an invocation makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    side: usize,
    stride: usize,
    results: [usize; 2],
}

impl Window {
    /// Of two for the same filters, the one with more results comes first.
    const ALL: [Self; 6] = [
        Self { side: 1, stride: 1, results: [4, 2] },
        Self { side: 3, stride: 1, results: [8, 2] },
        Self { side: 3, stride: 1, results: [2, 2] },
        Self { side: 3, stride: 2, results: [2, 4] },
        Self { side: 5, stride: 1, results: [2, 4] },
        Self { side: 5, stride: 2, results: [2, 2] },
    ];

    /// The window of a convolution, if there is one for it: the first that occupies the device, or the last.
    fn of(gather: &ConvGather, compute_units: usize) -> Option<Self> {
        let has = |window: &&Self| {
            gather.filter == [window.side; 2]
                && gather.axes.iter().zip(gather.result).all(|(axis, results)| {
                    // A single result needs no stride.
                    let moves = axis.stride == window.stride || results == 1;
                    moves && axis.dilation == 1 && !axis.transposed
                })
        };
        let mut all = Self::ALL.iter().filter(has).copied();
        let enough = direct::ENOUGH.saturating_mul(compute_units);
        let occupies = |window: &Self| window.invocations(gather) >= enough;
        all.clone().find(occupies).or_else(|| all.next_back())
    }

    /// Rows and columns of blocks of results.
    fn blocks(self, &ConvGather { result: [height, width], .. }: &ConvGather) -> [usize; 2] {
        [height.div_ceil(self.results[0]), width.div_ceil(self.results[1])]
    }

    fn invocations(self, gather: &ConvGather) -> usize {
        let [down, across] = self.blocks(gather);
        [down, across, gather.groups / FOUR].into_iter().fold(gather.batch, usize::saturating_mul)
    }

    fn variant(self, dtype: DType, activation: Activation) -> Variant {
        let Self { results: [rows, columns], side, stride: step } = self;
        Variant::new(&DEPTHWISE, [dtype], Constants { rows, columns, side, step, activation })
    }
}

/// The function `make`, which makes the results of an invocation: each element of the source is read once, and
/// multiplied for all the results that need it.
fn make(values: &Values, _: Target) -> String {
    let Constants { rows, columns, side, step, .. } = Constants::of(values);
    let taps = side * side;
    let read_weights = lines((0..taps).map(|i| format!("let q_{i} = weights(place, {i}u);")));
    let weight = |tap: usize| {
        let of = |channel: usize| {
            let i = channel * taps + tap;
            format!("q_{}.{}", i / FOUR, ["x", "y", "z", "w"][i % FOUR])
        };
        format!("let w_{tap} = vec4<f32>({});", (0..FOUR).map(of).collect::<Vec<_>>().join(", "))
    };
    let weights = lines((0..taps).map(weight));
    let sums = lines(pairs([rows, columns]).map(|(i, j)| format!("var sum_{i}_{j} = bias;")));
    // The results, along an axis, that have a position of the source under one of their taps, and which.
    let met = |at: usize, results: usize| {
        (0..results).filter_map(move |i| Some((i, at.checked_sub(i * step)?))).filter(|&(_, tap)| tap < side)
    };
    let source = [rows, columns].map(|results| (results - 1) * step + side);
    let row = |line: usize| {
        let begin = format!("let y_{line} = y + {line};\nlet row_{line} = row_start(place, y_{line});\n");
        let read = |column| format!("let v_{line}_{column} = at_column(row_{line}, y_{line}, x + {column});");
        let add = |column| {
            let each =
                met(line, rows).flat_map(move |(i, r)| met(column, columns).map(move |(j, s)| (i, j, r, s)));
            lines(each.map(|(i, j, r, s)| format!("sum_{i}_{j} += v_{line}_{column} * w_{};", r * side + s)))
        };
        begin + &lines((0..source[1]).map(read)) + &(0..source[1]).map(add).collect::<String>()
    };
    let products: String = (0..source[0]).map(row).collect();
    let results =
        lines(pairs([rows, columns]).map(|(i, j)| format!("write_out(place, {i}u, {j}u, sum_{i}_{j});")));
    format!(
        "fn make(place: Place) {{\nlet y = first_row(place);\nlet x = first_column(place);\n\
         let bias = bias_of(place);\n{read_weights}{weights}{sums}{products}{results}}}\n"
    )
}

pub(super) fn variants() -> Vec<Variant> {
    let types = [DType::F32, DType::F16].into_iter();
    let both = types.flat_map(|dtype| Window::ALL.map(|window| (window, dtype)));
    both.flat_map(|(window, dtype)| Activation::ALL.iter().map(move |&a| window.variant(dtype, a))).collect()
}

/// Whether the kernel can make a convolution: one filter for each channel, vec4s of adjacent ones at whole
/// vectors.
pub(super) fn is_possible(job: &Job) -> bool {
    let gather = &job.gather;
    let vec4s =
        [gather.groups, job.input.offset as usize, job.filter.offset as usize, job.output.offset as usize];
    gather.layout == ImageLayout::Nhwc
        && (gather.channels, gather.filters) == (1, 1)
        && gather.source.iter().all(|&extent| extent > 0)
        && vec4s.iter().all(|size| size.is_multiple_of(FOUR))
        && Window::of(gather, 1).is_some()
}

/// Makes a convolution for which this [is possible](is_possible).
pub(super) fn launch(ctx: &OpContext, op: &'static str, job: &Job) -> BackendResult<()> {
    let compute_units = ctx.profile().compute_units;
    let Some(window) = Window::of(&job.gather, compute_units) else { return direct::launch(ctx, op, job) };
    let [down, across] = window.blocks(&job.gather);
    let invocations =
        checked_product(op, "invocations", &[job.gather.batch, down, across, job.gather.groups / FOUR])?;
    let params = Params { tiles: dim(op, "invocations", invocations)?, ..Params::new(op, job)? };
    launch_unshared(ctx, op, job, &window.variant(job.dtype, job.activation), &params, invocations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::compose;

    #[test]
    fn every_result_meets_each_tap_once() {
        for window in Window::ALL {
            let Window { side, stride, results } = window;
            let target = Target { immediates: true, unroll: true };
            let text = compose(&window.variant(DType::F32, Activation::Identity), target);
            let mut found: Vec<&str> =
                text.lines().map(str::trim).filter(|line| line.contains(" += v_")).collect();
            let mut wanted = Vec::new();
            for ((i, j), (r, s)) in pairs(results).flat_map(|at| pairs([side; 2]).map(move |tap| (at, tap))) {
                let [line, column] = [i * stride + r, j * stride + s];
                wanted.push(format!("sum_{i}_{j} += v_{line}_{column} * w_{};", r * side + s));
            }
            found.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(found, wanted, "{window:?}");
            // Four filters follow each other, and are read by vec4s.
            let taps = side * side;
            for tap in 0..taps {
                let begin = format!("let w_{tap} = vec4<f32>(");
                let (_, weights) = text.split_once(&begin).unwrap();
                let weights = weights.split_once(')').unwrap().0.split(", ");
                let elements: Vec<usize> = weights
                    .map(|weight| {
                        let (four, element) = weight[2..].split_once('.').unwrap();
                        4 * four.parse::<usize>().unwrap() + "xyzw".find(element).unwrap()
                    })
                    .collect();
                assert_eq!(elements, [0, 1, 2, 3].map(|filter| filter * taps + tap), "{window:?}");
            }
        }
    }
}
