//! Normalisations of rows of ±1: their sums and sums of squares are whole numbers.
//!
//! The factor 1/√(1 + eps) and random weights spread the results, so that among many of f16 some lie beside a
//! midpoint.

use backend_api::DType;
use backend_api::desc::{ChannelShape, GroupNormDesc, LayerNormDesc, RmsNormDesc};

use super::{Exact, Model, Recipe, balanced};
use crate::data::uniform;
use crate::families::{flag, group_norm};
use crate::oracle::norm::Row;
use crate::rng::Rng;
use crate::trial::Trial;

/// The lengths of the family's other cases, and those around which its kernels change.
const COLUMNS: [usize; 28] = [
    1, 2, 3, 5, 8, 31, 32, 63, 64, 100, 255, 256, 257, 384, 768, 1024, 1025, 4096, 4097, 8191, 8192, 8193,
    8196, 8201, 16_384, 32_768, 32_772, 65_537,
];

/// Batch, channels, spatial and groups, beside the shapes of the family's other cases: some with parts of a row.
const LONG_GROUPS: [[usize; 4]; 4] =
    [[1, 2, 16_400, 1], [1, 3, 16_401, 1], [1, 128, 128, 1], [2, 129, 65, 1]];

const EPS: f64 = 0.1;
const ROWS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Layer,
    Rms,
    Group([usize; 4]),
}

pub(super) fn recipes() -> Vec<Recipe> {
    let mut recipes = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        for (i, columns) in COLUMNS.into_iter().enumerate() {
            recipes.push(recipe(dtype, Kind::Layer, [ROWS, columns], i % 2 == 1));
            recipes.push(recipe(dtype, Kind::Rms, [ROWS, columns], i % 2 == 0));
        }
        let several = |shape: &[usize; 4]| shape.iter().product::<usize>() > 1;
        for shape in group_norm::SHAPES.into_iter().filter(several).chain(LONG_GROUPS) {
            let [batch, channels, spatial, groups] = shape;
            // Few weights make few different results, among which f16 wouldn't tell long sums apart.
            if dtype == DType::F32 || channels * 8 >= spatial {
                let rows = [batch * groups, channels / groups * spatial];
                recipes.push(recipe(dtype, Kind::Group(shape), rows, false));
            }
        }
    }
    recipes.extend([4096, 8200, 32_772].map(|columns| recipe(DType::F32, Kind::Layer, [1, columns], false)));
    recipes
}

/// The operands of a normalisation.
#[derive(Clone)]
struct Operands {
    /// Input and residual.
    x: Vec<f64>,
    input: Vec<f64>,
    residual: Vec<f64>,
    /// For each column, or for each channel of a group norm.
    weight: Vec<f64>,
    bias: Vec<f64>,
}

impl Operands {
    fn new(rng: &mut Rng, dtype: DType, kind: Kind, [rows, columns]: [usize; 2], residual: bool) -> Self {
        let x: Vec<f64> = (0..rows).flat_map(|_| balanced(rng, columns)).collect();
        let residual: Vec<f64> =
            if residual { x.iter().map(|_| rng.below(5) as f64 - 2.0).collect() } else { Vec::new() };
        let input = (0..x.len()).map(|i| x[i] - residual.get(i).copied().unwrap_or(0.0)).collect();
        let scales = if let Kind::Group([_, channels, ..]) = kind { channels } else { columns };
        let weight = uniform(rng, dtype, scales, 0.5, 2.0);
        let bias = if kind == Kind::Rms { Vec::new() } else { uniform(rng, dtype, scales, -0.5, 0.5) };
        Self { x, input, residual, weight, bias }
    }

    /// What scales each column of `row`.
    fn scales(&self, kind: Kind, row: usize, columns: usize) -> [Vec<f64>; 2] {
        [&self.weight, &self.bias].map(|scales| match kind {
            Kind::Group([_, channels, spatial, groups]) => {
                let each = channels / groups;
                let own = &scales[row % groups * each..][..each];
                own.iter().flat_map(|&scale| vec![scale; spatial]).collect()
            }
            _ if scales.is_empty() => vec![0.0; columns],
            _ => scales.clone(),
        })
    }
}

/// The moments that a kernel may get wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Mean,
    Squares,
}

fn recipe(dtype: DType, kind: Kind, [rows, columns]: [usize; 2], residual: bool) -> Recipe {
    let family = match kind {
        Kind::Layer => "layer_norm",
        Kind::Rms => "rms_norm",
        Kind::Group(_) => "group_norm",
    };
    let shape = match kind {
        Kind::Group([batch, channels, spatial, groups]) => {
            format!("{batch}x{channels}x{spatial}_groups{groups}")
        }
        _ => format!("{rows}x{columns}{}", flag(residual, "_with_residual", "")),
    };
    Recipe::new(family, format!("{dtype}_{shape}"), move |rng| {
        let operands = Operands::new(rng, dtype, kind, [rows, columns], residual);
        let wants = (0..rows).flat_map(|row| {
            let [weight, bias] = operands.scales(kind, row, columns);
            let part =
                |values: &'_ [f64]| values.get(row * columns..(row + 1) * columns).unwrap_or(&[]).to_vec();
            let (input, residual) = (part(&operands.input), part(&operands.residual));
            let row = Row { input: &input, residual: &residual, weight: &weight, bias: &bias, eps: EPS };
            if kind == Kind::Rms { row.rms_norm() } else { row.layer_norm() }
        });
        let mut trial = Trial::new();
        let inputs = [&operands.input, &operands.residual, &operands.weight, &operands.bias];
        for (arg, values) in ["input", "residual", "weight", "bias"].into_iter().zip(inputs) {
            trial.input(arg, dtype, values);
        }
        trial.output("output", dtype, wants.collect());
        let trial = trial.calling(move |backend, p| {
            let (input, output, weight, bias) = (p[0], p[4], Some(p[2]), Some(p[3]));
            let residual = residual.then_some(p[1]);
            match kind {
                Kind::Layer => {
                    let mut desc = LayerNormDesc::new(dtype, input, output, rows, columns);
                    (desc.eps, desc.weight, desc.bias, desc.residual) = (EPS, weight, bias, residual);
                    backend.layer_norm(&desc)
                }
                Kind::Rms => {
                    let mut desc = RmsNormDesc::new(dtype, input, output, rows, columns);
                    (desc.eps, desc.weight, desc.residual) = (EPS, weight, residual);
                    backend.rms_norm(&desc)
                }
                Kind::Group([batch, channels, spatial, groups]) => {
                    let shape = ChannelShape { batch, channels, spatial };
                    let mut desc = GroupNormDesc::new(dtype, input, output, shape, groups);
                    (desc.eps, desc.weight, desc.bias) = (EPS, weight, bias);
                    backend.group_norm(&desc)
                }
            }
        });
        // The deviation of a row of one number is 0, however often it is taken.
        let faults: &[Fault] = match kind {
            Kind::Rms => &[Fault::Squares],
            _ if columns == 1 => &[Fault::Mean],
            _ => &[Fault::Mean, Fault::Squares],
        };
        let models = faults.iter().map(|&fault| model(operands.clone(), kind, [rows, columns], fault));
        Exact { trial, length: columns, models: models.collect() }
    })
}

fn model(operands: Operands, kind: Kind, [rows, columns]: [usize; 2], fault: Fault) -> Model {
    Box::new(move |times| {
        let often = |of: Fault, i: usize| if of == fault { times(i) } else { 1.0 };
        let n = columns as f64;
        let normal = |row: usize| {
            let x = &operands.x[row * columns..][..columns];
            let sum: f64 = (0..columns).map(|i| often(Fault::Mean, i) * x[i]).sum();
            let mean = if kind == Kind::Rms { 0.0 } else { sum / n };
            let squares: f64 = (0..columns).map(|i| often(Fault::Squares, i) * (x[i] - mean).powi(2)).sum();
            let factor = 1.0 / (squares / n + EPS).sqrt();
            let [weight, bias] = operands.scales(kind, row, columns);
            (0..columns).map(|i| (x[i] - mean) * factor * weight[i] + bias[i]).collect::<Vec<f64>>()
        };
        (0..rows).flat_map(normal).collect()
    })
}
