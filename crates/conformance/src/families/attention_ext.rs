//! `attention_ext`: element types, layouts, masks, key lengths and grouped heads.

use backend_api::DType;
use backend_api::desc::{AttentionDesc, AttentionMask, HeadStrides};

use super::attention::{HEAD_DIMS, SEQ_KV, SEQ_Q};
use super::heads::{Layout, Mask, MaskRows, Vectors};
use crate::case::Case;
use crate::data::uniform;
use crate::grid::pairwise;
use crate::oracle::attention::{Seen, attend};
use crate::rng::Rng;
use crate::trial::Trial;

const LAYOUTS: [Layout; 3] = [Layout::Packed, Layout::Tokens, Layout::Gaps];
const MASKS: [Mask; 5] = [Mask::None, Mask::Full, Mask::Queries, Mask::Keys, Mask::Heads];
/// Query heads and key heads.
const HEADS: [(usize, usize); 6] = [(1, 1), (2, 2), (3, 3), (4, 2), (6, 2), (5, 1)];

#[derive(Clone, Copy, Debug)]
struct Attention {
    dtype: DType,
    batch: usize,
    heads: (usize, usize),
    seq_q: usize,
    seq_kv: usize,
    head_dim: usize,
    causal: bool,
    mask: Mask,
    lengths: bool,
    layouts: [Layout; 4],
}

pub(super) fn cases() -> Vec<Case> {
    let counts =
        [2, 3, HEADS.len(), SEQ_Q.len(), SEQ_KV.len(), HEAD_DIMS.len(), 2, MASKS.len(), 2, 3, 3, 3, 3];
    let grids = ["attention_ext 1", "attention_ext 2", "attention_ext 3"].map(|seed| pairwise(&counts, seed));
    let covering = grids.into_iter().flatten().map(|row| Attention {
        dtype: [DType::F32, DType::F16][row[0]],
        batch: row[1] + 1,
        heads: HEADS[row[2]],
        seq_q: SEQ_Q[row[3]],
        seq_kv: SEQ_KV[row[4]],
        head_dim: HEAD_DIMS[row[5]],
        causal: row[6] == 1,
        mask: MASKS[row[7]],
        lengths: row[8] == 1,
        layouts: [LAYOUTS[row[9]], LAYOUTS[row[10]], LAYOUTS[row[11]], LAYOUTS[row[12]]],
    });
    covering.map(Attention::case).chain([fused()]).collect()
}

impl Attention {
    fn case(self) -> Case {
        let Self { dtype, batch, heads: (heads, kv_heads), seq_q, seq_kv, head_dim, .. } = self;
        let causal = super::flag(self.causal, "causal", "full");
        let lengths = super::flag(self.lengths, "lengths", "whole");
        let mask = format!("mask{:?}", self.mask).to_lowercase();
        let layouts = self.layouts.map(|layout| format!("{layout:?}").to_lowercase()).join("-");
        let name = format!(
            "{dtype}_b{batch}_h{heads}of{kv_heads}_q{seq_q}_kv{seq_kv}_d{head_dim}_{causal}_{mask}_{lengths}_{layouts}"
        );
        Case::new("attention_ext", name, move |rng| self.trial(rng))
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let (batch, (heads, kv_heads), d) = (self.batch, self.heads, self.head_dim);
        let (seq_q, seq_kv) = (self.seq_q, self.seq_kv);
        let mut tensor = |heads, seq, layout| {
            let mut values = |n| uniform(rng, self.dtype, n, -1.0, 1.0);
            Vectors::new([batch, heads, seq, d], layout, &mut values)
        };
        let q = tensor(heads, seq_q, self.layouts[0]);
        let k = tensor(kv_heads, seq_kv, self.layouts[1]);
        let v = tensor(kv_heads, seq_kv, self.layouts[2]);
        let mut o = Vectors::new([batch, heads, seq_q, d], self.layouts[3], &mut |n| vec![f64::NAN; n]);
        let mask = MaskRows::new(rng, self.mask, self.dtype, [batch, heads, seq_q, seq_kv]);
        let lengths: Vec<f64> = (0..batch).map(|b| [seq_kv / 2, 0, seq_kv + 3][b % 3] as f64).collect();

        let scale = 1.0 / (d as f64).sqrt();
        let mut wants = Vec::new();
        for row in 0..batch * heads * seq_q {
            let (b, h, i) = (row / seq_q / heads, row / seq_q % heads, row % seq_q);
            let kv_head = h / (heads / kv_heads);
            let seen: Vec<Seen<'_>> = (0..seq_kv)
                .filter(|j| !self.causal || j + seq_q <= i + seq_kv)
                .filter(|&j| !self.lengths || (j as f64) < lengths[b])
                .map(|j| Seen {
                    key: k.vector(b, kv_head, j),
                    value: v.vector(b, kv_head, j),
                    mask: mask.at(b, h, i, j),
                })
                .collect();
            let start = o.start(b, h, i);
            let vector = attend(q.vector(b, h, i), &seen, scale);
            wants.extend(vector.into_iter().enumerate().map(|(at, want)| (start + at, want)));
        }

        let mut trial = Trial::new();
        trial.input("q", self.dtype, &q.data);
        trial.input("k", self.dtype, &k.data);
        trial.input("v", self.dtype, &v.data);
        trial.scattered("o", self.dtype, std::mem::take(&mut o.data), wants);
        trial.with_nmse();
        trial.input("mask", self.dtype, &mask.data);
        let lengths = if self.lengths { lengths } else { Vec::new() };
        trial.input("key_lengths", DType::U32, &lengths);
        let strides = [q.strides, k.strides, v.strides, o.strides];
        let with_mask = !matches!(self.mask, Mask::None);
        trial.calling(move |backend, p| {
            let mut desc =
                AttentionDesc::new(self.dtype, [p[0], p[1], p[2], p[3]], [batch, heads, seq_q, seq_kv, d]);
            desc.kv_heads = kv_heads;
            desc.causal = self.causal;
            [desc.q_strides, desc.k_strides, desc.v_strides, desc.o_strides] = strides;
            desc.mask = with_mask.then_some(AttentionMask { ptr: p[4], ..mask.desc });
            desc.key_lengths = self.lengths.then_some(p[5]);
            backend.attention_ext(&desc)
        })
    }
}

/// Queries, keys and values side by side in one projection, each through a view of it.
fn fused() -> Case {
    Case::new("attention_ext", "views_of_a_fused_projection", |rng| {
        let (batch, heads, seq, d) = (2, 3, 9, 10);
        let width = heads * d;
        let qkv = uniform(rng, DType::F32, batch * seq * 3 * width, -1.0, 1.0);
        let vector = |b: usize, i: usize, part: usize, h: usize| {
            &qkv[((b * seq + i) * 3 + part) * width + h * d..][..d]
        };
        let mut wants = Vec::new();
        for row in 0..batch * heads * seq {
            let (b, h, i) = (row / seq / heads, row / seq % heads, row % seq);
            let seen: Vec<Seen<'_>> = (0..seq)
                .map(|j| Seen { key: vector(b, j, 1, h), value: vector(b, j, 2, h), mask: 0.0 })
                .collect();
            wants.extend(attend(vector(b, i, 0, h), &seen, 1.0 / (d as f64).sqrt()));
        }
        let mut trial = Trial::new();
        trial.input("qkv", DType::F32, &qkv);
        trial.output("o", DType::F32, wants);
        trial.calling(move |backend, p| {
            let part = |i: usize| {
                let len = (batch * seq * 3 - i) * width * 4;
                backend.view(p[0], i * width * 4, len)
            };
            let (q, k, v) = (part(0)?, part(1)?, part(2)?);
            let mut desc = AttentionDesc::new(DType::F32, [q, k, v, p[1]], [batch, heads, seq, seq, d]);
            let strides = Some(HeadStrides { batch: seq * 3 * width, head: d, token: 3 * width });
            (desc.q_strides, desc.k_strides, desc.v_strides) = (strides, strides, strides);
            let result = backend.attention_ext(&desc);
            for view in [q, k, v] {
                backend.free(view)?;
            }
            result
        })
    })
}
