//! `binary_ext` with a number on one side, or on both.

use backend_api::desc::{BinaryDesc, Value};
use backend_api::{BinaryOp, DType};

use super::binary::pair;
use super::layout::{Layout, Tensor, shape_name};
use crate::case::Case;
use crate::float::round_to;
use crate::oracle::binary::binary;
use crate::trial::Trial;

const SHAPES: [&[usize]; 4] = [&[], &[101], &[8, 12], &[5, 3, 7]];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for op in BinaryOp::ALL.iter().copied().filter(|op| op.accepts(DType::F32)) {
        for dtype in [DType::F32, DType::F16] {
            for (i, shape) in SHAPES.into_iter().enumerate() {
                let layout = Layout::ALL[(i + op as usize) % Layout::ALL.len()];
                for sides in [[true, false], [false, true], [true, true]] {
                    cases.push(case(op, dtype, shape, layout, sides, false));
                }
                cases.push(case(op, dtype, shape, layout, [false, true], true));
            }
        }
    }
    cases
}

/// `sides` are those that are numbers.
fn case(
    op: BinaryOp,
    dtype: DType,
    shape: &'static [usize],
    layout: Layout,
    sides: [bool; 2],
    in_place: bool,
) -> Case {
    let names = sides.map(|number| super::flag(number, "number", "tensor")).join("-");
    let kind = super::flag(in_place, "in_place", "apart");
    let name = format!("{}_{dtype}_{}_{}_{names}_{kind}", op.name(), shape_name(shape), layout.name());
    Case::new("binary_ext", name, move |rng| {
        let output = Tensor::new(rng, shape, layout);
        let tensor = if in_place { output.clone() } else { Tensor::new(rng, shape, Layout::Packed) };
        let (a, b) = pair(rng, op, DType::F32);
        let numbers = [a, b];
        let data = tensor.store(|_| {
            let (a, b) = pair(rng, op, dtype);
            if sides[0] { b } else { a }
        });
        let places = output.offsets().into_iter().zip(tensor.offsets()).map(|(place, at)| {
            let [a, b] =
                [0, 1].map(|side| if sides[side] { round_to(DType::F32, numbers[side]) } else { data[at] });
            (place, binary(op, a, b, dtype))
        });
        let places = places.collect();
        let mut trial = Trial::new();
        if in_place {
            trial.scattered("x", dtype, data, places);
        } else {
            trial.input("x", dtype, &data);
            trial.scattered("output", dtype, output.store(|_| f64::NAN), places);
        }
        trial.calling(move |backend, p| {
            let x = tensor.desc(p[0], dtype);
            let [a, b] = [0, 1].map(|side| if sides[side] { Value::Scalar(numbers[side]) } else { x.into() });
            backend.binary_ext(&BinaryDesc::new(op, a, b, output.desc(p[p.len() - 1], dtype)))
        })
    })
}
