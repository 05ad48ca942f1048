//! `quant_matmul` with `MathMode::Int8`: every format, and activations whose blocks have all kinds of scales.

use backend_api::{Activation, DType, Gate, MathMode};

use super::quant::{DTYPES, FORMATS, Product};
use crate::case::Case;
use crate::data::Data;
use crate::float::round_to;
use crate::grid::pairwise;
use crate::oracle::quant::INT8_BLOCK;
use crate::rng::Rng;

/// What some blocks of the rows of A are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocks {
    AsTheyAre,
    /// Zeros in every other block.
    Zeros,
    /// One element is a thousand times as large as the others.
    Huge,
    /// The largest magnitude is a negative number's.
    Negative,
    /// Numbers whose scales are hardly normal, and smaller ones.
    Tiny,
    /// Whole multiples of the scale, which rounding leaves as they are.
    Multiples,
    /// Infinities and NaN in every other row.
    NotFinite,
}

impl Blocks {
    const ALL: [Self; 7] = [
        Self::AsTheyAre,
        Self::Zeros,
        Self::Huge,
        Self::Negative,
        Self::Tiny,
        Self::Multiples,
        Self::NotFinite,
    ];

    pub(super) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Changes rows of `k` numbers of `dtype`.
    pub(super) fn put(self, rng: &mut Rng, dtype: DType, k: usize, rows: &mut [f64]) {
        for (i, row) in rows.chunks_mut(k.max(1)).enumerate() {
            for (b, block) in row.chunks_mut(INT8_BLOCK).enumerate() {
                let place = rng.below(block.len());
                match self {
                    Self::AsTheyAre => {}
                    Self::Zeros if b % 2 == 0 => block.fill(0.0),
                    Self::Huge => block[place] *= 1024.0,
                    Self::Negative => block[place] = -8.0,
                    Self::Tiny if b % 3 < 2 => {
                        // Of f32 numbers on both sides of the smallest scale. Subnormal ones of f16 may be flushed.
                        let exponent = if dtype == DType::F16 { -5 } else { -116 - 5 * (b % 3) as i32 };
                        block.iter_mut().for_each(|x| *x = round_to(dtype, *x * 2f64.powi(exponent)));
                    }
                    Self::Multiples => {
                        let scale = 2f64.powi(rng.below(7) as i32 - 3);
                        block.iter_mut().for_each(|x| *x = scale * (rng.below(255) as f64 - 127.0));
                        block[place] = scale * rng.pick(&[127.0, -127.0]);
                    }
                    Self::NotFinite if i % 2 == 0 && b == i % 3 => {
                        block[place] = rng.pick(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
                    }
                    _ => {}
                }
            }
        }
    }
}

pub(super) fn products() -> Vec<Case> {
    let (rows, columns) = ([1, 2, 7, 16, 17], [1, 6, 9, 34]);
    let activations = Activation::ALL.len();
    let grid = pairwise(
        &[
            FORMATS.len(),
            Blocks::ALL.len(),
            4,
            rows.len(),
            columns.len(),
            4,
            3,
            2,
            2,
            activations,
            3,
            3,
            7,
            2,
        ],
        "quant_matmul int8",
    );
    let product = move |row: Vec<usize>| {
        let blocks = Blocks::ALL[row[1]];
        // A bound of functions of what isn't finite, or of its norm, would say nothing.
        let is_finite = blocks != Blocks::NotFinite;
        let [_, c_type] = DTYPES[row[5]];
        // Halves of a product that is rounded to f16 would not be finite.
        let is_large = blocks == Blocks::Huge || (blocks == Blocks::Multiples && c_type == DType::F16);
        Product {
            data: if row[13] == 1 && row[12] >= Gate::ALL.len() { Data::Integers } else { Data::Uniform },
            norm: row[11] == 0 && is_finite,
            gate: Gate::ALL.get(row[12]).copied().filter(|_| is_finite && !is_large),
            math: MathMode::Int8,
            blocks,
            ..Product::drawn(row[0], row[2], [rows[row[3]], columns[row[4]]], &row[5..11])
        }
    };
    grid.into_iter().map(product).map(Product::case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_meets_every_kind_of_blocks_and_number_of_rows() {
        let names: Vec<String> = products().iter().map(Case::path).collect();
        for m in [1, 2, 7, 16, 17] {
            for blocks in Blocks::ALL {
                let has = |name: &String| name.contains(&format!("_m{m}_")) && name.ends_with(&blocks.name());
                assert!(names.iter().any(has), "{m} rows of {}", blocks.name());
            }
        }
    }
}
