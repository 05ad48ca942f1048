//! Scaled dot-product attention, one block of queries of one head at a time.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use backend_api::desc::AttentionDesc;
use backend_api::{BackendResult, DType, UnaryOp};
use bytemuck::cast_slice_mut;
use faer::prelude::ReborrowMut;

use super::matmul::multiply;
use super::matrix::{for_each_row, row_major, row_major_ref};
use crate::access::Input;
use crate::bound::require_end;
use crate::element::{Element, widen, with_float};
use crate::math::{apply_unary, exponentials, largest, scale};
use crate::memory::Memory;
use crate::parallel::Cores;
use crate::strided::boxes;

/// Products in the share of one thread.
const GRAIN_PRODUCTS: usize = 1 << 22;

/// Scores of one block of queries that should stay in the second-level cache.
const BLOCK_SCORES: usize = 1 << 15;

/// `O = softmax(cap(scale · Q·Kᵀ) + mask) · V`.
pub(crate) fn attention(memory: &Memory, op: &'static str, desc: &AttentionDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    require_end(op, desc.flops())?;
    memory.access_two(op, &operands, |[q, k, v, _, mask, lengths, _], [o, lse]| {
        let queries = desc.batch * desc.heads * desc.seq_q;
        let products = desc.seq_kv.saturating_mul(desc.head_dim.max(desc.v_head_dim).max(16));
        // Threads write these in any order.
        let logarithms: Vec<AtomicU32> = lse.chunks_exact(4).map(|_| AtomicU32::new(0)).collect();
        Cores::run(queries.saturating_mul(products / 8 + desc.v_head_dim), |cores| {
            with_float!(desc.dtype, T => {
                let (k, v) = with_float!(desc.kv_dtype, K => (widen::<K>(cores, k), widen::<K>(cores, v)));
                let attention = Attention {
                    desc,
                    q: &widen::<T>(cores, q),
                    k: &k,
                    v: &v,
                    mask: &mask_numbers::<T>(cores, desc.mask_dtype, mask),
                    lengths: lengths.elements(),
                    lse: &logarithms,
                };
                attention.run::<T>(cores, cast_slice_mut(o));
            });
        });
        for (to, from) in lse.chunks_exact_mut(4).zip(logarithms) {
            to.copy_from_slice(&from.into_inner().to_ne_bytes());
        }
    })
}

/// The numbers that a mask adds to scores: −∞ where one of u32 is 0, and 0 elsewhere.
fn mask_numbers<'a, T: Element>(cores: Cores, dtype: DType, mask: Input<'a>) -> Cow<'a, [f32]> {
    let hidden = |&seen: &u32| if seen == 0 { f32::NEG_INFINITY } else { 0.0 };
    match dtype {
        DType::U32 => mask.elements::<u32>().iter().map(hidden).collect(),
        _ => widen::<T>(cores, mask),
    }
}

struct Attention<'a> {
    desc: &'a AttentionDesc,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    mask: &'a [f32],
    lengths: &'a [u32],
    /// Bits of the logarithms of the sums; none if nobody asked for them.
    lse: &'a [AtomicU32],
}

/// The keys and values that the queries of one head see.
struct Head<'a> {
    batch: usize,
    head: usize,
    /// How many keys are real.
    keys: usize,
    k: &'a [f32],
    v: &'a [f32],
    /// Whether 0·v is 0 for all values.
    finite: bool,
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
                    self.head(batch, head).run(self, queries.clone(), &mut o[first..]);
                }
            }
        });
    }

    fn head(&self, batch: usize, head: usize) -> Head<'_> {
        let desc = self.desc;
        let [_, k, v, _] = desc.layouts();
        let kv_head = head / (desc.heads / desc.kv_heads);
        let keys = match desc.key_lengths {
            Some(_) => desc.seq_kv.min(self.lengths[batch] as usize),
            None => desc.seq_kv,
        };
        if keys == 0 {
            return Head { batch, head, keys, k: &[], v: &[], finite: true };
        }
        let values = &self.v[batch * v.batch + kv_head * v.head..];
        let finite = (0..keys).all(|key| all_finite(&values[key * v.token..][..desc.v_head_dim]));
        Head { batch, head, keys, k: &self.k[batch * k.batch + kv_head * k.head..], v: values, finite }
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
        let [q_layout, k_layout, v_layout, o_layout] = desc.layouts();
        let q = &attention.q[self.batch * q_layout.batch + self.head * q_layout.head..];
        let size = (BLOCK_SCORES / self.keys.max(1)).clamp(16, 128);
        let mut scores = vec![0.0; size.min(queries.len()) * self.keys];
        for first in queries.clone().step_by(size) {
            let rows = size.min(queries.end - first);
            // From the first key of the first query to the last key of the last; those that a query doesn't
            // see get weights of 0.
            let begin = desc.visible(first, self.keys).start;
            let end = desc.visible(first + rows - 1, self.keys).end.max(begin);
            let keys = end - begin;
            let scores = &mut scores[..rows * keys];
            let block = &mut o[(first - queries.start) * o_layout.token..];
            let block = row_major(block, rows, desc.v_head_dim, o_layout.token);
            if keys == 0 {
                T::with_f32(block, false, |o| for_each_row(o, |_, o| o.fill(0.0)));
                (first..first + rows).for_each(|query| self.keep_lse(attention, query, f32::NEG_INFINITY));
                continue;
            }
            let q = row_major_ref(&q[first * q_layout.token..], rows, desc.head_dim, q_layout.token);
            let k = row_major_ref(&self.k[begin * k_layout.token..], keys, desc.head_dim, k_layout.token);
            let v = &self.v[begin * v_layout.token..];
            let product = row_major(scores, rows, keys, keys);
            // A factor of the product would be applied before the sums or after them.
            multiply(q, k.transpose(), 1.0, 0.0, product);
            let factor = desc.scale as f32;
            scores.iter_mut().for_each(|score| *score *= factor);
            if let Some(cap) = desc.cap() {
                scores.iter_mut().for_each(|score| *score /= cap);
                apply_unary(UnaryOp::Tanh, scores);
                scores.iter_mut().for_each(|score| *score *= cap);
            }
            let factors: Vec<f64> = (first..)
                .zip(scores.chunks_exact_mut(keys))
                .map(|(query, scores)| self.weigh(attention, query, begin, scores))
                .collect();
            T::with_f32(block, false, |mut o| {
                if self.finite {
                    let p = row_major_ref(scores, rows, keys, keys);
                    let v = row_major_ref(v, keys, desc.v_head_dim, v_layout.token);
                    multiply(p, v, 1.0, 0.0, o.rb_mut());
                } else {
                    for_each_row(o.rb_mut(), |i, o| {
                        let weights = &scores[i * keys..][..keys];
                        self.sum_seen(attention, first + i, begin, weights, o);
                    });
                }
                for_each_row(o, |i, o| scale(o, factors[i]));
            });
        }
    }

    /// Turns the scores of one query with the keys from `begin` on into weights; returns what makes their sum
    /// 1. A query that sees nothing has weights of 0.
    fn weigh(&self, attention: &Attention<'_>, query: usize, begin: usize, scores: &mut [f32]) -> f64 {
        let visible = attention.desc.visible(query, self.keys);
        let (seen, after) = scores.split_at_mut(visible.end - begin);
        let (before, seen) = seen.split_at_mut(visible.start - begin);
        before.fill(0.0);
        after.fill(0.0);
        attention.add_mask([self.batch, self.head, query], visible.start, seen);
        let shift = largest(seen);
        if shift == f32::NEG_INFINITY {
            seen.fill(0.0);
            self.keep_lse(attention, query, shift);
            return 1.0;
        }
        let total = exponentials(seen, shift);
        self.keep_lse(attention, query, (f64::from(shift) + total.ln()) as f32);
        1.0 / total
    }

    /// `o = Σ weight · v` over the keys that a query sees, of those from `begin` on. A value that isn't
    /// finite is added as it is, however small its weight.
    fn sum_seen(
        &self,
        attention: &Attention<'_>,
        query: usize,
        begin: usize,
        weights: &[f32],
        o: &mut [f32],
    ) {
        let stride = attention.desc.layouts()[2].token;
        let visible = attention.desc.visible(query, self.keys);
        let mask = attention.mask_row([self.batch, self.head, query]);
        o.fill(0.0);
        for key in visible.filter(|&key| mask.get(key) != Some(&f32::NEG_INFINITY)) {
            let (weight, v) = (weights[key - begin], &self.v[key * stride..][..o.len()]);
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

fn all_finite(values: &[f32]) -> bool {
    // The product is NaN where a number isn't finite, and 0 elsewhere.
    values.iter().fold(0.0, |all, x| all + x * 0.0) == 0.0
}
