//! `copy`: every pair of element types, every layout; exact.

use backend_api::DType;
use backend_api::desc::CopyDesc;

use super::layout::{Layout, SHAPES, Tensor, shape_name};
use crate::case::Case;
use crate::data::specials;
use crate::float::round_to;
use crate::grid::pairwise;
use crate::oracle::convert::{convert, want};
use crate::rng::Rng;
use crate::trial::Trial;

pub(super) fn cases() -> Vec<Case> {
    let grids = ["copy 1", "copy 2"].map(|seed| pairwise(&[4, 4, SHAPES.len(), 5, 5], seed));
    let covering = grids.into_iter().flatten().map(|row| {
        let layouts = [Layout::ALL[row[3]], Layout::ALL[row[4]]];
        case([DType::ALL[row[0]], DType::ALL[row[1]]], SHAPES[row[2]], layouts)
    });
    let pairs = DType::ALL.into_iter().flat_map(|from| DType::ALL.map(|to| [from, to]));
    let each = pairs.flat_map(|dtypes| {
        [
            case(dtypes, &[1001], [Layout::Packed; 2]),
            case(dtypes, &[31, 33], [Layout::Permuted, Layout::Packed]),
            case(dtypes, &[68, 72], [Layout::Permuted, Layout::Explicit]),
            case(dtypes, &[2, 20, 132], [Layout::Packed, Layout::Permuted]),
            case(dtypes, &[65, 67], [Layout::Turned, Layout::Packed]),
            case(dtypes, &[3, 36, 20], [Layout::Turned, Layout::Packed]),
            case(dtypes, &[2, 72, 136], [Layout::Packed, Layout::Turned]),
            repeated(dtypes),
            edges(dtypes),
        ]
    });
    // Rows of odd length, so many that vectors are worth it.
    let pairs = [[DType::F32; 2], [DType::F16; 2], [DType::F16, DType::F32], [DType::I32; 2]];
    let gathered = pairs.map(|dtypes| case(dtypes, &[1021, 1031], [Layout::Gaps, Layout::Packed]));
    // More tiles than compute units, and odd lengths that are divided into vectors and what is left at the ends.
    let large = [[DType::F32; 2], [DType::F16; 2]].into_iter().flat_map(|dtypes| {
        [
            case(dtypes, &[1031, 1033], [Layout::Turned, Layout::Packed]),
            case(dtypes, &[(1 << 21) + 13], [Layout::Packed; 2]),
        ]
    });
    covering.chain(each).chain(gathered).chain(large).collect()
}

fn case(dtypes: [DType; 2], shape: &'static [usize], layouts: [Layout; 2]) -> Case {
    let ([from, to], [src, dst]) = (dtypes, layouts.map(Layout::name));
    let name = format!("{from}_to_{to}_{}_{src}_to_{dst}", shape_name(shape));
    Case::new("copy", name, move |rng| {
        let [src, dst] = layouts.map(|layout| Tensor::new(rng, shape, layout));
        let values: Vec<f64> = (0..src.elements()).map(|_| number(rng, dtypes)).collect();
        trial(dtypes, src, dst, &values)
    })
}

fn trial([from, to]: [DType; 2], src: Tensor, dst: Tensor, values: &[f64]) -> Trial {
    let places = dst.offsets().into_iter().zip(values.iter().map(|&x| want(to, x))).collect();
    let mut trial = Trial::new();
    trial.input("src", from, &src.store(|i| values[i]));
    trial.scattered("dst", to, dst.store(|_| f64::NAN), places);
    trial.calling(move |backend, p| backend.copy(&CopyDesc::new(src.desc(p[0], from), dst.desc(p[1], to))))
}

/// A number of the source's type. Integers are kept in the range of both integer types when both are.
fn number(rng: &mut Rng, [from, to]: [DType; 2]) -> f64 {
    let any_word = rng.next_u64() as u32;
    match from {
        DType::F32 if rng.one_in(4) => {
            let x = f64::from(f32::from_bits(any_word));
            if x.is_nan() { 1.0 } else { x }
        }
        DType::F16 if rng.one_in(4) => {
            let x = f64::from(half::f16::from_bits(any_word as u16));
            if x.is_nan() { 1.0 } else { x }
        }
        DType::F32 | DType::F16 => {
            let range = rng.pick(&[1.0, 300.0, 7e4, 5e9]);
            round_to(from, rng.uniform(-range, range))
        }
        DType::U32 if to == DType::I32 => f64::from(any_word >> 1),
        DType::I32 if to == DType::U32 => f64::from(any_word >> 1),
        DType::I32 => f64::from(any_word as i32 >> rng.below(31)),
        _ => f64::from(any_word >> rng.below(32)),
    }
}

/// Where roundings and ranges end.
fn edges(dtypes: [DType; 2]) -> Case {
    let [from, to] = dtypes;
    Case::new("copy", format!("{from}_to_{to}_edges"), move |rng| {
        let mut values = if from.is_float() { float_edges(from) } else { integer_edges(dtypes) };
        values.sort_by(f64::total_cmp);
        let shape = [values.len()];
        let [src, dst] = [(); 2].map(|()| Tensor::new(rng, &shape, Layout::Packed));
        trial(dtypes, src, dst, &values)
    })
}

/// Specials, the limits of integers, and the numbers around and half-way between f16 numbers.
fn float_edges(from: DType) -> Vec<f64> {
    let limits = [2_147_483_648.0, 4_294_967_296.0, 2_147_483_520.0, 4_294_967_040.0, 0.999_999_9];
    let halves = [65_504.0, 65_519.996, 65_520.0, 65_536.0, 2049.0, 2051.0, 1.0 + 1.0 / 2048.0];
    let tiny = [2f64.powi(-24), 2f64.powi(-25), 1.5 * 2f64.powi(-25), 1.5 * 2f64.powi(-24), 2f64.powi(-149)];
    let edges = limits.into_iter().chain(halves).chain(tiny).map(|x| round_to(from, x));
    let neighbours = edges.flat_map(|x| {
        let near = x as f32;
        [x, f64::from(near.next_up()), f64::from(near.next_down())]
    });
    let both_signs = neighbours.flat_map(|x| [x, -x]).map(|x| round_to(from, x));
    specials(from).into_iter().chain(both_signs).collect()
}

/// The limits of the type, and integers that f32 and f16 round.
fn integer_edges([from, to]: [DType; 2]) -> Vec<f64> {
    let edges = [
        0.0,
        1.0,
        -1.0,
        2049.0,
        2051.0,
        65_503.0,
        65_519.0,
        65_520.0,
        16_777_217.0,
        16_777_219.0,
        -16_777_217.0,
        2_147_483_583.0,
        2_147_483_584.0,
        2_147_483_647.0,
        -2_147_483_648.0,
        4_294_967_167.0,
        4_294_967_295.0,
    ];
    let in_range = |&x: &f64| convert(from, x) == x && (to.is_float() || convert(to, x) == x);
    edges.into_iter().filter(in_range).collect()
}

/// A source with a stride of 0.
fn repeated(dtypes: [DType; 2]) -> Case {
    let [from, to] = dtypes;
    Case::new("copy", format!("{from}_to_{to}_repeated"), move |rng| {
        let shape = [4, 3, 5];
        let src = Tensor::new(rng, &shape, Layout::Packed).repeated(&[0, 2]);
        let dst = Tensor::new(rng, &shape, Layout::Gaps);
        let each: Vec<f64> = (0..3).map(|_| number(rng, dtypes)).collect();
        let values: Vec<f64> = (0..60).map(|i| each[i / 5 % 3]).collect();
        trial(dtypes, src, dst, &values)
    })
}
