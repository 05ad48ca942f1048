//! What attention must give, of its descriptor and the bytes of its operands.

use backend_api::DType;
use backend_api::desc::{AttentionDesc, HeadLayout};
use backend_api::kv::KvFormat;

use super::{Scores, Seen, attend, log_sum};
use crate::oracle::expected::{Bytes, Expected, start};
use crate::oracle::q8_0;

/// The vector of a head at a block and a position in it; zeros where there is no such block.
fn vector<'a>(
    of: &'a [f64],
    at: HeadLayout,
    head: usize,
    place: Option<[usize; 2]>,
    zeros: &'a [f64],
) -> &'a [f64] {
    match place {
        Some([block, position]) => &of[start(at, [block, head, position])..][..zeros.len()],
        None => zeros,
    }
}

pub(in crate::oracle) fn expect_attention(desc: &AttentionDesc, memory: &Bytes) -> Vec<Expected> {
    let &AttentionDesc { batch, heads, kv_heads, seq_q, seq_kv, dtype, kv_format, .. } = desc;
    let [d, v_dim] = [desc.head_dim, desc.v_head_dim];
    let [q_at, k_at, v_at, o_at] = desc.layouts();
    let q = memory.numbers(desc.q, dtype);
    let stored = [desc.k, desc.v].map(|ptr| match kv_format {
        KvFormat::Float(dtype) => memory.numbers(ptr, dtype),
        _ => q8_0::numbers(memory.get(ptr)),
    });
    let halves = may_be_half(desc).then(|| stored.each_ref().map(|of| of.iter().map(|&x| half(x)).collect()));
    let versions: Vec<[Vec<f64>; 2]> = [stored].into_iter().chain(halves).collect();
    let mask = memory.optional(desc.mask.map(|mask| mask.ptr), desc.mask_dtype);
    let added = |mask: f64| match desc.mask_dtype {
        // Words hide what they are 0 for.
        DType::U32 if mask == 0.0 => f64::NEG_INFINITY,
        DType::U32 => 0.0,
        _ => mask,
    };
    let lengths = memory.optional(desc.key_lengths, DType::U32);
    let sinks = memory.optional(desc.sinks, DType::F32);
    let table = memory.optional(desc.block_table.map(|table| table.ptr), DType::U32);
    let zeros = vec![0.0; d.max(v_dim)];
    // The block of the pool and the position in it of a sequence's key; none where the block is outside the pool.
    let place = |b: usize, key: usize| match desc.block_table {
        Some(of) => {
            let block = table[b * of.max_blocks + key / of.block_size] as usize;
            (block < of.pool_blocks).then_some([block, key % of.block_size])
        }
        None => Some([b, key]),
    };
    let with = Scores {
        sink: None,
        scale: desc.scale,
        softcap: desc.cap().map_or(0.0, f64::from),
        half_weights: dtype == DType::F16,
        distinct: false,
    };
    let (mut wants, mut sums) = (Vec::new(), Vec::new());
    for row in 0..batch * heads * seq_q {
        let (b, h, i) = (row / seq_q / heads, row / seq_q % heads, row % seq_q);
        let kv_head = h / (heads / kv_heads);
        let keys = lengths.get(b).map_or(seq_kv, |&length| seq_kv.min(length as usize));
        let mask_at = |j: usize| {
            let row =
                desc.mask.map(|mask| b * mask.batch_stride + h * mask.head_stride + i * mask.query_stride);
            row.map_or(0.0, |row| added(mask[row + j]))
        };
        let with = Scores { sink: sinks.get(h).copied(), ..with };
        let query = &q[start(q_at, [b, h, i])..][..d];
        let first = start(o_at, [b, h, i]);
        let of_versions = versions.iter().map(|[k, v]| {
            let seen: Vec<Seen<'_>> = desc
                .visible(i, keys)
                .map(|j| Seen {
                    key: vector(k, k_at, kv_head, place(b, j), &zeros[..d]),
                    value: vector(v, v_at, kv_head, place(b, j), &zeros[..v_dim]),
                    mask: mask_at(j),
                })
                .collect();
            (attend(query, &seen, v_dim, with), desc.lse.map(|_| log_sum(query, &seen, with)))
        });
        let either = of_versions.reduce(|(wants, sum), (others, other)| {
            let wants = wants.into_iter().zip(others).map(|(want, other)| want.or([other])).collect();
            (wants, sum.map(|sum| sum.or(other)))
        });
        let (row_wants, sum) = either.unwrap_or_default();
        wants.extend(row_wants.into_iter().enumerate().map(|(at, want)| (first + at, want)));
        sums.extend(sum);
    }
    let lse = desc.lse.map(|ptr| Expected::packed(ptr, DType::F32, sums));
    lse.into_iter().chain([Expected::computed(desc.o, dtype, wants)]).collect()
}

/// Whether elements of Q8_0 may be rounded to f16 before they are keys and values.
fn may_be_half(desc: &AttentionDesc) -> bool {
    /// Queries, and sequences or groups of rows, from which on they may be.
    const MANY: [usize; 2] = [16, 65_535];
    let &AttentionDesc { batch, heads, kv_heads, seq_q, .. } = desc;
    let rows = seq_q * (heads / kv_heads.max(1));
    let groups = batch * kv_heads * rows.div_ceil(4);
    let many = seq_q > MANY[0] || batch > MANY[1] || groups > MANY[1];
    desc.kv_format == KvFormat::Q8_0 && desc.dtype == DType::F16 && many
}

/// The nearest f16.
fn half(x: f64) -> f64 {
    f64::from(half::f16::from_f64(x))
}
