//! Products with the matrices that indices choose.

use std::collections::HashMap;

use backend_api::desc::ExpertMatmulDesc;
use backend_api::quant::UNIT;
use backend_api::{BackendResult, DType};

use super::{Bytes, Expected};
use crate::oracle::experts::Layer;

pub(super) fn expert_matmul(
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
