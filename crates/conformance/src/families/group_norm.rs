//! `group_norm`: channels and groups of every size, with and without weight and bias, of either type, in
//! place.

use backend_api::desc::{ChannelShape, GroupNormDesc};

use super::channel_norm::ChannelNorm;
use crate::case::Case;
use crate::data::uniform;
use crate::grid::pairwise;
use crate::oracle::norm::Row;
use crate::rng::Rng;
use crate::trial::Trial;

/// Batch, channels, spatial and groups.
pub(super) const SHAPES: [[usize; 4]; 12] = [
    [1, 1, 1, 1],
    [2, 6, 5, 3],
    [2, 6, 5, 1],
    [3, 4, 16, 4],
    [2, 8, 49, 2],
    [1, 32, 64, 8],
    [3, 12, 1, 4],
    [2, 4, 1030, 2],
    [1, 2, 8200, 1],
    [2, 2, 8201, 2],
    [0, 4, 5, 2],
    [2, 4, 0, 2],
];

#[derive(Clone, Copy, Debug)]
struct Norm {
    norm: ChannelNorm,
    shape: [usize; 4],
    /// Added to numbers in [−1, 1).
    offset: f64,
}

pub(super) fn cases() -> Vec<Case> {
    let [types, eps, weight, bias, place] = ChannelNorm::GRID;
    let grid = pairwise(&[types, SHAPES.len(), eps, weight, bias, place, 2], "group_norm");
    let norm = |row: Vec<usize>| Norm {
        norm: ChannelNorm::drawn([row[0], row[2], row[3], row[4], row[5]]),
        shape: SHAPES[row[1]],
        offset: [0.0, 30.0][row[6]],
    };
    let plain = norm(vec![0; 7]);
    // An eps that is infinite as f32.
    let infinite = Norm { norm: plain.norm.with_eps(1e39), shape: SHAPES[1], ..plain };
    grid.into_iter().map(norm).chain([infinite]).map(Norm::case).collect()
}

impl Norm {
    fn case(self) -> Case {
        let Self { norm, shape: [batch, channels, spatial, groups], offset } = self;
        let (dtype, vectors, weights) = (norm.dtype, norm.name(), norm.weights());
        let name =
            format!("{dtype}_{batch}x{channels}x{spatial}_groups{groups}_{vectors}_offset{offset}{weights}");
        Case::new("group_norm", name, move |rng| self.trial(rng))
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let Self { norm, shape: [batch, channels, spatial, groups], offset } = self;
        let ChannelNorm { dtype, weight_dtype, eps, .. } = norm;
        let input = uniform(rng, dtype, batch * channels * spatial, offset - 1.0, offset + 1.0);
        let [weight, bias] = norm.vectors(rng, channels);
        let each = channels / groups;
        let columns = each * spatial;
        let wants = input.chunks(columns.max(1)).enumerate().flat_map(|(row, input)| {
            let first = row % groups * each;
            let spread = |scales: &[f64]| -> Vec<f64> {
                let own = scales.get(first..first + each).unwrap_or(&[]);
                own.iter().flat_map(|&scale| vec![scale; spatial]).collect()
            };
            let (weight, bias) = (spread(&weight), spread(&bias));
            Row { input, residual: &[], weight: &weight, bias: &bias, eps }.layer_norm()
        });
        let wants: Vec<_> = wants.collect();
        let mut trial = Trial::new();
        trial.input("weight", weight_dtype, &weight);
        trial.input("bias", weight_dtype, &bias);
        trial.in_and_out(norm.in_place, dtype, input, wants);
        trial.calling(move |backend, p| {
            let (input, output) = (p[2], p[p.len() - 1]);
            let mut desc =
                GroupNormDesc::new(dtype, input, output, ChannelShape { batch, channels, spatial }, groups);
            (desc.eps, desc.weight_dtype) = (eps, weight_dtype);
            [desc.weight, desc.bias] = norm.handles([p[0], p[1]]);
            backend.group_norm(&desc)
        })
    }
}
