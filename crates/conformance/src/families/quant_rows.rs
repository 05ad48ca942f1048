//! `quant_gather` and `dequantize`: every format, indices outside of the matrix, extreme scales.

use backend_api::DType;
use backend_api::desc::{DequantizeDesc, Matrix, QuantGatherDesc, QuantMatrix};

use super::gather::{INDICES, Indices};
use super::quant::{FORMATS, name_of};
use crate::case::Case;
use crate::grid::pairwise;
use crate::oracle::quant::{Scales, Weights};
use crate::trial::Trial;
use crate::want::Want;

use DType::{F16, F32};

/// What is wanted of a weight: where its scale may be a subnormal number, also 0.
fn weight(value: f64) -> Want {
    let want = Want::number(value);
    if value.abs() <= 12.0 * 2f64.powi(-127) { want.or([Want::number(0.0)]) } else { want }
}

/// `quant_gather`.
pub(super) fn lookups() -> impl Iterator<Item = Case> {
    let grid = pairwise(&[FORMATS.len(), 4, 4, 5, 3, 2], "quant_gather");
    grid.into_iter().map(|row| {
        let (format, lengths) = FORMATS[row[0]];
        let (columns, rows, count) = (lengths[row[1]], [0, 1, 5, 40][row[2]], [0, 1, 2, 7, 65][row[3]]);
        let (indices, dtype) = (INDICES[row[4]], [F32, F16][row[5]]);
        let kind = indices.name();
        let name = format!("{}_{dtype}_rows{rows}_columns{columns}_count{count}_{kind}", name_of(format));
        Case::new("quant_gather", name, move |rng| {
            let weights = Weights::random(rng, format, rows, columns, Scales::Usual);
            let chosen: Vec<f64> = (0..count).map(|_| Indices::one(indices, rng, rows)).collect();
            let wants = (0..count * columns).map(|at| {
                let index = chosen[at / columns];
                let inside = index >= 0.0 && index < rows as f64;
                Want::number(if inside { weights.at(index as usize, at % columns).0 } else { 0.0 })
            });
            let wants = wants.collect();
            let mut trial = Trial::new();
            trial.planes("table", &weights.words());
            trial.input("indices", indices.dtype(), &chosen);
            trial.output("output", dtype, wants);
            trial.calling(move |backend, p| {
                let table = QuantMatrix::new(p[0], format, rows, columns);
                backend.quant_gather(&QuantGatherDesc::new(dtype, table, p[1], p[2], count))
            })
        })
    })
}

/// `dequantize`.
pub(super) fn whole() -> impl Iterator<Item = Case> {
    let scales = [Scales::Usual, Scales::One, Scales::Extreme];
    let grid = pairwise(&[FORMATS.len(), 4, 5, 2, 2, 3], "dequantize");
    grid.into_iter().map(move |row| {
        let (format, lengths) = FORMATS[row[0]];
        let (columns, rows, ld_extra) = (lengths[row[1]], [0, 1, 2, 7, 33][row[2]], [0, 3][row[3]]);
        let (dtype, scales) = ([F32, F16][row[4]], scales[row[5]]);
        let kind = format!("{scales:?}").to_lowercase();
        let name = format!("{}_{dtype}_rows{rows}_columns{columns}_ld{ld_extra}_{kind}", name_of(format));
        Case::new("dequantize", name, move |rng| {
            let weights = Weights::random(rng, format, rows, columns, scales);
            let ld = columns + ld_extra;
            let places = (0..rows * columns).map(|at| {
                let (i, j) = (at / columns, at % columns);
                (i * ld + j, weight(weights.at(i, j).0))
            });
            let places: Vec<_> = places.collect();
            let before = vec![f64::NAN; places.last().map_or(0, |&(at, _)| at + 1)];
            let mut trial = Trial::new();
            trial.planes("input", &weights.words());
            trial.scattered("output", dtype, before, places);
            trial.calling(move |backend, p| {
                let input = QuantMatrix::new(p[0], format, rows, columns);
                backend.dequantize(&DequantizeDesc::new(input, Matrix::new(p[1], dtype, ld)))
            })
        })
    })
}
