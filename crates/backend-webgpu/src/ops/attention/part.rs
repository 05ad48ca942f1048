//! Attention that takes long, by batches, heads and queries.

use std::borrow::Cow;

use backend_api::DType;
use backend_api::desc::{AttentionAlignment, AttentionDesc, AttentionMask};
use backend_api::kv::KvFormat;

use super::{Windows, blocks};
use crate::device::DeviceProfile;
use crate::ops::shared::long_work::{Divisible, middle};
use crate::recorder::Window;

/// Queries that kernels for long sequences give to one workgroup.
const TILE: usize = 64;
/// The most queries for which kernels spread the keys over workgroups.
const FEW: usize = 8;
/// Seconds of a single workgroup that are worth a launch of its own.
const MAX_ALONE: f64 = 1.0;

/// Some sequences of a call, some heads of one, or some queries of one head.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) desc: AttentionDesc,
    pub(super) windows: Windows,
}

impl Divisible for Part {
    fn seconds(&self, profile: &DeviceProfile) -> f64 {
        let total = self.flops_seconds(profile);
        let &AttentionDesc { batch, heads, seq_q, .. } = &self.desc;
        if seq_q <= FEW {
            return total;
        }
        // A workgroup goes through all keys alone, on one compute unit. Fewer queries than it takes make that
        // shorter.
        let tiles = batch as f64 * heads as f64 * seq_q as f64 / seq_q.min(TILE) as f64;
        let alone = total / tiles.max(1.0) * profile.compute_units as f64;
        if alone > MAX_ALONE { total.max(alone) } else { total }
    }

    /// The time of one head's query, whose keys are in one launch.
    fn undivided_seconds(&self, profile: &DeviceProfile) -> f64 {
        let &AttentionDesc { batch, heads, seq_q, .. } = &self.desc;
        let queries = batch as f64 * heads as f64 * seq_q as f64;
        if queries > 0.0 { self.flops_seconds(profile) / queries } else { 0.0 }
    }

    fn halves(&self) -> Option<[Self; 2]> {
        let &AttentionDesc { batch, heads, kv_heads, seq_q, .. } = &self.desc;
        Some(if let Some(first) = middle(batch) {
            [self.batches(0, first), self.batches(first, batch - first)]
        } else if let Some(first) = middle(kv_heads) {
            let group = heads / kv_heads;
            [self.heads([0, first], group), self.heads([first, kv_heads - first], group)]
        } else if let Some(first) = middle(heads) {
            [self.heads_of_group(0, first), self.heads_of_group(first, heads - first)]
        } else {
            // Parts keep their positions where these count from the last key.
            let bottom_right = self.desc.alignment == AttentionAlignment::BottomRight;
            let first = middle(seq_q).filter(|_| bottom_right)?;
            [self.queries(0, first), self.queries(first, seq_q - first)]
        })
    }

    fn excess(&self) -> u64 {
        if !self.windows.any_is_wide() {
            return 0;
        }
        let Windows { q, k, v, mask, lengths, table, sinks, lse, o } = &self.windows;
        let elements = self.elements();
        let pairs = [
            (q, elements.q),
            (k, elements.k),
            (v, elements.v),
            (o, elements.o),
            (mask, elements.mask),
            (lengths, elements.lengths),
            (table, elements.table),
            (sinks, elements.sinks),
            (lse, elements.lse),
        ];
        pairs.into_iter().map(|(window, elements)| window.excess(elements)).sum()
    }
}

impl Windows {
    fn any_is_wide(&self) -> bool {
        let Self { q, k, v, mask, lengths, table, sinks, lse, o } = self;
        [q, k, v, mask, lengths, table, sinks, lse, o].into_iter().any(Window::is_wide)
    }
}

/// Elements of queries, keys, values, output, mask, lengths, table, sinks and logarithms: up to a part's first, or to its last.
#[derive(Clone, Copy, Debug, Default)]
struct Starts {
    q: usize,
    k: usize,
    v: usize,
    o: usize,
    mask: usize,
    lengths: usize,
    table: usize,
    sinks: usize,
    lse: usize,
}

impl Part {
    /// The windows of what the part accesses.
    pub(super) fn bound(&self) -> Cow<'_, Windows> {
        if !self.windows.any_is_wide() {
            return Cow::Borrowed(&self.windows);
        }
        let (windows, elements) = (&self.windows, self.elements());
        Cow::Owned(Windows {
            q: windows.q.truncated(elements.q),
            k: windows.k.truncated(elements.k),
            v: windows.v.truncated(elements.v),
            o: windows.o.truncated(elements.o),
            mask: windows.mask.truncated(elements.mask),
            lengths: windows.lengths.truncated(elements.lengths),
            table: windows.table.truncated(elements.table),
            sinks: windows.sinks.truncated(elements.sinks),
            lse: windows.lse.truncated(elements.lse),
        })
    }

    /// The elements of each operand from the first to the last one.
    fn elements(&self) -> Starts {
        let AttentionDesc { batch, heads, kv_heads, seq_q, seq_kv, head_dim, v_head_dim, .. } = self.desc;
        let last = |count: usize, stride: usize| count.saturating_sub(1).saturating_mul(stride);
        let reach = |[b, h, t]: [usize; 3], [batches, heads, tokens]: [usize; 3]| {
            last(batches, b).saturating_add(last(heads, h)).saturating_add(last(tokens, t))
        };
        let [q, k, v, o] = self.desc.layouts().map(|strides| [strides.batch, strides.head, strides.token]);
        let [blocks, positions] = self.desc.kv_extents();
        let (queries, keys) = ([batch, heads, seq_q], [blocks, kv_heads, positions]);
        let table = self.desc.block_table.map_or(0, |table| {
            last(batch, table.max_blocks).saturating_add(seq_kv.div_ceil(table.block_size))
        });
        // Of blocks, all is counted in words.
        let stored = |dim| if self.desc.kv_format == KvFormat::Q8_0 { blocks::words(dim) } else { dim };
        let mask =
            self.desc.mask.map_or([0; 3], |mask| [mask.batch_stride, mask.head_stride, mask.query_stride]);
        Starts {
            q: reach(q, queries).saturating_add(head_dim),
            k: reach(k, keys).saturating_add(stored(head_dim)),
            v: reach(v, keys).saturating_add(stored(v_head_dim)),
            o: reach(o, queries).saturating_add(v_head_dim),
            mask: reach(mask, queries).saturating_add(seq_kv),
            lengths: batch,
            table,
            sinks: heads,
            lse: batch.saturating_mul(heads).saturating_mul(seq_q),
        }
    }

    fn flops_seconds(&self, profile: &DeviceProfile) -> f64 {
        let halves = self.desc.dtype == DType::F16;
        self.desc.flops() / if halves { profile.flops_f16 } else { profile.flops }
    }

    pub(super) fn batches(&self, first: usize, batch: usize) -> Self {
        // Without keys, these strides may be any numbers.
        let [q, k, v, o] = self.desc.layouts().map(|strides| first.saturating_mul(strides.batch));
        let mask = first.saturating_mul(self.mask_stride(|mask| mask.batch_stride));
        let lse = first * self.desc.heads * self.desc.seq_q;
        // Sequences have a pool in common.
        let (k, v, table) = match self.desc.block_table {
            Some(table) => (0, 0, first.saturating_mul(table.max_blocks)),
            None => (k, v, 0),
        };
        let starts = Starts { q, k, v, o, mask, lengths: first, table, lse, ..Starts::default() };
        self.from(starts, |desc| desc.batch = batch)
    }

    /// `count` heads of keys from `first` on, each with a group of query heads, of a single sequence.
    fn heads(&self, [first, count]: [usize; 2], group: usize) -> Self {
        let [q, k, v, o] = self.desc.layouts();
        let starts = self.query_heads(first * group, [q.head, o.head]);
        let starts = Starts { k: first.saturating_mul(k.head), v: first.saturating_mul(v.head), ..starts };
        self.from(starts, |desc| (desc.heads, desc.kv_heads) = (count * group, count))
    }

    /// Query heads of a single head of keys.
    fn heads_of_group(&self, first: usize, heads: usize) -> Self {
        let [q, _, _, o] = self.desc.layouts();
        self.from(self.query_heads(first, [q.head, o.head]), |desc| desc.heads = heads)
    }

    fn query_heads(&self, first: usize, [q, o]: [usize; 2]) -> Starts {
        let mask = first.saturating_mul(self.mask_stride(|mask| mask.head_stride));
        let lse = first * self.desc.seq_q;
        Starts { q: first * q, o: first * o, mask, sinks: first, lse, ..Starts::default() }
    }

    /// Queries of a single head. They keep their positions, which count from the end of the keys: with
    /// `causal`, the keys behind the last query's position are left out, and otherwise the window reaches as
    /// much further back.
    fn queries(&self, first: usize, count: usize) -> Self {
        let [q, _, _, o] = self.desc.layouts();
        let mask = first.saturating_mul(self.mask_stride(|mask| mask.query_stride));
        let starts = Starts { q: first * q.token, o: first * o.token, mask, lse: first, ..Starts::default() };
        let behind = self.desc.seq_q - first - count;
        self.from(starts, |desc| {
            desc.seq_q = count;
            if desc.causal {
                desc.seq_kv = desc.seq_kv.saturating_sub(behind);
            } else {
                desc.window = desc.window.map(|window| window.saturating_add(behind));
            }
        })
    }

    fn mask_stride(&self, stride: impl Fn(&AttentionMask) -> usize) -> usize {
        self.desc.mask.as_ref().map_or(0, stride)
    }

    /// A part of this call that differs in some extents, with operands that lie as they do here.
    fn from(&self, starts: Starts, change: impl FnOnce(&mut AttentionDesc)) -> Self {
        let mut desc = self.desc;
        [desc.q_layout, desc.k_layout, desc.v_layout, desc.o_layout] = self.desc.layouts().map(Some);
        change(&mut desc);
        let given = |is_given: bool, start| if is_given { start } else { 0 };
        let windows = &self.windows;
        // Without keys, these have no memory, nor has what is left out.
        let keys = self.desc.seq_kv > 0;
        let windows = Windows {
            q: windows.q.advanced(starts.q),
            k: windows.k.advanced(given(keys, starts.k)),
            v: windows.v.advanced(given(keys, starts.v)),
            o: windows.o.advanced(starts.o),
            mask: windows.mask.advanced(given(keys, starts.mask)),
            lengths: windows.lengths.advanced(given(desc.key_lengths.is_some(), starts.lengths)),
            table: windows.table.advanced(given(keys && desc.block_table.is_some(), starts.table)),
            sinks: windows.sinks.advanced(given(desc.sinks.is_some(), starts.sinks)).near(),
            lse: windows.lse.advanced(given(desc.lse.is_some(), starts.lse)),
        };
        Self { desc, windows }
    }
}
