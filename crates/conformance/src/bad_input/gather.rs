//! gather.

use backend_api::DType;
use backend_api::desc::GatherDesc;

use super::expect::{OVERFLOW, TOO_SMALL, too_small};
use super::operation::Change;
use super::{Handles, Operation, Role, Slot};

pub(super) fn operations() -> Vec<Operation> {
    DType::ALL.map(gather).into()
}

fn gather(element: DType) -> Operation {
    let op = "gather";
    let bytes = element.size();
    let slots = vec![
        Slot::new("table", Role::Input, element, 7 * 5),
        Slot::new("indices", Role::Input, DType::U32, 4),
        Slot::new("output", Role::Output, element, 4 * 5),
    ];
    let good = move |h: &Handles| GatherDesc::new(element, [h[0], h[1], h[2]], [7, 5, 4]);
    let changes: Vec<Change<GatherDesc>> = vec![
        ("a row more than the table has", too_small(op, "table", 35 * bytes, 40 * bytes), |d| d.rows = 8),
        ("a column more than the table has", TOO_SMALL, |d| d.columns = 6),
        ("an index too many", too_small(op, "indices", 16, 20), |d| {
            d.count = 5;
        }),
        ("an output larger than its buffer", too_small(op, "output", 20 * bytes, 24 * bytes), |d| {
            (d.rows, d.columns) = (1, 6);
        }),
        ("rows usize::MAX", OVERFLOW, |d| d.rows = usize::MAX),
        ("columns usize::MAX", OVERFLOW, |d| d.columns = usize::MAX),
        ("count usize::MAX", OVERFLOW, |d| d.count = usize::MAX),
        ("count half of the range", OVERFLOW, |d| {
            d.count = usize::MAX / 2 + 1;
        }),
        ("2^40 rows of 2^40", OVERFLOW, |d| {
            (d.rows, d.columns) = (1 << 40, 1 << 40);
        }),
        ("indices whose bytes overflow", OVERFLOW, |d| {
            (d.rows, d.columns, d.count) = (1, 1, 1 << 62);
        }),
        ("count 2^32", TOO_SMALL, |d| {
            (d.rows, d.columns, d.count) = (1, 1, 1 << 32);
        }),
    ];
    Operation::new(op, slots, 1.0, move |b, h| b.gather(&good(h))).variant(element).broken(
        good,
        |b, _, d| b.gather(d),
        changes,
    )
}
