//! `group_norm`: channels and groups of every size, with and without weight and bias, of either type, in
//! place.

use backend_api::DType;
use backend_api::desc::{ChannelShape, GroupNormDesc};

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
    dtype: DType,
    weight_dtype: DType,
    shape: [usize; 4],
    eps: f64,
    weight: bool,
    bias: bool,
    in_place: bool,
    /// Added to numbers in [−1, 1).
    offset: f64,
}

pub(super) fn cases() -> Vec<Case> {
    let grid = pairwise(&[3, SHAPES.len(), 2, 2, 2, 2, 2], "group_norm");
    grid.into_iter()
        .map(|row| {
            let norm = Norm {
                dtype: [DType::F32, DType::F16, DType::F16][row[0]],
                weight_dtype: [DType::F32, DType::F16, DType::F32][row[0]],
                shape: SHAPES[row[1]],
                eps: [1e-5, 0.1][row[2]],
                weight: row[3] == 1,
                bias: row[4] == 1,
                in_place: row[5] == 1,
                offset: [0.0, 30.0][row[6]],
            };
            norm.case()
        })
        .collect()
}

impl Norm {
    fn case(self) -> Case {
        let Self { dtype, weight_dtype, shape: [batch, channels, spatial, groups], eps, offset, .. } = self;
        let (w, b) = (super::flag(self.weight, "w", ""), super::flag(self.bias, "b", ""));
        let weights = super::flag(weight_dtype != dtype, "_weights_f32", "");
        let place = super::flag(self.in_place, "in_place", "apart");
        let name = format!(
            "{dtype}_{batch}x{channels}x{spatial}_groups{groups}_eps{eps}_with{w}{b}_{place}_offset{offset}{weights}"
        );
        Case::new("group_norm", name, move |rng| self.trial(rng))
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let Self { dtype, weight_dtype, shape: [batch, channels, spatial, groups], eps, offset, .. } = self;
        let input = uniform(rng, dtype, batch * channels * spatial, offset - 1.0, offset + 1.0);
        let mut vector = |on: bool| {
            if on { uniform(rng, weight_dtype, channels, -2.0, 2.0) } else { Vec::new() }
        };
        let (weight, bias) = (vector(self.weight), vector(self.bias));
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
        trial.in_and_out(self.in_place, dtype, input, wants);
        trial.calling(move |backend, p| {
            let (input, output) = (p[2], p[p.len() - 1]);
            let mut desc =
                GroupNormDesc::new(dtype, input, output, ChannelShape { batch, channels, spatial }, groups);
            (desc.eps, desc.weight_dtype) = (eps, weight_dtype);
            (desc.weight, desc.bias) = (self.weight.then_some(p[0]), self.bias.then_some(p[1]));
            backend.group_norm(&desc)
        })
    }
}
