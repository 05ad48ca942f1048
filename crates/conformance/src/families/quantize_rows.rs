//! `quantize_rows`: types, lengths, layouts, indices inside and outside the cache, and numbers at the ends of what
//! blocks hold.

use backend_api::DType;
use backend_api::desc::{Matrix, QuantizeRowsDesc};
use backend_api::kv::KvFormat;

use crate::case::Case;
use crate::float::round_to;
use crate::grid::pairwise;
use crate::oracle::q8_0;
use crate::rng::Rng;
use crate::trial::Trial;
use crate::want::Want;

const BLOCK: usize = KvFormat::BLOCK;
/// Words of a block.
const WORDS: usize = KvFormat::BLOCK_BYTES / 4;

/// What the rows hold.
#[derive(Clone, Copy, Debug)]
enum Content {
    /// Magnitudes that differ from block to block.
    Usual,
    /// Quants that lie amid two whole numbers, and zeros.
    Ties,
    /// The least and largest scales, and what has none.
    Extreme,
}

/// Which row of the cache a row of the source becomes.
#[derive(Clone, Copy, Debug)]
enum Places {
    /// Its own number.
    InOrder,
    /// Any, some of them outside.
    Indices(DType),
}

pub(super) fn cases() -> Vec<Case> {
    let contents = [Content::Usual, Content::Ties, Content::Extreme];
    let places = [Places::InOrder, Places::Indices(DType::U32), Places::Indices(DType::I32)];
    let grid = pairwise(&[2, 5, 5, 3, 3, 2, 3], "quantize_rows");
    let cases = grid.into_iter().map(|row| {
        let (dtype, columns) = ([DType::F32, DType::F16][row[0]], BLOCK * [1, 2, 3, 8, 65][row[1]]);
        let (count, places) = ([0, 1, 2, 7, 33][row[2]], places[row[3]]);
        let (ld_extra, apart, content) = ([0, 3, 32][row[4]], row[5] == 1, contents[row[6]]);
        let kind = format!("{places:?}_{content:?}").to_lowercase().replace(['(', ')'], "_");
        let apart_name = super::flag(apart, "apart", "packed");
        let name = format!("{dtype}_columns{columns}_count{count}_ld{ld_extra}_{apart_name}_{kind}");
        Case::new("quantize_rows", name, move |rng| {
            trial(rng, [columns, count, ld_extra], dtype, (places, apart, content))
        })
    });
    cases.collect()
}

fn trial(
    rng: &mut Rng,
    [columns, count, ld_extra]: [usize; 3],
    dtype: DType,
    (places, apart, content): (Places, bool, Content),
) -> Trial {
    let rows = count + 3;
    let (offset, stride) = if apart { (2 * BLOCK, columns + BLOCK) } else { (0, columns) };
    let ld = columns + ld_extra;
    let source: Vec<f64> = (0..count * ld).map(|at| number(rng, dtype, content, at % ld)).collect();
    let targets: Vec<f64> = (0..count)
        .map(|i| match places {
            Places::InOrder => i as f64,
            Places::Indices(DType::I32) if rng.one_in(5) => -1.0,
            Places::Indices(_) if rng.one_in(5) => (rows + rng.below(3)) as f64,
            Places::Indices(_) => rng.below(rows) as f64,
        })
        .collect();
    let start = |row: usize| (offset + row * stride) / BLOCK * WORDS;
    let end = start(rows - 1) + columns / BLOCK * WORDS;
    let mut wants = vec![None; end];
    for (i, &target) in targets.iter().enumerate().filter(|(_, target)| (0.0..rows as f64).contains(*target))
    {
        let words = q8_0::words(&source[i * ld..][..columns]);
        let to = &mut wants[start(target as usize)..][..words.len()];
        to.iter_mut().zip(words).for_each(|(want, word)| *want = Some(Want::Exact(word)));
    }
    let wants = wants.into_iter().enumerate().filter_map(|(at, want)| Some((at, want?))).collect();

    let mut trial = Trial::new();
    // The last row ends with its columns.
    trial.input("source", dtype, &source[..source.len() - if count > 0 { ld_extra } else { 0 }]);
    let before = (0..end).map(|_| rng.below(1 << 30) as f64).collect();
    trial.scattered("cache", DType::U32, before, wants);
    let indexed = match places {
        Places::InOrder => None,
        Places::Indices(dtype) => Some(dtype),
    };
    trial.input("indices", indexed.unwrap_or(DType::U32), if indexed.is_some() { &targets } else { &[] });
    trial.calling(move |backend, p| {
        let source = Matrix::new(p[0], dtype, ld);
        let mut desc = QuantizeRowsDesc::new(source, p[1], rows, columns, count);
        desc = desc.with_offset(offset).with_stride(stride);
        desc.indices = indexed.map(|_| p[2]);
        backend.quantize_rows(&desc)
    })
}

fn number(rng: &mut Rng, dtype: DType, content: Content, column: usize) -> f64 {
    let block = column / BLOCK;
    let x = match content {
        Content::Usual => rng.uniform(-1.0, 1.0) * 2f64.powi(block as i32 % 12 - 6),
        Content::Ties if block % 3 == 2 => 0.0,
        // The first makes the scale 2⁻⁴.
        Content::Ties if column.is_multiple_of(BLOCK) => 127.0 / 16.0,
        Content::Ties => (rng.below(254) as f64 - 126.5) / 16.0,
        Content::Extreme => {
            // Devices may take a subnormal f16 for 0.
            let f16 = [65504.0, f64::NAN, f64::INFINITY, 1.0, f64::NEG_INFINITY];
            let f32 = [8_319_008.0, 8_319_009.0, 3.8e-6, 1e-5, 1e-30, 1e38, f64::NAN, f64::NEG_INFINITY];
            let ends: &[f64] = if dtype == DType::F16 { &f16 } else { &f32 };
            let end = ends[block % ends.len()];
            match column % BLOCK {
                5 => end,
                _ if end.is_finite() => end * rng.uniform(-1.0, 1.0),
                _ => rng.uniform(-1.0, 1.0),
            }
        }
    };
    round_to(dtype, x)
}
