//! Gradients of softmax and of the normalisations of rows.

use backend_api::DType;
use backend_api::desc::{NormBackwardDesc, NormBackwardWeightDesc, SoftmaxBackwardDesc, SoftmaxDesc};

use super::layout::shape_name;
use crate::case::Case;
use crate::data::uniform;
use crate::float::round_to;
use crate::grid::pairwise;
use crate::oracle::norm::{Row, weight_wants};
use crate::oracle::reduce::slice;
use crate::oracle::softmax::backward;
use crate::rng::Rng;
use crate::trial::Trial;
use crate::want::Want;

const SHAPES: [(&[usize], usize); 12] = [
    (&[1], 0),
    (&[5, 0], 1),
    (&[0, 5], 1),
    (&[7, 13], 1),
    (&[7, 13], 0),
    (&[33, 64], 1),
    (&[3, 257], 1),
    (&[300, 8], 0),
    (&[2, 3, 5], 1),
    (&[600, 4], 1),
    (&[2, 5000], 1),
    (&[2, 1000, 3], 1),
];

const COLUMNS: [usize; 10] = [1, 2, 5, 32, 100, 257, 384, 1024, 1025, 4100];
const ROWS: [usize; 4] = [1, 3, 17, 70];

pub(super) fn cases() -> Vec<Case> {
    let softmax = pairwise(&[2, SHAPES.len(), 2, 2], "softmax_backward").into_iter().map(|row| {
        let (dtype, (shape, axis)) = ([DType::F32, DType::F16][row[0]], SHAPES[row[1]]);
        softmax(dtype, shape, axis, row[2] == 1, row[3] == 1)
    });
    let seeds = ["norm_backward 1", "norm_backward 2"];
    let grid = seeds.into_iter().flat_map(|seed| pairwise(&[2, 4, COLUMNS.len(), 2, 2, 2, 2], seed));
    let norms = grid.flat_map(|row| {
        let norm = Norm {
            dtype: [DType::F32, DType::F16][row[0]],
            rows: ROWS[row[1]],
            columns: COLUMNS[row[2]],
            centred: row[3] == 1,
            weight: row[4] == 1,
            in_place: row[5] == 1,
            offset: [0.0, 4.0][row[6]],
        };
        [norm.case("norm_backward", Norm::input), norm.case("norm_backward_weight", Norm::weight)]
    });
    let edges = [(0, 5), (5, 0)].into_iter().flat_map(|(rows, columns)| {
        let (dtype, offset) = (DType::F32, 0.0);
        let norm = Norm { dtype, rows, columns, centred: true, weight: true, in_place: false, offset };
        [norm.case("norm_backward", Norm::input), norm.case("norm_backward_weight", Norm::weight)]
    });
    softmax.chain(norms).chain(edges).collect()
}

fn softmax(dtype: DType, shape: &'static [usize], axis: usize, log: bool, in_place: bool) -> Case {
    let (log_name, place) = (super::flag(log, "log", "plain"), super::flag(in_place, "in_place", "apart"));
    let name = format!("{dtype}_{}_axis{axis}_{log_name}_{place}", shape_name(shape));
    Case::new("softmax_backward", name, move |rng| {
        let n: usize = shape.iter().product();
        let (length, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
        let probability = |rng: &mut Rng| {
            let p = rng.uniform(0.001, 2.0) / length.max(1) as f64;
            round_to(dtype, if log { p.ln() } else { p })
        };
        let y: Vec<f64> = (0..n).map(|_| probability(rng)).collect();
        let g = uniform(rng, dtype, n, -1.0, 1.0);
        let mut wants = vec![Want::number(0.0); n];
        for at in 0..n / length.max(1) {
            let (o, i) = (at / inner, at % inner);
            let [y, g] = [&y, &g].map(|values| slice(values, [o, i], length, inner));
            for (k, want) in backward(&y, &g, log).into_iter().enumerate() {
                wants[(o * length + k) * inner + i] = want;
            }
        }
        let mut trial = Trial::new();
        trial.input("y", dtype, &y);
        outcome(&mut trial, dtype, in_place, g, wants);
        trial.calling(move |backend, p| {
            let forward = SoftmaxDesc::along(dtype, 0, p[0], shape, axis)?;
            let forward = if log { forward.with_log() } else { forward };
            backend.softmax_backward(&SoftmaxBackwardDesc::of(&forward, p[1], p[p.len() - 1]))
        })
    })
}

/// The gradient of the output, and that of the input in its place or apart.
fn outcome(trial: &mut Trial, dtype: DType, in_place: bool, gradient: Vec<f64>, wants: Vec<Want>) {
    if in_place {
        trial.in_place("gradient", dtype, gradient, wants);
    } else {
        trial.input("grad_output", dtype, &gradient);
        trial.output("grad_input", dtype, wants);
    }
}

#[derive(Clone, Copy, Debug)]
struct Norm {
    dtype: DType,
    rows: usize,
    columns: usize,
    centred: bool,
    weight: bool,
    in_place: bool,
    /// Added to numbers in [−1, 1).
    offset: f64,
}

impl Norm {
    fn case(self, family: &'static str, trial: fn(Self, &mut Rng) -> Trial) -> Case {
        let Self { dtype, rows, columns, offset, .. } = self;
        let kind = super::flag(self.centred, "layer", "rms");
        let weight = super::flag(self.weight, "weighted", "plain");
        let place = super::flag(self.in_place, "in_place", "apart");
        let name = format!("{dtype}_{kind}_{rows}x{columns}_{weight}_{place}_offset{offset}");
        Case::new(family, name, move |rng| trial(self, rng))
    }

    fn desc(self, [x, grad_output, grad_input]: [u64; 3], weight: u64) -> NormBackwardDesc {
        let Self { dtype, rows, columns, .. } = self;
        let new = if self.centred { NormBackwardDesc::layer_norm } else { NormBackwardDesc::rms_norm };
        let mut desc = new(dtype, x, grad_output, grad_input, rows, columns);
        (desc.eps, desc.weight) = (1e-5, self.weight.then_some(weight));
        desc
    }

    fn operands(self, rng: &mut Rng) -> [Vec<f64>; 3] {
        let (dtype, n) = (self.dtype, self.rows * self.columns);
        let x = uniform(rng, dtype, n, self.offset - 1.0, self.offset + 1.0);
        let gradient = uniform(rng, dtype, n, -1.0, 1.0);
        let weight = if self.weight { uniform(rng, dtype, self.columns, -2.0, 2.0) } else { Vec::new() };
        [x, gradient, weight]
    }

    fn row<'a>(self, x: &'a [f64], weight: &'a [f64], row: usize) -> Row<'a> {
        Row { input: &x[row * self.columns..][..self.columns], residual: &[], weight, bias: &[], eps: 1e-5 }
    }

    fn input(self, rng: &mut Rng) -> Trial {
        let [x, gradient, weight] = self.operands(rng);
        let wants = (0..self.rows).flat_map(|row| {
            let gradient = &gradient[row * self.columns..][..self.columns];
            self.row(&x, &weight, row).backward(gradient, self.centred)
        });
        let wants = wants.collect();
        let mut trial = Trial::new();
        trial.input("x", self.dtype, &x);
        trial.input("weight", self.dtype, &weight);
        outcome(&mut trial, self.dtype, self.in_place, gradient, wants);
        trial.calling(move |backend, p| backend.norm_backward(&self.desc([p[0], p[2], p[p.len() - 1]], p[1])))
    }

    /// A sum over the rows of what each adds.
    fn weight(self, rng: &mut Rng) -> Trial {
        let [x, gradient, _] = self.operands(rng);
        let rows = (0..self.rows).map(|row| {
            let gradient = &gradient[row * self.columns..][..self.columns];
            self.row(&x, &[], row).weight_gradient(gradient, self.centred)
        });
        let wants = weight_wants(rows, self.columns);
        let mut trial = Trial::new();
        trial.input("x", self.dtype, &x);
        trial.input("grad_output", self.dtype, &gradient);
        trial.output("grad_weight", self.dtype, wants);
        trial.calling(move |backend, p| {
            let desc = self.desc([p[0], p[1], 0], 0);
            backend.norm_backward_weight(&NormBackwardWeightDesc::of(&desc, p[2]))
        })
    }
}
