//! Matrix products and convolutions.

use backend_api::desc::{
    BiasAxis, ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvTransposeDesc, MatmulDesc, Matrix,
    QuantMatmulDesc,
};
use backend_api::quant::UNIT;
use backend_api::{BackendResult, DType, MathMode};

use super::{Bytes, Expected};
use crate::oracle::conv::{Finish, Sum, wants};
use crate::oracle::product::{Element, Products};
use crate::oracle::quant::{plus, product_bound};
use crate::oracle::unary::activation;

/// `lines` lines of `length` numbers of a matrix, each packed: its rows, or its columns if `across`.
fn lines(numbers: &[f64], start: usize, ld: usize, across: bool, [lines, length]: [usize; 2]) -> Vec<f64> {
    let at = |line: usize, i: usize| if across { i * ld + line } else { line * ld + i };
    (0..lines * length).map(|n| numbers[start + at(n / length, n % length)]).collect()
}

pub(super) fn matmul(desc: &MatmulDesc, memory: &Bytes) -> Expected {
    let &MatmulDesc { m, n, k, a, b, c, alpha, beta, .. } = desc;
    let numbers = |matrix: Matrix| memory.numbers(matrix.ptr, matrix.dtype);
    let (a_all, b_all, c_all) = (numbers(a), numbers(b), numbers(c));
    let bias = memory.optional(desc.bias.map(|bias| bias.ptr), c.dtype);
    // As the mode's documentation states it.
    let term_error = if desc.math == MathMode::EmulatedF32 { 2f64.powi(-20) } else { 0.0 };
    let mut places = Vec::with_capacity(desc.batch * m * n);
    for batch in 0..desc.batch {
        let start = |matrix: Matrix| matrix.offset + batch * matrix.batch_stride;
        let rows = lines(&a_all, start(a), a.ld, desc.trans_a.is_transposed(), [m, k]);
        let columns = lines(&b_all, start(b), b.ld, !desc.trans_b.is_transposed(), [n, k]);
        for at in 0..m * n {
            let (i, j) = (at / n, at % n);
            let place = start(c) + i * c.ld + j;
            let bias = desc.bias.map(|given| bias[if given.axis == BiasAxis::Row { i } else { j }]);
            let activation = desc.activation;
            let element =
                Element { alpha, beta, c: c_all[place], bias, activation, exact: false, term_error };
            let mut sum = Products::default();
            let pairs = rows[i * k..][..k].iter().zip(&columns[j * k..][..k]);
            pairs.for_each(|(&a, &b)| sum.add(a, b));
            places.push((place, element.of_sum(sum)));
        }
    }
    Expected::computed(c.ptr, c.dtype, places)
}

pub(super) fn quant_matmul(
    op: &'static str,
    desc: &QuantMatmulDesc,
    memory: &Bytes,
) -> BackendResult<Expected> {
    let &QuantMatmulDesc { m, a, b, c, alpha, .. } = desc;
    let (n, k) = (desc.n(), desc.k());
    let a_all = memory.numbers(a.ptr, a.dtype);
    let bias = memory.optional(desc.bias, c.dtype);
    let residual = memory.optional(desc.residual.map(|matrix| matrix.ptr), c.dtype);
    let layout = b.layout(op)?;
    let planes = memory.get(b.ptr);
    let half_weights = a.dtype == DType::F16 && m > 32;
    let rows = lines(&a_all, a.offset, a.ld, false, [m, k]);
    let mut places = Vec::with_capacity(m * n);
    for j in 0..n {
        let (mut weights, mut magnitudes) = (vec![0.0; k], vec![0.0; k]);
        let Some(row) = layout.row(planes, j) else { continue };
        let (mut unit, mut sizes) = ([0.0f32; UNIT], [0.0f32; UNIT]);
        for (number, (weights, magnitudes)) in
            weights.chunks_mut(UNIT).zip(magnitudes.chunks_mut(UNIT)).enumerate()
        {
            row.dequantize(number, &mut unit);
            row.magnitudes(number, &mut sizes);
            weights.iter_mut().zip(&unit).for_each(|(to, &x)| *to = f64::from(x));
            magnitudes.iter_mut().zip(&sizes).for_each(|(to, &x)| *to = f64::from(x));
        }
        for i in 0..m {
            let (mut sum, mut magnitude, mut input) = (0.0, 0.0, 0.0);
            for (a, (weight, parts)) in rows[i * k..][..k].iter().zip(weights.iter().zip(&magnitudes)) {
                sum += a * weight;
                magnitude += a.abs() * parts;
                input += a.abs();
            }
            let bias = bias.get(j).copied().unwrap_or(0.0);
            let bound = product_bound(k, alpha, bias, [magnitude, input], half_weights);
            let want = activation(desc.activation, alpha * sum + bias, bound);
            let want = match desc.residual {
                Some(matrix) => plus(want, residual[matrix.offset + i * matrix.ld + j], false),
                None => want,
            };
            places.push((c.offset + i * c.ld + j, want));
        }
    }
    Ok(Expected::computed(c.ptr, c.dtype, places))
}

pub(super) fn conv(desc: &ConvDesc, memory: &Bytes) -> Expected {
    let [input, filter] = [desc.input, desc.filter].map(|ptr| memory.numbers(ptr, desc.dtype));
    let bias = desc.bias.map(|ptr| memory.numbers(ptr, desc.dtype));
    let finish = Finish { bias: bias.as_deref(), activation: desc.activation, exact: false };
    Expected::packed(desc.output, desc.dtype, wants(&desc.shape, Sum::Output, [&input, &filter], finish))
}

pub(super) fn conv_transpose(
    op: &'static str,
    desc: &ConvTransposeDesc,
    memory: &Bytes,
) -> BackendResult<Expected> {
    let [input, filter] = [desc.input, desc.filter].map(|ptr| memory.numbers(ptr, desc.dtype));
    let bias = desc.bias.map(|ptr| memory.numbers(ptr, desc.dtype));
    let finish = Finish { bias: bias.as_deref(), activation: desc.activation, exact: false };
    let wants = wants(&desc.transposes(op)?, Sum::Input, [&filter, &input], finish);
    Ok(Expected::packed(desc.output, desc.dtype, wants))
}

pub(super) fn conv_backward_data(desc: &ConvBackwardDataDesc, memory: &Bytes) -> Expected {
    let [filter, gradient] = [desc.filter, desc.grad_output].map(|ptr| memory.numbers(ptr, desc.dtype));
    let wants = wants(&desc.shape, Sum::Input, [&filter, &gradient], Finish::plain(false));
    Expected::packed(desc.grad_input, desc.dtype, wants)
}

pub(super) fn conv_backward_filter(desc: &ConvBackwardFilterDesc, memory: &Bytes) -> Expected {
    let [input, gradient] = [desc.input, desc.grad_output].map(|ptr| memory.numbers(ptr, desc.dtype));
    let wants = wants(&desc.shape, Sum::Filter, [&input, &gradient], Finish::plain(false));
    Expected::packed(desc.grad_filter, desc.dtype, wants)
}
