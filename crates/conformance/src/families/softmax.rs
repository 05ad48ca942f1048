//! `softmax`: along every axis, with masked, huge and infinite inputs, and its logarithm.

use backend_api::DType;
use backend_api::desc::SoftmaxDesc;

use super::layout::shape_name;
use crate::case::Case;
use crate::float::round_to;
use crate::oracle::reduce::slice;
use crate::oracle::softmax::{log_softmax, softmax};
use crate::rng::Rng;
use crate::trial::Trial;
use crate::want::Want;

const SHAPES: [&[usize]; 33] = [
    &[1],
    &[2],
    &[3],
    &[255],
    &[257],
    &[4097],
    &[5, 0],
    &[0, 5],
    &[7, 13],
    &[33, 64],
    &[3, 1000],
    &[2, 3, 5],
    &[9, 65, 3],
    &[2, 3, 4, 5],
    &[1, 30_000],
    &[1, 33_000],
    &[30_000, 1],
    &[70_000, 2],
    &[5, 32],
    &[3, 4096],
    &[2, 8200],
    &[600, 8],
    &[2, 300, 4],
    &[17, 777],
    &[3, 16_501],
    &[3, 24_601],
    &[2, 49_175],
    &[2, 33_004],
    &[2, 12_001],
    &[2, 28_004],
    &[1, 50_004],
    &[1, 82_004],
    &[1, 65_601],
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Uniform in [−4, 4).
    Ordinary,
    /// Differences that underflow.
    Wide,
    /// ±1e4 and, in f32, ±1e30.
    Huge,
    /// Some −∞, some slices all −∞, as masks make them.
    Masked,
    /// Some slices with NaN or +∞.
    Poisoned,
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        for shape in SHAPES {
            for axis in 0..shape.len() {
                cases.extend([false, true].map(|log| case(dtype, shape, axis, Kind::Ordinary, false, log)));
            }
        }
        for shape in [
            &[9, 33],
            &[64, 257],
            &[3, 1030],
            &[300, 8],
            &[2, 8200],
            &[3, 16_501],
            &[1, 33_000],
            &[3, 33_001],
        ] {
            for (axis, in_place) in [(0, false), (1, false), (1, true)] {
                for kind in [Kind::Ordinary, Kind::Wide, Kind::Huge, Kind::Masked, Kind::Poisoned] {
                    cases.extend([false, true].map(|log| case(dtype, shape, axis, kind, in_place, log)));
                }
            }
        }
    }
    cases
}

fn case(dtype: DType, shape: &'static [usize], axis: usize, kind: Kind, in_place: bool, log: bool) -> Case {
    let kind_name = format!("{kind:?}").to_lowercase();
    let place = super::flag(in_place, "in_place", "apart");
    let name = format!("{dtype}_{}_axis{axis}_{kind_name}_{place}", shape_name(shape));
    let family = super::flag(log, "log_softmax", "softmax");
    Case::new(family, name, move |rng| {
        let outer: usize = shape[..axis].iter().product();
        let inner: usize = shape[axis + 1..].iter().product();
        let length = shape[axis];
        let input = values(rng, dtype, kind, [outer, length, inner]);
        let mut wants = vec![Want::number(0.0); input.len()];
        for at in 0..outer * inner {
            let (o, i) = (at / inner, at % inner);
            let slice = slice(&input, [o, i], length, inner);
            let results = if log { log_softmax(&slice) } else { softmax(&slice) };
            for (j, want) in results.into_iter().enumerate() {
                wants[(o * length + j) * inner + i] = want;
            }
        }
        let mut trial = Trial::new();
        trial.in_and_out(in_place, dtype, input, wants);
        trial.calling(move |backend, p| {
            let output = p[p.len() - 1];
            let desc = SoftmaxDesc::along(dtype, p[0], output, shape, axis)?;
            backend.softmax(&if log { desc.with_log() } else { desc })
        })
    })
}

fn values(rng: &mut Rng, dtype: DType, kind: Kind, [outer, length, inner]: [usize; 3]) -> Vec<f64> {
    let slices: Vec<bool> = (0..outer * inner).map(|_| rng.one_in(4)).collect();
    let mut value = |i: usize| {
        let marked = slices[i / inner / length * inner + i % inner];
        match kind {
            Kind::Ordinary => rng.uniform(-4.0, 4.0),
            Kind::Wide => rng.uniform(-120.0, 120.0),
            Kind::Huge if dtype == DType::F32 => rng.pick(&[1e30, -1e30, 1e4, -1e4, 0.0]),
            Kind::Huge => rng.pick(&[6e4, -6e4, 1e4, -1e4, 0.0]),
            Kind::Masked if marked || rng.one_in(3) => f64::NEG_INFINITY,
            Kind::Poisoned if marked && rng.one_in(5) => rng.pick(&[f64::NAN, f64::INFINITY]),
            Kind::Masked | Kind::Poisoned => rng.uniform(-4.0, 4.0),
        }
    };
    (0..outer * length * inner).map(|i| round_to(dtype, value(i))).collect()
}
