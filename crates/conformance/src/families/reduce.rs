//! `reduce`: every operation along every axis.

use backend_api::{BackendError, DType, ReduceOp};

use crate::case::Case;
use crate::data::{Data, uniform};
use crate::element::decode;
use crate::float::round_to;
use crate::oracle::reduce::wants;
use crate::rng::Rng;
use crate::trial::Trial;

/// Shapes that are reduced along each of their axes.
const SHAPES: [&[usize]; 22] = [
    &[1],
    &[2],
    &[5],
    &[255],
    &[256],
    &[257],
    &[1025],
    &[0],
    &[3, 0, 4],
    &[7, 13],
    &[64, 64],
    &[65, 129],
    &[1, 300],
    &[300, 1],
    &[3, 1000],
    &[1000, 3],
    &[2, 3, 4, 5],
    &[33, 17, 65],
    &[5, 1, 7, 1, 3],
    &[2, 1, 2, 3, 2, 2, 3],
    &[2, 70_000],
    &[70_000, 2],
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for &op in ReduceOp::ALL {
        for shape in SHAPES {
            for axis in 0..shape.len() {
                cases.push(case(op, shape, axis, Kind::Numbers));
            }
        }
        cases.push(case(op, &[100_000], 0, Kind::Numbers));
        cases.push(case(op, &[100_003], 0, Kind::Numbers));
        cases.push(case(op, &[66, 1031], 1, Kind::Numbers));
        for shape in [&[9, 5], &[40, 257], &[65, 33]] {
            for axis in [0, 1] {
                cases.push(case(op, shape, axis, Kind::Integers));
                cases.push(case(op, shape, axis, Kind::Specials));
            }
        }
    }
    cases.push(accuracy("sum_of_16777216_in_a_row", &[1 << 24], 0));
    cases.push(accuracy("sums_of_1048576_in_columns", &[1 << 20, 16], 0));
    cases
}

/// Sums of numbers in [0, 1) to 10⁻⁶ of the result, which takes more than adding one after the other.
fn accuracy(name: &'static str, shape: &'static [usize], axis: usize) -> Case {
    Case::script("reduce", name, move |device| {
        Box::pin(async move {
            let mut rng = Rng::from_name(name);
            let n = shape.iter().product();
            let inner: usize = shape[axis + 1..].iter().product();
            let input: Vec<f32> = (0..n).map(|_| rng.uniform(0.0, 1.0) as f32).collect();
            let mut sums = vec![0.0; inner];
            for line in input.chunks_exact(inner) {
                sums.iter_mut().zip(line).for_each(|(sum, &x)| *sum += f64::from(x));
            }
            let got = async {
                let backend = device.backend;
                let ptrs = [backend.alloc(4 * n)?, backend.alloc(4 * inner)?];
                backend.copy_htod(ptrs[0], bytemuck::cast_slice(&input))?;
                backend.reduce(ReduceOp::Sum, ptrs[0], ptrs[1], shape, axis)?;
                let got = device.read(ptrs[1], 4 * inner).await?;
                ptrs.into_iter().try_for_each(|ptr| backend.free(ptr))?;
                Ok(decode(DType::F32, &got))
            };
            let got = got.await.map_err(|error: BackendError| error.to_string())?;
            match sums.iter().zip(&got).find(|&(sum, got)| (got - sum).abs() > 1e-6 * sum) {
                Some((sum, got)) => Err(format!("got {got:e}, expected {sum:e} to 1e-6")),
                None => Ok(()),
            }
        })
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Numbers,
    /// Sums are exact.
    Integers,
    /// NaN, infinities and zeros of both signs here and there.
    Specials,
}

fn case(op: ReduceOp, shape: &'static [usize], axis: usize, kind: Kind) -> Case {
    let extents: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let kind_name = format!("{kind:?}").to_lowercase();
    let name = format!("{}_{}_axis{axis}_{kind_name}", op.name(), extents.join("x"));
    Case::new("reduce", name, move |rng| {
        let outer = shape[..axis].iter().product();
        let inner = shape[axis + 1..].iter().product();
        let length = shape[axis];
        let input = values(rng, op, kind, outer * length * inner, length);
        let exact = kind == Kind::Integers && matches!(op, ReduceOp::Sum | ReduceOp::NormL1);
        let mut trial = Trial::new();
        trial.input("input", DType::F32, &input);
        let output = if op.is_index() { DType::I32 } else { DType::F32 };
        trial.output("output", output, wants(op, &input, [outer, length, inner], exact));
        if kind == Kind::Numbers && op != ReduceOp::LogSumExp {
            trial.with_nmse();
        }
        trial.calling(move |backend, ptrs| backend.reduce(op, ptrs[0], ptrs[1], shape, axis))
    })
}

/// `n` numbers, `length` for each output.
pub(super) fn values(rng: &mut Rng, op: ReduceOp, kind: Kind, n: usize, length: usize) -> Vec<f64> {
    let specials = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0];
    let mut values = match (kind, op) {
        (Kind::Integers, ReduceOp::Prod) => (0..n).map(|_| [1.0, -1.0, 2.0, 0.5][rng.below(4)]).collect(),
        (Kind::Integers, _) => Data::Integers.values(rng, DType::F32, n),
        // Factors so near to 1 that no partial product of any order leaves the normal range.
        (_, ReduceOp::Prod) => {
            let spread = 1.0 / (length.max(4) as f64).sqrt();
            let mut factor = || (spread * rng.uniform(-1.0, 1.0)).exp() * [1.0, -1.0][rng.below(2)];
            (0..n).map(|_| round_to(DType::F32, factor())).collect()
        }
        (_, ReduceOp::Any | ReduceOp::All) => {
            let zeros = if op == ReduceOp::Any { length.max(2) } else { 2 * length.max(2) };
            let common = if op == ReduceOp::Any { 0.0 } else { 1.5 };
            (0..n).map(|_| if rng.one_in(zeros) { 1.5 - common } else { common }).collect()
        }
        _ => uniform(rng, DType::F32, n, -1.0, 1.0),
    };
    if kind == Kind::Specials {
        for value in &mut values {
            if rng.one_in(length.max(2)) {
                *value = rng.pick(&specials);
            }
        }
    }
    values
}
