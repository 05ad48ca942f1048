//! Products of rows with the matrices that indices choose for them.

use std::collections::HashMap;

use backend_api::desc::ExpertMatmulDesc;
use backend_api::quant::UNIT;
use backend_api::{BackendResult, DType, Gate};

use super::expected::{Bytes, Expected};
use super::quant::{Sum, gated, may_be_half, plus};
use crate::float::{MIN_NORMAL_F32, gamma};
use crate::want::Want;

/// What the operands of a call hold.
pub(crate) struct Layer<'a> {
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) used: usize,
    pub(crate) per_expert: bool,
    pub(crate) gate: Option<Gate>,
    pub(crate) c_type: DType,
    /// Weights of B may be rounded to f16.
    pub(crate) half_weights: bool,
    /// Sums of products are whole numbers.
    pub(crate) exact: bool,
    /// Elements of A by row and column.
    pub(crate) a: &'a dyn Fn(usize, usize) -> f64,
    /// Weights of an expert by row and column, with the magnitudes that make them up.
    pub(crate) b: &'a dyn Fn(usize, usize, usize) -> (f64, f64),
    /// The expert of each index, if it is one.
    pub(crate) experts: &'a [Option<usize>],
    /// For each row of all matrices, what is added to its products.
    pub(crate) bias: Option<&'a [f64]>,
    /// The weights of sums.
    pub(crate) weights: Option<&'a [f64]>,
}

/// An element of a product: its value, its bound, and the magnitudes that further roundings are relative to.
#[derive(Clone, Copy, Debug, Default)]
struct Product {
    value: f64,
    bound: f64,
    magnitude: f64,
}

impl Layer<'_> {
    /// Weights of B may be rounded to f16 where a call has so many rows of this type.
    pub(crate) fn rounds_weights(desc: &ExpertMatmulDesc) -> bool {
        may_be_half(desc.b.format, desc.a.dtype, desc.rows * desc.used)
    }

    /// Column `j` of the row of an index.
    fn product(&self, pair: usize, j: usize) -> Product {
        let Some(expert) = self.experts[pair] else { return Product::default() };
        let row = if self.per_expert { pair } else { pair / self.used };
        let stacked = if self.gate.is_some() { 2 * self.n } else { self.n };
        let part = |j: usize| {
            let mut sum = Sum::default();
            (0..self.k).for_each(|p| sum.add(((self.a)(row, p), 0.0), (self.b)(expert, j, p)));
            let bias = self.bias.map_or(0.0, |bias| bias[expert * stacked + j]);
            let (value, bound) = sum.finish(self.k, 1.0, bias, self.half_weights);
            let magnitude = sum.magnitude() + bias.abs();
            Product { value, bound: if self.exact { 0.0 } else { bound }, magnitude }
        };
        let first = part(j);
        let Some(gate) = self.gate else { return first };
        let second = part(self.n + j);
        let halves = [first, second].map(|half| (half.value, half.bound));
        let (value, bound) = match gated(gate, self.c_type, halves) {
            Want::Anything => (f64::NAN, f64::INFINITY),
            want => want.bounded().unwrap_or((f64::NAN, 0.0)),
        };
        Product { value, bound, magnitude: value.abs() + bound }
    }

    /// Element (i, j) of C, to which `previous` is added.
    pub(crate) fn want(&self, i: usize, j: usize, previous: Option<f64>) -> Want {
        let want = match self.weights {
            None => {
                let Product { value, bound, .. } = self.product(i, j);
                if bound == f64::INFINITY {
                    return Want::Anything;
                }
                if self.exact { Want::number(value) } else { Want::near(value, bound) }
            }
            Some(weights) => {
                let (mut value, mut bound) = (0.0, 0.0);
                for pair in (i * self.used..(i + 1) * self.used).filter(|&pair| self.experts[pair].is_some())
                {
                    let (term, weight) = (self.product(pair, j), weights[pair]);
                    if term.bound == f64::INFINITY {
                        return Want::Anything;
                    }
                    value += weight * term.value;
                    bound += weight.abs() * (term.bound + gamma(self.used + 2) * term.magnitude);
                    bound += 2.0 * MIN_NORMAL_F32;
                }
                Want::near(value, bound)
            }
        };
        match previous {
            Some(previous) => plus(want, previous, self.exact && self.weights.is_none()),
            None => want,
        }
    }
}

pub(super) fn expect_expert_matmul(
    op: &'static str,
    desc: &ExpertMatmulDesc,
    memory: &Bytes,
) -> BackendResult<Expected> {
    let &ExpertMatmulDesc { rows, used, a, c, .. } = desc;
    let (n, k) = (desc.n(), desc.k());
    let [_, c_rows] = desc.rows_of(op)?;
    let layout = desc.b.layout(op)?;
    let planes = memory.get(desc.b.ptr);
    let (a_all, c_all) = (memory.numbers(a.ptr, a.dtype), memory.numbers(c.ptr, c.dtype));
    let indices = memory.numbers(desc.indices, DType::U32);
    let expert = |&index: &f64| (index < desc.experts as f64).then_some(index as usize);
    let experts: Vec<_> = indices.iter().take(rows * used).map(expert).collect();
    let bias = memory.optional(desc.bias, DType::F32);
    let of_sums = memory.optional(desc.weights, DType::F32);
    let stacked = desc.b.rows / desc.experts;
    // Of the experts that are chosen, each weight and the magnitudes that make it up.
    let mut chosen: HashMap<usize, Vec<(f32, f32)>> = HashMap::new();
    for &expert in experts.iter().flatten() {
        chosen.entry(expert).or_insert_with(|| {
            let rows = (expert * stacked..(expert + 1) * stacked).filter_map(|row| layout.row(planes, row));
            let units = rows.flat_map(|row| (0..layout.units).map(move |number| (row, number)));
            let weights = units.flat_map(|(row, number)| {
                let (mut weights, mut sizes) = ([0.0; UNIT], [0.0; UNIT]);
                row.dequantize(number, &mut weights);
                row.magnitudes(number, &mut sizes);
                weights.into_iter().zip(sizes)
            });
            weights.collect()
        });
    }
    let layer = Layer {
        n,
        k,
        used,
        per_expert: desc.per_expert,
        gate: desc.gate,
        c_type: c.dtype,
        half_weights: Layer::rounds_weights(desc),
        exact: false,
        a: &|i, p| a_all[a.offset + i * a.ld + p],
        b: &|expert, j, p| {
            let (weight, size) = chosen[&expert][j * layout.units * UNIT + p];
            (f64::from(weight), f64::from(size))
        },
        experts: &experts,
        bias: desc.bias.map(|_| bias.as_slice()),
        weights: desc.weights.map(|_| of_sums.as_slice()),
    };
    let mut places = Vec::with_capacity(c_rows * n);
    for at in 0..c_rows * n {
        let (i, j) = (at / n, at % n);
        let place = c.offset + i * c.ld + j;
        places.push((place, layer.want(i, j, desc.accumulate.then(|| c_all[place]))));
    }
    Ok(Expected::computed(c.ptr, c.dtype, places))
}
