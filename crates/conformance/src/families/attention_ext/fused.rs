//! Queries, keys and values of one projection.

use backend_api::DType;
use backend_api::desc::{AttentionDesc, AttentionShape, HeadLayout};

use crate::case::Case;
use crate::data::uniform;
use crate::oracle::attention::{Scores, Seen, attend};
use crate::trial::Trial;

/// Queries, keys and values side by side in one projection, each through a view of it.
pub(super) fn fused(by_offset: bool) -> Case {
    let name = format!("{}_of_a_fused_projection", if by_offset { "offsets" } else { "views" });
    Case::new("attention_ext", name, move |rng| {
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
            wants.extend(attend(vector(b, i, 0, h), &seen, d, Scores::scaled(1.0 / (d as f64).sqrt())));
        }
        let mut trial = Trial::new();
        trial.input("qkv", DType::F32, &qkv);
        trial.output("o", DType::F32, wants);
        trial.calling(move |backend, p| {
            let shape = AttentionShape { batch, heads, seq_q: seq, seq_kv: seq, head_dim: d };
            let layout = |offset| HeadLayout { offset, batch: seq * 3 * width, head: d, token: 3 * width };
            if by_offset {
                let desc = AttentionDesc::new(DType::F32, p[0], p[0], p[0], p[1], shape)
                    .with_q_layout(layout(0))
                    .with_k_layout(layout(width))
                    .with_v_layout(layout(2 * width));
                return backend.attention_ext(&desc);
            }
            let part = |i: usize| {
                let len = (batch * seq * 3 - i) * width * 4;
                backend.view(p[0], i * width * 4, len)
            };
            let (q, k, v) = (part(0)?, part(1)?, part(2)?);
            let desc = AttentionDesc::new(DType::F32, q, k, v, p[1], shape)
                .with_q_layout(layout(0))
                .with_k_layout(layout(0))
                .with_v_layout(layout(0));
            let result = backend.attention_ext(&desc);
            for view in [q, k, v] {
                backend.free(view)?;
            }
            result
        })
    })
}
