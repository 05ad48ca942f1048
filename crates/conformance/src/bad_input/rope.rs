//! rope and rope_append.

use backend_api::DType;
use backend_api::desc::{
    Matrix, RopeAppendDesc, RopeAppendShape, RopeDesc, RopeShape, RopeStyle, RopeTables,
};

use super::attention::layout;
use super::expect::{OVERFLOW, SHAPE, TOO_SMALL, at_least, dtype, multiple, overlap, too_small};
use super::operation::Change;
use super::{Handles, Operation, Role, Slot};

const HUGE: usize = 1 << 40;
const HALF: usize = usize::MAX / 2 + 1;

pub(super) fn operations() -> Vec<Operation> {
    let mut operations = Vec::new();
    for element in [DType::F32, DType::F16] {
        operations.extend([rope(element, false), rope(element, true), append(element)]);
    }
    operations
}

/// Cosines of 1 and sines of 0: a rotation by nothing.
fn unturned(element: DType, h: &Handles, with_positions: bool) -> RopeDesc {
    let mut desc = RopeDesc::new(
        element,
        h[0],
        h[1],
        RopeTables { cos: h[2], sin: h[3], max_position: 5 },
        RopeShape { batch: 2, heads: 2, seq: 3, head_dim: 6 },
        RopeStyle::Half,
    );
    desc.rotary_dim = 4;
    if with_positions {
        desc.positions = Some(h[4]);
    }
    desc
}

fn rope(element: DType, with_positions: bool) -> Operation {
    let mut slots = vec![
        Slot::new("input", Role::InPlaceInput, element, 72),
        Slot::new("output", Role::Output, element, 72),
        Slot::new("cos", Role::Input, DType::F32, 5 * 2),
        Slot::new("sin", Role::Input, DType::F32, 5 * 2).holding(0.0),
    ];
    if with_positions {
        slots.push(Slot::new("positions", Role::Input, DType::U32, 6));
    }
    let good = move |h: &Handles| unturned(element, h, with_positions);
    let (variant, changes) = match with_positions {
        true => (format!("{element} with positions"), bad_positions()),
        false => (element.to_string(), bad_tensors(element.size())),
    };
    Operation::of("rope", slots, 1.0, good, |b, _, d| b.rope(d), changes).variant(variant)
}

fn bad_positions() -> Vec<Change<RopeDesc>> {
    let op = "rope";
    vec![
        ("tables without rows", at_least(op, "max_position", 1, 0), |d| d.max_position = 0),
        ("more positions than there are", TOO_SMALL, |d| {
            (d.batch, d.heads) = (4, 1);
        }),
    ]
}

fn bad_tensors(bytes: usize) -> Vec<Change<RopeDesc>> {
    let op = "rope";
    vec![
        ("rotary_dim 3", multiple(op, "rotary_dim", 2, 3), |d| {
            d.rotary_dim = 3;
        }),
        ("rotary_dim usize::MAX", multiple(op, "rotary_dim", 2, usize::MAX), |d| d.rotary_dim = usize::MAX),
        ("rotary_dim above head_dim", at_least(op, "head_dim", 8, 6), |d| {
            d.rotary_dim = 8;
        }),
        ("tables of fewer rows than tokens", at_least(op, "max_position", 3, 2), |d| {
            d.max_position = 2;
        }),
        ("a start too far for the tables", at_least(op, "max_position", 6, 5), |d| d.start = 3),
        ("start usize::MAX", OVERFLOW, |d| d.start = usize::MAX),
        ("of i32", dtype(op, "dtype", DType::I32), |d| d.dtype = DType::I32),
        ("of u32", dtype(op, "dtype", DType::U32), |d| d.dtype = DType::U32),
        ("a table longer than its buffer", too_small(op, "cos", 40, 48), |d| d.max_position = 6),
        ("a table wider than its buffer", too_small(op, "cos", 40, 60), |d| d.rotary_dim = 6),
        ("a table that overflows", OVERFLOW, |d| {
            d.max_position = usize::MAX;
        }),
        ("a head too many", TOO_SMALL, |d| d.heads = 3),
        ("a sequence too many", too_small(op, "input", 72 * bytes, 108 * bytes), |d| d.batch = 3),
        ("output tokens at one place", overlap(op, "output", "output"), |d| {
            d.output_layout = layout(36, 18, 0);
        }),
        ("output tokens overlapping", overlap(op, "output", "output"), |d| {
            d.output_layout = layout(36, 18, 5);
        }),
        ("output batches overlapping", overlap(op, "output", "output"), |d| {
            d.output_layout = layout(35, 18, 6);
        }),
        ("input beyond its end", too_small(op, "input", 72 * bytes, 73 * bytes), |d| {
            d.input_layout = layout(37, 18, 6);
        }),
        ("output beyond its end", too_small(op, "output", 72 * bytes, 76 * bytes), |d| {
            d.output_layout = layout(38, 20, 6);
        }),
        ("in place with other strides", overlap(op, "output", "input"), |d| {
            d.input = d.output;
            d.input_layout = layout(36, 6, 12);
        }),
        ("batch usize::MAX", OVERFLOW, |d| d.batch = usize::MAX),
        ("2^40 heads of 2^40 tokens", OVERFLOW, |d| {
            (d.heads, d.seq) = (HUGE, HUGE);
        }),
        ("head_dim half of the range", OVERFLOW, |d| d.head_dim = HALF),
        ("an input stride of usize::MAX", OVERFLOW, |d| d.input_layout = layout(usize::MAX, 18, 6)),
        ("an output stride of usize::MAX", OVERFLOW, |d| d.output_layout = layout(usize::MAX, 18, 6)),
    ]
}

/// A row of a query, a key and a value of ones, and a cache of one row.
fn append(element: DType) -> Operation {
    let op = "rope_append";
    let bytes = element.size();
    let slots = vec![
        Slot::new("qkv", Role::Output, element, 12).holding(1.0),
        Slot::new("cache", Role::Output, element, 8),
        Slot::new("cos", Role::Input, DType::F32, 4),
        Slot::new("sin", Role::Input, DType::F32, 4).holding(0.0),
        Slot::new("positions", Role::Input, DType::U32, 1).holding(0.0),
        Slot::new("indices", Role::Input, DType::U32, 1).holding(0.0),
    ];
    let good = move |h: &Handles| {
        let tables = RopeTables { cos: h[2], sin: h[3], max_position: 2 };
        let shape = RopeAppendShape { rows: 1, heads: 1, kv_heads: 1, head_dim: 4, cache_rows: 1 };
        let [qkv, cache] = [(h[0], 12), (h[1], 8)].map(|(ptr, ld)| Matrix::new(ptr, element, ld));
        RopeAppendDesc::new(qkv, cache, tables, shape, h[4], h[5])
    };
    let changes: Vec<Change<RopeAppendDesc>> = vec![
        ("rows of i32", dtype(op, "qkv", DType::I32), |d| d.qkv.dtype = DType::I32),
        ("a cache of u32", dtype(op, "cache", DType::U32), |d| d.cache.dtype = DType::U32),
        ("rotary_dim 3", multiple(op, "rotary_dim", 2, 3), |d| d.rotary_dim = 3),
        ("rotary_dim above head_dim", at_least(op, "head_dim", 6, 4), |d| d.rotary_dim = 6),
        ("tables without rows", at_least(op, "max_position", 1, 0), |d| d.max_position = 0),
        ("tables of a row too many", too_small(op, "cos", 16, 24), |d| d.max_position = 3),
        ("a short ld", SHAPE, |d| d.qkv.ld = 11),
        ("a short ld of the cache", SHAPE, |d| d.cache.ld = 7),
        ("a row too many", too_small(op, "qkv", 12 * bytes, 24 * bytes), |d| d.rows = 2),
        ("a later start", too_small(op, "qkv", 12 * bytes, 13 * bytes), |d| d.qkv.offset = 1),
        ("a row of the cache too many", too_small(op, "cache", 8 * bytes, 16 * bytes), |d| d.cache_rows = 2),
        ("a later start of the cache", too_small(op, "cache", 8 * bytes, 9 * bytes), |d| d.cache.offset = 1),
        ("the cache as its indices", overlap(op, "cache", "indices"), |d| d.indices = d.cache.ptr),
        ("rows as their positions", overlap(op, "qkv", "positions"), |d| d.positions = d.qkv.ptr),
        ("rows usize::MAX", OVERFLOW, |d| d.rows = usize::MAX),
        ("cache_rows usize::MAX", OVERFLOW, |d| d.cache_rows = usize::MAX),
        ("heads usize::MAX", OVERFLOW, |d| d.heads = usize::MAX),
        ("kv_heads half of the range", OVERFLOW, |d| d.kv_heads = HALF),
    ];
    Operation::of(op, slots, 1.0, good, |b, _, d| b.rope_append(d), changes).variant(element)
}
