//! `expert_matmul`: every format, few and many rows, experts that repeat and that aren't there.

use backend_api::desc::{ExpertMatmulDesc, Matrix, QuantMatrix};
use backend_api::quant::QuantFormat;
use backend_api::{DType, Gate};

use super::gather::{INDICES, Indices};
use super::quant::{DTYPES, FORMATS, name_of};
use crate::case::Case;
use crate::data::{Data, uniform};
use crate::grid::pairwise;
use crate::oracle::experts::Layer;
use crate::oracle::product::Stored;
use crate::oracle::quant::{Scales, Weights, fit_half, may_be_half};
use crate::rng::Rng;
use crate::trial::Trial;

/// Places in [`FORMATS`]: a format of each kind that kernels read in a way of its own. Of U4, the finest groups with zero points.
const KINDS: [usize; 10] = [0, 1, 2, 5, 7, 8, 9, 10, 12, 13];
/// Rows and experts of each: also more indices than tiles of 8, 16 and 64 have rows.
const ROWS: [[usize; 2]; 8] = [[1, 1], [1, 3], [1, 8], [2, 3], [5, 2], [13, 4], [40, 2], [70, 1]];
const EXPERTS: [usize; 4] = [1, 2, 5, 16];
const COLUMNS: [usize; 7] = [1, 3, 4, 8, 11, 33, 66];

#[derive(Clone, Copy, Debug)]
struct Experts {
    format: QuantFormat,
    dtypes: [DType; 2],
    shape: [usize; 3],
    n: usize,
    k: usize,
    ld_extra: usize,
    per_expert: bool,
    bias: bool,
    gate: Option<Gate>,
    weights: bool,
    accumulate: bool,
    indices: Indices,
    data: Data,
}

pub(super) fn cases() -> Vec<Case> {
    // The extents of types and of rows' distances differ.
    let grid = |types: usize, apart: usize, seed| {
        let counts =
            [KINDS.len(), 4, ROWS.len(), EXPERTS.len(), COLUMNS.len(), types, apart, 2, 7, 2, 2, 3, 2, 2];
        pairwise(&counts, seed).into_iter()
    };
    let covering = grid(4, 4, "expert_matmul").map(|row| {
        let (format, columns) = FORMATS[KINDS[row[0]]];
        Experts::of(&row, format, columns[row[1]], DTYPES[row[5]], [0, 1, 4, 8][row[6]])
    });
    // What tensor cores take: rows of f16 that start at vectors of eight, of whole blocks, which may end within a unit.
    let aligned = grid(2, 2, "expert_matmul of f16").map(|row| {
        let (format, columns) = FORMATS[KINDS[row[0]]];
        let multiple = if format.block_elements() < 32 { 128 } else { 32 };
        let dtypes = [DType::F16, [DType::F16, DType::F32][row[5]]];
        Experts::of(&row, format, columns[row[1]].next_multiple_of(multiple), dtypes, 8 * row[6])
    });
    let base = Experts {
        format: QuantFormat::Q4_0,
        dtypes: DTYPES[0],
        shape: [3, 2, 4],
        n: 5,
        k: 64,
        ld_extra: 1,
        per_expert: false,
        bias: false,
        gate: None,
        weights: false,
        accumulate: false,
        indices: Indices::Past,
        data: Data::Uniform,
    };
    let empty = [
        Experts { shape: [0, 2, 4], ..base },
        Experts { n: 0, ..base },
        Experts { k: 0, ..base },
        Experts { k: 0, bias: true, gate: Some(Gate::SwigluOai), ..base },
        Experts { k: 0, weights: true, accumulate: true, ..base },
        Experts { shape: [3, 0, 4], bias: true, ..base },
        Experts { shape: [3, 0, 4], weights: true, ..base },
        Experts { shape: [3, 0, 4], weights: true, accumulate: true, per_expert: true, ..base },
    ];
    // Experts of a row, so many that loops over them have more than 65,535 iterations, after which some drivers leave
    // a loop.
    let many = [(QuantFormat::Mxfp4, 20_000, 1300), (QuantFormat::Q4_0, 9000, 600)].map(
        |(format, used, experts)| Experts {
            format,
            shape: [1, used, experts],
            n: 2,
            k: 32,
            weights: true,
            indices: Indices::Inside,
            data: Data::Integers,
            ..base
        },
    );
    covering.chain(aligned).chain(empty).chain(many).map(Experts::case).collect()
}

impl Experts {
    /// The case of a row of the grids.
    fn of(row: &[usize], format: QuantFormat, k: usize, dtypes: [DType; 2], ld_extra: usize) -> Self {
        let [rows, used] = ROWS[row[2]];
        let gate = Gate::ALL.get(row[8]).copied();
        Self {
            format,
            dtypes,
            shape: [rows, used, EXPERTS[row[3]]],
            n: COLUMNS[row[4]],
            k,
            ld_extra,
            per_expert: row[7] == 1,
            bias: row[13] == 1,
            gate,
            weights: row[9] == 1,
            accumulate: row[10] == 1,
            indices: INDICES[row[11]],
            // Halves of f16 may not be above 65504.
            data: if gate.is_some() { Data::Uniform } else { [Data::Uniform, Data::Integers][row[12]] },
        }
    }

    fn case(self) -> Case {
        let Self { shape: [rows, used, experts], n, k, ld_extra, .. } = self;
        let (format, dtypes) = (name_of(self.format), self.dtypes.map(DType::name).join("-"));
        let of = super::flag(self.per_expert, "each", "row");
        let bias = super::flag(self.bias, "bias", "nobias");
        let gate = self.gate.map_or("nogate", Gate::name);
        let sum = super::flag(self.weights, "sum", "apart");
        let into = super::flag(self.accumulate, "add", "assign");
        let indices = format!("{:?}", self.indices).to_lowercase();
        let data = self.data.name();
        let name = format!(
            "{format}_{dtypes}_{rows}x{used}of{experts}_n{n}_k{k}_ld{ld_extra}_{of}_{bias}_{gate}_{sum}_{into}_{indices}_{data}"
        );
        Case::new("expert_matmul", name, move |rng| self.trial(rng))
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let Self { format, shape: [rows, used, count], n, k, ld_extra, .. } = self;
        let [a_type, c_type] = self.dtypes;
        let pairs = rows * used;
        let stacked = if self.gate.is_some() { 2 * n } else { n };
        let half_weights = may_be_half(format, a_type, pairs);
        let is_whole = self.data == Data::Integers;
        let scales = if is_whole { Scales::One } else { Scales::Usual };
        let b = Weights::random(rng, format, count * stacked, k, scales);
        let indices: Vec<f64> = (0..pairs).map(|_| Indices::one(self.indices, rng, count)).collect();
        let expert = |&index: &f64| (index >= 0.0 && index < count as f64).then_some(index as usize);
        let experts: Vec<_> = indices.iter().map(expert).collect();
        let single = (1, None);
        let a_rows = if self.per_expert { pairs } else { rows };
        let mut a =
            Stored::new((a_rows, k), false, ld_extra, single, |len| self.data.values(rng, a_type, len));
        let mut weights = uniform(rng, DType::F32, pairs, -1.0, 1.0);
        // What no expert multiplies may be anything.
        for pair in (0..pairs).filter(|&pair| experts[pair].is_none()) {
            weights[pair] = f64::NAN;
            if self.per_expert {
                let start = a.index(0, pair, 0);
                a.data[start..start + k].fill(f64::NAN);
            }
        }
        let bias = self.data.values(rng, DType::F32, count * stacked);
        let c_rows = if self.weights { rows } else { pairs };
        let c = Stored::new((c_rows, n), false, ld_extra, single, |len| self.data.values(rng, c_type, len));
        let layer = Layer {
            n,
            k,
            used,
            per_expert: self.per_expert,
            gate: self.gate,
            c_type,
            half_weights,
            exact: is_whole && self.gate.is_none() && (!half_weights || fit_half(format)),
            a: &|i, p| a.at(0, i, p),
            b: &|expert, j, p| b.at(expert * stacked + j, p),
            experts: &experts,
            bias: self.bias.then_some(&bias),
            weights: self.weights.then_some(&weights),
        };
        let wants = (0..c_rows * n).map(|at| {
            let (i, j) = (at / n, at % n);
            let place = c.index(0, i, j);
            (place, layer.want(i, j, self.accumulate.then(|| c.data[place])))
        });
        let wants = wants.collect();
        let before = if self.accumulate { c.data.clone() } else { vec![f64::NAN; c.data.len()] };
        let mut trial = Trial::new();
        trial.input("a", a_type, &a.data);
        trial.planes("b", &b.words());
        trial.input("indices", self.indices.dtype(), &indices);
        trial.scattered("c", c_type, before, wants);
        if self.weights {
            trial.input("weights", DType::F32, &weights);
        }
        if self.bias {
            trial.input("bias", DType::F32, &bias);
        }
        let ld = [a.ld, c.ld];
        trial.calling(move |backend, p| {
            let b = QuantMatrix::new(p[1], format, count * stacked, k);
            let [a, c] = [Matrix::new(p[0], a_type, ld[0]), Matrix::new(p[3], c_type, ld[1])];
            let mut desc = ExpertMatmulDesc::new([rows, used, count], a, b, p[2], c)
                .with_per_expert(self.per_expert)
                .with_accumulate(self.accumulate);
            desc.gate = self.gate;
            desc.bias = self.bias.then(|| p[if self.weights { 5 } else { 4 }]);
            if self.weights {
                desc = desc.with_weights(p[4]);
            }
            backend.expert_matmul(&desc)
        })
    }
}
