//! Quantised matrices, read block by block as their formats are documented.

use std::iter::repeat_n;

use backend_api::quant::{GroupScales, MatMulNBits, QuantFormat, UNIT, repack};
use half::f16;

use crate::rng::Rng;

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

/// A quantised matrix.
#[derive(Debug)]
pub(crate) struct Weights {
    planes: Vec<u8>,
    source: Source,
}

/// What the planes were made of.
#[derive(Debug)]
enum Source {
    Blocks { format: QuantFormat, columns: usize, blocks: Vec<u8> },
    Groups(Groups),
}

/// Weights of 4 bits, and the scales and zero points of their groups.
#[derive(Debug)]
struct Groups {
    /// Elements of a group, and groups of a row.
    group: usize,
    groups: usize,
    b: Vec<u8>,
    scales: Vec<u8>,
    zeros: Option<Vec<u8>>,
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
            QuantFormat::Q2_K => &[80, 82],
            QuantFormat::Q3_K => &[108],
            QuantFormat::Q6_K => &[208],
            QuantFormat::Q4_1 | QuantFormat::Q5_1 | QuantFormat::Q4_K | QuantFormat::Q5_K => &[0, 2],
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
        Self::of_blocks(format, rows, columns, blocks)
    }

    /// Weights of Q8_0, Q4_0, Q4_1, Q5_1 or IQ4_NL that are positive, with small minima; the scale of each row's last block
    /// is infinite.
    pub(crate) fn ending_in_infinity(format: QuantFormat, rows: usize, columns: usize) -> Self {
        let (elements, size) = (format.block_elements(), format.block_bytes().unwrap_or(1));
        let one = if format == QuantFormat::Q8_0 { 1 } else { 0x99 };
        let block = |scale: f16| scale.to_le_bytes().into_iter().chain(repeat_n(one, size - 2));
        let row = (1..columns / elements).flat_map(|_| block(f16::ONE)).chain(block(f16::INFINITY));
        let blocks = row.collect::<Vec<u8>>().repeat(rows);
        Self::of_blocks(format, rows, columns, blocks)
    }

    fn of_blocks(format: QuantFormat, rows: usize, columns: usize, blocks: Vec<u8>) -> Self {
        let mut planes = vec![0; format.bytes(rows, columns).unwrap_or(0)];
        repack(format, rows, columns, &blocks, &mut planes).expect("blocks of this size");
        Self { planes, source: Source::Blocks { format, columns, blocks } }
    }

    fn groups(rng: &mut Rng, [rows, columns, group]: [usize; 3], has_zeros: bool, scales: Scales) -> Self {
        // A group that is longer than a row and its padding leaves the planes as they are.
        let group = group.min(columns.next_power_of_two().max(UNIT));
        let groups = columns.div_ceil(group);
        let b: Vec<u8> = (0..rows * groups * group / 2).map(|_| rng.next_u64() as u8).collect();
        let scales: Vec<u8> = (0..rows * groups).flat_map(|_| scales.one(rng).to_le_bytes()).collect();
        let zeros: Vec<u8> = (0..rows * groups.div_ceil(2)).map(|_| rng.next_u64() as u8).collect();
        let zeros = has_zeros.then_some(zeros);
        let (all_scales, zero_points) = (GroupScales::F16(&scales), zeros.as_deref());
        let source = MatMulNBits { rows, columns, group, b: &b, scales: all_scales, zero_points };
        let mut planes = vec![0; source.format().bytes(rows, columns).unwrap_or(0)];
        source.repack(&mut planes).expect("groups of this size");
        Self { planes, source: Source::Groups(Groups { group, groups, b, scales, zeros }) }
    }

    /// A weight, and the sum of the magnitudes of the terms `s · q`, `s · z` and `m` that make it up.
    pub(crate) fn at(&self, row: usize, column: usize) -> (f64, f64) {
        match &self.source {
            Source::Blocks { format, columns, blocks } => {
                let (elements, size) = (format.block_elements(), format.block_bytes().unwrap_or(1));
                let i = row * columns + column;
                weight(*format, &blocks[i / elements * size..][..size], i % elements)
            }
            Source::Groups(groups) => groups.at(row, column),
        }
    }

    /// The planes as words.
    pub(crate) fn words(&self) -> Vec<f64> {
        let (words, _) = self.planes.as_chunks::<4>();
        words.iter().map(|&word| f64::from(u32::from_le_bytes(word))).collect()
    }
}

impl Groups {
    fn at(&self, row: usize, column: usize) -> (f64, f64) {
        let nibble = |bytes: &[u8], at: usize| f64::from(bytes[at / 2] >> (4 * (at % 2)) & 15);
        let Self { group, groups, .. } = *self;
        let number = column / group;
        let scale = half_at(&self.scales, 2 * (row * groups + number));
        let q = nibble(&self.b, row * groups * group + column);
        let z = self.zeros.as_ref().map_or(8.0, |zeros| nibble(zeros, 2 * row * groups.div_ceil(2) + number));
        (scale * (q - z), scale.abs() * (q + z))
    }
}

fn half_at(bytes: &[u8], at: usize) -> f64 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f64()
}

/// The values of IQ4_NL and IQ4_XS.
const IQ4: [f64; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0,
];

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
        less_min(d * f64::from(sc) * f64::from(q), half_at(block, 2) * f64::from(m))
    };
    let value = |x: f64| (x, x.abs());
    let centred =
        |scale: f64, q: u8, zero: f64| (scale * (f64::from(q) - zero), scale.abs() * (f64::from(q) + zero));
    match format {
        QuantFormat::Q8_0 => value(d * f64::from(block[2 + i] as i8)),
        QuantFormat::Q4_0 => centred(d, low(2 + i % 16, i / 16), 8.0),
        QuantFormat::Q4_1 => less_min(d * f64::from(low(4 + i % 16, i / 16)), -half_at(block, 2)),
        QuantFormat::Q5_0 => {
            let fifth = block[2 + i / 8] >> (i % 8) & 1;
            centred(d, low(6 + i % 16, i / 16) | fifth << 4, 16.0)
        }
        QuantFormat::Q5_1 => {
            let fifth = block[4 + i / 8] >> (i % 8) & 1;
            less_min(d * f64::from(low(8 + i % 16, i / 16) | fifth << 4), -half_at(block, 2))
        }
        QuantFormat::IQ4_NL => value(d * IQ4[usize::from(low(2 + i % 16, i / 16))]),
        QuantFormat::IQ4_XS => {
            let t = i / 32;
            let sc = low(4 + t / 2, t % 2) | (block[2 + t / 4] >> (t % 4 * 2) & 3) << 4;
            value(d * (f64::from(sc) - 32.0) * IQ4[usize::from(low(8 + 16 * t + i % 16, i % 32 / 16))])
        }
        QuantFormat::Q2_K => {
            let (d, dmin) = (half_at(block, 80), half_at(block, 82));
            let q = block[16 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
            let [sc, m] = [low(i / 16, 0), low(i / 16, 1)].map(f64::from);
            less_min(d * sc * f64::from(q), dmin * m)
        }
        QuantFormat::Q3_K => {
            let t = i / 16;
            let sc = low(96 + t % 8, t / 8) | (block[104 + t % 4] >> (t / 4 * 2) & 3) << 4;
            let third = block[i % 32] >> (i / 32) & 1;
            let q = block[32 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3 | third << 2;
            centred(half_at(block, 108) * (f64::from(sc) - 32.0), q, 4.0)
        }
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

/// A weight less a minimum, which a device subtracts in f32, and both magnitudes.
fn less_min(scaled: f64, min: f64) -> (f64, f64) {
    (f64::from((scaled - min) as f32), scaled.abs() + min.abs())
}
