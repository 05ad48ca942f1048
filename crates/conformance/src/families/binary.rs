//! `binary`: every function at every length, apart, in place and on one handle twice.

use backend_api::{BinaryOp, DType};

use crate::case::Case;
use crate::data::specials;
use crate::float::round_to;
use crate::oracle::binary::binary;
use crate::rng::Rng;
use crate::trial::Trial;

const LENGTHS: [usize; 12] = [0, 1, 2, 3, 4, 5, 63, 64, 255, 256, 257, 1000];

/// Which handles are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    Apart,
    /// The output is a.
    OntoA,
    /// The output is b.
    OntoB,
    /// a is b.
    Twice,
    /// All three are the same.
    TwiceInPlace,
}

pub(super) fn cases() -> Vec<Case> {
    use Sharing::{Apart, OntoA, OntoB, Twice, TwiceInPlace};
    let mut cases = Vec::new();
    for op in BinaryOp::ALL.iter().copied().filter(|op| op.accepts(DType::F32)) {
        for sharing in [Apart, OntoA, OntoB] {
            cases.extend(LENGTHS.map(|n| case(op, sharing, format!("n{n}"), move |rng| numbers(rng, op, n))));
        }
        for sharing in [Twice, TwiceInPlace] {
            cases
                .extend([5, 300].map(|n| case(op, sharing, format!("n{n}"), move |rng| numbers(rng, op, n))));
        }
        cases.push(case(op, Apart, "specials".into(), |_| every_pair_of_specials()));
    }
    // Long enough to be divided into vectors and what is left at the ends.
    for n in [70_001, (1 << 22) + 2, (1 << 22) + 3] {
        cases.push(case(BinaryOp::Sub, Apart, format!("n{n}"), move |rng| numbers(rng, BinaryOp::Sub, n)));
    }
    cases
}

fn case(
    op: BinaryOp,
    sharing: Sharing,
    values_name: String,
    values: impl Fn(&mut Rng) -> (Vec<f64>, Vec<f64>) + Send + Sync + 'static,
) -> Case {
    let name = format!("{}_{values_name}_{sharing:?}", op.name()).to_lowercase();
    Case::new("binary", name, move |rng| {
        let (a, mut b) = values(rng);
        if matches!(sharing, Sharing::Twice | Sharing::TwiceInPlace) {
            b.clone_from(&a);
        }
        let n = a.len();
        let wants: Vec<_> = a.iter().zip(&b).map(|(&a, &b)| binary(op, a, b, DType::F32)).collect();
        let mut trial = Trial::new();
        let handles = match sharing {
            Sharing::Apart => [0, 1, 2],
            Sharing::OntoA => [0, 1, 0],
            Sharing::OntoB => [0, 1, 1],
            Sharing::Twice => [0, 0, 1],
            Sharing::TwiceInPlace => [0, 0, 0],
        };
        for operand in 0..=handles.into_iter().max().unwrap_or(0) {
            let before = if operand == 0 { &a } else { &b };
            if operand != handles[2] {
                trial.input(["a", "b"][operand], DType::F32, before);
            } else if handles[..2].contains(&operand) {
                trial.in_place("in place", DType::F32, before.clone(), wants.clone());
            } else {
                trial.output("output", DType::F32, wants.clone());
            }
        }
        trial.calling(move |backend, ptrs| {
            let [a, b, output] = handles.map(|operand| ptrs[operand]);
            backend.binary(op, a, b, output, n)
        })
    })
}

fn numbers(rng: &mut Rng, op: BinaryOp, n: usize) -> (Vec<f64>, Vec<f64>) {
    (0..n).map(|_| pair(rng, op, DType::F32)).unzip()
}

/// Operands of an operation: where it is interesting, with some specials among them.
pub(super) fn pair(rng: &mut Rng, op: BinaryOp, dtype: DType) -> (f64, f64) {
    if rng.one_in(16) {
        let specials = specials(dtype);
        return (rng.pick(&specials), rng.pick(&specials));
    }
    let (a, b) = match op {
        // Bases of both signs, a negative one with integers as exponents.
        BinaryOp::Pow if rng.one_in(3) => (rng.uniform(-8.0, 8.0), rng.below(13) as f64 - 6.0),
        // Quotients of all sizes.
        BinaryOp::Rem | BinaryOp::Mod if rng.one_in(2) => {
            let range = if dtype == DType::F16 { 8.0 } else { 80.0 };
            let [a, b] = [(); 2].map(|()| rng.uniform(-1.0, 1.0) * 2f64.powf(rng.uniform(-range, range)));
            (a, b)
        }
        BinaryOp::Pow => (2f64.powf(rng.uniform(-6.0, 6.0)), rng.uniform(-5.0, 5.0)),
        _ => {
            let range = rng.pick(&[1.0, 100.0]);
            (rng.uniform(-range, range), rng.uniform(-range, range))
        }
    };
    (round_to(dtype, a), round_to(dtype, b))
}

fn every_pair_of_specials() -> (Vec<f64>, Vec<f64>) {
    let specials = specials(DType::F32);
    let pairs = specials.iter().flat_map(|&a| specials.iter().map(move |&b| (a, b)));
    pairs.unzip()
}
