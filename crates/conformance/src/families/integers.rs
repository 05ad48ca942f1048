//! `unary_ext` and `binary_ext` of integers; exact.

use backend_api::desc::{BinaryDesc, UnaryDesc, Value};
use backend_api::{BinaryOp, DType, UnaryOp};

use super::binary_ext::{BROADCASTS, Pairs, Shapes};
use super::layout::{Layout, SHAPES, Tensor, shape_name};
use crate::case::Case;
use crate::grid::pairwise;
use crate::rng::Rng;
use crate::trial::Trial;
use crate::want::Want;

pub(super) fn cases() -> Vec<Case> {
    let unary = [DType::I32, DType::U32].into_iter().flat_map(|dtype| {
        let ops: Vec<UnaryOp> = UnaryOp::ALL.iter().copied().filter(|op| op.accepts(dtype)).collect();
        let grid = pairwise(&[ops.len(), SHAPES.len(), 5, 5], "integers unary");
        grid.into_iter().map(move |row| {
            unary_case(ops[row[0]], dtype, SHAPES[row[1]], [Layout::ALL[row[2]], Layout::ALL[row[3]]])
        })
    });

    let ops: Vec<BinaryOp> = BinaryOp::ALL.iter().copied().filter(|op| op.accepts(DType::I32)).collect();
    let grid = pairwise(&[ops.len(), 2, SHAPES.len(), 7, 7, 5], "integers binary");
    let binary = grid.into_iter().map(|row| {
        let dtype = [DType::I32, DType::U32][row[1]];
        let broadcasts = [BROADCASTS[row[3]], BROADCASTS[row[4]]];
        let shapes = Shapes { output: SHAPES[row[2]], broadcasts, layout: Layout::ALL[row[5]] };
        binary_case(ops[row[0]], dtype, shapes)
    });
    let numbers = ops.iter().flat_map(|&op| [DType::I32, DType::U32].map(|dtype| number_case(op, dtype)));
    unary.chain(binary).chain(numbers).collect()
}

/// Any word; often a small number, zero, or an end of the range.
fn word(rng: &mut Rng, dtype: DType) -> f64 {
    let bits = match rng.below(4) {
        0 => rng.pick(&[0, 1, u32::MAX, 0x8000_0000, 0x7fff_ffff]),
        1 => rng.below(100) as u32,
        _ => rng.next_u64() as u32,
    };
    number(dtype, bits)
}

fn number(dtype: DType, bits: u32) -> f64 {
    if dtype == DType::I32 { f64::from(bits.cast_signed()) } else { f64::from(bits) }
}

/// The result modulo 2³².
fn wrapped(dtype: DType, exact: i128) -> Want {
    Want::Exact(number(dtype, exact.rem_euclid(1 << 32) as u32))
}

fn unary_case(op: UnaryOp, dtype: DType, shape: &'static [usize], layouts: [Layout; 2]) -> Case {
    let [from, to] = layouts.map(Layout::name);
    let name = format!("{}_{dtype}_{}_{from}_to_{to}", op.name(), shape_name(shape));
    Case::new("unary_ext", name, move |rng| {
        let [from, to] = layouts.map(|layout| Tensor::new(rng, shape, layout));
        let values: Vec<f64> = (0..from.elements()).map(|_| word(rng, dtype)).collect();
        let wants = values.iter().map(|&x| {
            let x = x as i128;
            wrapped(
                dtype,
                match op {
                    UnaryOp::Relu => x.max(0),
                    UnaryOp::Abs => x.abs(),
                    UnaryOp::Neg => -x,
                    UnaryOp::Square => x * x,
                    UnaryOp::BitNot => !x,
                    _ => x.signum(),
                },
            )
        });
        let mut trial = Trial::new();
        trial.input("input", dtype, &from.store(|i| values[i]));
        let places = to.offsets().into_iter().zip(wants).collect();
        trial.scattered("output", dtype, to.store(|_| f64::NAN), places);
        trial.calling(move |backend, p| {
            backend.unary_ext(&UnaryDesc::new(op, from.desc(p[0], dtype), to.desc(p[1], dtype)))
        })
    })
}

fn want(op: BinaryOp, dtype: DType, a: f64, b: f64) -> Want {
    let (a, b) = (a as i128, b as i128);
    wrapped(
        dtype,
        match op {
            BinaryOp::Add => a + b,
            BinaryOp::Sub => a - b,
            BinaryOp::Mul => a * b,
            BinaryOp::Div => a.checked_div(b).unwrap_or(0),
            BinaryOp::Rem => a.checked_rem(b).unwrap_or(0),
            BinaryOp::Mod if b == 0 => 0,
            BinaryOp::Mod => a - b * a.div_euclid(b) + if b < 0 && a.rem_euclid(b) != 0 { b } else { 0 },
            BinaryOp::BitAnd => a & b,
            BinaryOp::BitOr => a | b,
            BinaryOp::BitXor => a ^ b,
            BinaryOp::Shl if !(0..32).contains(&b) => 0,
            BinaryOp::Shl => a << b,
            BinaryOp::Shr => a >> if (0..32).contains(&b) { b } else { 32 },
            BinaryOp::Max => a.max(b),
            _ => a.min(b),
        },
    )
}

fn binary_case(op: BinaryOp, dtype: DType, shapes: Shapes) -> Case {
    Case::new("binary_ext", shapes.case_name(op.name(), dtype), move |rng| {
        let pairs = Pairs::random(rng, [dtype, dtype], shapes, word);
        pairs.trial(
            |a, b| want(op, dtype, a, b),
            move |backend, [a, b, output]| backend.binary_ext(&BinaryDesc::new(op, a, b, output)),
        )
    })
}

/// A number on the right, in place.
fn number_case(op: BinaryOp, dtype: DType) -> Case {
    Case::new("binary_ext", format!("{}_{dtype}_number_in_place", op.name()), move |rng| {
        let tensor = Tensor::new(rng, &[72], Layout::Packed);
        let second = word(rng, dtype);
        let before: Vec<f64> = (0..72).map(|_| word(rng, dtype)).collect();
        let wants = before.iter().map(|&x| want(op, dtype, x, second)).collect();
        let mut trial = Trial::new();
        trial.in_place("x", dtype, before, wants);
        trial.calling(move |backend, p| {
            let x = tensor.desc(p[0], dtype);
            backend.binary_ext(&BinaryDesc::new(op, x, Value::Scalar(second), x))
        })
    })
}
