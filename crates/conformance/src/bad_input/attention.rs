//! attention and attention_ext.

use backend_api::desc::{AttentionDesc, AttentionMask, AttentionShape, BlockTable, HeadLayout};
use backend_api::kv::KvFormat;
use backend_api::{BackendResult, Bound, ComputeBackend, DType, ErrorKind};

use super::expect::{Expect, OVERFLOW, TOO_SMALL, at_least, bound, dtype, multiple, overlap, too_small};
use super::operation::Change;
use super::{Handles, Operation, Role, Slot};

const HUGE: usize = 1 << 40;
const HALF: usize = usize::MAX / 2 + 1;

pub(super) fn operations() -> Vec<Operation> {
    let mut operations = vec![attention()];
    operations.extend([DType::F32, DType::F16].map(attention_ext));
    operations.push(options());
    operations.push(paged());
    operations
}

/// Batch, heads, seq_q, seq_kv and head_dim.
const GOOD: [usize; 5] = [2, 3, 4, 5, 6];

fn positional(b: &dyn ComputeBackend, h: &Handles, shape: &[usize; 5]) -> BackendResult<()> {
    let [batch, heads, seq_q, seq_kv, head_dim] = *shape;
    b.attention(h[0], h[1], h[2], h[3], batch, heads, seq_q, seq_kv, head_dim, 0.5, false)
}

fn attention() -> Operation {
    let op = "attention";
    let slots = vec![
        Slot::new("q", Role::Input, DType::F32, 2 * 3 * 4 * 6),
        Slot::new("k", Role::Input, DType::F32, 2 * 3 * 5 * 6),
        Slot::new("v", Role::Input, DType::F32, 2 * 3 * 5 * 6),
        Slot::new("o", Role::Output, DType::F32, 2 * 3 * 4 * 6),
    ];
    let changes: Vec<Change<[usize; 5]>> = vec![
        ("a sequence too many", too_small(op, "q", 576, 864), |s| {
            *s = [3, 3, 4, 5, 6];
        }),
        ("a head too many", too_small(op, "q", 576, 768), |s| {
            *s = [2, 4, 4, 5, 6];
        }),
        ("a query too many", too_small(op, "q", 576, 720), |s| {
            *s = [2, 3, 5, 5, 6];
        }),
        ("a key too many", too_small(op, "k", 720, 864), |s| {
            *s = [2, 3, 4, 6, 6];
        }),
        ("a number too many in a vector", too_small(op, "q", 576, 672), |s| *s = [2, 3, 4, 5, 7]),
        ("batch usize::MAX", OVERFLOW, |s| *s = [usize::MAX, 3, 4, 5, 6]),
        ("batch half of the range, two heads", OVERFLOW, |s| {
            *s = [HALF, 2, 1, 1, 1];
        }),
        ("batch usize::MAX, two heads", OVERFLOW, |s| {
            *s = [usize::MAX, 2, 1, 1, 1];
        }),
        ("heads usize::MAX", OVERFLOW, |s| *s = [2, usize::MAX, 4, 5, 6]),
        ("seq_q usize::MAX", OVERFLOW, |s| *s = [2, 3, usize::MAX, 5, 6]),
        ("seq_kv usize::MAX", OVERFLOW, |s| *s = [2, 3, 4, usize::MAX, 6]),
        ("seq_kv half of the range", OVERFLOW, |s| *s = [2, 3, 4, HALF, 6]),
        ("head_dim usize::MAX", OVERFLOW, |s| *s = [2, 3, 4, 5, usize::MAX]),
        ("2^40 sequences of 2^40 heads", OVERFLOW, |s| {
            *s = [HUGE, HUGE, 1, 1, 1];
        }),
        ("numbers whose bytes overflow", OVERFLOW, |s| {
            *s = [1 << 62, 1, 1, 1, 1];
        }),
        ("seq_kv 2^32", TOO_SMALL, |s| *s = [1, 1, 1, 1 << 32, 1]),
        ("seq_q 2^32", TOO_SMALL, |s| *s = [1, 1, 1 << 32, 1, 1]),
    ];
    Operation::of(op, slots, 1.0, |_| GOOD, positional, changes)
}

fn grouped(element: DType, h: &Handles) -> AttentionDesc {
    let mut desc = AttentionDesc::new(
        element,
        h[0],
        h[1],
        h[2],
        h[3],
        AttentionShape { batch: 2, heads: 4, seq_q: 3, seq_kv: 5, head_dim: 6 },
    );
    desc.kv_heads = 2;
    desc.mask = Some(AttentionMask { ptr: h[4], batch_stride: 15, head_stride: 0, query_stride: 5 });
    desc.key_lengths = Some(h[5]);
    desc
}

/// From one batch, head and token to the next.
#[allow(clippy::unnecessary_wraps, reason = "as descriptors have it")]
pub(super) const fn layout(batch: usize, head: usize, token: usize) -> Option<HeadLayout> {
    Some(HeadLayout { offset: 0, batch, head, token })
}

fn attention_ext(element: DType) -> Operation {
    let op = "attention_ext";
    let bytes = element.size();
    let slots = vec![
        Slot::new("q", Role::Input, element, 2 * 4 * 3 * 6),
        Slot::new("k", Role::Input, element, 2 * 2 * 5 * 6),
        Slot::new("v", Role::Input, element, 2 * 2 * 5 * 6),
        Slot::new("o", Role::Output, element, 2 * 4 * 3 * 6),
        Slot::new("mask", Role::Input, element, 2 * 3 * 5),
        Slot::new("key_lengths", Role::Input, DType::U32, 2).holding(4.0),
    ];
    let changes: Vec<Change<AttentionDesc>> = vec![
        ("kv_heads 3 for 4 heads", multiple(op, "heads", 3, 4), |d| d.kv_heads = 3),
        ("kv_heads 5 for 4 heads", multiple(op, "heads", 5, 4), |d| d.kv_heads = 5),
        ("kv_heads 0", at_least(op, "kv_heads", 1, 0), |d| {
            d.kv_heads = 0;
        }),
        ("of i32", dtype(op, "dtype", DType::I32), |d| d.dtype = DType::I32),
        ("of u32", dtype(op, "dtype", DType::U32), |d| d.dtype = DType::U32),
        ("a mask of i32", dtype(op, "mask_dtype", DType::I32), |d| d.mask_dtype = DType::I32),
        ("longer values", too_small(op, "v", 120 * bytes, 140 * bytes), |d| d.v_head_dim = 7),
        ("values of usize::MAX", OVERFLOW, |d| d.v_head_dim = usize::MAX),
        ("keys of i32", dtype(op, "kv_format", DType::I32), |d| d.kv_format = DType::I32.into()),
        ("more key heads than there are", too_small(op, "k", 120 * bytes, 240 * bytes), |d| d.kv_heads = 4),
        ("a query head pair too many", TOO_SMALL, |d| d.heads = 6),
        ("output tokens at one place", overlap(op, "o", "o"), |d| d.o_layout = layout(72, 18, 0)),
        ("output tokens overlapping", overlap(op, "o", "o"), |d| d.o_layout = layout(72, 18, 5)),
        ("output heads overlapping", overlap(op, "o", "o"), |d| d.o_layout = layout(72, 17, 6)),
        ("output batches at one place", overlap(op, "o", "o"), |d| d.o_layout = layout(0, 18, 6)),
        ("queries beyond their end", too_small(op, "q", 144 * bytes, 145 * bytes), |d| {
            d.q_layout = layout(73, 18, 6);
        }),
        ("keys beyond their end", too_small(op, "k", 120 * bytes, 124 * bytes), |d| {
            d.k_layout = layout(60, 30, 7);
        }),
        ("values beyond their end", too_small(op, "v", 120 * bytes, 121 * bytes), |d| {
            d.v_layout = layout(60, 31, 6);
        }),
        ("outputs beyond their end", too_small(op, "o", 144 * bytes, 150 * bytes), |d| {
            d.o_layout = layout(78, 18, 6);
        }),
        ("mask heads beyond its end", TOO_SMALL, |d| {
            d.mask = d.mask.map(|mask| AttentionMask { head_stride: 15, ..mask });
        }),
        ("mask queries beyond its end", too_small(op, "mask", 30 * bytes, 32 * bytes), |d| {
            d.mask = d.mask.map(|mask| AttentionMask { query_stride: 6, ..mask });
        }),
        ("a mask stride of usize::MAX", OVERFLOW, |d| {
            d.mask = d.mask.map(|mask| AttentionMask { query_stride: usize::MAX, ..mask });
        }),
        ("a query stride of usize::MAX", OVERFLOW, |d| d.q_layout = layout(usize::MAX, 18, 6)),
        ("a key stride of usize::MAX", OVERFLOW, |d| d.k_layout = layout(60, usize::MAX, 6)),
        ("a value stride of half the range", OVERFLOW, |d| d.v_layout = layout(60, 30, HALF)),
        ("an output stride of usize::MAX", OVERFLOW, |d| d.o_layout = layout(usize::MAX, 18, 6)),
        ("batch usize::MAX", OVERFLOW, |d| d.batch = usize::MAX),
        ("2^40 keys of 2^40", OVERFLOW, |d| {
            (d.seq_kv, d.head_dim) = (HUGE, HUGE);
        }),
        ("2^40 heads of 2^40 queries", OVERFLOW, |d| {
            (d.heads, d.seq_q) = (HUGE, HUGE);
        }),
    ];
    Operation::of(op, slots, 1.0, move |h| grouped(element, h), |b, _, d| b.attention_ext(d), changes)
        .variant(element)
}

/// Queries of f32 and keys of f16, a softcap, and a window of one key, whose score and so log-sum-exp are 1.
fn options() -> Operation {
    let op = "attention_ext";
    let good = |h: &Handles| {
        let mut desc = AttentionDesc::new(
            DType::F32,
            h[0],
            h[1],
            h[2],
            h[3],
            AttentionShape { batch: 2, heads: 3, seq_q: 4, seq_kv: 5, head_dim: 6 },
        );
        (desc.kv_format, desc.causal, desc.window, desc.lse) = (DType::F16.into(), true, Some(1), Some(h[4]));
        (desc.softcap, desc.scale) = (2.0, 2.0 * 0.5f64.atanh() / 6.0);
        desc.sinks = Some(h[5]);
        desc
    };
    let slots = vec![
        Slot::new("q", Role::Input, DType::F32, 2 * 3 * 4 * 6),
        Slot::new("k", Role::Input, DType::F16, 2 * 3 * 5 * 6),
        Slot::new("v", Role::Input, DType::F16, 2 * 3 * 5 * 6),
        Slot::new("o", Role::Output, DType::F32, 2 * 3 * 4 * 6),
        Slot::new("lse", Role::Output, DType::F32, 2 * 3 * 4),
        Slot::new("sinks", Role::Input, DType::F32, 3).holding(f32::NEG_INFINITY),
    ];
    let changes: Vec<Change<AttentionDesc>> = vec![
        ("keys of f32 where there is f16", too_small(op, "k", 360, 720), |d| {
            d.kv_format = DType::F32.into();
        }),
        ("keys of u32", dtype(op, "kv_format", DType::U32), |d| {
            d.kv_format = DType::U32.into();
        }),
        ("queries of f16, keys of f32", dtype(op, "kv_format", DType::F32), |d| {
            (d.dtype, d.kv_format) = (DType::F16, DType::F32.into());
        }),
        ("a query too many", too_small(op, "q", 576, 720), |d| d.seq_q = 5),
        ("lse in the output", overlap(op, "o", "lse"), |d| d.lse = Some(d.o)),
        ("lse in the queries", overlap(op, "lse", "q"), |d| d.lse = Some(d.q)),
        ("lse in no memory", Expect::Kind(ErrorKind::InvalidHandle), |d| d.lse = Some(0)),
        ("a sink too few", too_small(op, "sinks", 12, 16), |d| (d.heads, d.kv_heads, d.seq_q) = (4, 1, 3)),
        ("sinks in the output", overlap(op, "o", "sinks"), |d| d.sinks = Some(d.o)),
        ("sinks in no memory", Expect::Kind(ErrorKind::InvalidHandle), |d| d.sinks = Some(0)),
    ];
    Operation::of(op, slots, 1.0, good, |b, _, d| b.attention_ext(d), changes).variant("with every option")
}

/// Keys and values in blocks of a pool.
fn paged() -> Operation {
    let op = "attention_ext";
    let good = |h: &Handles| {
        let shape = AttentionShape { batch: 2, heads: 4, seq_q: 1, seq_kv: 20, head_dim: 6 };
        AttentionDesc::new(DType::F32, h[0], h[1], h[2], h[3], shape)
            .with_kv_heads(2)
            .with_block_table(BlockTable::new(h[4], 2, 16, 3))
    };
    let slots = vec![
        Slot::new("q", Role::Input, DType::F32, 2 * 4 * 6),
        Slot::new("k", Role::Input, DType::F32, 3 * 2 * 16 * 6),
        Slot::new("v", Role::Input, DType::F32, 3 * 2 * 16 * 6),
        Slot::new("o", Role::Output, DType::F32, 2 * 4 * 6),
        Slot::new("block_table", Role::Input, DType::U32, 4).holding(2.0),
    ];
    let changes: Vec<Change<AttentionDesc>> = vec![
        ("blocks of 8 positions", at_least(op, "block_size", 16, 8), |d| with_table(d, |t| t.block_size = 8)),
        ("blocks of 0 positions", at_least(op, "block_size", 16, 0), |d| with_table(d, |t| t.block_size = 0)),
        ("blocks of 48 positions", bound(op, "block_size", Bound::PowerOfTwo, 48), |d| {
            with_table(d, |t| t.block_size = 48);
        }),
        ("blocks of 32 positions", too_small(op, "k", 2304, 4608), |d| {
            with_table(d, |t| t.block_size = 32);
        }),
        ("blocks of 2^63 positions", OVERFLOW, |d| with_table(d, |t| t.block_size = HALF)),
        ("a pool of no blocks", at_least(op, "pool_blocks", 1, 0), |d| with_table(d, |t| t.pool_blocks = 0)),
        ("a block too many", too_small(op, "k", 2304, 3072), |d| with_table(d, |t| t.pool_blocks = 4)),
        ("usize::MAX blocks", OVERFLOW, |d| with_table(d, |t| t.pool_blocks = usize::MAX)),
        ("fewer entries than keys need", at_least(op, "max_blocks", 2, 1), |d| {
            with_table(d, |t| t.max_blocks = 1);
        }),
        ("more keys than entries", at_least(op, "max_blocks", 3, 2), |d| d.seq_kv = 33),
        ("entries beyond their end", too_small(op, "block_table", 16, 20), |d| {
            with_table(d, |t| t.max_blocks = 3);
        }),
        ("usize::MAX entries", OVERFLOW, |d| with_table(d, |t| t.max_blocks = usize::MAX)),
        ("the table in the output", overlap(op, "o", "block_table"), |d| {
            let o = d.o;
            d.block_table.iter_mut().for_each(|table| table.ptr = o);
        }),
        ("the table in no memory", Expect::Kind(ErrorKind::InvalidHandle), |d| {
            with_table(d, |t| t.ptr = 0);
        }),
        ("blocks at a stride of usize::MAX", OVERFLOW, |d| d.k_layout = layout(usize::MAX, 96, 6)),
        ("keys of Q8_0 in blocks of 6 elements", multiple(op, "head_dim", 32, 6), |d| {
            d.kv_format = KvFormat::Q8_0;
        }),
    ];
    Operation::of(op, slots, 1.0, good, |b, _, d| b.attention_ext(d), changes).variant("of pages")
}

fn with_table(desc: &mut AttentionDesc, change: fn(&mut BlockTable)) {
    desc.block_table.iter_mut().for_each(change);
}
