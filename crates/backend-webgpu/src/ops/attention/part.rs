//! Attention that takes long, by batches, heads and queries.

use std::borrow::Cow;

use backend_api::DType;
use backend_api::desc::{AttentionAlignment, AttentionDesc, AttentionMask};
use backend_api::kv::KvFormat;

use super::{Windows, blocks};
use crate::device::DeviceProfile;
use crate::ops::shared::long_work::{Divisible, middle};
use crate::recorder::Window;

/// Some sequences of a call, some heads of one, or some queries of one head.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) desc: AttentionDesc,
    pub(super) windows: Windows,
}

impl Divisible for Part {
    fn seconds(&self, profile: &DeviceProfile) -> f64 {
        /// Queries that kernels for long sequences give to one workgroup.
        const TILE: usize = 64;
        /// The most queries for which every kernel spreads the keys over workgroups.
        const FEW: usize = 8;
        /// Seconds of a single workgroup that are worth a launch of its own.
        const MAX_ALONE: f64 = 1.0;
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use backend_api::DeviceKind;
    use backend_api::desc::{AttentionShape, HeadLayout};

    use super::*;
    use crate::WebGpuBackend;
    use crate::ops::shared::bound_windows::{self, address};
    use crate::ops::shared::long_work::visit_parts;
    use crate::recorder::UNBINDABLE;

    /// Windows of f32 into a buffer for each operand, of which a binding may show `max_bytes`.
    fn windows(max_bytes: u64) -> Windows {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let [q, k, v, mask, lengths, table, sinks, lse, o] =
            bound_windows::windows(backend.device().unwrap(), max_bytes);
        Windows { q, k, v, mask, lengths, table, sinks, lse, o }
    }

    /// Attention with every operand that can be left out, but for a block table.
    fn desc() -> AttentionDesc {
        let shape = AttentionShape { batch: 2, heads: 6, seq_q: 5, seq_kv: 7, head_dim: 3 };
        let mask = AttentionMask { ptr: 1, batch_stride: 300, head_stride: 45, query_stride: 8 };
        let layout = |batch, head, token| HeadLayout { offset: 0, batch, head, token };
        AttentionDesc::new(DType::F32, 1, 1, 1, 1, shape)
            .with_kv_heads(2)
            .with_v_head_dim(2)
            .with_mask(mask)
            .with_key_lengths(1)
            .with_lse(1)
            .with_sinks(1)
            .with_q_layout(layout(140, 20, 4))
            .with_k_layout(layout(80, 4, 9))
            .with_v_layout(layout(70, 33, 4))
            .with_o_layout(layout(90, 13, 2))
    }

    /// What each row of the output is made of, by its address: query, sink, logarithm, length of the sequence, and for
    /// each key that it sees, this one, its value and the mask.
    type Rows = BTreeMap<u64, ([u64; 4], Vec<[u64; 3]>)>;

    fn add(part: &Part, rows: &mut Rows) {
        let desc = &part.desc;
        let bound = part.bound();
        let [q, k, v, o] = desc.layouts();
        let mask = desc.mask.unwrap();
        let at = |layout: HeadLayout, batch: usize, head: usize, token: usize| {
            batch * layout.batch + head * layout.head + token * layout.token
        };
        for batch in 0..desc.batch {
            for (head, query) in
                (0..desc.heads).flat_map(|head| (0..desc.seq_q).map(move |query| (head, query)))
            {
                let of_keys = head / (desc.heads / desc.kv_heads);
                // Counted from the last key.
                let position = (query + desc.seq_kv) as isize - desc.seq_q as isize;
                let sees = |&key: &usize| {
                    let distance = position - key as isize;
                    (!desc.causal || distance >= 0)
                        && desc.window.is_none_or(|window| distance < window as isize)
                };
                let keys = (0..desc.seq_kv).filter(sees).map(|key| {
                    let masked =
                        batch * mask.batch_stride + head * mask.head_stride + query * mask.query_stride;
                    [
                        address(&bound.k, at(k, batch, of_keys, key)),
                        address(&bound.v, at(v, batch, of_keys, key)),
                        address(&bound.mask, masked + key),
                    ]
                });
                let made = [
                    address(&bound.q, at(q, batch, head, query)),
                    address(&bound.sinks, head),
                    address(&bound.lse, (batch * desc.heads + head) * desc.seq_q + query),
                    address(&bound.lengths, batch),
                ];
                let row = address(&bound.o, at(o, batch, head, query));
                assert!(rows.insert(row, (made, keys.collect())).is_none(), "made twice");
            }
        }
    }

    fn divide(part: &Part, rows: &mut Rows) -> usize {
        visit_parts(part, Part::halves, &mut |part| add(part, rows))
    }

    #[test]
    fn parts_make_what_the_whole_makes() {
        for max_bytes in [64, 1 << 20] {
            for (causal, window) in [(false, None), (true, None), (false, Some(3)), (true, Some(3))] {
                let mut desc = desc().with_causal(causal);
                desc.window = window;
                let whole = Part { desc, windows: windows(max_bytes) };
                let [mut expected, mut found] = [Rows::new(), Rows::new()];
                add(&whole, &mut expected);
                assert_eq!(divide(&whole, &mut found), 2 * 6 * 5, "single queries");
                assert_eq!(found, expected, "{max_bytes} bytes, causal {causal}, window {window:?}");
            }
        }
        // Queries that count from the first key, or from a sequence's last one, stay together.
        for alignment in [AttentionAlignment::TopLeft, AttentionAlignment::KeyLengths] {
            let whole = Part { desc: desc().with_alignment(alignment), windows: windows(64) };
            assert_eq!(divide(&whole, &mut Rows::new()), 2 * 6, "{alignment:?}");
        }
    }

    #[test]
    fn operands_are_too_large_by_what_passes_a_binding() {
        let part = |desc, max_bytes| Part { desc, windows: windows(max_bytes) };
        assert_eq!(part(desc(), 1 << 20).excess(), 0);
        // Elements before, and from the first to the last.
        let elements = [
            (1, 140 + 5 * 20 + 4 * 4 + 3),
            (2, 80 + 4 + 6 * 9 + 3),
            (3, 70 + 33 + 6 * 4 + 2),
            (4, 300 + 5 * 45 + 4 * 8 + 7),
            (5, 2),
            (7, 6),
            (8, 2 * 6 * 5),
            (9, 90 + 5 * 13 + 4 * 2 + 2),
        ];
        let too_large = |(before, elements): (u64, u64)| {
            let bytes = (4 * (before + elements)).next_multiple_of(16);
            if bytes > 256 { UNBINDABLE + bytes - 256 } else { 0 }
        };
        assert_eq!(part(desc(), 256).excess(), elements.map(too_large).iter().sum::<u64>());
    }

    #[test]
    fn long_sequences_of_few_tiles_take_as_long_as_one_compute_unit_does() {
        let profile = DeviceProfile::of(DeviceKind::DiscreteGpu, true);
        let part = |heads, seq_q, seq_kv| {
            let shape = AttentionShape { batch: 1, heads, seq_q, seq_kv, head_dim: 64 };
            Part { desc: AttentionDesc::new(DType::F32, 1, 1, 1, 1, shape), windows: windows(1 << 20) }
        };
        let seconds = |part: &Part| [part.seconds(&profile), part.desc.flops() / profile.flops];
        let [short, of_short] = seconds(&part(4, 640, 1 << 10));
        assert_eq!(short, of_short, "less than a second of a workgroup");
        // Four heads of ten tiles, each on one of the compute units.
        let [long, of_long] = seconds(&part(4, 640, 1 << 28));
        assert_eq!(long, of_long / 40.0 * profile.compute_units as f64);
        // Fewer queries than a tile has are one all the same, and of few queries, the keys are spread.
        let [one, of_one] = seconds(&part(1, 9, 1 << 28));
        assert_eq!(one, of_one * profile.compute_units as f64);
        let [few, of_few] = seconds(&part(1, 8, 1 << 28));
        assert_eq!(few, of_few);
        // More tiles than compute units.
        let [many, of_many] = seconds(&part(1 << 14, 64, 1 << 24));
        assert_eq!(many, of_many);
    }

    #[test]
    fn one_query_of_one_head_is_not_divided() {
        let profile = DeviceProfile::of(DeviceKind::DiscreteGpu, true);
        let mut part = Part { desc: desc(), windows: windows(1 << 20) };
        let flops = part.desc.flops();
        let per_query = |flops: f64, rate: f64| flops / rate / (2.0 * 6.0 * 5.0);
        assert_eq!(part.undivided_seconds(&profile), per_query(flops, profile.flops));
        part.desc.dtype = DType::F16;
        assert_eq!(part.undivided_seconds(&profile), per_query(flops, profile.flops_f16));
        part.desc.batch = 0;
        assert_eq!(part.undivided_seconds(&profile), 0.0);
    }
}
