//! `quant_matmul`: every format, rows with padding, extreme scales.

use backend_api::desc::{Matrix, QuantMatmulDesc, QuantMatrix, RmsNorm};
use backend_api::quant::QuantFormat;
use backend_api::{Activation, DType, Gate, MathMode};

use super::quant_int8::{self, Blocks};
use super::quant_rows::{lookups, whole};
use super::quant_shapes::{infinite, shapes};
use crate::case::Case;
use crate::data::{Data, uniform};
use crate::grid::pairwise;
use crate::oracle::product::Stored;
use crate::oracle::quant::{
    Scales, Sum, Weights, activated, fit_half, gated, may_be_half, normed, or_nan, plus, round_to_int8,
};
use crate::rng::Rng;
use crate::trial::Trial;

use DType::{F16, F32};

/// Formats with the row lengths that are tried: whole units and not, and of U4 no whole groups either.
pub(super) const FORMATS: [(QuantFormat, [usize; 4]); 18] = [
    (QuantFormat::Q8_0, [32, 96, 160, 1056]),
    (QuantFormat::Q4_0, [64, 128, 288, 1120]),
    (QuantFormat::Q4_1, [32, 96, 256, 1120]),
    (QuantFormat::Q5_0, [64, 128, 288, 1120]),
    (QuantFormat::Q5_1, [32, 96, 160, 1056]),
    (QuantFormat::IQ4_NL, [32, 128, 224, 1056]),
    (QuantFormat::IQ4_XS, [256, 512, 768, 1280]),
    (QuantFormat::Mxfp4, [32, 96, 256, 1120]),
    (QuantFormat::Q2_K, [256, 512, 768, 1280]),
    (QuantFormat::Q3_K, [256, 512, 768, 1024]),
    (QuantFormat::Q4_K, [256, 512, 768, 1280]),
    (QuantFormat::Q5_K, [256, 512, 768, 1024]),
    (QuantFormat::Q6_K, [256, 512, 768, 1280]),
    (QuantFormat::U4 { group: 16, zero_points: true }, [7, 40, 128, 300]),
    (QuantFormat::U4 { group: 32, zero_points: false }, [32, 100, 256, 1025]),
    (QuantFormat::U4 { group: 128, zero_points: true }, [5, 128, 257, 1152]),
    (QuantFormat::U4 { group: 256, zero_points: false }, [64, 256, 384, 513]),
    (QuantFormat::U4 { group: LARGEST_GROUP, zero_points: true }, [8, 128, 250, 4096]),
];
/// Longer than any row.
const LARGEST_GROUP: usize = 1usize.rotate_right(1);
const ROWS: [usize; 10] = [1, 2, 3, 4, 5, 8, 9, 16, 17, 33];
const COLUMNS: [usize; 7] = [1, 2, 3, 7, 8, 33, 66];
pub(super) const DTYPES: [[DType; 2]; 4] = [[F32, F32], [F16, F16], [F16, F32], [F32, F16]];
pub(super) const ALPHAS: [f64; 2] = [1.0, -0.5];
const EPS: f64 = 1e-5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Residual {
    None,
    Apart,
    InPlace,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub(super) format: QuantFormat,
    pub(super) dtypes: [DType; 2],
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) ld_extra: usize,
    pub(super) alpha: f64,
    pub(super) bias: bool,
    pub(super) activation: Activation,
    pub(super) residual: Residual,
    pub(super) norm: bool,
    /// Whether normalised rows of f32 are rounded to f16.
    pub(super) narrows: bool,
    pub(super) gate: Option<Gate>,
    pub(super) data: Data,
    pub(super) math: MathMode,
    /// What blocks of A are beside that.
    pub(super) blocks: Blocks,
    /// Whether weights are beyond f16's range.
    pub(super) beyond: bool,
}

/// A product with nothing beside it.
pub(super) const PLAIN: Product = Product {
    format: QuantFormat::Q8_0,
    dtypes: [F32; 2],
    m: 0,
    n: 0,
    k: 0,
    ld_extra: 0,
    alpha: 1.0,
    bias: false,
    activation: Activation::Identity,
    residual: Residual::None,
    norm: false,
    narrows: false,
    gate: None,
    data: Data::Uniform,
    math: MathMode::Standard,
    blocks: Blocks::AsTheyAre,
    beyond: false,
};

impl Product {
    /// An m×n product with what a row of a grid says of format, k, types, leading dimensions, alpha, bias, activation and
    /// residual.
    pub(super) fn drawn(format: usize, k: usize, [m, n]: [usize; 2], row: &[usize]) -> Self {
        let (format, ks) = FORMATS[format];
        Self {
            format,
            dtypes: DTYPES[row[0]],
            m,
            n,
            k: ks[k],
            ld_extra: [0, 1, 4][row[1]],
            alpha: ALPHAS[row[2]],
            bias: row[3] == 1,
            activation: Activation::ALL[row[4]],
            residual: [Residual::None, Residual::Apart, Residual::InPlace][row[5]],
            ..PLAIN
        }
    }
}

pub(super) fn cases() -> Vec<Case> {
    [products(), quant_int8::products()].into_iter().flatten().chain(lookups()).chain(whole()).collect()
}

/// Products with exact activations.
pub(super) fn products() -> Vec<Case> {
    let grids = ["quant_matmul 1", "quant_matmul 2"].map(|seed| {
        let activations = Activation::ALL.len();
        pairwise(&[FORMATS.len(), 4, ROWS.len(), COLUMNS.len(), 4, 3, 2, 2, activations, 3, 2, 3, 7], seed)
    });
    let products = grids.into_iter().flatten().map(|row| Product {
        // Halves of f16 may not be above 65504.
        data: if row[12] < Gate::ALL.len() {
            Data::Uniform
        } else {
            [Data::Uniform, Data::Integers][row[10]]
        },
        norm: row[11] == 0,
        narrows: row[11] == 0 && DTYPES[row[4]][0] == F32 && row[2].is_multiple_of(2),
        gate: Gate::ALL.get(row[12]).copied(),
        ..Product::drawn(row[0], row[1], [ROWS[row[2]], COLUMNS[row[3]]], &row[4..10])
    });
    let empty = [[0, 5, 256], [5, 0, 256], [5, 4, 0]].into_iter().flat_map(|[m, n, k]| {
        FORMATS.map(|(format, _)| Product {
            format,
            dtypes: DTYPES[0],
            m,
            n,
            k,
            bias: true,
            activation: Activation::Gelu,
            residual: Residual::Apart,
            norm: true,
            gate: Some(Gate::Swiglu),
            ..PLAIN
        })
    });
    products
        .chain(empty)
        .chain(factors_of_nothing())
        .chain(shapes())
        .map(Product::case)
        .chain(infinite())
        .collect()
}

/// Sums of no products, which are 0 times an alpha that isn't finite as f32, too.
fn factors_of_nothing() -> impl Iterator<Item = Product> {
    [f64::INFINITY, f64::NAN, 1e39].into_iter().flat_map(|alpha| {
        DTYPES.into_iter().flat_map(move |dtypes| {
            [5, 70].map(|m| Product {
                format: QuantFormat::Q4_0,
                dtypes,
                m,
                n: 40,
                alpha,
                bias: true,
                residual: Residual::Apart,
                ..PLAIN
            })
        })
    })
}

pub(super) fn name_of(format: QuantFormat) -> String {
    match format {
        QuantFormat::U4 { group, zero_points } => {
            format!("u4-g{group}{}", super::flag(zero_points, "-zeros", ""))
        }
        _ => format.name().replace('_', ""),
    }
}

impl Product {
    pub(super) fn case(self) -> Case {
        let Self { m, n, k, ld_extra, alpha, .. } = self;
        let dtypes = self.dtypes.map(DType::name).join("-");
        let bias = super::flag(self.bias, "bias", "nobias");
        let residual = format!("{:?}", self.residual).to_lowercase();
        let (format, activation, data) = (name_of(self.format), self.activation.name(), self.data.name());
        let norm = super::flag(self.narrows, "norm-f16", super::flag(self.norm, "norm", "nonorm"));
        let function = self.gate.map_or(activation, Gate::name);
        let math = match self.math {
            MathMode::Standard => String::new(),
            math => format!("_{}-{}", math.name(), self.blocks.name()),
        };
        let beyond = super::flag(self.beyond, "_beyond", "");
        let name = format!(
            "{format}_{dtypes}_m{m}_n{n}_k{k}_ld{ld_extra}_a{alpha}_{norm}_{bias}_{function}_res-{residual}_{data}{math}{beyond}"
        );
        Case::new("quant_matmul", name, move |rng| self.trial(rng))
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let Self { format, m, n, k, alpha, .. } = self;
        let [a_type, c_type] = self.dtypes;
        let is_whole = self.data == Data::Integers;
        let rounds = self.math == MathMode::Int8 && format.takes_int8();
        let multiplied = if self.narrows { F16 } else { a_type };
        let half_weights = may_be_half(format, multiplied, m);
        let fits = !half_weights || fit_half(format);
        let exact = is_whole && fits && !self.norm && self.gate.is_none() && !rounds;
        let rows = if self.gate.is_some() { 2 * n } else { n };
        let scales = match (is_whole, self.beyond) {
            (true, _) => Scales::One,
            (_, true) => Scales::Beyond,
            _ => Scales::Usual,
        };
        let weights = Weights::random(rng, format, rows, k, scales);
        let single = (1, None);
        let a = Stored::new((m, k), false, self.ld_extra, single, |count| {
            let mut values = self.data.values(rng, a_type, count);
            self.blocks.put(rng, a_type, k, &mut values);
            values
        });
        let bias = self.bias.then(|| self.data.values(rng, c_type, rows));
        let norm = self.norm.then(|| uniform(rng, a_type, k, -2.0, 2.0));
        let residual = Stored::new((m, n), false, self.ld_extra, single, |count| match self.residual {
            Residual::None => vec![f64::NAN; count],
            _ => self.data.values(rng, c_type, count),
        });
        let row_of_a = |i: usize| -> Vec<(f64, f64)> {
            let row: Vec<f64> = (0..k).map(|p| a.at(0, i, p)).collect();
            let mut row = match &norm {
                Some(norm) => normed(multiplied, &row, norm, EPS),
                None => row.into_iter().map(|x| (x, 0.0)).collect(),
            };
            if rounds {
                round_to_int8(&mut row);
            }
            row
        };
        let rows_of_a: Vec<_> = (0..m).map(row_of_a).collect();
        // Elements of the product and their bounds, column by column.
        let mut products = Vec::new();
        for j in 0..rows {
            let row_of_b: Vec<_> = (0..k).map(|p| weights.at(j, p)).collect();
            let bias = bias.as_ref().map_or(0.0, |bias| bias[j]);
            products.extend(rows_of_a.iter().map(|row_of_a| {
                let mut sum = Sum::default();
                row_of_a.iter().zip(&row_of_b).for_each(|(&x, &weight)| sum.add(x, weight));
                let (value, bound) = sum.finish(k, alpha, bias, half_weights);
                (value, if exact { 0.0 } else { bound })
            }));
        }
        let product = |i: usize, j: usize| products[j * m + i];
        let mut wants = Vec::new();
        for (i, j) in (0..m * n).map(|at| (at / n, at % n)) {
            let element = product(i, j);
            let want = match self.gate {
                None => activated(self.activation, element),
                Some(gate) => gated(gate, c_type, [element, product(i, n + j)]),
            };
            let at = residual.index(0, i, j);
            let want = match self.residual {
                Residual::None => want,
                _ => plus(want, residual.data[at], exact),
            };
            wants.push((at, if rounds { or_nan(want, &rows_of_a[i]) } else { want }));
        }
        let in_place = self.residual == Residual::InPlace;
        let before = if in_place { residual.data.clone() } else { vec![f64::NAN; residual.data.len()] };
        let mut trial = Trial::new();
        trial.rounds_to_f16 = self.narrows;
        trial.input("a", a_type, &a.data);
        trial.planes("b", &weights.words());
        trial.scattered("c", c_type, before, wants);
        if let Some(bias) = &bias {
            trial.input("bias", c_type, bias);
        }
        if self.residual == Residual::Apart {
            trial.input("residual", c_type, &residual.data);
        }
        if let Some(norm) = &norm {
            trial.input("norm", a_type, norm);
        }
        let ld = [a.ld, residual.ld];
        trial.calling(move |backend, p| {
            let c = Matrix::new(p[2], c_type, ld[1]);
            let b = QuantMatrix::new(p[1], format, rows, k);
            let mut desc = QuantMatmulDesc::new(m, Matrix::new(p[0], a_type, ld[0]), b, c)
                .with_alpha(alpha)
                .with_activation(self.activation)
                .with_math(self.math);
            if self.bias {
                desc = desc.with_bias(p[3]);
            }
            if let Some(gate) = self.gate {
                desc = desc.with_gate(gate);
            }
            if let (true, Some(&norm)) = (self.norm, p.last()) {
                let norm = RmsNorm::new(norm, EPS);
                desc = desc.with_norm(if self.narrows { norm.with_output_dtype(F16) } else { norm });
            }
            desc = match self.residual {
                Residual::None => desc,
                Residual::Apart => {
                    desc.with_residual(Matrix::new(p[3 + usize::from(self.bias)], c_type, ld[1]))
                }
                Residual::InPlace => desc.with_residual(c),
            };
            backend.quant_matmul(&desc)
        })
    }
}
