//! `compare`: every comparison of every element type, with every way to broadcast; exact.

use backend_api::desc::{CompareDesc, Value};
use backend_api::{CompareOp, DType};

use super::binary_ext::{BROADCASTS, Pairs, Shapes};
use super::layout::{Layout, SHAPES, Tensor};
use crate::case::Case;
use crate::data::specials;
use crate::float::round_to;
use crate::grid::pairwise;
use crate::oracle::binary::holds;
use crate::rng::Rng;
use crate::trial::Trial;
use crate::want::Want;

pub(super) fn cases() -> Vec<Case> {
    let ops = CompareOp::ALL;
    let grid = pairwise(&[ops.len(), 4, SHAPES.len(), 7, 7, 5], "compare");
    let covering = grid.into_iter().map(|row| {
        let broadcasts = [BROADCASTS[row[3]], BROADCASTS[row[4]]];
        let shapes = Shapes { output: SHAPES[row[2]], broadcasts, layout: Layout::ALL[row[5]] };
        case(ops[row[0]], DType::ALL[row[1]], shapes)
    });
    let each = ops.iter().flat_map(|&op| {
        let numbers = DType::ALL.into_iter().flat_map(move |dtype| {
            [[true, false], [false, true]].map(move |sides| with_numbers(op, dtype, sides))
        });
        let numbers = numbers.chain([with_numbers(op, DType::F32, [true; 2])]);
        numbers.chain([DType::F32, DType::F16].map(move |dtype| every_pair_of_specials(op, dtype)))
    });
    covering.chain(each).collect()
}

/// Numbers of which many are equal.
fn number(rng: &mut Rng, dtype: DType) -> f64 {
    match dtype {
        DType::I32 if rng.one_in(3) => f64::from((rng.next_u64() as u32).cast_signed()),
        DType::U32 if rng.one_in(3) => f64::from(rng.next_u64() as u32),
        DType::U32 => rng.below(4) as f64,
        DType::F32 | DType::F16 if rng.one_in(4) => {
            let specials = specials(dtype);
            rng.pick(&specials)
        }
        _ => round_to(dtype, rng.below(5) as f64 - 2.0),
    }
}

fn want(op: CompareOp, a: f64, b: f64) -> Want {
    Want::Exact(f64::from(u8::from(holds(op, a, b))))
}

fn case(op: CompareOp, dtype: DType, shapes: Shapes) -> Case {
    Case::new("compare", shapes.case_name(op.name(), dtype), move |rng| {
        let pairs = Pairs::random(rng, [dtype, DType::U32], shapes, number);
        pairs.trial(
            |a, b| want(op, a, b),
            move |backend, [a, b, output]| backend.compare(&CompareDesc::new(op, a, b, output)),
        )
    })
}

fn every_pair_of_specials(op: CompareOp, dtype: DType) -> Case {
    Case::new("compare", format!("{}_{dtype}_specials", op.name()), move |rng| {
        let specials = specials(dtype);
        let n = specials.len();
        let [column, row] = [[n, 1], [1, n]].map(|shape| Tensor::new(rng, &shape, Layout::Packed));
        let output = Tensor::new(rng, &[n, n], Layout::Packed);
        let wants = (0..n * n).map(|i| want(op, specials[i / n], specials[i % n])).collect();
        let mut trial = Trial::new();
        trial.input("a", dtype, &specials);
        trial.input("b", dtype, &specials);
        trial.output("output", DType::U32, wants);
        trial.calling(move |backend, p| {
            let (a, b) = (column.desc(p[0], dtype), row.desc(p[1], dtype));
            backend.compare(&CompareDesc::new(op, a, b, output.desc(p[2], DType::U32)))
        })
    })
}

/// `sides` are those that are numbers; two numbers are compared as f32, without the tensor.
fn with_numbers(op: CompareOp, dtype: DType, sides: [bool; 2]) -> Case {
    let names = sides.map(|number| super::flag(number, "number", "tensor")).join("-");
    Case::new("compare", format!("{}_{dtype}_{names}", op.name()), move |rng| {
        let tensor = Tensor::new(rng, &[60], Layout::Packed);
        let numbers = [number(rng, dtype), number(rng, dtype)];
        let values: Vec<f64> = (0..60).map(|_| number(rng, dtype)).collect();
        let wants = values.iter().map(|&x| {
            let [a, b] = [0, 1].map(|side| if sides[side] { numbers[side] } else { x });
            want(op, a, b)
        });
        let wants = wants.collect();
        let mut trial = Trial::new();
        trial.input("x", dtype, &values);
        trial.output("output", DType::U32, wants);
        trial.calling(move |backend, p| {
            let x = tensor.desc(p[0], dtype);
            let [a, b] = [0, 1].map(|side| if sides[side] { Value::Scalar(numbers[side]) } else { x.into() });
            backend.compare(&CompareDesc::new(op, a, b, tensor.desc(p[1], DType::U32)))
        })
    })
}
