//! Quantised matrices, read block by block as their formats are documented.

use backend_api::quant::{GroupScales, MatMulNBits, QuantFormat, UNIT, repack};
use backend_api::{Activation, DType, Gate};
use half::f16;

use super::binary::{oai_factor, oai_gate};
use super::norm::Row;
use super::unary::activation;
use crate::float::{MIN_NORMAL_F32, gamma, storage_rounding};
use crate::rng::Rng;
use crate::want::Want;

/// What scales of blocks are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scales {
    /// Small numbers of either sign.
    Usual,
    /// 1, so that weights are integers.
    One,
    /// Also infinities, NaN, zeros, subnormal and the largest numbers.
    Extreme,
    /// Of one size in a matrix, which in formats that have such is beyond f16's range; small numbers in others.
    Beyond,
}

impl Scales {
    fn one(self, rng: &mut Rng) -> f16 {
        match self {
            Self::One => f16::ONE,
            Self::Extreme if rng.one_in(2) => {
                let specials = [f16::INFINITY, f16::NEG_INFINITY, f16::NAN, f16::ZERO, f16::NEG_ZERO];
                let bounds = [f16::MAX, f16::MIN, f16::from_bits(1), f16::from_bits(0x83FF)];
                if rng.one_in(2) { rng.pick(&specials) } else { rng.pick(&bounds) }
            }
            _ => f16::from_f64(rng.uniform(-0.02, 0.02)),
        }
    }

    /// The exponent of a power of two, 128 larger; `first` is the matrix's smallest where they are [`Beyond`](Self::Beyond).
    fn exponent(self, rng: &mut Rng, first: u8) -> u8 {
        match self {
            Self::One => 128,
            Self::Extreme if rng.one_in(2) => rng.pick(&[0, 1, 2, 252, 253, 254, 255]),
            Self::Extreme => rng.next_u64() as u8,
            Self::Beyond => first + rng.below(4) as u8,
            Self::Usual => 118 + rng.below(5) as u8,
        }
    }
}

/// A quantised matrix and the values of its weights.
#[derive(Debug)]
pub(crate) struct Weights {
    columns: usize,
    planes: Vec<u8>,
    /// Each weight, and the sum of the magnitudes of the terms `s · q`, `s · z` and `m` that make it up.
    values: Vec<(f64, f64)>,
}

impl Weights {
    pub(crate) fn random(
        rng: &mut Rng,
        format: QuantFormat,
        rows: usize,
        columns: usize,
        scales: Scales,
    ) -> Self {
        match format {
            QuantFormat::U4 { group, zero_points } => {
                Self::groups(rng, [rows, columns, group], zero_points, scales)
            }
            _ => Self::blocks(rng, format, [rows, columns], scales),
        }
    }

    fn blocks(rng: &mut Rng, format: QuantFormat, [rows, columns]: [usize; 2], scales: Scales) -> Self {
        let (elements, size) = (format.block_elements(), format.block_bytes().unwrap_or(1));
        let mut blocks: Vec<u8> =
            (0..rows * columns / elements * size).map(|_| rng.next_u64() as u8).collect();
        let places: &[usize] = match format {
            QuantFormat::Q6_K => &[208],
            QuantFormat::Q4_K | QuantFormat::Q5_K => &[0, 2],
            _ => &[0],
        };
        // Weights of 2⁻⁴⁸ and less, or of 2¹⁷ and more.
        let first = rng.pick(&[73, 145]);
        for block in blocks.chunks_exact_mut(size) {
            if format == QuantFormat::Mxfp4 {
                block[0] = scales.exponent(rng, first);
                continue;
            }
            for &at in places {
                block[at..at + 2].copy_from_slice(&scales.one(rng).to_le_bytes());
            }
        }
        let values = (0..rows * columns)
            .map(|i| weight(format, &blocks[i / elements * size..][..size], i % elements))
            .collect();
        let mut planes = vec![0; format.bytes(rows, columns).unwrap_or(0)];
        repack(format, rows, columns, &blocks, &mut planes).expect("blocks of this size");
        Self { columns, planes, values }
    }

    fn groups(rng: &mut Rng, [rows, columns, group]: [usize; 3], has_zeros: bool, scales: Scales) -> Self {
        // A group that is longer than a row and its padding leaves the planes as they are.
        let group = group.min(columns.next_power_of_two().max(UNIT));
        let groups = columns.div_ceil(group);
        let b: Vec<u8> = (0..rows * groups * group / 2).map(|_| rng.next_u64() as u8).collect();
        let scales: Vec<u8> = (0..rows * groups).flat_map(|_| scales.one(rng).to_le_bytes()).collect();
        let zero_bytes = groups.div_ceil(2);
        let zeros: Vec<u8> = (0..rows * zero_bytes).map(|_| rng.next_u64() as u8).collect();
        let zero_points = has_zeros.then_some(&zeros[..]);
        let source =
            MatMulNBits { rows, columns, group, b: &b, scales: GroupScales::F16(&scales), zero_points };
        let nibble = |bytes: &[u8], at: usize| f64::from(bytes[at / 2] >> (4 * (at % 2)) & 15);
        let values = (0..rows * columns).map(|i| {
            let (row, column) = (i / columns, i % columns);
            let number = column / group;
            let scale = half_at(&scales, 2 * (row * groups + number));
            let q = nibble(&b, row * groups * group + column);
            let z = if has_zeros { nibble(&zeros, 2 * row * zero_bytes + number) } else { 8.0 };
            (scale * (q - z), scale.abs() * (q + z))
        });
        let values = values.collect();
        let mut planes = vec![0; source.format().bytes(rows, columns).unwrap_or(0)];
        source.repack(&mut planes).expect("groups of this size");
        Self { columns, planes, values }
    }

    /// A weight, and the magnitudes that make it up.
    pub(crate) fn at(&self, row: usize, column: usize) -> (f64, f64) {
        self.values[row * self.columns + column]
    }

    /// The planes as words.
    pub(crate) fn words(&self) -> Vec<f64> {
        let (words, _) = self.planes.as_chunks::<4>();
        words.iter().map(|&word| f64::from(u32::from_le_bytes(word))).collect()
    }
}

fn half_at(bytes: &[u8], at: usize) -> f64 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f64()
}

/// Weight `i` of a GGUF block, and the magnitudes that make it up.
fn weight(format: QuantFormat, block: &[u8], i: usize) -> (f64, f64) {
    let d = half_at(block, 0);
    let low = |at: usize, upper: usize| block[at] >> (4 * upper) & 15;
    let affine = |q: u8| {
        let (s, t) = (&block[4..16], i / 32);
        let [sc, m] = if t < 4 {
            [s[t] & 63, s[t + 4] & 63]
        } else {
            [s[t + 4] & 15 | (s[t - 4] >> 6) << 4, s[t + 4] >> 4 | (s[t] >> 6) << 4]
        };
        let (scaled, min) = (d * f64::from(sc) * f64::from(q), half_at(block, 2) * f64::from(m));
        // A device subtracts in f32.
        (f64::from((scaled - min) as f32), scaled.abs() + min.abs())
    };
    let centred =
        |scale: f64, q: u8, zero: f64| (scale * (f64::from(q) - zero), scale.abs() * (f64::from(q) + zero));
    match format {
        QuantFormat::Q8_0 => {
            let value = d * f64::from(block[2 + i] as i8);
            (value, value.abs())
        }
        QuantFormat::Q4_0 => centred(d, low(2 + i % 16, i / 16), 8.0),
        QuantFormat::Mxfp4 => {
            let code = low(1 + i % 16, i / 16);
            let (exponent, mantissa) = (code >> 1 & 3, f64::from(code & 1));
            // As OCP has it: one half is the only number without a leading one.
            let magnitude = match exponent {
                0 => mantissa / 2.0,
                _ => 2f64.powi(i32::from(exponent) - 1) * (1.0 + mantissa / 2.0),
            };
            let value = magnitude * 2f64.powi(i32::from(block[0]) - 127);
            (if code < 8 { value } else { -value }, value)
        }
        QuantFormat::Q4_K => affine(low(16 + i / 64 * 32 + i % 32, i / 32 % 2)),
        QuantFormat::Q5_K => {
            let fifth = block[16 + i % 32] >> (i / 32) & 1;
            affine(low(48 + i / 64 * 32 + i % 32, i / 32 % 2) | fifth << 4)
        }
        _ => {
            let (half, group, j) = (i / 128, i / 32 % 4, i % 32);
            let above = block[128 + 32 * half + j] >> (2 * group) & 3;
            let q = low(64 * half + 32 * (group % 2) + j, group / 2) | above << 4;
            centred(half_at(block, 208) * f64::from(block[192 + i / 16] as i8), q, 32.0)
        }
    }
}

/// Whether weights may be rounded to f16: by many rows of f16, but not those of Mxfp4, which may be beyond its range.
pub(crate) fn may_be_half(format: QuantFormat, a: DType, rows: usize) -> bool {
    a == DType::F16 && rows > 32 && format != QuantFormat::Mxfp4
}

/// What rounding to f16 changes, relative to a normal number, and of a subnormal one.
const HALF_F16: f64 = 1.0 / 2048.0;
const SUBNORMAL_F16: f64 = 1.0 / (1u64 << 24) as f64;

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
}

impl Sum {
    /// An element and its error times a weight of these magnitudes.
    pub(crate) fn add(&mut self, (x, error): (f64, f64), (weight, magnitudes): (f64, f64)) {
        self.sum += x * weight;
        self.magnitude += (x.abs() + error) * magnitudes;
        self.input += x.abs() + error;
        self.moved += error * weight.abs();
    }

    /// The sum of |a| times the magnitudes that make up a weight.
    pub(crate) const fn magnitude(&self) -> f64 {
        self.magnitude
    }

    /// `alpha · Σ aₚ·wₚ + bias` over `k` weights, and its error.
    ///
    /// A term passes through the products with its quant's and its block's scale, at most k + 5 additions (of
    /// blocks and their zero points), alpha's product and the bias's addition. With many rows of f16, weights
    /// may be rounded to f16.
    pub(crate) fn finish(self, k: usize, alpha: f64, bias: f64, half_weights: bool) -> (f64, f64) {
        let Self { sum, magnitude, input, moved } = self;
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

/// A gated linear unit of the halves of a product, each of which may be stored before.
pub(crate) fn gated(gate: Gate, dtype: DType, halves: [(f64, f64); 2]) -> Want {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
