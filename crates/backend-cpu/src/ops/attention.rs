//! Scaled dot-product attention, one block of queries of one head at a time.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use backend_api::desc::AttentionDesc;
use backend_api::{BackendResult, DType, UnaryOp};
use bytemuck::cast_slice_mut;
use faer::MatRef;
use faer::prelude::ReborrowMut;

use super::matmul::multiply;
use super::matrix::{for_each_row, row_major, row_major_ref};
use super::paged::Pool;
use super::quantize_rows::dequantized;
use crate::access::{Call, Input};
use crate::bound::require_end;
use crate::element::{Element, widen, with_float};
use crate::math::{apply_unary, exponentials, largest, scale};
use crate::parallel::Cores;
use crate::room::{NoRoom, zeros};
use crate::strided::boxes;

/// Products in the share of one thread.
const GRAIN_PRODUCTS: usize = 1 << 22;

/// Scores of one block of queries that should stay in the second-level cache.
const BLOCK_SCORES: usize = 1 << 15;

/// Keys of a block, at most: keys that share memory by their strides may be more than memory has room for
/// scores.
const BLOCK_KEYS: usize = 1 << 16;

/// Keys of a block that are brought together from a pool, at most: they should stay in the second-level cache.
const BLOCK_PAGED_KEYS: usize = 256;

/// `O = softmax(cap(scale · Q·Kᵀ) + mask) · V`.
pub(crate) fn attention(call: Call<'_>, desc: &AttentionDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    require_end(call.op, desc.flops())?;
    call.try_access_two(&operands, |[q, k, v, _, mask, lengths, _, sinks, table], [o, lse]| {
        let queries = desc.batch * desc.heads * desc.seq_q;
        let products = desc.seq_kv.saturating_mul(desc.head_dim.max(desc.v_head_dim).max(16));
        // Threads write these in any order.
        let logarithms: Vec<AtomicU32> = lse.chunks_exact(4).map(|_| AtomicU32::new(0)).collect();
        Cores::try_run(queries.saturating_mul(products / 8 + desc.v_head_dim), |cores| {
            with_float!(desc.dtype, T => {
                // Of a pool, only what sequences use is read.
                let [_, k_layout, v_layout, _] = desc.layouts();
                let pools = desc.block_table.map(|of| {
                    let format = desc.kv_format;
                    [(k, k_layout), (v, v_layout)].map(|(bytes, layout)| {
                        Pool { bytes: bytes.elements(), format, layout, of, table: table.elements() }
                    })
                });
                let [k, v] = match desc.kv_format.dtype() {
                    _ if pools.is_some() => [Ok(Cow::default()), Ok(Cow::default())],
                    Some(stored) => with_float!(stored, K => [k, v].map(|x| widen::<K>(cores, x))),
                    None => [k, v].map(|blocks| dequantized(cores, blocks).map(Cow::Owned)),
                };
                let (k, v) = (k?, v?);
                let attention = Attention {
                    desc,
                    q: &widen::<T>(cores, q)?,
                    k: &k,
                    v: &v,
                    pools,
                    mask: &mask_numbers::<T>(cores, desc.mask_dtype, mask)?,
                    lengths: lengths.elements(),
                    sinks: sinks.elements(),
                    lse: &logarithms,
                };
                attention.run::<T>(cores, cast_slice_mut(o));
            });
            Ok(())
        })?;
        for (to, from) in lse.chunks_exact_mut(4).zip(logarithms) {
            to.copy_from_slice(&from.into_inner().to_ne_bytes());
        }
        Ok(())
    })
}

/// The numbers that a mask adds to scores: −∞ where one of u32 is 0, and 0 elsewhere.
fn mask_numbers<'a, T: Element>(
    cores: Cores,
    dtype: DType,
    mask: Input<'a>,
) -> Result<Cow<'a, [f32]>, NoRoom> {
    let hidden = |&seen: &u32| if seen == 0 { f32::NEG_INFINITY } else { 0.0 };
    match dtype {
        DType::U32 => {
            let seen: &[u32] = mask.elements();
            let mut numbers = zeros(seen.len())?;
            numbers.iter_mut().zip(seen).for_each(|(number, seen)| *number = hidden(seen));
            Ok(Cow::Owned(numbers))
        }
        _ => widen::<T>(cores, mask),
    }
}

struct Attention<'a> {
    desc: &'a AttentionDesc,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    /// Keys and values that lie in blocks, instead of `k` and `v`.
    pools: Option<[Pool<'a>; 2]>,
    mask: &'a [f32],
    lengths: &'a [u32],
    /// A score of each head; none without sinks.
    sinks: &'a [f32],
    /// Bits of the logarithms of the sums; none if nobody asked for them.
    lse: &'a [AtomicU32],
}

/// The keys and values that the queries of one head see.
struct Head<'a> {
    batch: usize,
    head: usize,
    kv_head: usize,
    /// How many keys are real.
    keys: usize,
    k: &'a [f32],
    v: &'a [f32],
    /// Whether 0·v is 0 for all values that the queries see.
    finite: bool,
}

/// Some neighbouring keys and values, whose vectors are so many elements apart.
struct Rows<'a> {
    k: Cow<'a, [f32]>,
    v: Cow<'a, [f32]>,
    strides: [usize; 2],
    /// Whether 0·v is 0 for all of the values that the queries see.
    finite: bool,
}

/// The softmax of one query over the keys so far.
#[derive(Clone, Copy)]
struct Softmax {
    /// The largest score.
    shift: f32,
    /// The sum of the exponentials of the scores less the largest.
    total: f64,
}

impl Softmax {
    /// The softmax with a score more, whose value is 0, and the sums of weighted values on its scale.
    fn with_sink(self, sink: f32, sums: &mut [f32]) -> Self {
        let shift = largest(&[self.shift, sink]);
        if shift == f32::NEG_INFINITY {
            return self;
        }
        let factor = f64::from(self.shift - shift).exp();
        rescale(sums, factor);
        Self { shift, total: self.total * factor + f64::from(sink - shift).exp() }
    }
}

impl Attention<'_> {
    fn run<T: Element>(&self, cores: Cores, o: &mut [T]) {
        let desc = self.desc;
        let strides = desc.layouts()[3];
        let dims = [(desc.batch, strides.batch), (desc.heads, strides.head), (desc.seq_q, strides.token)];
        let query_products = desc.seq_kv.saturating_mul(desc.head_dim).max(1);
        let grain = (GRAIN_PRODUCTS / query_products).max(desc.seq_q.min(64));
        boxes(cores, &dims, o, grain, &|ranges, o| {
            let [batches, heads, queries] = ranges else { return };
            for batch in batches.clone() {
                for head in heads.clone() {
                    let first = (batch - batches.start) * strides.batch + (head - heads.start) * strides.head;
                    self.head(batch, head, queries).run(self, queries.clone(), &mut o[first..]);
                }
            }
        });
    }

    fn head(&self, batch: usize, head: usize, queries: &Range<usize>) -> Head<'_> {
        let desc = self.desc;
        let [_, k, v, _] = desc.layouts();
        let kv_head = head / (desc.heads / desc.kv_heads);
        let keys = match desc.key_lengths {
            Some(_) => desc.seq_kv.min(self.lengths[batch] as usize),
            None => desc.seq_kv,
        };
        if keys == 0 || self.pools.is_some() {
            return Head { batch, head, kv_head, keys, k: &[], v: &[], finite: true };
        }
        let values = &self.v[batch * v.batch + kv_head * v.head..];
        let finite = seen(desc, queries.clone(), keys)
            .all(|key| all_finite(&values[key * v.token..][..desc.v_head_dim]));
        Head {
            batch,
            head,
            kv_head,
            keys,
            k: &self.k[batch * k.batch + kv_head * k.head..],
            v: values,
            finite,
        }
    }

    /// The mask's numbers for one query; none without a mask.
    fn mask_row(&self, [batch, head, query]: [usize; 3]) -> &[f32] {
        let Some(mask) = self.desc.mask else { return &[] };
        let start = batch * mask.batch_stride + head * mask.head_stride + query * mask.query_stride;
        &self.mask[start..start + self.desc.seq_kv]
    }

    /// Adds the mask to the scores of one query with the keys from `first` on. A hidden key's score is −∞
    /// whatever it was.
    fn add_mask(&self, row: [usize; 3], first: usize, scores: &mut [f32]) {
        let mask = self.mask_row(row);
        for (score, &m) in scores.iter_mut().zip(mask.iter().skip(first)) {
            *score = if m == f32::NEG_INFINITY { m } else { *score + m };
        }
    }
}

impl Head<'_> {
    /// `o` starts at the vector of the first query.
    fn run<T: Element>(&self, attention: &Attention<'_>, queries: Range<usize>, o: &mut [T]) {
        let desc = attention.desc;
        let [q_layout, _, _, o_layout] = desc.layouts();
        let q = &attention.q[self.batch * q_layout.batch + self.head * q_layout.head..];
        let size = (BLOCK_SCORES / self.keys.max(1)).clamp(16, 128);
        let block_keys = if attention.pools.is_some() { BLOCK_PAGED_KEYS } else { BLOCK_KEYS };
        let most = seen(desc, queries.clone(), self.keys).len().min(block_keys);
        let mut scores = vec![0.0; size.min(queries.len()) * most];
        for first in queries.clone().step_by(size) {
            let rows = size.min(queries.end - first);
            let block = &mut o[(first - queries.start) * o_layout.token..];
            let block = row_major(block, rows, desc.v_head_dim, o_layout.token);
            let q = row_major_ref(&q[first * q_layout.token..], rows, desc.head_dim, q_layout.token);
            let mut sums = vec![Softmax { shift: f32::NEG_INFINITY, total: 0.0 }; rows];
            T::with_f32(block, false, |mut o| {
                for_each_row(o.rb_mut(), |_, o| o.fill(0.0));
                // Keys that a query doesn't see get weights of 0.
                let seen = seen(desc, first..first + rows, self.keys);
                for begin in seen.clone().step_by(block_keys) {
                    let keys = begin..seen.end.min(begin + block_keys);
                    let of_keys = self.rows(attention, &keys);
                    let [k_stride, v_stride] = of_keys.strides;
                    let scores = &mut scores[..rows * keys.len()];
                    let k = row_major_ref(&of_keys.k, keys.len(), desc.head_dim, k_stride);
                    score(desc, q, k, scores);
                    let rescales: Vec<f64> = (first..)
                        .zip(scores.chunks_exact_mut(keys.len()).zip(&mut sums))
                        .map(|(query, (scores, sum))| self.weigh(attention, query, &keys, scores, sum))
                        .collect();
                    if begin > seen.start {
                        for_each_row(o.rb_mut(), |i, o| rescale(o, rescales[i]));
                    }
                    if of_keys.finite {
                        let p = row_major_ref(scores, rows, keys.len(), keys.len());
                        let v = row_major_ref(&of_keys.v, keys.len(), desc.v_head_dim, v_stride);
                        multiply(p, v, 1.0, 1.0, o.rb_mut());
                    } else {
                        for_each_row(o.rb_mut(), |i, o| {
                            let weights = &scores[i * keys.len()..][..keys.len()];
                            self.sum_seen(attention, first + i, &keys, &of_keys, weights, o);
                        });
                    }
                }
                for_each_row(o, |i, o| {
                    let sum = match attention.sinks.get(self.head) {
                        Some(&sink) => sums[i].with_sink(sink, o),
                        None => sums[i],
                    };
                    if sum.shift != f32::NEG_INFINITY {
                        scale(o, 1.0 / sum.total);
                    }
                    self.keep_lse(attention, first + i, (f64::from(sum.shift) + sum.total.ln()) as f32);
                });
            });
        }
    }

    /// Some of the keys and their values.
    fn rows<'b>(&'b self, attention: &Attention<'_>, keys: &Range<usize>) -> Rows<'b> {
        let desc = attention.desc;
        let Some([k, v]) = &attention.pools else {
            let [_, k, v, _] = desc.layouts().map(|layout| layout.token);
            let from = |x: &'b [f32], stride: usize| Cow::Borrowed(&x[keys.start * stride..]);
            return Rows { k: from(self.k, k), v: from(self.v, v), strides: [k, v], finite: self.finite };
        };
        let k = k.vectors([self.batch, self.kv_head], keys, desc.head_dim);
        let v = v.vectors([self.batch, self.kv_head], keys, desc.v_head_dim);
        let finite = all_finite(&v);
        Rows { k: k.into(), v: v.into(), strides: [desc.head_dim, desc.v_head_dim], finite }
    }

    /// Turns the scores of one query with some of the keys into weights, as `sum` scales them. Returns the
    /// factor that brings the weights of earlier keys to the same scale.
    fn weigh(
        &self,
        attention: &Attention<'_>,
        query: usize,
        keys: &Range<usize>,
        scores: &mut [f32],
        sum: &mut Softmax,
    ) -> f64 {
        let visible = self.visible(attention.desc, query, keys);
        let (seen, after) = scores.split_at_mut(visible.end - keys.start);
        let (before, seen) = seen.split_at_mut(visible.start - keys.start);
        before.fill(0.0);
        after.fill(0.0);
        attention.add_mask([self.batch, self.head, query], visible.start, seen);
        let shift = largest(&[sum.shift, largest(seen)]);
        if shift == f32::NEG_INFINITY {
            seen.fill(0.0);
            return 1.0;
        }
        let factor = if shift == sum.shift { 1.0 } else { f64::from(sum.shift - shift).exp() };
        *sum = Softmax { shift, total: sum.total * factor + exponentials(seen, shift) };
        factor
    }

    /// The part of a range of keys that a query sees, the mask aside.
    fn visible(&self, desc: &AttentionDesc, query: usize, keys: &Range<usize>) -> Range<usize> {
        let visible = desc.visible(query, self.keys);
        let start = visible.start.clamp(keys.start, keys.end);
        start..visible.end.clamp(start, keys.end)
    }

    /// `o += Σ weight · v` over those of some keys that a query sees. A value that isn't finite is added as it
    /// is, however small its weight.
    fn sum_seen(
        &self,
        attention: &Attention<'_>,
        query: usize,
        keys: &Range<usize>,
        of_keys: &Rows<'_>,
        weights: &[f32],
        o: &mut [f32],
    ) {
        let [_, stride] = of_keys.strides;
        let visible = self.visible(attention.desc, query, keys);
        let mask = attention.mask_row([self.batch, self.head, query]);
        for key in visible.filter(|&key| mask.get(key) != Some(&f32::NEG_INFINITY)) {
            let at = key - keys.start;
            let (weight, v) = (weights[at], &of_keys.v[at * stride..][..o.len()]);
            for (o, &v) in o.iter_mut().zip(v) {
                *o += if v.is_finite() { weight * v } else { v };
            }
        }
    }

    fn keep_lse(&self, attention: &Attention<'_>, query: usize, value: f32) {
        let desc = attention.desc;
        let row = (self.batch * desc.heads + self.head) * desc.seq_q + query;
        if let Some(lse) = attention.lse.get(row) {
            lse.store(value.to_bits(), Ordering::Relaxed);
        }
    }
}

/// The scores of the queries `q` with some of the keys, the mask aside.
fn score(desc: &AttentionDesc, q: MatRef<'_, f32>, k: MatRef<'_, f32>, scores: &mut [f32]) {
    // A factor of the product would be applied before the sums or after them.
    multiply(q, k.transpose(), 1.0, 0.0, row_major(scores, q.nrows(), k.nrows(), k.nrows()));
    let factor = desc.scale as f32;
    scores.iter_mut().for_each(|score| *score *= factor);
    if let Some(cap) = desc.cap() {
        scores.iter_mut().for_each(|score| *score /= cap);
        apply_unary(UnaryOp::Tanh, scores);
        scores.iter_mut().for_each(|score| *score *= cap);
    }
}

/// The keys from the first that some of the queries sees to the last, the mask aside, of which `keys` are
/// real.
fn seen(desc: &AttentionDesc, queries: Range<usize>, keys: usize) -> Range<usize> {
    let start = desc.visible(queries.start, keys).start;
    start..desc.visible(queries.end.saturating_sub(1), keys).end.max(start)
}

/// Scales sums. One that isn't finite stays, as no weight changes such a value.
fn rescale(sums: &mut [f32], factor: f64) {
    for sum in sums.iter_mut().filter(|sum| sum.is_finite()) {
        *sum = (f64::from(*sum) * factor) as f32;
    }
}

fn all_finite(values: &[f32]) -> bool {
    // The product is NaN where a number isn't finite, and 0 elsewhere.
    values.iter().fold(0.0, |all, x| all + x * 0.0) == 0.0
}
