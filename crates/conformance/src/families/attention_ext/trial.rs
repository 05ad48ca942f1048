//! A case: its name, its operands, what must come of them, and the call.

use backend_api::DType;
use backend_api::desc::{AttentionAlignment, AttentionDesc, AttentionMask, AttentionShape, BlockTable};
use backend_api::kv::KvFormat;

use super::{Attention, Sinks};
use crate::case::Case;
use crate::data::uniform;
use crate::families::flag;
use crate::families::heads::{Mask, MaskRows, Vectors};
use crate::families::pages::{Pages, Paging};
use crate::oracle::attention::{Scores, Seen, attend, log_sum};
use crate::rng::Rng;
use crate::trial::Trial;

/// The i-th number of a block whose scale is 2⁻⁷.
fn of_block(rng: &mut Rng, i: usize) -> f64 {
    let quant = if i == 0 { 127.0 } else { rng.below(255) as f64 - 127.0 };
    quant / 128.0
}

impl Attention {
    pub(super) fn case(self) -> Case {
        let Self { batch, heads: (heads, kv_heads), seq_q, seq_kv, head_dim, window, softcap, .. } = self;
        let [dtype, kv_dtype] = self.dtypes.map(DType::name);
        let dtypes = format!("{dtype}-{}", if self.blocks { "q8_0" } else { kv_dtype });
        let causal = flag(self.causal, "causal", "full");
        let lengths = flag(self.lengths, "lengths", "whole");
        let mask = format!("mask{:?}{}", self.mask, flag(self.hides, "u32", "")).to_lowercase();
        let align = match self.alignment {
            AttentionAlignment::BottomRight => String::new(),
            alignment => format!("{alignment:?}").to_lowercase(),
        };
        let v = if self.v_head_dim == head_dim { String::new() } else { format!("v{}", self.v_head_dim) };
        let layouts = self.layouts.map(|layout| format!("{layout:?}").to_lowercase()).join("-");
        let window = window.map_or("all".to_owned(), |window| window.to_string());
        let lse = flag(self.lse, "_lse", "");
        let (sinks, special) = (self.sinks.name(), self.special);
        let paged = self.paging.map_or(String::new(), |Paging { size, outside }| {
            format!("_paged{size}{}", flag(outside, "outside", ""))
        });
        let name = format!(
            "{dtypes}_b{batch}_h{heads}of{kv_heads}_q{seq_q}_kv{seq_kv}_d{head_dim}{v}_{causal}{align}_{mask}_{lengths}_{layouts}\
             _window{window}_cap{softcap:e}{lse}{sinks}{special}{paged}"
        );
        Case::new("attention_ext", name, move |rng| self.trial(rng))
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let (batch, (heads, kv_heads), d) = (self.batch, self.heads, self.head_dim);
        let (seq_q, seq_kv) = (self.seq_q, self.seq_kv);
        let [dtype, kv_dtype] = self.dtypes;
        let v_dim = self.v_head_dim;
        let lengths: Vec<f64> = match self.paging {
            // Before, at and behind where a block ends.
            Some(Paging { size, .. }) => {
                let some = [seq_kv / 2 / size * size, 0, seq_kv + 3, size, size + 1];
                (0..batch).map(|b| some[b % some.len()] as f64).collect()
            }
            None => (0..batch).map(|b| [seq_kv / 2, 0, seq_kv + 3][b % 3] as f64).collect(),
        };
        let keys_of = |b: usize| if self.lengths { seq_kv.min(lengths[b] as usize) } else { seq_kv };
        let sees = |b: usize, i: usize, j: usize| self.sees([i, j], keys_of(b));
        let pages = self
            .paging
            .map(|paging| Pages::new(rng, paging, [batch, seq_kv], |b, j| (0..seq_q).any(|i| sees(b, i, j))));
        let [stored, positions] =
            pages.as_ref().map_or([batch, seq_kv], |of| [of.desc.pool_blocks, of.desc.block_size]);
        let mut tensor = |dtype, [batch, heads, seq, dim]: [usize; 4], layout, unit| {
            // Numbers of blocks are multiples of their scale.
            let mut values = |n| match unit {
                1 => uniform(rng, dtype, n, -1.0, 1.0),
                _ => (0..n).map(|i| of_block(rng, i % unit)).collect(),
            };
            Vectors::new([batch, heads, seq, dim], layout, unit, &mut values)
        };
        let unit = if self.blocks { KvFormat::BLOCK } else { 1 };
        let mut q = tensor(dtype, [batch, heads, seq_q, d], self.layouts[0], 1);
        let mut k = tensor(kv_dtype, [stored, kv_heads, positions, d], self.layouts[1], unit);
        let mut v = tensor(kv_dtype, [stored, kv_heads, positions, v_dim], self.layouts[2], unit);
        let mut o =
            Vectors::new([batch, heads, seq_q, v_dim], self.layouts[3], 1, &mut |n| vec![f64::NAN; n]);
        let mask_dtype = if self.hides { DType::U32 } else { dtype };
        let mut mask = MaskRows::new(rng, self.mask, mask_dtype, [batch, heads, seq_q, seq_kv]);
        let special = self.special;
        q.change([batch, heads, seq_q], |token, vector| special.change('q', token, seq_q, vector));
        for (of, vectors) in [('k', &mut k), ('v', &mut v)] {
            vectors.change_each([stored, kv_heads, positions], |[block, token], vector| {
                let key = pages.as_ref().map_or(Some(token), |pages| pages.key(block, token));
                match key {
                    Some(key) => special.change(of, key, seq_kv, vector),
                    // What no query sees doesn't matter.
                    None => vector.fill(f64::NAN),
                }
            });
        }
        mask.change(seq_kv, |row| special.change_mask(row));
        let kv_words = [&mut k, &mut v].map(|vectors| self.blocks.then(|| vectors.quantise()));
        let scale = special.scale().unwrap_or(1.0 / (d as f64).sqrt());
        let sinks = self.sinks.of(heads, rng);
        let with = Scores {
            sink: None,
            // As an f32 at most: a larger bound is none.
            softcap: if self.softcap.abs() > f64::from(f32::MAX) { 0.0 } else { self.softcap },
            scale,
            half_weights: dtype == DType::F16,
            distinct: special.is_distinct(),
        };
        let (mut wants, mut sums, zeros) = (Vec::new(), Vec::new(), vec![0.0; d.max(v_dim)]);
        for row in 0..batch * heads * seq_q {
            let (b, h, i) = (row / seq_q / heads, row / seq_q % heads, row % seq_q);
            let kv_head = h / (heads / kv_heads);
            let place = |j| pages.as_ref().map_or(Some([b, j]), |pages| pages.place(b, j));
            let vector = |of: &Vectors, j| place(j).map(|[block, at]| of.start(block, kv_head, at));
            let seen: Vec<Seen<'_>> = (0..keys_of(b))
                .filter(|&j| sees(b, i, j))
                .map(|j| Seen {
                    key: vector(&k, j).map_or(&zeros[..d], |start| &k.data[start..][..d]),
                    value: vector(&v, j).map_or(&zeros[..v_dim], |start| &v.data[start..][..v_dim]),
                    mask: mask.at(b, h, i, j),
                })
                .collect();
            let start = o.start(b, h, i);
            let with = Scores { sink: sinks.get(h).copied(), ..with };
            let vector = attend(q.vector(b, h, i), &seen, v_dim, with);
            sums.push(log_sum(q.vector(b, h, i), &seen, with));
            wants.extend(vector.into_iter().enumerate().map(|(at, want)| (start + at, want)));
        }

        let mut trial = Trial::new();
        trial.input("q", dtype, &q.data);
        for ((arg, data), words) in [("k", &k.data), ("v", &v.data)].into_iter().zip(&kv_words) {
            match words {
                Some(words) => trial.input(arg, DType::U32, words),
                None => trial.input(arg, kv_dtype, data),
            }
        }
        trial.scattered("o", dtype, std::mem::take(&mut o.data), wants);
        // A very low mask number may rule the row of a window, and beside it scores lose their digits.
        // A sink that is far above leaves little of the outputs.
        let is_far = matches!(self.sinks, Sinks::Far);
        if (self.window.is_none() || matches!(self.mask, Mask::None)) && !is_far {
            trial.with_nmse();
        }
        trial.input("mask", mask_dtype, &mask.data);
        let lengths = if self.lengths { lengths } else { Vec::new() };
        trial.input("key_lengths", DType::U32, &lengths);
        trial.output("lse", DType::F32, if self.lse { sums } else { Vec::new() });
        trial.input("sinks", DType::F32, &sinks);
        trial.input("block_table", DType::U32, pages.as_ref().map_or(&[][..], |pages| &pages.table));
        let table = pages.map(|pages| pages.desc);
        let strides = [q.strides, k.strides, v.strides, o.strides];
        let with_mask = !matches!(self.mask, Mask::None);
        trial.calling(move |backend, p| {
            let mut desc = AttentionDesc::new(
                dtype,
                p[0],
                p[1],
                p[2],
                p[3],
                AttentionShape { batch, heads, seq_q, seq_kv, head_dim: d },
            );
            (desc.kv_heads, desc.mask_dtype) = (kv_heads, mask_dtype);
            desc.kv_format = if self.blocks { KvFormat::Q8_0 } else { kv_dtype.into() };
            (desc.alignment, desc.v_head_dim) = (self.alignment, v_dim);
            (desc.scale, desc.causal) = (scale, self.causal);
            (desc.window, desc.softcap) = (self.window, self.softcap);
            desc.lse = self.lse.then_some(p[6]);
            desc.sinks = (!sinks.is_empty()).then_some(p[7]);
            [desc.q_layout, desc.k_layout, desc.v_layout, desc.o_layout] = strides;
            desc.mask = with_mask.then_some(AttentionMask { ptr: p[4], ..mask.desc });
            desc.key_lengths = self.lengths.then_some(p[5]);
            desc.block_table = table
                .map(|table| BlockTable::new(p[8], table.max_blocks, table.block_size, table.pool_blocks));
            backend.attention_ext(&desc)
        })
    }

    /// Whether query i sees key j of a sequence of so many real keys, masks aside.
    fn sees(&self, [i, j]: [usize; 2], keys: usize) -> bool {
        let behind = match self.alignment {
            AttentionAlignment::TopLeft => self.seq_q,
            AttentionAlignment::KeyLengths => keys,
            _ => self.seq_kv,
        };
        let position = (i + behind) as i128 - self.seq_q as i128;
        let is_near = self.window.is_none_or(|window| position < j as i128 + window as i128);
        j < keys && is_near && (!self.causal || j as i128 <= position)
    }
}
