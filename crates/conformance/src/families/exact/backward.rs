//! Gradients of softmax and of the normalisations of rows, for rows of ±1 and gradients of ±1 and 1.

use backend_api::DType;
use backend_api::desc::{NormBackwardDesc, NormBackwardWeightDesc, SoftmaxBackwardDesc, SoftmaxDesc};

use super::{Exact, Model, Recipe, along, balanced};
use crate::families::{flag, layout::shape_name};
use crate::oracle::norm::{Row, weight_wants};
use crate::oracle::softmax::backward;
use crate::rng::Rng;
use crate::trial::Trial;
use crate::want::Want;

const LENGTHS: [usize; 16] =
    [1, 2, 3, 5, 13, 64, 257, 300, 600, 1000, 1024, 4097, 5000, 8200, 33_000, 65_537];
const COLUMNS: [usize; 14] = [1, 2, 5, 32, 100, 257, 384, 1024, 1025, 4096, 4100, 8200, 16_385, 32_772];
/// Rows that a weight's gradient sums over, in one run, several, and several parts.
const ROWS: [usize; 9] = [1, 2, 3, 17, 32, 33, 70, 1025, 2049];

const EPS: f64 = 0.1;

pub(super) fn recipes() -> Vec<Recipe> {
    let mut recipes = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        for log in [false, true] {
            let columns = [7, 300, 4100].map(|length| [2, length, 3]);
            let shapes = LENGTHS.into_iter().map(|length| [2, length, 1]).chain(columns);
            recipes.extend(shapes.map(|shape| softmax(dtype, shape, log)));
        }
        for centred in [true, false] {
            // Longer sums of so many different weights wouldn't be exact in f16, nor does a result of f16
            // show one square of thousands.
            let most = if centred { 1025 } else { 8200 };
            let fits = |columns: &usize| dtype == DType::F32 || *columns <= most;
            recipes.extend(COLUMNS.into_iter().filter(fits).map(|columns| norm(dtype, columns, centred)));
            recipes.extend(ROWS.map(|rows| norm_weight(dtype, rows, centred)));
        }
    }
    recipes
}

/// y·(g − Σ g·y) for y of 1, or g − exp(y)·Σ g for y of 0: all is whole.
fn softmax(dtype: DType, shape: [usize; 3], log: bool) -> Recipe {
    let name = format!("{dtype}_{}_{}", shape_name(&shape), flag(log, "log", "plain"));
    Recipe::new("softmax_backward", name, move |rng| {
        let [outer, length, inner] = shape;
        let y = if log { 0.0 } else { 1.0 };
        let slices: Vec<Vec<f64>> = (0..outer * inner).map(|_| balanced(rng, length)).collect();
        let gradient = along(shape, |s| slices[s].clone(), 0.0);
        let wants = along(shape, |s| backward(&vec![y; length], &slices[s], log), Want::number(0.0));
        let mut trial = Trial::new();
        trial.input("y", dtype, &vec![y; gradient.len()]);
        trial.input("grad_output", dtype, &gradient);
        trial.output("grad_input", dtype, wants);
        let trial = trial.calling(move |backend, p| {
            let forward = SoftmaxDesc::along(dtype, 0, p[0], &shape, 1)?;
            let forward = if log { forward.with_log() } else { forward };
            backend.softmax_backward(&SoftmaxBackwardDesc::of(&forward, p[1], p[2]))
        });
        let model: Model = Box::new(move |times| {
            let result = |s: usize| {
                let sum: f64 = slices[s].iter().enumerate().map(|(i, g)| times(i) * g).sum();
                slices[s].iter().map(|g| g - sum).collect()
            };
            along(shape, result, 0.0)
        });
        Exact { trial, length, models: vec![model] }
    })
}

/// Rows of ±1, their gradients and, for the gradient of the rows, weights.
#[derive(Clone)]
struct Operands {
    x: Vec<f64>,
    gradient: Vec<f64>,
    weight: Vec<f64>,
    rows: usize,
    columns: usize,
    centred: bool,
}

impl Operands {
    /// All gradients are 1, so that each one counts alike in their sums; the weights, from 1 to 1.25, spread
    /// the results.
    fn new(rng: &mut Rng, dtype: DType, [rows, columns]: [usize; 2], centred: bool) -> Self {
        let x = (0..rows).flat_map(|_| balanced(rng, columns)).collect();
        let gradient = vec![1.0; rows * columns];
        let steps = if dtype == DType::F16 { 256 } else { 16 };
        let mut weight: Vec<f64> =
            (0..columns).map(|_| 1.0 + rng.below(steps) as f64 / (4 * steps) as f64).collect();
        // Not all are the same: the gradient of a row would be 0, whatever its moments. In f32 one is large,
        // so that its result shows what is missing in the moments of long rows.
        if let Some(last) = weight.last_mut() {
            *last = if dtype == DType::F16 { 1.25 } else { 64.0 };
        }
        Self { x, gradient, weight, rows, columns, centred }
    }

    fn desc(&self, dtype: DType, [x, dy, dx]: [u64; 3]) -> NormBackwardDesc {
        let new = if self.centred { NormBackwardDesc::layer_norm } else { NormBackwardDesc::rms_norm };
        let mut desc = new(dtype, x, dy, dx, self.rows, self.columns);
        desc.eps = EPS;
        desc
    }

    fn row(&self, row: usize) -> [&[f64]; 2] {
        [&self.x, &self.gradient].map(|values| &values[row * self.columns..][..self.columns])
    }

    /// The mean and the factor of a row, of which a kernel takes elements `often` times.
    fn moments(&self, row: usize, often: &dyn Fn(Fault, usize) -> f64) -> [f64; 2] {
        let ([x, _], n) = (self.row(row), self.columns as f64);
        let sum: f64 = (0..self.columns).map(|i| often(Fault::Mean, i) * x[i]).sum();
        let mean = if self.centred { sum / n } else { 0.0 };
        let squares: f64 = (0..self.columns).map(|i| often(Fault::Squares, i) * (x[i] - mean).powi(2)).sum();
        [mean, 1.0 / (squares / n + EPS).sqrt()]
    }
}

/// The sums that a kernel may get wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Mean,
    Squares,
    Gradients,
    Products,
}

fn norm(dtype: DType, columns: usize, centred: bool) -> Recipe {
    let rows = 2;
    let name = format!("{dtype}_{}_{rows}x{columns}", flag(centred, "layer", "rms"));
    Recipe::new("norm_backward", name, move |rng| {
        let operands = Operands::new(rng, dtype, [rows, columns], centred);
        let wants = (0..rows).flat_map(|row| {
            let [input, gradient] = operands.row(row);
            let row = Row { input, residual: &[], weight: &operands.weight, bias: &[], eps: EPS };
            row.backward(gradient, centred)
        });
        let mut trial = Trial::new();
        trial.input("x", dtype, &operands.x);
        trial.input("weight", dtype, &operands.weight);
        trial.input("grad_output", dtype, &operands.gradient);
        trial.output("grad_input", dtype, wants.collect());
        let called = operands.clone();
        let trial = trial.calling(move |backend, p| {
            let mut desc = called.desc(dtype, [p[0], p[2], p[3]]);
            desc.weight = Some(p[1]);
            backend.norm_backward(&desc)
        });
        let faults: &[Fault] = match (centred, columns) {
            // The deviation of a row of one number is 0, and so is its gradient.
            (true, 1) => &[Fault::Gradients],
            (true, _) => &[Fault::Mean, Fault::Squares, Fault::Gradients, Fault::Products],
            (false, _) => &[Fault::Squares, Fault::Products],
        };
        let models = faults.iter().map(|&fault| norm_model(operands.clone(), fault)).collect();
        Exact { trial, length: columns, models }
    })
}

fn norm_model(operands: Operands, fault: Fault) -> Model {
    Box::new(move |times| {
        let often = |of: Fault, i: usize| if of == fault { times(i) } else { 1.0 };
        let n = operands.columns as f64;
        let result = |row: usize| {
            let [mean, s] = operands.moments(row, &often);
            let [x, gradient] = operands.row(row);
            let g: Vec<f64> = gradient.iter().zip(&operands.weight).map(|(g, weight)| g * weight).collect();
            let v: Vec<f64> = x.iter().map(|x| (x - mean) * s).collect();
            let gradients: f64 = (0..g.len()).map(|i| often(Fault::Gradients, i) * g[i]).sum();
            let shift = if operands.centred { gradients / n } else { 0.0 };
            let product = (0..g.len()).map(|i| often(Fault::Products, i) * g[i] * v[i]).sum::<f64>() / n;
            g.into_iter().zip(v).map(|(g, v)| s * (g - shift - v * product)).collect::<Vec<f64>>()
        };
        (0..operands.rows).flat_map(result).collect()
    })
}

/// The sum over the rows; their moments are those of [`norm`].
fn norm_weight(dtype: DType, rows: usize, centred: bool) -> Recipe {
    let columns = 6;
    let name = format!("{dtype}_{}_{rows}x{columns}", flag(centred, "layer", "rms"));
    Recipe::new("norm_backward_weight", name, move |rng| {
        let operands = Operands::new(rng, dtype, [rows, columns], centred);
        let row = |row: usize| {
            let [input, gradient] = operands.row(row);
            Row { input, residual: &[], weight: &[], bias: &[], eps: EPS }.weight_gradient(gradient, centred)
        };
        let mut trial = Trial::new();
        trial.input("x", dtype, &operands.x);
        trial.input("grad_output", dtype, &operands.gradient);
        trial.output("grad_weight", dtype, weight_wants((0..rows).map(row), columns));
        let called = operands.clone();
        let trial = trial.calling(move |backend, p| {
            let desc = called.desc(dtype, [p[0], p[1], 0]);
            backend.norm_backward_weight(&NormBackwardWeightDesc::of(&desc, p[2]))
        });
        let model: Model = Box::new(move |times| {
            let mut sums = vec![0.0; columns];
            for row in 0..rows {
                let [mean, s] = operands.moments(row, &|_, _| 1.0);
                let [x, gradient] = operands.row(row);
                for (sum, (x, g)) in sums.iter_mut().zip(x.iter().zip(gradient)) {
                    *sum += times(row) * g * (x - mean) * s;
                }
            }
            sums
        });
        Exact { trial, length: rows, models: vec![model] }
    })
}
