//! gather, scatter and random.

use backend_api::desc::{
    Distribution, GatherDesc, IndexShape, RandomDesc, RepetitionPenalty, SampleDesc, ScatterDesc, TopKDesc,
};
use backend_api::{DType, ScatterOp};

use super::expect::{OVERFLOW, SHAPE, TOO_SMALL, dtype, too_small};
use super::operation::Change;
use super::{Handles, Operation, Role, Slot};

pub(super) fn operations() -> Vec<Operation> {
    DType::ALL
        .into_iter()
        .flat_map(|dtype| [gather(dtype), scatter(dtype), top_k(dtype)].into_iter().chain(sample(dtype)))
        .chain([random(DType::F32, false), random(DType::F16, true)])
        .collect()
}

fn gather(element: DType) -> Operation {
    let op = "gather";
    let bytes = element.size();
    let slots = vec![
        Slot::new("table", Role::Input, element, 7 * 5),
        Slot::new("indices", Role::Input, DType::U32, 4),
        Slot::new("output", Role::Output, element, 4 * 5),
    ];
    let good = move |h: &Handles| {
        GatherDesc::new(element, h[0], h[1], h[2], IndexShape { rows: 7, columns: 5, count: 4 })
    };
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
        ("two tables", TOO_SMALL, |d| d.outer = 2),
        ("usize::MAX tables", OVERFLOW, |d| d.outer = usize::MAX),
        ("an index for each element", too_small(op, "indices", 16, 80), |d| d.per_element = true),
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
    Operation::of(op, slots, 1.0, good, |b, _, d| b.gather(d), changes).variant(element)
}

fn scatter(element: DType) -> Operation {
    let op = "scatter";
    let bytes = element.size();
    let slots = vec![
        Slot::new("table", Role::Output, element, 5),
        Slot::new("indices", Role::Input, DType::U32, 4).holding(0.0),
        Slot::new("source", Role::Input, element, 4 * 5),
    ];
    let good = move |h: &Handles| {
        ScatterDesc::new(
            ScatterOp::Assign,
            element,
            h[0],
            h[1],
            h[2],
            IndexShape { rows: 1, columns: 5, count: 4 },
        )
    };
    let changes: Vec<Change<ScatterDesc>> = vec![
        ("a row more than the table has", too_small(op, "table", 5 * bytes, 10 * bytes), |d| d.rows = 2),
        ("a column more than the table has", TOO_SMALL, |d| d.columns = 6),
        ("an index too many", too_small(op, "indices", 16, 20), |d| {
            d.count = 5;
        }),
        ("two tables", TOO_SMALL, |d| d.outer = 2),
        (
            "numbers of a type that isn't converted",
            dtype(op, "source", if element == DType::I32 { DType::F32 } else { DType::I32 }),
            |d| {
                d.source_dtype = if d.dtype == DType::I32 { DType::F32 } else { DType::I32 };
            },
        ),
        ("an index for each element", too_small(op, "indices", 16, 80), |d| d.per_element = true),
        ("rows usize::MAX", OVERFLOW, |d| d.rows = usize::MAX),
        ("columns usize::MAX", OVERFLOW, |d| d.columns = usize::MAX),
        ("count usize::MAX", OVERFLOW, |d| d.count = usize::MAX),
        ("usize::MAX tables", OVERFLOW, |d| d.outer = usize::MAX),
        ("2^40 rows of 2^40", OVERFLOW, |d| {
            (d.rows, d.columns) = (1 << 40, 1 << 40);
        }),
    ];
    Operation::of(op, slots, 1.0, good, |b, _, d| b.scatter(d), changes).variant(element)
}

fn top_k(element: DType) -> Operation {
    let op = "top_k";
    let bytes = element.size();
    let slots = vec![
        Slot::new("indices", Role::Output, DType::I32, 4),
        Slot::new("input", Role::Input, element, 4 * 5),
    ];
    let good = move |h: &Handles| TopKDesc::new(element, h[1], h[0], 4, 5, 1);
    let changes: Vec<Change<TopKDesc>> = vec![
        ("a row too many", too_small(op, "input", 20 * bytes, 25 * bytes), |d| d.rows = 5),
        ("a column too many", too_small(op, "input", 20 * bytes, 24 * bytes), |d| d.columns = 6),
        ("an index too many", too_small(op, "indices", 16, 32), |d| d.k = 2),
        ("more than there are", SHAPE, |d| d.k = 6),
        ("k usize::MAX", SHAPE, |d| d.k = usize::MAX),
        ("rows usize::MAX", OVERFLOW, |d| d.rows = usize::MAX),
        ("columns usize::MAX", OVERFLOW, |d| d.columns = usize::MAX),
        ("2^40 rows of 2^40", OVERFLOW, |d| (d.rows, d.columns) = (1 << 40, 1 << 40)),
    ];
    Operation::of(op, slots, 0.0, good, |b, _, d| b.top_k(d), changes).variant(element)
}

/// Of the largest logit, so that the token is known.
fn sample(element: DType) -> Option<Operation> {
    let op = "sample";
    let bytes = element.size();
    let slots = vec![
        Slot::new("tokens", Role::Output, DType::I32, 4),
        Slot::new("logits", Role::Input, element, 4 * 5),
        Slot::new("window", Role::Input, DType::I32, 4 * 3).holding(0.0),
        Slot::new("offset", Role::Input, DType::U32, 2),
    ];
    let good = move |h: &Handles| {
        let repetition = RepetitionPenalty { window: h[2], len: 3, penalty: 1.0 };
        let desc = SampleDesc::new(element, h[1], h[0], 4, 5, 1).with_temperature(0.0);
        desc.with_repetition(repetition).with_offset_ptr(h[3])
    };
    let changes: Vec<Change<SampleDesc>> = vec![
        ("a row too many", too_small(op, "logits", 20 * bytes, 25 * bytes), |d| d.rows = 5),
        ("a column too many", too_small(op, "logits", 20 * bytes, 24 * bytes), |d| d.columns = 6),
        ("no columns", SHAPE, |d| d.columns = 0),
        ("a token of the window too many", too_small(op, "window", 48, 64), |d| {
            d.repetition = d.repetition.map(|of| RepetitionPenalty { len: 4, ..of });
        }),
        ("a window without end", SHAPE, |d| {
            d.repetition = d.repetition.map(|of| RepetitionPenalty { len: usize::MAX, ..of });
        }),
        ("logits of i32", dtype(op, "logits", DType::I32), |d| d.dtype = DType::I32),
        ("rows usize::MAX", OVERFLOW, |d| d.rows = usize::MAX),
        ("columns usize::MAX", OVERFLOW, |d| d.columns = usize::MAX),
    ];
    let operation = Operation::of(op, slots, 0.0, good, |b, _, d| b.sample(d), changes);
    element.is_float().then(|| operation.variant(element))
}

/// A distribution of a single number, so that the result is known.
fn random(element: DType, has_offset: bool) -> Operation {
    let op = "random";
    let mut slots = vec![Slot::new("output", Role::Output, element, 10)];
    if has_offset {
        slots.push(Slot::new("offset", Role::Input, DType::U32, 2));
    }
    let single = Distribution::Normal { mean: 3.0, std: 0.0 };
    let good = move |h: &Handles| {
        let desc = RandomDesc::new(h[0], element, 10, 1, single);
        if has_offset { desc.with_offset_ptr(h[1]) } else { desc }
    };
    let changes: Vec<Change<RandomDesc>> = vec![
        ("a number too many", TOO_SMALL, |d| d.n = 11),
        ("n usize::MAX", OVERFLOW, |d| d.n = usize::MAX),
        ("of i32", dtype(op, "output", DType::I32), |d| d.dtype = DType::I32),
        ("of u32", dtype(op, "output", DType::U32), |d| d.dtype = DType::U32),
    ];
    Operation::of(op, slots, 3.0, good, |b, _, d| b.random(d), changes).variant(element)
}
