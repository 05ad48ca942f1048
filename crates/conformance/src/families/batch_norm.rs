//! `batch_norm`: channels of every size, with and without weight and bias, of either type, in place.

use backend_api::DType;
use backend_api::desc::{BatchNormDesc, ChannelShape};

use crate::case::Case;
use crate::data::uniform;
use crate::grid::pairwise;
use crate::oracle::norm::batch_norm;
use crate::rng::Rng;
use crate::trial::Trial;

/// Batch, channels and spatial.
const SHAPES: [[usize; 3]; 9] = [
    [1, 1, 1],
    [3, 5, 1],
    [2, 3, 4],
    [2, 3, 49],
    [1, 64, 16],
    [5, 7, 257],
    [1, 2, 5000],
    [0, 3, 4],
    [2, 3, 0],
];

#[derive(Clone, Copy, Debug)]
struct Norm {
    dtype: DType,
    weight_dtype: DType,
    shape: [usize; 3],
    eps: f64,
    weight: bool,
    bias: bool,
    in_place: bool,
}

pub(super) fn cases() -> Vec<Case> {
    let grid = pairwise(&[3, SHAPES.len(), 2, 2, 2, 2], "batch_norm");
    let norm = |row: Vec<usize>| Norm {
        dtype: [DType::F32, DType::F16, DType::F16][row[0]],
        weight_dtype: [DType::F32, DType::F16, DType::F32][row[0]],
        shape: SHAPES[row[1]],
        eps: [1e-5, 0.1][row[2]],
        weight: row[3] == 1,
        bias: row[4] == 1,
        in_place: row[5] == 1,
    };
    grid.into_iter().map(|row| norm(row).case()).collect()
}

impl Norm {
    fn case(self) -> Case {
        let Self { dtype, weight_dtype, shape: [batch, channels, spatial], eps, .. } = self;
        let (w, b) = (super::flag(self.weight, "w", ""), super::flag(self.bias, "b", ""));
        let weights = super::flag(weight_dtype != dtype, "_weights_f32", "");
        let place = super::flag(self.in_place, "in_place", "apart");
        let name = format!("{dtype}_{batch}x{channels}x{spatial}_eps{eps}_with{w}{b}_{place}{weights}");
        Case::new("batch_norm", name, move |rng| self.trial(rng))
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let Self { dtype, weight_dtype, shape: [batch, channels, spatial], eps, .. } = self;
        let input = uniform(rng, dtype, batch * channels * spatial, -3.0, 3.0);
        let mean = uniform(rng, weight_dtype, channels, -1.0, 1.0);
        let variance = uniform(rng, weight_dtype, channels, 0.01, 4.0);
        let mut vector = |on: bool| {
            if on { uniform(rng, weight_dtype, channels, -2.0, 2.0) } else { Vec::new() }
        };
        let (weight, bias) = (vector(self.weight), vector(self.bias));
        let want = |(i, &x): (usize, &f64)| {
            let c = i / spatial % channels;
            let scale = |scales: &[f64], default: f64| scales.get(c).copied().unwrap_or(default);
            batch_norm(x, [mean[c], variance[c], scale(&weight, 1.0), scale(&bias, 0.0)], eps)
        };
        let wants = input.iter().enumerate().map(want).collect();
        let mut trial = Trial::new();
        for (arg, values) in [("mean", &mean), ("variance", &variance), ("weight", &weight), ("bias", &bias)]
        {
            trial.input(arg, weight_dtype, values);
        }
        trial.in_and_out(self.in_place, dtype, input, wants);
        trial.calling(move |backend, p| {
            let shape = ChannelShape { batch, channels, spatial };
            let mut desc = BatchNormDesc::new(dtype, p[4], p[p.len() - 1], p[0], p[1], shape);
            (desc.eps, desc.weight_dtype) = (eps, weight_dtype);
            (desc.weight, desc.bias) = (self.weight.then_some(p[2]), self.bias.then_some(p[3]));
            backend.batch_norm(&desc)
        })
    }
}
