//! `reduce_ext`: every operation over sets of axes of strided tensors of every element type.

use backend_api::desc::ReduceDesc;
use backend_api::{DType, ReduceOp};

use super::layout::{Layout, Tensor, shape_name};
use super::reduce::{Kind, values};
use crate::case::Case;
use crate::float::round_to;
use crate::grid::pairwise;
use crate::oracle::reduce::{reduce, reduce_integers};
use crate::rng::Rng;
use crate::trial::Trial;

/// A shape with the axes that are reduced.
type Axes = (&'static [usize], &'static [usize]);

const REDUCTIONS: [Axes; 40] = [
    (&[], &[]),
    (&[1], &[0]),
    (&[7], &[]),
    (&[7], &[0]),
    (&[256], &[0]),
    (&[257], &[0]),
    (&[0], &[0]),
    (&[1, 1], &[1]),
    (&[1, 33], &[0]),
    (&[33, 1], &[0, 1]),
    (&[16, 40], &[0]),
    (&[16, 40], &[1]),
    (&[16, 40], &[1, 0]),
    (&[13, 257], &[1]),
    (&[257, 13], &[0]),
    (&[9, 2051], &[1]),
    (&[2, 40_001], &[1]),
    (&[3, 8], &[0]),
    (&[300, 8], &[1]),
    (&[8, 300], &[0]),
    (&[300, 3], &[1]),
    (&[4, 0, 3], &[1]),
    (&[4, 0, 3], &[0]),
    (&[0, 4], &[1]),
    (&[2, 3, 64], &[1]),
    (&[2, 3, 64], &[0, 2]),
    (&[2, 3, 64], &[0, 1]),
    (&[2, 3, 64], &[1, 2]),
    (&[3, 32, 33], &[0, 2]),
    (&[3, 32, 33], &[1]),
    (&[5, 1, 7], &[1]),
    (&[2, 8, 4, 16], &[0, 2, 3]),
    (&[2, 8, 4, 16], &[1]),
    (&[2, 8, 4, 16], &[3, 1]),
    (&[2, 8, 4, 16], &[0, 1, 2]),
    (&[3, 2, 5, 4], &[0, 1, 2, 3]),
    (&[2, 3, 2, 5, 3], &[1, 3]),
    (&[2, 3, 2, 3, 2, 3], &[0, 2, 4]),
    (&[2, 3, 2, 3, 2, 3], &[5, 3, 1]),
    (&[2, 1, 3, 1, 2, 1, 1, 5], &[2, 7]),
];

/// Rows, columns, and two loops of neighbours.
const SMALL: [Axes; 3] = [(&[16, 40], &[0]), (&[16, 40], &[1]), (&[2, 3, 64], &[0, 1])];

/// Outputs so few and long that backends may cut them into slices.
const LONG: [Axes; 4] =
    [(&[1, 20_000], &[1]), (&[20_000, 4], &[0]), (&[40, 3, 1000], &[0, 2]), (&[700, 24], &[0])];

#[derive(Clone, Copy, Debug)]
struct Reduction {
    op: ReduceOp,
    dtype: DType,
    /// f32 of f16.
    widened: bool,
    shape: &'static [usize],
    axes: &'static [usize],
    layouts: [Layout; 2],
    kind: Kind,
}

pub(super) fn cases() -> Vec<Case> {
    let ops = ReduceOp::ALL;
    let types = [DType::F32, DType::F16, DType::F16, DType::I32, DType::U32];
    let kinds = [Kind::Numbers, Kind::Integers, Kind::Specials];
    let counts = [ops.len(), types.len(), REDUCTIONS.len(), 5, 3, 3];
    let covering = ["reduce_ext 1", "reduce_ext 2"].into_iter().flat_map(|seed| pairwise(&counts, seed));
    let covering = covering.map(|row| {
        let (shape, axes) = REDUCTIONS[row[2]];
        let output = [Layout::Packed, Layout::Permuted, Layout::Gaps][row[4]];
        Reduction {
            op: ops[row[0]],
            dtype: types[row[1]],
            widened: row[1] == 2,
            shape,
            axes,
            layouts: [Layout::ALL[row[3]], output],
            kind: kinds[row[5]],
        }
    });
    // Every operation of every type; of f32, NaN, infinities and equal numbers lie in different slices, too.
    let packed = ops.iter().flat_map(|&op| {
        types.into_iter().enumerate().flat_map(move |(i, dtype)| {
            let reduction = move |(shape, axes): Axes, kind: Kind| {
                let layouts = [Layout::Packed; 2];
                Reduction { op, dtype, widened: i == 2, shape, axes, layouts, kind }
            };
            let numbers = SMALL.into_iter().chain(LONG).map(move |axes| reduction(axes, Kind::Numbers));
            // Products of so many whole numbers leave the range of f32 in one order and not in another.
            let others = match (dtype, op) {
                (DType::F32, ReduceOp::Prod) => &kinds[2..],
                (DType::F32, _) => &kinds[1..],
                _ => &[],
            };
            let others = others.iter().flat_map(move |&kind| LONG.map(|axes| reduction(axes, kind)));
            numbers.chain(others.collect::<Vec<_>>())
        })
    });
    let defined = |r: &Reduction| r.dtype.is_float() || !r.op.is_float_only();
    let all = covering.chain(packed).filter(defined).map(Reduction::case);
    all.chain(ops.iter().map(|&op| repeated(op))).chain(ties()).collect()
}

impl Reduction {
    fn output_dtype(self) -> DType {
        match (self.op.is_index(), self.widened) {
            (true, _) => DType::I32,
            (false, true) => DType::F32,
            (false, false) => self.dtype,
        }
    }

    fn case(self) -> Case {
        let Self { op, dtype, shape, axes, layouts, kind, .. } = self;
        let [from, to] = layouts.map(Layout::name);
        let kind = format!("{kind:?}").to_lowercase();
        let (shape, axes) = (shape_name(shape), shape_name(axes));
        let name =
            format!("{}_{dtype}_{}_{shape}_over{axes}_{from}_to_{to}_{kind}", op.name(), self.output_dtype());
        Case::new("reduce_ext", name, move |rng| self.trial(rng))
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let from = Tensor::new(rng, self.shape, self.layouts[0]);
        let length: usize = self.axes.iter().map(|&axis| self.shape[axis]).product();
        let values = self.values(rng, from.elements(), length);
        self.trial_of(rng, from, &values)
    }

    fn values(self, rng: &mut Rng, n: usize, length: usize) -> Vec<f64> {
        if self.dtype.is_float() {
            let values = values(rng, self.op, self.kind, n, length);
            return values.into_iter().map(|x| round_to(self.dtype, x)).collect();
        }
        let (low, high) =
            if self.dtype == DType::I32 { (-2f64.powi(31), 2f64.powi(31)) } else { (0.0, 2f64.powi(32)) };
        let large = |rng: &mut Rng| rng.uniform(low, high).floor();
        (0..n)
            .map(|_| match self.kind {
                Kind::Numbers => large(rng),
                // Many of them equal.
                Kind::Integers => rng.below(4) as f64 - if low < 0.0 { 2.0 } else { 0.0 },
                Kind::Specials => rng.pick(&[low, high - 1.0, 0.0, 1.0]),
            })
            .collect()
    }

    fn trial_of(self, rng: &mut Rng, from: Tensor, values: &[f64]) -> Trial {
        let Self { op, dtype, shape, axes, .. } = self;
        let kept: Vec<usize> = (0..shape.len()).filter(|k| !axes.contains(k)).map(|k| shape[k]).collect();
        let to = Tensor::new(rng, &kept, self.layouts[1]);
        let wants = groups(shape, axes, values).into_iter().map(|group| {
            if dtype.is_float() { reduce(op, &group) } else { reduce_integers(op, dtype, &group) }
        });
        let output_dtype = self.output_dtype();
        let explicit = self.layouts[1] != Layout::Packed;
        let mut trial = Trial::new();
        trial.input("input", dtype, &from.store(|i| values[i]));
        let places = to.offsets().into_iter().zip(wants).collect();
        trial.scattered("output", output_dtype, to.store(|_| f64::NAN), places);
        trial.calling(move |backend, ptrs| {
            let mut desc = ReduceDesc::new(op, from.desc(ptrs[0], dtype), axes, ptrs[1]);
            desc.output_dtype = output_dtype;
            desc.output_strides = explicit.then_some(&to.strides);
            backend.reduce_ext(&desc)
        })
    }
}

/// The numbers of each output, both in row-major order.
fn groups(shape: &[usize], axes: &[usize], values: &[f64]) -> Vec<Vec<f64>> {
    let outputs = (0..shape.len()).filter(|k| !axes.contains(k)).map(|k| shape[k]).product();
    let mut groups = vec![Vec::new(); outputs];
    for (i, &value) in values.iter().enumerate() {
        let (mut rest, mut output, mut scale) = (i, 0, 1);
        for k in (0..shape.len()).rev() {
            if !axes.contains(&k) {
                output += rest % shape[k] * scale;
                scale *= shape[k];
            }
            rest /= shape[k];
        }
        groups[output].push(value);
    }
    groups
}

/// An input with a stride of 0 along an axis that stays and one that is reduced.
fn repeated(op: ReduceOp) -> Case {
    Case::new("reduce_ext", format!("{}_repeated", op.name()), move |rng| {
        let (shape, axes): (&[usize], &[usize]) = (&[3, 4, 8, 5], &[1, 2]);
        let from = Tensor::new(rng, shape, Layout::Packed).repeated(&[0, 1]);
        let plane = values(rng, op, Kind::Numbers, 40, 32);
        let values: Vec<f64> = (0..480).map(|i| plane[i % 40]).collect();
        let layouts = [Layout::Packed; 2];
        let (dtype, kind) = (DType::F32, Kind::Numbers);
        Reduction { op, dtype, widened: false, shape, axes, layouts, kind }.trial_of(rng, from, &values)
    })
}

/// The best number several times, in different lanes, members of a row group and slices; NaN, zeros of both signs, and
/// nothing but the worst number that there is.
fn ties() -> Vec<Case> {
    let mut cases = Vec::new();
    for op in [ReduceOp::ArgMax, ReduceOp::ArgMin] {
        for dtype in [DType::F32, DType::F16, DType::I32, DType::U32] {
            let worst = match (op, dtype) {
                (ReduceOp::ArgMax, DType::I32) => f64::from(i32::MIN),
                (ReduceOp::ArgMax, DType::U32) => 0.0,
                (ReduceOp::ArgMax, _) => f64::NEG_INFINITY,
                (_, DType::I32) => f64::from(i32::MAX),
                (_, DType::U32) => f64::from(u32::MAX),
                _ => f64::INFINITY,
            };
            for (name, fill, best) in [
                ("worst", worst, worst),
                ("equal", 3.0, 3.0),
                ("several", 3.0, if op == ReduceOp::ArgMax { 5.0 } else { 1.0 }),
                ("zeros", 0.0, -0.0),
                ("nan", 3.0, f64::NAN),
            ] {
                if best.is_nan() && !dtype.is_float() {
                    continue;
                }
                let name = format!("{}_{dtype}_{name}_ties", op.name());
                cases.push(Case::new("reduce_ext", name, move |rng| {
                    let (shape, axes): (&[usize], &[usize]) = (&[2, 20_000], &[1]);
                    let mut values = vec![fill; 40_000];
                    for at in [17_003, 5_000, 5_001, 19_999, 30_000, 39_999] {
                        values[at] = best;
                    }
                    let from = Tensor::new(rng, shape, Layout::Packed);
                    let layouts = [Layout::Packed; 2];
                    Reduction { op, dtype, widened: false, shape, axes, layouts, kind: Kind::Numbers }
                        .trial_of(rng, from, &values)
                }));
            }
        }
    }
    cases
}
