//! `clamp` and `affine`, over strided tensors, apart and in place.

use backend_api::desc::{AffineDesc, ClampDesc, TensorDesc};
use backend_api::{BackendResult, ComputeBackend, DType};

use super::layout::{Layout, SHAPES, Tensor, shape_name};
use crate::case::Case;
use crate::data::specials;
use crate::float::{is_subnormal, round_to};
use crate::grid::pairwise;
use crate::oracle::convert::convert;
use crate::oracle::elementwise;
use crate::rng::Rng;
use crate::trial::Trial;
use crate::want::Want;

const BOUNDS: [[f64; 2]; 6] = [
    [-1.5, 2.25],
    [0.0, 6.0],
    [f64::NEG_INFINITY, 3.0],
    [-2.0, f64::INFINITY],
    [f64::NEG_INFINITY, f64::INFINITY],
    [5.0, -5.0],
];

const FACTORS: [[f64; 2]; 4] = [[1.0, 0.0], [-0.37, 2.5], [1e4, -1e4], [0.0, 7.0]];

pub(super) fn cases() -> Vec<Case> {
    let layout = |i: usize| Layout::ALL[i];
    let clamps = pairwise(&[4, SHAPES.len(), BOUNDS.len(), 5, 5, 2], "clamp").into_iter().map(|row| {
        clamp(DType::ALL[row[0]], SHAPES[row[1]], row[2], [layout(row[3]), layout(row[4])], row[5] == 1)
    });
    let affines = pairwise(&[2, SHAPES.len(), FACTORS.len(), 5, 5, 2], "affine").into_iter().map(|row| {
        let dtype = [DType::F32, DType::F16][row[0]];
        affine(dtype, SHAPES[row[1]], row[2], [layout(row[3]), layout(row[4])], row[5] == 1)
    });
    clamps.chain(affines).collect()
}

fn number(rng: &mut Rng, dtype: DType) -> f64 {
    match dtype {
        DType::I32 => f64::from((rng.next_u64() as u32).cast_signed() >> rng.below(32)),
        DType::U32 => f64::from(rng.next_u64() as u32 >> rng.below(32)),
        _ if rng.one_in(8) => {
            let specials = specials(dtype);
            rng.pick(&specials)
        }
        _ => round_to(dtype, rng.uniform(-8.0, 8.0)),
    }
}

fn clamp(dtype: DType, shape: &'static [usize], bounds: usize, layouts: [Layout; 2], in_place: bool) -> Case {
    let [min, max] = BOUNDS[bounds];
    let want = move |x: f64| elementwise::clamp(x, [min, max].map(|bound| convert(dtype, bound)));
    let name = format!("{dtype}_{}_b{bounds}", shape_name(shape));
    case("clamp", name, dtype, shape, layouts, in_place, want, move |backend, x, y| {
        backend.clamp(&ClampDesc::new(x, y, min, max))
    })
}

fn affine(
    dtype: DType,
    shape: &'static [usize],
    factors: usize,
    layouts: [Layout; 2],
    in_place: bool,
) -> Case {
    let [scale, bias] = FACTORS[factors];
    let want = move |x: f64| elementwise::affine(x, [scale, bias]);
    let name = format!("{dtype}_{}_f{factors}", shape_name(shape));
    case("affine", name, dtype, shape, layouts, in_place, want, move |backend, x, y| {
        backend.affine(&AffineDesc::new(x, y, scale, bias))
    })
}

#[expect(clippy::too_many_arguments, reason = "the axes of a grid")]
fn case(
    family: &'static str,
    name: String,
    dtype: DType,
    shape: &'static [usize],
    layouts: [Layout; 2],
    in_place: bool,
    want: impl Fn(f64) -> Want + Copy + Send + Sync + 'static,
    call: impl Fn(&dyn ComputeBackend, TensorDesc<'_>, TensorDesc<'_>) -> BackendResult<()>
    + Copy
    + Send
    + Sync
    + 'static,
) -> Case {
    let [from, to] = layouts.map(Layout::name);
    let place = if in_place { format!("{from}_in_place") } else { format!("{from}_to_{to}") };
    Case::new(family, format!("{name}_{place}"), move |rng| {
        let input = Tensor::new(rng, shape, layouts[0]);
        let output = if in_place { input.clone() } else { Tensor::new(rng, shape, layouts[1]) };
        let values: Vec<f64> = (0..input.elements()).map(|_| number(rng, dtype)).collect();
        let wants = values.iter().map(|&x| {
            let flushed = is_subnormal(dtype, x) && dtype.is_float();
            want(x).or(flushed.then(|| want(0f64.copysign(x))))
        });
        let places = output.offsets().into_iter().zip(wants).collect();
        let mut trial = Trial::new();
        if in_place {
            trial.scattered("x", dtype, input.store(|i| values[i]), places);
        } else {
            trial.input("input", dtype, &input.store(|i| values[i]));
            trial.scattered("output", dtype, output.store(|_| f64::NAN), places);
        }
        trial.calling(move |backend, p| {
            call(backend, input.desc(p[0], dtype), output.desc(p[p.len() - 1], dtype))
        })
    })
}
