//! Random operations on quantised matrices.

use backend_api::desc::{
    DequantizeDesc, ExpertMatmulDesc, Matrix, QuantGatherDesc, QuantMatmulDesc, QuantMatrix, QuantizeRowsDesc,
};
use backend_api::quant::QuantFormat;
use backend_api::{Activation, Gate, MathMode};

use super::Call;
use super::calls::{Method, call};
use super::draw::{dtype, factor, maybe, size, sizes};
use super::pool::Pool;
use crate::rng::Rng;

pub(super) const METHODS: &[Method] = &[quant_matmul, expert_matmul, quant_gather, dequantize, quantize_rows];

/// A matrix of a few blocks most of the time, so that it fits.
fn matrix(rng: &mut Rng, pool: &Pool<'_>) -> QuantMatrix {
    let group = match rng.below(6) {
        0 => size(rng),
        _ => 16 << rng.below(5),
    };
    let format = match rng.below(8) {
        0..=2 => QuantFormat::U4 { group, zero_points: rng.one_in(2) },
        _ => rng.pick(&QuantFormat::GGUF),
    };
    let [rows, columns] = sizes(rng);
    let columns = match format {
        QuantFormat::U4 { .. } => columns,
        _ if rng.one_in(6) => columns,
        _ => format.block_elements().saturating_mul(columns.min(1 << 40)),
    };
    QuantMatrix::new(pool.pick(rng), format, rows, columns)
}

/// Rows that are as long as they have to be, or longer, most of the time.
fn operand(rng: &mut Rng, pool: &Pool<'_>, columns: usize) -> Matrix {
    let ld = match rng.below(6) {
        0 => size(rng),
        slack => columns.max(1).saturating_add(slack / 4),
    };
    let matrix = Matrix::new(pool.pick(rng), dtype(rng), ld);
    if rng.one_in(4) { matrix.with_offset(size(rng)) } else { matrix }
}

fn quant_matmul<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let b = matrix(rng, pool);
    let (a, c) = (operand(rng, pool, b.columns), operand(rng, pool, b.rows));
    let mut d = QuantMatmulDesc::new(size(rng), a, b, c).with_alpha(factor(rng));
    let mut residual = if rng.one_in(2) { c } else { operand(rng, pool, b.rows) };
    if !rng.one_in(4) {
        residual.dtype = c.dtype;
    }
    let bias = pool.pick(rng);
    (d.bias, d.residual) = (maybe(rng, bias), maybe(rng, residual));
    d.activation = rng.pick(Activation::ALL);
    d.math = rng.pick(MathMode::ALL);
    let verdict = pool.check("quant_matmul", d.operands("quant_matmul"));
    call(format!("{d:?}"), verdict, move |b| b.quant_matmul(&d))
}

fn expert_matmul<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let mut b = matrix(rng, pool);
    let experts = if rng.one_in(6) { size(rng) } else { 1 + rng.below(4) };
    let gate = rng.pick(Gate::ALL);
    let gate = maybe(rng, gate);
    let rows = b.rows;
    if !rng.one_in(6) {
        b.rows = rows.saturating_mul(experts).saturating_mul(if gate.is_some() { 2 } else { 1 });
    }
    let (a, c) = (operand(rng, pool, b.columns), operand(rng, pool, rows));
    let [indices, bias, weights] = std::array::from_fn(|_| pool.pick(rng));
    let used = if rng.one_in(6) { size(rng) } else { rng.below(4) };
    let mut d = ExpertMatmulDesc::new([size(rng), used, experts], a, b, indices, c)
        .with_per_expert(rng.one_in(2))
        .with_accumulate(rng.one_in(2));
    (d.bias, d.gate, d.weights) = (maybe(rng, bias), gate, maybe(rng, weights));
    let verdict = pool.check("expert_matmul", d.operands("expert_matmul"));
    call(format!("{d:?}"), verdict, move |b| b.expert_matmul(&d))
}

fn quant_gather<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let table = matrix(rng, pool);
    let [indices, output] = std::array::from_fn(|_| pool.pick(rng));
    let d = QuantGatherDesc::new(dtype(rng), table, indices, output, size(rng));
    let verdict = pool.check("quant_gather", d.operands("quant_gather"));
    call(format!("{d:?}"), verdict, move |b| b.quant_gather(&d))
}

fn dequantize<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let input = matrix(rng, pool);
    let d = DequantizeDesc::new(input, operand(rng, pool, input.columns));
    let verdict = pool.check("dequantize", d.operands("dequantize"));
    call(format!("{d:?}"), verdict, move |b| b.dequantize(&d))
}

fn quantize_rows<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let [rows, count, offset, slack] = sizes(rng);
    // Whole blocks most of the time.
    let blocks =
        |rng: &mut Rng, elements: usize| if rng.one_in(8) { elements } else { elements.saturating_mul(32) };
    let columns = size(rng).min(1 << 40);
    let columns = blocks(rng, columns);
    let source = operand(rng, pool, columns);
    let mut d = QuantizeRowsDesc::new(source, pool.pick(rng), rows, columns, count);
    if rng.one_in(3) {
        d.offset = blocks(rng, offset);
        d.stride = columns.saturating_add(blocks(rng, slack));
    }
    let indices = pool.pick(rng);
    d.indices = maybe(rng, indices);
    let verdict = pool.check("quantize_rows", d.operands("quantize_rows"));
    call(format!("{d:?}"), verdict, move |b| b.quantize_rows(&d))
}
