//! Products with quantised matrices.

mod weights;

use backend_api::desc::QuantMatmulDesc;
use backend_api::quant::{QuantFormat, UNIT};
use backend_api::{Activation, BackendResult, DType, Gate, MathMode};

use super::binary::{oai_factor, oai_gate};
use super::expected::{Bytes, Expected};
use super::norm::Row;
use super::product::{factor, lines};
use super::unary::activation;
use crate::float::{MIN_NORMAL_F32, gamma, storage_rounding};
use crate::want::Want;

pub(crate) use weights::{Scales, Weights};

/// Whether weights may be rounded to f16: by many rows of f16, but not those of Mxfp4, which may be beyond its range.
pub(crate) fn may_be_half(format: QuantFormat, a: DType, rows: usize) -> bool {
    a == DType::F16 && rows > 32 && format != QuantFormat::Mxfp4
}

/// Whether integer weights of a format, whose scales are 1, are whole numbers of f16: not above 2048.
pub(crate) fn fit_half(format: QuantFormat) -> bool {
    !matches!(format, QuantFormat::Q6_K | QuantFormat::IQ4_XS)
}

/// What rounding to f16 changes, relative to a normal number, and of a subnormal one.
const HALF_F16: f64 = 1.0 / 2048.0;
const SUBNORMAL_F16: f64 = 1.0 / (1u64 << 24) as f64;

/// The largest f16: what is above may be infinite.
const MAX_F16: f64 = 65504.0;

/// A sum of products of elements of A, which may be off by an error, with weights.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    sum: f64,
    /// Of |a| times the magnitudes that make up a weight.
    magnitude: f64,
    /// Of |a|.
    input: f64,
    /// How much the errors of A move the sum.
    moved: f64,
    /// The largest magnitude of a weight.
    largest: f64,
}

impl Sum {
    /// An element and its error times a weight of these magnitudes.
    pub(crate) fn add(&mut self, (x, error): (f64, f64), (weight, magnitudes): (f64, f64)) {
        self.sum += x * weight;
        self.magnitude += (x.abs() + error) * magnitudes;
        self.input += x.abs() + error;
        self.moved += error * weight.abs();
        self.largest = self.largest.max(weight.abs());
    }

    /// The sum of |a| times the magnitudes that make up a weight.
    pub(crate) const fn magnitude(&self) -> f64 {
        self.magnitude
    }

    /// `alpha · Σ aₚ·wₚ + bias` over `k` weights, and its error.
    ///
    /// A term passes through the products with its quant's and its block's scale, at most k + 5 additions (of
    /// blocks and their zero points), alpha's product and the bias's addition. With many rows of f16, weights
    /// may be rounded to f16; where one is beyond its range, there is no bound. Nor is there one where sums of some terms may be
    /// beyond f32's range, so that they are infinite, or no number where both infinities meet.
    pub(crate) fn finish(self, k: usize, alpha: f64, bias: f64, half_weights: bool) -> (f64, f64) {
        let Self { sum, magnitude, input, moved, largest } = self;
        let alpha = factor(alpha, k);
        let overflows = magnitude > f64::from(f32::MAX);
        if overflows || half_weights && largest > MAX_F16 {
            return (alpha * sum + bias, f64::INFINITY);
        }
        let flushed = (k + 3) as f64 * MIN_NORMAL_F32;
        let rounding = if half_weights { HALF_F16 * magnitude + SUBNORMAL_F16 * input } else { 0.0 };
        let products = alpha.abs() * (gamma(k + 8) * magnitude + flushed + rounding + moved);
        (alpha * sum + bias, products + gamma(3) * bias.abs())
    }
}

/// Activations that are rounded to 8 bits with one scale.
pub(crate) const INT8_BLOCK: usize = 32;

/// Adds to the errors of a row's elements what [`MathMode::Int8`](backend_api::MathMode::Int8) may round them by.
///
/// Of numbers that are known, that is their distance from the nearest multiple of the scale. The quotient by it, of up
/// to 127, is off by two divisions of 2.5 units, and its product with the scale by as much: 2⁻¹³ of the scale
/// together, which also makes an element near a tie go either way. Of numbers with errors, whose scale isn't known,
/// it is a 253rd of the largest.
pub(crate) fn round_to_int8(row: &mut [(f64, f64)]) {
    let smallest = 2f64.powi(-118);
    for block in row.chunks_mut(INT8_BLOCK) {
        let largest = block.iter().fold(0.0, |most: f64, (x, error)| most.max(x.abs() + error));
        // Results of its row have no bound: they are infinite or NaN.
        if !largest.is_finite() {
            continue;
        }
        let scale = largest / 127.0;
        let is_known = block.iter().all(|&(_, error)| error == 0.0);
        for (x, error) in block {
            *error += if largest < smallest {
                // It may count as 0.
                x.abs() + scale
            } else if is_known {
                (*x - scale * (*x / scale).round()).abs() + scale * 2f64.powi(-13) + MIN_NORMAL_F32
            } else {
                largest / 253.0
            };
        }
    }
}

/// What is wanted of a result with such activations: of a row that isn't finite, also NaN.
pub(crate) fn or_nan(want: Want, row: &[(f64, f64)]) -> Want {
    if row.iter().all(|(x, _)| x.is_finite()) { want } else { want.or([Want::Exact(f64::NAN)]) }
}

/// A row's elements after its root-mean-square norm and the rounding to `dtype`, with their errors.
pub(crate) fn normed(dtype: DType, row: &[f64], weight: &[f64], eps: f64) -> Vec<(f64, f64)> {
    let row = Row { input: row, residual: &[], weight, bias: &[], eps };
    row.rms_norm().iter().map(|want| stored(dtype, want)).collect()
}

/// What may be stored of a number: its value, and the error with the rounding to `dtype`.
fn stored(dtype: DType, want: &Want) -> (f64, f64) {
    let (value, bound) = want.bounded().unwrap_or((f64::NAN, 0.0));
    (value, bound + storage_rounding(dtype, value.abs() + bound))
}

/// A function of a product's element, which has an infinite bound if anything may come of it.
pub(crate) fn activated(function: Activation, (value, bound): (f64, f64)) -> Want {
    if bound == f64::INFINITY { Want::Anything } else { activation(function, value, bound) }
}

/// A gated linear unit of the halves of a product, each of which may be stored before; then anything may come of what
/// its type has no room for.
pub(crate) fn gated(gate: Gate, dtype: DType, halves: [(f64, f64); 2]) -> Want {
    let overflows = |(value, bound): (f64, f64)| {
        bound == f64::INFINITY || (dtype == DType::F16 && value.is_finite() && value.abs() + bound > MAX_F16)
    };
    if halves.into_iter().any(overflows) {
        return Want::Anything;
    }
    let [(opening, opening_bound), (value, bound)] =
        halves.map(|(value, bound)| stored(dtype, &Want::near(value, bound)));
    let of = |function| activation(function, opening, opening_bound);
    let (opened, value, bound) = match gate {
        Gate::Swiglu => (of(Activation::Silu), value, bound),
        Gate::Geglu => (of(Activation::Gelu), value, bound),
        Gate::GegluTanh => (of(Activation::GeluTanh), value, bound),
        Gate::SwigluOai => {
            // Steeper than 1.13 it isn't either, and what is clamped moves no further than what isn't.
            let opened = if opening.is_nan() { Want::Exact(opening) } else { oai_gate(opening) };
            let factor = oai_factor(value);
            (opened.widened(1.13 * opening_bound), factor, bound + gamma(1) * (factor.abs() + bound))
        }
        other => unimplemented!("an oracle of {}", other.name()),
    };
    let Some((opened, opened_bound)) = opened.bounded() else { return Want::Exact(f64::NAN) };
    let product_bound = opened.abs() * bound + opened_bound * (value.abs() + bound);
    Want::near(opened * value, product_bound + gamma(2) * (opened * value).abs())
}

/// What is wanted of a sum with `residual`.
pub(crate) fn plus(want: Want, residual: f64, exact: bool) -> Want {
    let rounding = |value: f64, bound: f64| {
        if exact && bound == 0.0 { 0.0 } else { bound + gamma(2) * (value.abs() + bound + residual.abs()) }
    };
    match want {
        Want::Exact(value) => Want::near(value + residual, rounding(value, 0.0)),
        Want::Near { value, bound, flush_below } => {
            // Where the first term may be flushed to 0, the sum is the residual.
            let flushed = if flush_below > 0.0 { flush_below } else { 0.0 };
            Want::near(value + residual, rounding(value, bound) + flushed)
        }
        Want::AnyOf(all) => Want::AnyOf(all.into_iter().map(|want| plus(want, residual, exact)).collect()),
        Want::Anything => Want::Anything,
    }
}

pub(super) fn expect_quant_matmul(
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
    let half_weights = may_be_half(desc.b.format, desc.multiplied_dtype(), m);
    let rounds = desc.math == MathMode::Int8 && b.format.takes_int8();
    let norm = desc.norm.map(|norm| (memory.numbers(norm.weight, a.dtype), norm.eps));
    let rows = lines(&a_all, a.offset, a.ld, false, [m, k]);
    let row_of_a = |i: usize| -> Vec<(f64, f64)> {
        let row = &rows[i * k..][..k];
        let mut row = match &norm {
            Some((weight, eps)) => normed(desc.multiplied_dtype(), row, &weight[..k], *eps),
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
            let mut sum = Sum::default();
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
        for (i, &element) in first.iter().enumerate() {
            let want = match &second {
                Some((gate, second)) => gated(*gate, c.dtype, [element, second[i]]),
                None => activated(desc.activation, element),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_f16_has_no_room_for_has_no_bound() {
        let mut sum = Sum::default();
        sum.add((1.0, 0.0), (70_000.0, 70_000.0));
        let [f32, f16] = [false, true].map(|half_weights| sum.finish(1, 1.0, 0.0, half_weights));
        assert!((f32.0, f16.0) == (70_000.0, 70_000.0) && f32.1 < 1.0, "{f32:?} {f16:?}");
        let is_free = |want: Want| want.miss(f64::NAN, DType::F16) == 0.0;
        assert!(is_free(activated(Activation::Relu, f16)) && !is_free(activated(Activation::Relu, f32)));
        for halves in [[f32, (1.0, 0.0)], [(1.0, 0.0), f32]] {
            assert!(is_free(gated(Gate::Geglu, DType::F16, halves)));
            assert!(!is_free(gated(Gate::Geglu, DType::F32, halves)));
            assert!(is_free(plus(gated(Gate::Swiglu, DType::F16, halves), 1.0, false)));
        }
    }

    #[test]
    fn rounding_to_8_bits_moves_an_element_by_half_of_the_scale_at_most() {
        let errors = |numbers: &[f64], error: f64| -> Vec<f64> {
            let mut row: Vec<_> = numbers.iter().map(|&x| (x, error)).collect();
            round_to_int8(&mut row);
            row.into_iter().map(|(_, error)| error).collect()
        };
        let slack = 2.0 * 2f64.powi(-13);
        let of = errors(&[-254.0, 4.0, 5.0, 0.5], 0.0);
        assert!(
            of.iter().zip([0.0, 0.0, 1.0, 0.5]).all(|(got, want)| (got - want - slack).abs() < 1e-12),
            "{of:?}"
        );
        assert_eq!(errors(&[253.0, 0.0], 0.0)[1], 253.0 / 127.0 * 2f64.powi(-13) + MIN_NORMAL_F32);
        assert_eq!(errors(&[252.5, -1.0], 0.5), [1.5, 1.5]);
        // Of the second block, which is all zeros, nothing.
        let mut blocks = [1.0; 64];
        blocks[32..].fill(0.0);
        assert_eq!(errors(&blocks, 0.0)[32..], [0.0; 32]);
        assert_eq!(errors(&[1e-37], 0.0), [1e-37 + 1e-37 / 127.0]);
    }
}
