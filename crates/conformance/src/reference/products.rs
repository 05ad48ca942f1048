//! Matrix products and convolutions.

use backend_api::desc::{
    BiasAxis, ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvTransposeDesc, MatmulDesc, Matrix,
    QuantMatmulDesc,
};
use backend_api::quant::UNIT;
use backend_api::{BackendResult, MathMode};

use super::{Bytes, Expected};
use crate::oracle::conv::{Finish, Sum, wants};
use crate::oracle::product::{Element, Products};
use crate::oracle::quant::{self, gated, normed, or_nan, plus, round_to_int8};
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
    let half_weights = quant::may_be_half(desc.b.format, a.dtype, m);
    let rounds = desc.math == MathMode::Int8 && b.format.takes_int8();
    let norm = desc.norm.map(|norm| (memory.numbers(norm.weight, a.dtype), norm.eps));
    let rows = lines(&a_all, a.offset, a.ld, false, [m, k]);
    let row_of_a = |i: usize| -> Vec<(f64, f64)> {
        let row = &rows[i * k..][..k];
        let mut row = match &norm {
            Some((weight, eps)) => normed(a.dtype, row, &weight[..k], *eps),
            None => row.iter().map(|&x| (x, 0.0)).collect(),
        };
        if rounds {
            round_to_int8(&mut row);
        }
        row
    };
    let rows: Vec<_> = (0..m).map(row_of_a).collect();
    // Elements of a column of the product, with their bounds.
    let column = |j: usize| -> Vec<(f64, f64)> {
        let (mut weights, mut magnitudes) = (vec![0.0f32; k.next_multiple_of(UNIT)], Vec::new());
        magnitudes.clone_from(&weights);
        if let Some(row) = layout.row(planes, j) {
            let units = weights.as_chunks_mut::<UNIT>().0.iter_mut();
            for (number, (weights, sizes)) in units.zip(magnitudes.as_chunks_mut::<UNIT>().0).enumerate() {
                row.dequantize(number, weights);
                row.magnitudes(number, sizes);
            }
        }
        let bias = bias.get(j).copied().unwrap_or(0.0);
        let element = |row: &Vec<(f64, f64)>| {
            let mut sum = quant::Sum::default();
            for (&x, (&weight, &size)) in row.iter().zip(weights.iter().zip(&magnitudes)) {
                sum.add(x, (f64::from(weight), f64::from(size)));
            }
            sum.finish(k, alpha, bias, half_weights)
        };
        rows.iter().map(element).collect()
    };
    let mut places = Vec::with_capacity(m * n);
    for j in 0..n {
        let first = column(j);
        let second = desc.gate.map(|gate| (gate, column(n + j)));
        for (i, &(value, bound)) in first.iter().enumerate() {
            let want = match &second {
                Some((gate, second)) => gated(*gate, c.dtype, [(value, bound), second[i]]),
                None => activation(desc.activation, value, bound),
            };
            let want = match desc.residual {
                Some(matrix) => plus(want, residual[matrix.offset + i * matrix.ld + j], false),
                None => want,
            };
            let want = if rounds { or_nan(want, &rows[i]) } else { want };
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
