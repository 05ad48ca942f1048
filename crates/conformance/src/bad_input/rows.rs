//! reduce, softmax and the normalisations.

use backend_api::desc::{LayerNormDesc, RmsNormDesc, SoftmaxDesc};
use backend_api::{BackendResult, ComputeBackend, DType, ErrorKind, ReduceOp};

use super::expect::{Expect, OVERFLOW, SHAPE, TOO_SMALL, at_least, dtype, less_than, overlap, too_small};
use super::operation::Change;
use super::{Handles, Operation, Role, Slot};
use DType::{F16, F32, I32, U32};

const HUGE: usize = 1 << 40;
const HALF: usize = usize::MAX / 2 + 1;

pub(super) fn operations() -> Vec<Operation> {
    let mut operations = vec![reduce()];
    for element in [F32, F16] {
        operations.extend([softmax(element), layer_norm(element), rms_norm(element)]);
    }
    operations
}

fn reduce() -> Operation {
    fn sum(b: &dyn ComputeBackend, h: &Handles, shape: &[usize], axis: usize) -> BackendResult<()> {
        b.reduce(ReduceOp::Sum, h[0], h[1], shape, axis)
    }
    let op = "reduce";
    let axis = |rank, got| less_than(op, "axis", rank, got);
    let slots = vec![Slot::new("input", Role::Input, F32, 24), Slot::new("output", Role::Output, F32, 8)];
    Operation::new(op, slots, 3.0, |b, h| sum(b, h, &[2, 3, 4], 1))
        .bad("axis 3 of rank 3", axis(3, 3), |b, h| sum(b, h, &[2, 3, 4], 3))
        .bad("axis usize::MAX", axis(3, usize::MAX), |b, h| sum(b, h, &[2, 3, 4], usize::MAX))
        .bad("axis 0 of rank 0", at_least(op, "number of dimensions", 1, 0), |b, h| sum(b, h, &[], 0))
        .bad("axis 1 of rank 1", axis(1, 1), |b, h| sum(b, h, &[24], 1))
        .bad("a longer axis than the input has", too_small(op, "input", 96, 128), |b, h| {
            sum(b, h, &[2, 4, 4], 1)
        })
        .bad("a row more than the input has", too_small(op, "input", 96, 144), |b, h| {
            sum(b, h, &[3, 3, 4], 1)
        })
        .bad("an output larger than its buffer", too_small(op, "output", 32, 48), |b, h| {
            sum(b, h, &[3, 2, 4], 1)
        })
        .bad("an output of an empty axis larger than its buffer", too_small(op, "output", 32, 36), |b, h| {
            sum(b, h, &[3, 0, 3], 1)
        })
        .bad("[2^40, 2^40, 1]", OVERFLOW, |b, h| sum(b, h, &[HUGE, HUGE, 1], 2))
        .bad("[usize::MAX, 2]", OVERFLOW, |b, h| sum(b, h, &[usize::MAX, 2], 0))
        .bad("[2, half of the range]", OVERFLOW, |b, h| sum(b, h, &[2, HALF], 0))
        .bad("[2^62] whose bytes overflow", OVERFLOW, |b, h| sum(b, h, &[1 << 62], 0))
        .bad("an empty axis and an output that overflows", OVERFLOW, |b, h| sum(b, h, &[0, HUGE, HUGE], 0))
        .bad("[2^32, 1]", TOO_SMALL, |b, h| sum(b, h, &[1 << 32, 1], 1))
        .bad("max over an axis too far", axis(2, 2), |b, h| b.reduce(ReduceOp::Max, h[0], h[1], &[4, 6], 2))
        .bad("mean of too many", TOO_SMALL, |b, h| b.reduce(ReduceOp::Mean, h[0], h[1], &[25], 0))
}

fn softmax(element: DType) -> Operation {
    let op = "softmax";
    let bytes = element.size();
    let slots = vec![
        Slot::new("input", Role::InPlaceInput, element, 20),
        Slot::new("output", Role::Output, element, 20),
    ];
    let good = move |h: &Handles| SoftmaxDesc::rows(element, h[0], h[1], 4, 5);
    let changes: Vec<Change<SoftmaxDesc>> = vec![
        ("of i32", dtype(op, "dtype", I32), |d| d.dtype = I32),
        ("of u32", dtype(op, "dtype", U32), |d| d.dtype = U32),
        ("a row too many", too_small(op, "input", 20 * bytes, 25 * bytes), |d| d.outer = 5),
        ("a column too many", too_small(op, "input", 20 * bytes, 24 * bytes), |d| d.length = 6),
        ("twice as many", too_small(op, "input", 20 * bytes, 40 * bytes), |d| d.inner = 2),
        ("rows usize::MAX", OVERFLOW, |d| d.outer = usize::MAX),
        ("columns half of the range", OVERFLOW, |d| d.length = HALF),
        ("2^40 · 2^40", OVERFLOW, |d| (d.outer, d.inner) = (HUGE, HUGE)),
        ("2^63 numbers, whose bytes overflow", OVERFLOW, |d| {
            (d.outer, d.length, d.inner) = (1 << 31, 1 << 31, 2);
        }),
        ("2^32 columns", TOO_SMALL, |d| (d.outer, d.length) = (1, 1 << 32)),
    ];
    Operation::of(op, slots, 0.2, good, |b, _, d| b.softmax(d), changes)
        .variant(element)
        .bad("axis 2 of rank 2", less_than(op, "axis", 2, 2), move |b, h| {
            b.softmax(&SoftmaxDesc::along(element, h[0], h[1], &[4, 5], 2)?)
        })
        .bad("axis 0 of rank 0", SHAPE, move |b, h| {
            b.softmax(&SoftmaxDesc::along(element, h[0], h[1], &[], 0)?)
        })
        .bad("a shape that overflows", OVERFLOW, move |b, h| {
            b.softmax(&SoftmaxDesc::along(element, h[0], h[1], &[HUGE, HUGE], 1)?)
        })
}

fn norm_slots(element: DType) -> Vec<Slot> {
    vec![
        Slot::new("input", Role::InPlaceInput, element, 20).holding(0.5),
        Slot::new("output", Role::Output, element, 20),
        Slot::new("weight", Role::Input, element, 5),
        Slot::new("residual", Role::InPlaceInput, element, 20).holding(0.5),
        Slot::new("sum", Role::Output, element, 20),
    ]
}

/// What is wrong for the descriptor of every normalisation of rows, and what else is for one of them.
macro_rules! norm_changes {
    ($op:ident, $bytes:ident; $($other:tt)*) => {
        vec![
            $($other)*
            ("of i32", dtype($op, "dtype", I32), |d| d.dtype = I32),
            ("of u32", dtype($op, "dtype", U32), |d| d.dtype = U32),
            ("weights of i32", dtype($op, "weight_dtype", I32), |d| d.weight_dtype = I32),
            ("output of u32", dtype($op, "output_dtype", U32), |d| d.output_dtype = U32),
            ("the sum in the output", overlap($op, "output", "sum"), |d| d.sum = Some(d.output)),
            ("the sum in the weight", TOO_SMALL, |d| d.sum = d.weight),
            ("the sum in no memory", Expect::Kind(ErrorKind::InvalidHandle), |d| d.sum = Some(0)),
            ("a row too many", too_small($op, "input", 20 * $bytes, 25 * $bytes), |d| d.rows = 5),
            ("a column too many", too_small($op, "input", 20 * $bytes, 24 * $bytes), |d| d.columns = 6),
            ("a row as wide as two", too_small($op, "weight", 5 * $bytes, 10 * $bytes), |d| {
                (d.rows, d.columns) = (2, 10);
            }),
            ("rows usize::MAX", OVERFLOW, |d| d.rows = usize::MAX),
            ("2^40 rows of 2^40", OVERFLOW, |d| {
                (d.rows, d.columns) = (HUGE, HUGE);
            }),
        ]
    };
}

fn layer_norm(element: DType) -> Operation {
    let op = "layer_norm";
    let bytes = element.size();
    let mut slots = norm_slots(element);
    slots.insert(3, Slot::new("bias", Role::Input, element, 5));
    let good = move |h: &Handles| {
        let mut desc = LayerNormDesc::new(element, h[0], h[1], 4, 5);
        (desc.weight, desc.bias) = (Some(h[2]), Some(h[3]));
        (desc.residual, desc.sum) = (Some(h[4]), Some(h[5]));
        desc
    };
    let changes: Vec<Change<LayerNormDesc>> = norm_changes![
        op, bytes;
        ("a bias as wide as half", too_small(op, "bias", 5 * bytes, 10 * bytes), |d| {
            (d.rows, d.columns, d.weight) = (2, 10, None);
        }),
        ("columns usize::MAX", OVERFLOW, |d| d.columns = usize::MAX),
        ("half of the range", OVERFLOW, |d| (d.rows, d.columns) = (HALF, 2)),
        ("2^32 rows", TOO_SMALL, |d| d.rows = 1 << 32),
    ];
    Operation::of(op, slots, 1.0, good, |b, _, d| b.layer_norm(d), changes).variant(element)
}

fn rms_norm(element: DType) -> Operation {
    let op = "rms_norm";
    let bytes = element.size();
    let good = move |h: &Handles| {
        let mut desc = RmsNormDesc::new(element, h[0], h[1], 4, 5);
        (desc.weight, desc.residual, desc.sum) = (Some(h[2]), Some(h[3]), Some(h[4]));
        desc
    };
    let changes: Vec<Change<RmsNormDesc>> = norm_changes![
        op, bytes;
        ("columns half of the range", OVERFLOW, |d| d.columns = HALF),
        ("2^32 columns", TOO_SMALL, |d| (d.rows, d.columns) = (1, 1 << 32)),
    ];
    Operation::of(op, norm_slots(element), 1.0, good, |b, _, d| b.rms_norm(d), changes).variant(element)
}
