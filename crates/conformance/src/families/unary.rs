//! `unary`: every function at every length, apart and in place.

use backend_api::{DType, UnaryOp};

use crate::case::Case;
use crate::data::specials;
use crate::float::round_to;
use crate::oracle::unary::unary;
use crate::rng::Rng;
use crate::trial::Trial;

const LENGTHS: [usize; 12] = [0, 1, 2, 3, 4, 5, 63, 64, 255, 256, 257, 1000];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for op in UnaryOp::ALL.iter().copied().filter(|op| op.accepts(DType::F32)) {
        for in_place in [false, true] {
            for n in LENGTHS {
                let name = format!("{}_n{n}", op.name());
                cases.push(case(op, name, in_place, move |rng| numbers(rng, op, DType::F32, n)));
            }
        }
        let name = format!("{}_specials", op.name());
        cases.push(case(op, name, false, move |_| special_numbers(op, DType::F32)));
        let name = format!("{}_sweep", op.name());
        cases.push(case(op, name, false, move |_| sweep(op)));
    }
    for op in [UnaryOp::Log, UnaryOp::Sqrt, UnaryOp::Rsqrt, UnaryOp::Log1p, UnaryOp::Acosh, UnaryOp::Atanh] {
        let name = format!("{}_far_below", op.name());
        cases.push(case(op, name, false, |_| far_below()));
    }
    // More than 65,535 workgroups of 64 make.
    let many = || (0..4_200_003).map(|i| f64::from(i % 4093)).collect();
    cases.push(case(UnaryOp::Neg, "neg_n4200003".into(), true, move |_| many()));
    // Long enough to be divided into vectors and what is left at the ends.
    for n in [70_001, (1 << 22) + 1, (1 << 22) + 3] {
        let values = move |rng: &mut Rng| numbers(rng, UnaryOp::Neg, DType::F32, n);
        cases.push(case(UnaryOp::Neg, format!("neg_n{n}"), false, values));
    }
    cases
}

fn case(
    op: UnaryOp,
    name: String,
    in_place: bool,
    values: impl Fn(&mut Rng) -> Vec<f64> + Send + Sync + 'static,
) -> Case {
    let name = format!("{name}_{}", super::flag(in_place, "in_place", "apart"));
    Case::new("unary", name, move |rng| {
        let input = values(rng);
        let n = input.len();
        let wants = input.iter().map(|&x| unary(op, x, DType::F32)).collect();
        let mut trial = Trial::new();
        trial.in_and_out(in_place, DType::F32, input, wants);
        trial.calling(move |backend, ptrs| backend.unary(op, ptrs[0], ptrs[ptrs.len() - 1], n))
    })
}

/// Arguments of an operation: where it is interesting, with some specials among them.
pub(super) fn numbers(rng: &mut Rng, op: UnaryOp, dtype: DType, n: usize) -> Vec<f64> {
    let specials = special_numbers(op, dtype);
    let mut number = || match op {
        _ if rng.one_in(16) => rng.pick(&specials),
        UnaryOp::Asin | UnaryOp::Acos | UnaryOp::Atanh => rng.uniform(-1.02, 1.02),
        UnaryOp::Log | UnaryOp::Sqrt | UnaryOp::Rsqrt | UnaryOp::Acosh => {
            let exponent = if dtype == DType::F16 { 14.0 } else { 120.0 };
            2f64.powf(rng.uniform(-exponent, exponent))
        }
        UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tan => {
            let range = rng.pick(&[4.0, 100.0, 1000.0]);
            rng.uniform(-range, range)
        }
        _ => {
            let range = rng.pick(&[1.0, 4.0, 30.0, 100.0]);
            rng.uniform(-range, range)
        }
    };
    (0..n).map(|_| round_to(dtype, number())).collect()
}

/// [`specials`], without finite angles so large that no accuracy is promised for them.
pub(super) fn special_numbers(op: UnaryOp, dtype: DType) -> Vec<f64> {
    let angle = matches!(op, UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tan);
    let all = specials(dtype).into_iter();
    all.filter(|x| !angle || !x.is_finite() || x.abs() <= 1000.0).collect()
}

/// Negative numbers of every order of magnitude from −2 on.
fn far_below() -> Vec<f64> {
    (4..512).map(|i| round_to(DType::F32, -2f64.powf(f64::from(i) / 4.0))).collect()
}

/// A fine sweep of the range where functions bend, and neighbours of halves and integers.
fn sweep(op: UnaryOp) -> Vec<f64> {
    let positive = matches!(op, UnaryOp::Log | UnaryOp::Sqrt | UnaryOp::Rsqrt);
    let line = (-3000..3000).map(|i| f64::from(i) / 256.0);
    let tiny = (1..60).map(|i| 2f64.powi(-2 * i));
    let halves = (-20..20).flat_map(|i| {
        let half = i as f32 / 2.0;
        [half.next_down(), half.next_up()].map(f64::from)
    });
    let all = line.chain(tiny).chain(halves);
    all.map(|x| round_to(DType::F32, if positive { x.abs() } else { x })).collect()
}
