//! `attention`: packed f32.

use backend_api::DType;

use super::attention_special::{SPECIAL, Special};
use crate::case::Case;
use crate::data::uniform;
use crate::grid::pairwise;
use crate::oracle::attention::{Scores, Seen, attend};
use crate::rng::Rng;
use crate::trial::Trial;

pub(super) const SEQ_Q: [usize; 7] = [1, 2, 5, 16, 17, 33, 65];
pub(super) const SEQ_KV: [usize; 8] = [1, 2, 3, 16, 31, 64, 65, 100];
pub(super) const HEAD_DIMS: [usize; 20] =
    [1, 2, 3, 4, 5, 7, 8, 15, 16, 20, 31, 32, 33, 48, 63, 64, 65, 80, 100, 128];

/// The scale of the scores.
#[derive(Clone, Copy, Debug)]
enum Scale {
    /// 1/√head_dim.
    Usual,
    /// 0: the mean of the values.
    Zero,
    /// Negative.
    Negative,
    /// So large that nearly all the weight falls on one key.
    Sharp,
}

const SCALES: [Scale; 4] = [Scale::Usual, Scale::Zero, Scale::Negative, Scale::Sharp];

#[derive(Clone, Copy, Debug)]
struct Attention {
    batch: usize,
    heads: usize,
    seq_q: usize,
    seq_kv: usize,
    head_dim: usize,
    scale: Scale,
    causal: bool,
    special: Special,
}

pub(super) fn cases() -> Vec<Case> {
    let counts = [3, 4, SEQ_Q.len(), SEQ_KV.len(), HEAD_DIMS.len(), SCALES.len(), 2];
    let grids = ["attention 1", "attention 2"].map(|seed| pairwise(&counts, seed));
    let covering = grids.into_iter().flatten().map(|row| Attention {
        batch: [1, 2, 3][row[0]],
        heads: [1, 2, 3, 5][row[1]],
        seq_q: SEQ_Q[row[2]],
        seq_kv: SEQ_KV[row[3]],
        head_dim: HEAD_DIMS[row[4]],
        scale: SCALES[row[5]],
        causal: row[6] == 1,
        special: Special::None,
    });
    let edges = [
        [0, 2, 3, 4, 8],
        [2, 0, 3, 4, 8],
        [2, 2, 0, 4, 8],
        [2, 2, 3, 0, 8],
        [2, 2, 3, 4, 0],
        [1, 1, 257, 257, 32],
        [1, 2, 257, 3, 5],
        [1, 2, 3, 257, 64],
        [1, 1, 1, 1025, 64],
        [1, 1, 129, 129, 127],
        [1, 2, 31, 200, 256],
        [70, 9, 1, 3, 4],
    ];
    let edges = [false, true].map(|causal| {
        edges.map(|[batch, heads, seq_q, seq_kv, head_dim]| Attention {
            batch,
            heads,
            seq_q,
            seq_kv,
            head_dim,
            scale: Scale::Usual,
            causal,
            special: Special::None,
        })
    });
    let special = SPECIAL.into_iter().filter(|special| !special.needs_options());
    let special = special.enumerate().map(|(i, special)| Attention {
        batch: 1,
        heads: 2,
        seq_q: [1, 40][i % 2],
        seq_kv: 70,
        head_dim: [64, 20, 5][i % 3],
        scale: Scale::Usual,
        causal: i % 4 < 2,
        special,
    });
    covering.chain(edges.into_iter().flatten()).chain(special).map(Attention::case).collect()
}

impl Attention {
    fn case(self) -> Case {
        let Self { batch, heads, seq_q, seq_kv, head_dim, scale, causal, special } = self;
        let scale = format!("{scale:?}").to_lowercase();
        let causal = super::flag(causal, "causal", "full");
        let name = format!("b{batch}_h{heads}_q{seq_q}_kv{seq_kv}_d{head_dim}_{scale}_{causal}{special}");
        Case::new("attention", name, move |rng| self.trial(rng))
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let Self { batch, heads, seq_q, seq_kv, head_dim: d, causal, .. } = self;
        let usual = 1.0 / (d.max(1) as f64).sqrt();
        let scale = match self.scale {
            Scale::Usual => usual,
            Scale::Zero => 0.0,
            Scale::Negative => -usual,
            Scale::Sharp => 40.0 * usual,
        };
        let special = self.special;
        let scale = special.scale().unwrap_or(scale);
        let mut values = |of, seq| {
            let mut values = uniform(rng, DType::F32, batch * heads * seq * d, -1.0, 1.0);
            let vectors = values.chunks_exact_mut(d.max(1)).enumerate();
            vectors.for_each(|(row, vector)| special.change(of, row % seq, seq, vector));
            values
        };
        let (q, k, v) = (values('q', seq_q), values('k', seq_kv), values('v', seq_kv));
        let with = Scores { distinct: special.is_distinct(), ..Scores::scaled(scale) };
        let mut wants = Vec::new();
        for row in 0..batch * heads * seq_q {
            let (head, query) = (row / seq_q, row % seq_q);
            let seen: Vec<Seen<'_>> = (0..seq_kv)
                .filter(|key| !causal || key + seq_q <= query + seq_kv)
                .map(|key| Seen {
                    key: &k[(head * seq_kv + key) * d..][..d],
                    value: &v[(head * seq_kv + key) * d..][..d],
                    mask: 0.0,
                })
                .collect();
            wants.extend(attend(&q[row * d..][..d], &seen, d, with));
        }
        let mut trial = Trial::new();
        trial.input("q", DType::F32, &q);
        trial.input("k", DType::F32, &k);
        trial.input("v", DType::F32, &v);
        trial.output("o", DType::F32, wants);
        trial.with_nmse();
        trial.calling(move |backend, p| {
            backend.attention(p[0], p[1], p[2], p[3], batch, heads, seq_q, seq_kv, d, scale, causal)
        })
    }
}
