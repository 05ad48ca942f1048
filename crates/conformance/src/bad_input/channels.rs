//! The normalisations of channels, and cumulative sums.

use backend_api::DType;
use backend_api::desc::{BatchNormDesc, ChannelShape, CumSumDesc, GroupNormDesc};

use super::expect::{OVERFLOW, SHAPE, TOO_SMALL, at_least, dtype, multiple, too_small};
use super::operation::Change;
use super::{Handles, Operation, Role, Slot};
use DType::{F16, F32, I32, U32};

const HUGE: usize = 1 << 40;

pub(super) fn operations() -> Vec<Operation> {
    let norms = [F32, F16].into_iter().flat_map(|element| [group_norm(element), batch_norm(element)]);
    norms.chain([F32, F16, I32].map(cumsum)).collect()
}

fn slots(element: DType, each: &[&'static str]) -> Vec<Slot> {
    let mut slots = vec![
        Slot::new("input", Role::InPlaceInput, element, 20),
        Slot::new("output", Role::Output, element, 20),
    ];
    slots.extend(each.iter().map(|arg| Slot::new(arg, Role::Input, element, 4)));
    slots
}

/// Changes of a normalisation of channels.
macro_rules! changes_of_norm {
    ($op:expr, $bytes:expr, $D:ty) => {{
        let changes: Vec<Change<$D>> = vec![
            ("of i32", dtype($op, "dtype", I32), |d| d.dtype = I32),
            ("of u32", dtype($op, "dtype", U32), |d| d.dtype = U32),
            ("twice the batch", too_small($op, "input", 20 * $bytes, 40 * $bytes), |d| d.batch = 2),
            ("usize::MAX numbers in a channel", OVERFLOW, |d| d.spatial = usize::MAX),
            ("2^40 channels of 2^40", OVERFLOW, |d| (d.channels, d.spatial) = (HUGE, HUGE)),
            ("2^32 channels", TOO_SMALL, |d| (d.channels, d.spatial) = (1 << 32, 1)),
        ];
        changes
    }};
}

fn group_norm(element: DType) -> Operation {
    let op = "group_norm";
    let bytes = element.size();
    let slots = slots(element, &["weight", "bias"]);
    let good = move |h: &Handles| {
        let mut desc =
            GroupNormDesc::new(element, h[0], h[1], ChannelShape { batch: 1, channels: 4, spatial: 5 }, 2);
        (desc.weight, desc.bias) = (Some(h[2]), Some(h[3]));
        desc
    };
    let mut changes: Vec<Change<GroupNormDesc>> = vec![
        ("weights of u32", dtype(op, "weight_dtype", U32), |d| d.weight_dtype = U32),
        ("no groups", at_least(op, "groups", 1, 0), |d| d.groups = 0),
        ("three groups", multiple(op, "number of channels", 3, 4), |d| d.groups = 3),
        ("more groups than channels", multiple(op, "number of channels", 5, 4), |d| d.groups = 5),
        ("more channels", too_small(op, "weight", 4 * bytes, 10 * bytes), |d| {
            (d.channels, d.spatial) = (10, 2);
        }),
    ];
    changes.extend(changes_of_norm!(op, bytes, GroupNormDesc));
    Operation::of(op, slots, 1.0, good, |b, _, d| b.group_norm(d), changes).variant(element)
}

fn batch_norm(element: DType) -> Operation {
    let op = "batch_norm";
    let bytes = element.size();
    let good = move |h: &Handles| {
        let mut desc = BatchNormDesc::new(
            element,
            h[0],
            h[1],
            h[2],
            h[3],
            ChannelShape { batch: 1, channels: 4, spatial: 5 },
        );
        (desc.weight, desc.bias) = (Some(h[4]), Some(h[5]));
        desc
    };
    let slots = slots(element, &["mean", "variance", "weight", "bias"]);
    let mut changes: Vec<Change<BatchNormDesc>> = vec![
        ("statistics of i32", dtype(op, "weight_dtype", I32), |d| d.weight_dtype = I32),
        ("more channels", too_small(op, "mean", 4 * bytes, 5 * bytes), |d| (d.channels, d.spatial) = (5, 4)),
    ];
    changes.extend(changes_of_norm!(op, bytes, BatchNormDesc));
    Operation::of(op, slots, 1.0, good, |b, _, d| b.batch_norm(d), changes).variant(element)
}

fn cumsum(element: DType) -> Operation {
    let op = "cumsum";
    let bytes = element.size();
    let good = move |h: &Handles| CumSumDesc::rows(element, h[0], h[1], 20, 1);
    let slots = slots(element, &[]);
    let changes: Vec<Change<CumSumDesc>> = vec![
        ("one more", too_small(op, "input", 20 * bytes, 25 * bytes), |d| d.outer = 25),
        ("a longer axis", too_small(op, "input", 20 * bytes, 40 * bytes), |d| d.length = 2),
        ("a wider slab", too_small(op, "input", 20 * bytes, 60 * bytes), |d| d.inner = 3),
        ("2^40 · 2^40", OVERFLOW, |d| (d.outer, d.inner) = (HUGE, HUGE)),
        ("usize::MAX along the axis", OVERFLOW, |d| d.length = usize::MAX),
        ("2^32 along the axis", TOO_SMALL, |d| (d.outer, d.length, d.inner) = (1, 1 << 32, 1)),
    ];
    Operation::of(op, slots, 1.0, good, |b, _, d| b.cumsum(d), changes).variant(element).bad(
        "axis 2 of rank 2",
        SHAPE,
        move |b, h| b.cumsum(&CumSumDesc::along(element, h[0], h[1], &[4, 5], 2)?),
    )
}
