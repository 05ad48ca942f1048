//! The gradients of softmax and of the normalisations of rows.

use backend_api::DType;
use backend_api::desc::{NormBackwardDesc, NormBackwardWeightDesc, SoftmaxBackwardDesc, SoftmaxDesc};

use super::expect::{OVERFLOW, TOO_SMALL, dtype, too_small};
use super::operation::Change;
use super::{Handles, Operation, Role, Slot};
use DType::{F16, F32, I32, U32};

const HUGE: usize = 1 << 40;

pub(super) fn operations() -> Vec<Operation> {
    let of = |element| [softmax(element), rows(element), weight(element)];
    [F32, F16].into_iter().flat_map(of).collect()
}

/// Operands of a gradient along rows: a tensor of the forward pass, and the gradients of its output and input.
fn slots(element: DType, forward: &'static str) -> Vec<Slot> {
    let tensors = [(forward, Role::Input), ("grad_output", Role::InPlaceInput), ("grad_input", Role::Output)];
    tensors.map(|(arg, role)| Slot::new(arg, role, element, 20)).into()
}

fn softmax(element: DType) -> Operation {
    let op = "softmax_backward";
    let bytes = element.size();
    let good =
        move |h: &Handles| SoftmaxBackwardDesc::of(&SoftmaxDesc::rows(element, 0, h[0], 4, 5), h[1], h[2]);
    let changes: Vec<Change<SoftmaxBackwardDesc>> = vec![
        ("of i32", dtype(op, "dtype", I32), |d| d.dtype = I32),
        ("of u32", dtype(op, "dtype", U32), |d| d.dtype = U32),
        ("a row too many", too_small(op, "y", 20 * bytes, 25 * bytes), |d| d.outer = 5),
        ("a column too many", too_small(op, "y", 20 * bytes, 24 * bytes), |d| d.length = 6),
        ("2^40 · 2^40", OVERFLOW, |d| (d.outer, d.inner) = (HUGE, HUGE)),
        ("2^32 columns", TOO_SMALL, |d| (d.outer, d.length) = (1, 1 << 32)),
    ];
    // 1·(1 − 5).
    Operation::of(op, slots(element, "y"), -4.0, good, |b, _, d| b.softmax_backward(d), changes)
        .variant(element)
}

/// Changes of the gradients of a normalisation, one of whose operands has an element for each column.
macro_rules! changes_of_norm {
    ($op:expr, $bytes:expr, $each_column:literal, $D:ty) => {{
        let changes: Vec<Change<$D>> = vec![
            ("of i32", dtype($op, "dtype", I32), |d| d.dtype = I32),
            ("of u32", dtype($op, "dtype", U32), |d| d.dtype = U32),
            ("a row too many", too_small($op, "x", 20 * $bytes, 25 * $bytes), |d| d.rows = 5),
            ("a row as wide as two", too_small($op, $each_column, 5 * $bytes, 10 * $bytes), |d| {
                (d.rows, d.columns) = (2, 10);
            }),
            ("2^40 rows of 2^40", OVERFLOW, |d| (d.rows, d.columns) = (HUGE, HUGE)),
        ];
        changes
    }};
}

fn rows(element: DType) -> Operation {
    let op = "norm_backward";
    let mut slots = slots(element, "x");
    slots.push(Slot::new("weight", Role::Input, element, 5));
    let good = move |h: &Handles| {
        let mut desc = NormBackwardDesc::layer_norm(element, h[0], h[1], h[2], 4, 5);
        desc.weight = Some(h[3]);
        desc
    };
    let mut changes = changes_of_norm!(op, element.size(), "weight", NormBackwardDesc);
    changes.push(("2^32 rows", TOO_SMALL, |d| d.rows = 1 << 32));
    Operation::of(op, slots, 0.0, good, |b, _, d| b.norm_backward(d), changes).variant(element)
}

fn weight(element: DType) -> Operation {
    let op = "norm_backward_weight";
    let slots = vec![
        Slot::new("x", Role::Input, element, 20),
        Slot::new("grad_output", Role::Input, element, 20),
        Slot::new("grad_weight", Role::Output, element, 5),
    ];
    let good = move |h: &Handles| {
        NormBackwardWeightDesc::of(&NormBackwardDesc::layer_norm(element, h[0], h[1], 0, 4, 5), h[2])
    };
    let changes = changes_of_norm!(op, element.size(), "grad_weight", NormBackwardWeightDesc);
    Operation::of(op, slots, 0.0, good, |b, _, d| b.norm_backward_weight(d), changes).variant(element)
}
