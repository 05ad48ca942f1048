//! `batch_norm`: channels of every size, with and without weight and bias, of either type, in place.

use backend_api::desc::{BatchNormDesc, ChannelShape};

use super::channel_norm::ChannelNorm;
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
    norm: ChannelNorm,
    shape: [usize; 3],
}

pub(super) fn cases() -> Vec<Case> {
    let [types, eps, weight, bias, place] = ChannelNorm::GRID;
    let grid = pairwise(&[types, SHAPES.len(), eps, weight, bias, place], "batch_norm");
    let norm = |row: Vec<usize>| Norm {
        norm: ChannelNorm::drawn([row[0], row[2], row[3], row[4], row[5]]),
        shape: SHAPES[row[1]],
    };
    // An eps that is infinite as f32.
    let infinite = Norm { norm: norm(vec![0; 6]).norm.with_eps(1e39), shape: SHAPES[2] };
    grid.into_iter().map(norm).chain([infinite]).map(Norm::case).collect()
}

impl Norm {
    fn case(self) -> Case {
        let Self { norm, shape: [batch, channels, spatial] } = self;
        let (dtype, vectors, weights) = (norm.dtype, norm.name(), norm.weights());
        let name = format!("{dtype}_{batch}x{channels}x{spatial}_{vectors}{weights}");
        Case::new("batch_norm", name, move |rng| self.trial(rng))
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let Self { norm, shape: [batch, channels, spatial] } = self;
        let ChannelNorm { dtype, weight_dtype, eps, .. } = norm;
        let input = uniform(rng, dtype, batch * channels * spatial, -3.0, 3.0);
        let mean = uniform(rng, weight_dtype, channels, -1.0, 1.0);
        let variance = uniform(rng, weight_dtype, channels, 0.01, 4.0);
        let [weight, bias] = norm.vectors(rng, channels);
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
        trial.in_and_out(norm.in_place, dtype, input, wants);
        trial.calling(move |backend, p| {
            let shape = ChannelShape { batch, channels, spatial };
            let mut desc = BatchNormDesc::new(dtype, p[4], p[p.len() - 1], p[0], p[1], shape);
            (desc.eps, desc.weight_dtype) = (eps, weight_dtype);
            [desc.weight, desc.bias] = norm.handles([p[2], p[3]]);
            backend.batch_norm(&desc)
        })
    }
}
