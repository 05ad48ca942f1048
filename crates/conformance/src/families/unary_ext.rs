//! `unary_ext`: every function over strided f32 and f16.

use backend_api::desc::UnaryDesc;
use backend_api::{DType, UnaryOp};

use super::layout::{Layout, SHAPES, Tensor, shape_name};
use super::unary::{numbers, special_numbers};
use crate::case::Case;
use crate::grid::pairwise;
use crate::oracle::unary::{unary, unary_with};
use crate::trial::Trial;

const DTYPES: [DType; 2] = [DType::F32, DType::F16];

pub(super) fn cases() -> Vec<Case> {
    let ops: Vec<UnaryOp> = UnaryOp::ALL.iter().copied().filter(|op| op.accepts(DType::F16)).collect();
    let grid = pairwise(&[ops.len(), 2, SHAPES.len(), 5, 5, 2], "unary_ext");
    let covering = grid.into_iter().map(|row| {
        let layouts = [Layout::ALL[row[3]], Layout::ALL[row[4]]];
        match row[5] {
            0 => apart(ops[row[0]], DTYPES[row[1]], SHAPES[row[2]], layouts),
            _ => in_place(ops[row[0]], DTYPES[row[1]], SHAPES[row[2]], layouts[0]),
        }
    });
    let each = ops.iter().flat_map(|&op| {
        let strided = [Layout::Permuted, Layout::Gaps];
        [
            specials(op),
            apart(op, DType::F16, &[999], [Layout::Packed; 2]),
            apart(op, DType::F16, &[33, 17], strided),
            apart(op, DType::F32, &[33, 17], strided),
            repeated(op),
        ]
    });
    covering.chain(each).chain(parameters()).collect()
}

fn apart(op: UnaryOp, dtype: DType, shape: &'static [usize], layouts: [Layout; 2]) -> Case {
    let [from, to] = layouts.map(Layout::name);
    let name = format!("{}_{dtype}_{}_{from}_to_{to}", op.name(), shape_name(shape));
    Case::new("unary_ext", name, move |rng| {
        let [from, to] = layouts.map(|layout| Tensor::new(rng, shape, layout));
        let values = numbers(rng, op, dtype, from.elements());
        trial(op, dtype, from, to, &values)
    })
}

fn trial(op: UnaryOp, dtype: DType, from: Tensor, to: Tensor, values: &[f64]) -> Trial {
    let wants = values.iter().map(|&x| unary(op, x, dtype));
    let mut trial = Trial::new();
    trial.input("input", dtype, &from.store(|i| values[i]));
    trial.scattered("output", dtype, to.store(|_| f64::NAN), to.offsets().into_iter().zip(wants).collect());
    trial.calling(move |backend, ptrs| {
        backend.unary_ext(&UnaryDesc::new(op, from.desc(ptrs[0], dtype), to.desc(ptrs[1], dtype)))
    })
}

fn in_place(op: UnaryOp, dtype: DType, shape: &'static [usize], layout: Layout) -> Case {
    let name = format!("{}_{dtype}_{}_{}_in_place", op.name(), shape_name(shape), layout.name());
    Case::new("unary_ext", name, move |rng| {
        let tensor = Tensor::new(rng, shape, layout);
        let values = numbers(rng, op, dtype, tensor.elements());
        let wants = values.iter().map(|&x| unary(op, x, dtype));
        let places = tensor.offsets().into_iter().zip(wants).collect();
        let mut trial = Trial::new();
        trial.scattered("x", dtype, tensor.store(|i| values[i]), places);
        trial.calling(move |backend, ptrs| {
            let x = tensor.desc(ptrs[0], dtype);
            backend.unary_ext(&UnaryDesc::new(op, x, x))
        })
    })
}

fn specials(op: UnaryOp) -> Case {
    Case::new("unary_ext", format!("{}_f16_specials", op.name()), move |rng| {
        let values = special_numbers(op, DType::F16);
        let shape = [values.len()];
        let [from, to] = [(); 2].map(|()| Tensor::new(rng, &shape, Layout::Packed));
        trial(op, DType::F16, from, to, &values)
    })
}

/// Every function that has parameters, with others than its own.
fn parameters() -> Vec<Case> {
    let ops = UnaryOp::ALL.iter().copied().filter(|op| op.parameters() > 0);
    let given = [[0.3, 0.7], [2.5, -0.25], [1.702, 1.0]];
    let each =
        ops.flat_map(|op| given.into_iter().flat_map(move |given| DTYPES.map(|dtype| (op, given, dtype))));
    each.map(|(op, [alpha, beta], dtype)| {
        Case::new("unary_ext", format!("{}_{dtype}_alpha{alpha}_beta{beta}", op.name()), move |rng| {
            let tensor = Tensor::new(rng, &[300], Layout::Packed);
            let values = numbers(rng, op, dtype, 300);
            let wants = values.iter().map(|&x| unary_with(op, [alpha, beta], x, dtype)).collect();
            let mut trial = Trial::new();
            trial.input("input", dtype, &values);
            trial.output("output", dtype, wants);
            trial.calling(move |backend, ptrs| {
                let [input, output] = [ptrs[0], ptrs[1]].map(|ptr| tensor.desc(ptr, dtype));
                let desc = UnaryDesc::new(op, input, output);
                backend.unary_ext(&desc.with_alpha(alpha).with_beta(beta))
            })
        })
    })
    .collect()
}

/// An input with a stride of 0.
fn repeated(op: UnaryOp) -> Case {
    Case::new("unary_ext", format!("{}_repeated_rows", op.name()), move |rng| {
        let shape = [5, 11];
        let from = Tensor::new(rng, &shape, Layout::Packed).repeated(&[0]);
        let to = Tensor::new(rng, &shape, Layout::Packed);
        let row = numbers(rng, op, DType::F32, 11);
        let values: Vec<f64> = (0..55).map(|i| row[i % 11]).collect();
        trial(op, DType::F32, from, to, &values)
    })
}
