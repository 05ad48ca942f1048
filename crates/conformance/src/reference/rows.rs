//! Slices of tensors: softmax, normalisations, sums, reductions, pooling.

use backend_api::BackendResult;
use backend_api::desc::{
    BatchNormDesc, CumSumDesc, GroupNormDesc, LayerNormDesc, NormBackwardDesc, NormBackwardWeightDesc,
    PoolBackwardDesc, PoolDesc, ReduceDesc, RmsNormDesc, SoftmaxBackwardDesc, SoftmaxDesc,
};

use super::{Bytes, Expected, walk};
use crate::oracle;
use crate::oracle::norm::{Row, weight_wants};
use crate::oracle::reduce::slice;
use crate::want::Want;

/// What `of` makes of each slice along the middle extent, where it lies.
fn slices(
    [outer, length, inner]: [usize; 3],
    mut of: impl FnMut([usize; 2]) -> Vec<Want>,
) -> Vec<(usize, Want)> {
    let mut wants = Vec::new();
    for at in 0..outer * inner {
        let (o, i) = (at / inner, at % inner);
        let place = |(k, want)| ((o * length + k) * inner + i, want);
        wants.extend(of([o, i]).into_iter().enumerate().map(place));
    }
    wants
}

pub(super) fn softmax(desc: &SoftmaxDesc, memory: &Bytes) -> Expected {
    let SoftmaxDesc { outer, length, inner, log, .. } = *desc;
    let x = memory.numbers(desc.input, desc.dtype);
    let of = if log { oracle::softmax::log_softmax } else { oracle::softmax::softmax };
    let wants = slices([outer, length, inner], |at| of(&slice(&x, at, length, inner)));
    Expected::computed(desc.output, desc.dtype, wants)
}

pub(super) fn softmax_backward(desc: &SoftmaxBackwardDesc, memory: &Bytes) -> Expected {
    let SoftmaxBackwardDesc { outer, length, inner, log, .. } = *desc;
    let [y, g] = [desc.y, desc.grad_output].map(|ptr| memory.numbers(ptr, desc.dtype));
    let wants = slices([outer, length, inner], |at| {
        let [y, g] = [&y, &g].map(|values| slice(values, at, length, inner));
        oracle::softmax::backward(&y, &g, log)
    });
    Expected::computed(desc.grad_input, desc.dtype, wants)
}

/// Row number `row` of packed rows; empty where there are none.
fn row(numbers: &[f64], row: usize, columns: usize) -> &[f64] {
    numbers.get(row * columns..(row + 1) * columns).unwrap_or(&[])
}

pub(super) fn layer_norm(desc: &LayerNormDesc, memory: &Bytes) -> Vec<Expected> {
    let LayerNormDesc { rows, columns, dtype, weight_dtype, eps, .. } = *desc;
    let [weight, bias] = [desc.weight, desc.bias].map(|ptr| memory.optional(ptr, weight_dtype));
    let residual = memory.optional(desc.residual, dtype);
    let input = memory.numbers(desc.input, dtype);
    let of = |at: usize| {
        let (input, residual) = (row(&input, at, columns), row(&residual, at, columns));
        Row { input, residual, weight: &weight, bias: &bias, eps }
    };
    let sums = desc.sum.map(|ptr| Expected::packed(ptr, dtype, (0..rows).flat_map(|at| of(at).sums())));
    let norms = Expected::packed(desc.output, dtype, (0..rows).flat_map(|at| of(at).layer_norm()));
    sums.into_iter().chain([norms]).collect()
}

pub(super) fn rms_norm(desc: &RmsNormDesc, memory: &Bytes) -> Vec<Expected> {
    let RmsNormDesc { rows, columns, dtype, weight_dtype, eps, .. } = *desc;
    let (weight, residual) =
        (memory.optional(desc.weight, weight_dtype), memory.optional(desc.residual, dtype));
    let input = memory.numbers(desc.input, dtype);
    let of = |at: usize| {
        let (input, residual) = (row(&input, at, columns), row(&residual, at, columns));
        Row { input, residual, weight: &weight, bias: &[], eps }
    };
    let sums = desc.sum.map(|ptr| Expected::packed(ptr, dtype, (0..rows).flat_map(|at| of(at).sums())));
    let norms = Expected::packed(desc.output, dtype, (0..rows).flat_map(|at| of(at).rms_norm()));
    sums.into_iter().chain([norms]).collect()
}

pub(super) fn group_norm(desc: &GroupNormDesc, memory: &Bytes) -> Expected {
    let GroupNormDesc { batch, channels, spatial, groups, dtype, eps, .. } = *desc;
    let input = memory.numbers(desc.input, dtype);
    let [weight, bias] = [desc.weight, desc.bias].map(|ptr| memory.optional(ptr, desc.weight_dtype));
    let each = channels / groups;
    let wants = (0..batch * groups).flat_map(|at| {
        let first = at % groups * each;
        let spread = |scales: &[f64]| -> Vec<f64> {
            let own = scales.get(first..first + each).unwrap_or(&[]);
            own.iter().flat_map(|&scale| vec![scale; spatial]).collect()
        };
        let (weight, bias) = (spread(&weight), spread(&bias));
        Row { input: row(&input, at, each * spatial), residual: &[], weight: &weight, bias: &bias, eps }
            .layer_norm()
    });
    Expected::packed(desc.output, dtype, wants)
}

pub(super) fn batch_norm(desc: &BatchNormDesc, memory: &Bytes) -> Expected {
    let BatchNormDesc { channels, spatial, dtype, eps, .. } = *desc;
    let input = memory.numbers(desc.input, dtype);
    let [mean, variance] = [desc.mean, desc.variance].map(|ptr| memory.numbers(ptr, desc.weight_dtype));
    let [weight, bias] = [desc.weight, desc.bias].map(|ptr| memory.optional(ptr, desc.weight_dtype));
    let wants = input.iter().enumerate().map(|(at, &x)| {
        let c = at / spatial % channels;
        let scale = |scales: &[f64], otherwise| scales.get(c).copied().unwrap_or(otherwise);
        oracle::norm::batch_norm(x, [mean[c], variance[c], scale(&weight, 1.0), scale(&bias, 0.0)], eps)
    });
    Expected::packed(desc.output, dtype, wants)
}

pub(super) fn norm_backward(desc: &NormBackwardDesc, memory: &Bytes) -> Expected {
    let NormBackwardDesc { rows, columns, dtype, eps, .. } = *desc;
    let [x, g] = [desc.x, desc.grad_output].map(|ptr| memory.numbers(ptr, dtype));
    let weight = memory.optional(desc.weight, dtype);
    let wants = (0..rows).flat_map(|at| {
        let of = Row { input: row(&x, at, columns), residual: &[], weight: &weight, bias: &[], eps };
        of.backward(row(&g, at, columns), desc.centred)
    });
    Expected::packed(desc.grad_input, dtype, wants)
}

pub(super) fn norm_backward_weight(desc: &NormBackwardWeightDesc, memory: &Bytes) -> Expected {
    let NormBackwardWeightDesc { rows, columns, dtype, eps, .. } = *desc;
    let [x, g] = [desc.x, desc.grad_output].map(|ptr| memory.numbers(ptr, dtype));
    let terms = (0..rows).map(|at| {
        let of = Row { input: row(&x, at, columns), residual: &[], weight: &[], bias: &[], eps };
        of.weight_gradient(row(&g, at, columns), desc.centred)
    });
    Expected::packed(desc.grad_weight, dtype, weight_wants(terms, columns))
}

pub(super) fn cumsum(desc: &CumSumDesc, memory: &Bytes) -> Expected {
    let CumSumDesc { length, inner, dtype, exclusive, reverse, .. } = *desc;
    if !dtype.is_float() {
        return Expected::exact(desc.output, dtype);
    }
    let x = memory.numbers(desc.input, dtype);
    let wants = oracle::cumsum::cumsum(dtype, &x, [length, inner], exclusive, reverse);
    Expected::packed(desc.output, dtype, wants)
}

pub(super) fn reduce(op: &'static str, desc: &ReduceDesc<'_>, memory: &Bytes) -> BackendResult<Expected> {
    let (input, dtype) = (desc.input, desc.input.dtype);
    if !dtype.is_float() || desc.op.is_index() {
        return Ok(Expected::exact(desc.output, desc.output_dtype));
    }
    let x = memory.numbers(input.ptr, dtype);
    let (_, loops) = desc.operands(op)?;
    let reduced = walk(&loops.reduced);
    let wants = walk(&loops.kept).into_iter().map(|[from, to]| {
        let values: Vec<f64> = reduced.iter().map(|[at]| x[input.offset + from + at]).collect();
        (to, oracle::reduce::reduce(desc.op, &values))
    });
    Ok(Expected::computed(desc.output, desc.output_dtype, wants.collect()))
}

pub(super) fn pool(desc: &PoolDesc, memory: &Bytes) -> Expected {
    let input = memory.numbers(desc.input, desc.dtype);
    Expected::packed(desc.output, desc.dtype, oracle::pool::forward(&desc.shape, desc.op, &input))
}

pub(super) fn pool_backward(desc: &PoolBackwardDesc, memory: &Bytes) -> Expected {
    let [input, gradient] = [desc.input, desc.grad_output].map(|ptr| memory.numbers(ptr, desc.dtype));
    let wants = oracle::pool::backward(&desc.shape, desc.op, &input, &gradient);
    Expected::packed(desc.grad_input, desc.dtype, wants)
}
