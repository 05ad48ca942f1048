//! `attention_ext`: element types, layouts, masks of numbers and of u32, key lengths, grouped heads, windows,
//! alignments, values of another length, softcaps and log-sum-exp.

use backend_api::DType;
use backend_api::desc::{
    AttentionAlignment, AttentionDesc, AttentionMask, AttentionShape, BlockTable, HeadLayout,
};
use backend_api::kv::KvFormat;

use super::attention::{HEAD_DIMS, SEQ_KV, SEQ_Q};
use super::attention_special::{At, SPECIAL, Special};
use super::heads::{Layout, Mask, MaskRows, Vectors};
use super::pages::{Pages, Paging};
use crate::case::Case;
use crate::data::uniform;
use crate::float::round_to;
use crate::grid::pairwise;
use crate::oracle::attention::{Scores, Seen, attend, log_sum};
use crate::rng::Rng;
use crate::trial::Trial;

const LAYOUTS: [Layout; 3] = [Layout::Packed, Layout::Tokens, Layout::Gaps];
const MASKS: [Mask; 5] = [Mask::None, Mask::Full, Mask::Queries, Mask::Keys, Mask::Heads];
/// Query heads and key heads.
const HEADS: [(usize, usize); 6] = [(1, 1), (2, 2), (3, 3), (4, 2), (6, 2), (5, 1)];

/// Types of the queries and of the keys and values.
const DTYPES: [[DType; 2]; 3] =
    [[DType::F32, DType::F32], [DType::F16, DType::F16], [DType::F32, DType::F16]];
const WINDOWS: [Option<usize>; 6] = [None, None, Some(0), Some(1), Some(5), Some(33)];
const SOFTCAPS: [f64; 4] = [0.0, 0.0, 0.75, 30.0];

/// Scores of heads that join the denominator.
#[derive(Clone, Copy, Debug)]
enum Sinks {
    None,
    /// Near the other scores.
    Random,
    /// Far above and below them, and none.
    Far,
    /// NaN and infinities, a head each.
    Special,
}

impl Sinks {
    const ALL: [Self; 4] = [Self::None, Self::Random, Self::Far, Self::Special];

    const fn name(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Random => "_sinks",
            Self::Far => "_sinksfar",
            Self::Special => "_sinksspecial",
        }
    }

    /// One for each head, if there are any.
    fn of(self, heads: usize, rng: &mut Rng) -> Vec<f64> {
        let far = [30.0, -30.0, 200.0, f64::NEG_INFINITY, -1e30, 1e30];
        let special = [f64::NAN, f64::NEG_INFINITY, f64::INFINITY, 0.5];
        match self {
            Self::None => Vec::new(),
            Self::Random => uniform(rng, DType::F32, heads, -2.0, 2.0),
            Self::Far => (0..heads).map(|head| round_to(DType::F32, far[head % far.len()])).collect(),
            Self::Special => (0..heads).map(|head| special[head % special.len()]).collect(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Attention {
    dtypes: [DType; 2],
    /// Whether keys and values are blocks of Q8_0.
    blocks: bool,
    batch: usize,
    heads: (usize, usize),
    seq_q: usize,
    seq_kv: usize,
    head_dim: usize,
    v_head_dim: usize,
    causal: bool,
    alignment: AttentionAlignment,
    mask: Mask,
    /// Whether the mask is of u32.
    hides: bool,
    lengths: bool,
    layouts: [Layout; 4],
    window: Option<usize>,
    softcap: f64,
    lse: bool,
    sinks: Sinks,
    special: Special,
    /// Where keys and values lie in blocks.
    paging: Option<Paging>,
}

pub(super) fn cases() -> Vec<Case> {
    let counts = [
        DTYPES.len(),
        3,
        HEADS.len(),
        SEQ_Q.len(),
        SEQ_KV.len(),
        HEAD_DIMS.len(),
        2,
        MASKS.len(),
        2,
        3,
        3,
        3,
        3,
        WINDOWS.len(),
        SOFTCAPS.len(),
        2,
        AttentionAlignment::ALL.len() + 1,
        2,
        3,
        Sinks::ALL.len(),
    ];
    let grids = ["attention_ext 1", "attention_ext 2", "attention_ext 3"].map(|seed| pairwise(&counts, seed));
    let covering = grids.into_iter().flatten().map(|row| Attention {
        dtypes: DTYPES[row[0]],
        blocks: false,
        batch: row[1] + 1,
        heads: HEADS[row[2]],
        seq_q: SEQ_Q[row[3]],
        seq_kv: SEQ_KV[row[4]],
        head_dim: HEAD_DIMS[row[5]],
        v_head_dim: [HEAD_DIMS[row[5]], HEAD_DIMS[row[5]], HEAD_DIMS[(row[5] + 7) % HEAD_DIMS.len()]]
            [row[18]],
        causal: row[6] == 1,
        alignment: AttentionAlignment::ALL.get(row[16]).copied().unwrap_or_default(),
        mask: MASKS[row[7]],
        hides: row[17] == 1,
        lengths: row[8] == 1,
        layouts: [LAYOUTS[row[9]], LAYOUTS[row[10]], LAYOUTS[row[11]], LAYOUTS[row[12]]],
        window: WINDOWS[row[13]],
        softcap: SOFTCAPS[row[14]],
        lse: row[15] == 1,
        sinks: Sinks::ALL[row[19]],
        special: Special::None,
        paging: None,
    });
    let special = [[1, 70, 64], [3, 70, 16], [40, 70, 20]].into_iter().flat_map(special);
    covering
        .chain(edges())
        .chain(blocks())
        .chain(paged())
        .chain(special)
        .map(Attention::case)
        .chain([fused(false), fused(true)])
        .collect()
}

/// Attention whose sizes are those of a kernel's tile (queries, keys, numbers of a vector) and one less or
/// more, or a few tiles, with every option; and with numbers that aren't finite and scores at the ends of
/// f32.
#[must_use]
pub fn attention_around([queries, keys, head_dim]: [usize; 3]) -> Vec<Case> {
    let seq_q = [1, queries - queries.min(1), queries + 1, 2 * queries];
    let seq_kv = [1, keys - 1, keys, 2 * keys + 1, 3 * keys];
    let head_dims = [head_dim, head_dim - 8, head_dim / 2 + 1];
    let lens = [seq_q.len(), seq_kv.len(), head_dims.len()];
    let counts = [
        3,
        4,
        lens[0],
        lens[1],
        lens[2],
        2,
        3,
        2,
        2,
        4,
        3,
        2,
        AttentionAlignment::ALL.len(),
        Sinks::ALL.len(),
    ];
    let rows = pairwise(&counts, &format!("attention {queries} {keys} {head_dim}"));
    let cases = rows.into_iter().map(|row| Attention {
        dtypes: DTYPES[row[0]],
        blocks: false,
        batch: 1,
        heads: [(1, 1), (2, 1), (4, 1), (9, 1)][row[1]],
        seq_q: seq_q[row[2]].max(1),
        seq_kv: seq_kv[row[3]].max(1),
        head_dim: head_dims[row[4]],
        v_head_dim: head_dims[row[4]],
        causal: row[5] == 1,
        alignment: AttentionAlignment::ALL[row[12]],
        mask: [Mask::None, Mask::None, Mask::Full][row[6]],
        hides: false,
        lengths: row[7] == 1,
        // Gaps make vectors that don't start at 16 bytes.
        layouts: [[Layout::Packed; 4], [Layout::Gaps; 4]][row[8]],
        window: [None, None, Some(3), Some(keys + 1)][row[9]],
        softcap: [0.0, 0.0, 2.0][row[10]],
        lse: row[11] == 1,
        sinks: Sinks::ALL[row[13]],
        special: Special::None,
        paging: None,
    });
    // Each content once, in types that differ from tile to tile.
    let turn = (queries + keys + head_dim) / 8;
    let once = |content: usize, types: usize| (content + turn) % DTYPES.len() == types;
    // Outputs beside values that aren't finite are made again, a key at a time: of few keys, as a driver may
    // end loops.
    let (of_values, others): (Vec<Special>, Vec<Special>) =
        SPECIAL.iter().partition(|special| special.to_string().starts_with("_v"));
    let values = special_of([queries.min(2) + 1, keys.min(64) + 1, head_dim], &of_values, once);
    let special = special_of([queries.min(40) + 1, 2 * keys + 1, head_dim], &others, once);
    let few = special_of([1, 1 + keys, head_dim / 2 + 1], &SPECIAL[..SPECIAL.len() / 2], once);
    let read_in_blocks = |case: &Attention| queries <= 16 && case.seq_q <= 16 && case.head_dim <= head_dim;
    let blocks = blocks().filter(read_in_blocks).step_by(3).chain(paged().filter(read_in_blocks).step_by(4));
    cases.chain(special).chain(values).chain(few).chain(blocks).map(Attention::case).collect()
}

/// Every special content with every type, under what hides keys from some queries.
fn special(shape: [usize; 3]) -> Vec<Attention> {
    special_of(shape, &SPECIAL, |_, _| true)
}

/// Contents, each with the types that `takes` it, both by number.
fn special_of(
    [seq_q, seq_kv, head_dim]: [usize; 3],
    contents: &[Special],
    takes: impl Fn(usize, usize) -> bool,
) -> Vec<Attention> {
    let numbers =
        (0..DTYPES.len()).flat_map(|types| (0..contents.len()).map(move |content| (content, types)));
    let pairs = numbers
        .filter(|&(content, types)| takes(content, types))
        .map(|(content, types)| (DTYPES[types], contents[content]));
    let cases = pairs.filter(|(dtypes, special)| special.fits(dtypes)).enumerate();
    let case = |(i, (dtypes, special)): (usize, ([DType; 2], Special))| Attention {
        dtypes,
        blocks: false,
        batch: 1 + i % 2,
        heads: [(1, 1), (2, 1), (4, 2)][i % 3],
        seq_q,
        seq_kv,
        head_dim,
        v_head_dim: head_dim,
        causal: i % 4 == 1,
        alignment: AttentionAlignment::BottomRight,
        hides: false,
        // Its own numbers would part scores that shall be equal.
        mask: if special.needs_mask() || (i % 4 == 2 && !special.is_distinct()) {
            Mask::Full
        } else {
            Mask::None
        },
        lengths: i % 5 == 3,
        layouts: [Layout::Packed; 4],
        window: (i % 7 == 4).then_some(seq_kv / 2),
        softcap: special.softcap(),
        lse: i % 3 > 0,
        // One that isn't far from other scores would mix with equal ones.
        sinks: if i % 4 == 3 && !special.is_distinct() { Sinks::Random } else { Sinks::None },
        special,
        paging: None,
    };
    cases.map(case).collect()
}

/// Every option alone and with causal masks, of each type, over vectors of the common lengths.
fn edges() -> impl Iterator<Item = Attention> {
    let plain = Attention {
        dtypes: DTYPES[0],
        blocks: false,
        batch: 1,
        heads: (1, 1),
        seq_q: 40,
        seq_kv: 70,
        head_dim: 64,
        v_head_dim: 64,
        causal: false,
        alignment: AttentionAlignment::BottomRight,
        mask: Mask::None,
        hides: false,
        lengths: false,
        layouts: [Layout::Packed; 4],
        window: None,
        softcap: 0.0,
        lse: true,
        sinks: Sinks::None,
        special: Special::None,
        paging: None,
    };
    let mut all = Vec::new();
    for dtypes in DTYPES {
        let plain = Attention { dtypes, ..plain };
        for causal in [false, true] {
            let plain = Attention { causal, ..plain };
            all.extend([1, 32, 64, 80, 96, 128, 256, 512].map(|head_dim| Attention {
                head_dim,
                v_head_dim: head_dim,
                ..plain
            }));
            // Values that are shorter and longer than keys, for many and for few queries.
            for (head_dim, v_head_dim) in
                [(192, 128), (576, 512), (64, 256), (40, 301), (1, 5), (40, 24), (5, 1)]
            {
                all.extend([40, 3].map(|seq_q| Attention { seq_q, head_dim, v_head_dim, ..plain }));
            }
            for alignment in [AttentionAlignment::TopLeft, AttentionAlignment::KeyLengths] {
                let plain =
                    Attention { alignment, batch: 3, lengths: true, head_dim: 32, v_head_dim: 32, ..plain };
                for (seq_q, seq_kv) in [(40, 70), (70, 40), (2, 300), (9, 4)] {
                    all.extend([None, Some(7)].map(|window| Attention { seq_q, seq_kv, window, ..plain }));
                }
            }
            all.push(Attention { mask: Mask::Full, hides: true, softcap: 3.0, ..plain });
            all.push(Attention { mask: Mask::Keys, hides: true, batch: 2, seq_q: 2, heads: (4, 2), ..plain });
            all.extend(
                [None, Some(0), Some(1), Some(7), Some(64), Some(1000), Some(usize::MAX)]
                    .map(|window| Attention { window, ..plain }),
            );
            all.extend([-1.5, 1e-3, 5.0, 1e300].map(|softcap| Attention { softcap, ..plain }));
            all.extend(
                [(1, 1), (257, 257), (1, 257), (257, 1), (9, 70), (8, 300)].map(|(seq_q, seq_kv)| {
                    Attention { seq_q, seq_kv, head_dim: 32, v_head_dim: 32, ..plain }
                }),
            );
            // More queries than keys: the first see nothing.
            all.push(Attention { seq_q: 70, seq_kv: 40, ..plain });
            all.push(Attention { seq_q: 7, seq_kv: 3, ..plain });
            // Key lengths of half, none and all; grouped heads.
            all.push(Attention { batch: 3, lengths: true, heads: (4, 2), seq_q: 17, ..plain });
            all.push(Attention { batch: 3, lengths: true, heads: (8, 1), seq_q: 1, ..plain });
            all.push(Attention {
                batch: 3,
                lengths: true,
                heads: (6, 2),
                seq_q: 3,
                window: Some(9),
                ..plain
            });
            all.push(Attention { mask: Mask::Full, softcap: 3.0, window: Some(20), ..plain });
            all.push(Attention { mask: Mask::Full, seq_q: 2, heads: (3, 1), window: Some(20), ..plain });
            for sinks in Sinks::ALL.into_iter().skip(1).filter(|_| causal) {
                let plain = Attention { sinks, heads: (6, 2), ..plain };
                // The first queries see nothing.
                all.extend([70, 3].map(|seq_q| Attention { seq_q, seq_kv: 3 * seq_q / 4, ..plain }));
                all.push(Attention { batch: 3, lengths: true, seq_q: 1, mask: Mask::Keys, ..plain });
            }
        }
    }
    // More keys than 65,535, after which some drivers leave a loop.
    all.push(Attention { seq_q: 20, seq_kv: 100_001, head_dim: 8, v_head_dim: 8, ..plain });
    all.into_iter()
}

/// Keys and values of Q8_0 beside queries of each type: few of them, and as many as have the blocks dequantised first.
fn blocks() -> impl Iterator<Item = Attention> {
    let plain = Attention {
        dtypes: [DType::F32; 2],
        blocks: true,
        batch: 1,
        heads: (2, 1),
        seq_q: 1,
        seq_kv: 70,
        head_dim: 64,
        v_head_dim: 64,
        causal: true,
        alignment: AttentionAlignment::BottomRight,
        mask: Mask::None,
        hides: false,
        lengths: false,
        layouts: [Layout::Packed; 4],
        window: None,
        softcap: 0.0,
        lse: true,
        sinks: Sinks::None,
        special: Special::None,
        paging: None,
    };
    let gaps = [Layout::Gaps; 4];
    let tokens = [Layout::Tokens; 4];
    let cached = AttentionAlignment::KeyLengths;
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let one = |of, value| Special::One { of, at: At::Middle, value };
    let cases = [
        plain,
        Attention { head_dim: 32, v_head_dim: 32, heads: (5, 1), layouts: gaps, ..plain },
        Attention { head_dim: 96, v_head_dim: 96, heads: (4, 4), seq_kv: 300, layouts: tokens, ..plain },
        Attention {
            head_dim: 128,
            v_head_dim: 128,
            batch: 3,
            lengths: true,
            heads: (8, 2),
            layouts: tokens,
            ..plain
        },
        Attention { head_dim: 256, v_head_dim: 256, seq_q: 3, softcap: 2.0, ..plain },
        Attention { v_head_dim: 160, seq_q: 2, mask: Mask::Full, ..plain },
        Attention {
            seq_q: 16,
            batch: 3,
            lengths: true,
            alignment: cached,
            window: Some(9),
            layouts: gaps,
            ..plain
        },
        Attention { seq_q: 9, sinks: Sinks::Random, heads: (3, 3), seq_kv: 7, ..plain },
        Attention { seq_kv: 1, heads: (1, 1), causal: false, ..plain },
        Attention { special: one('v', nan), seq_q: 2, ..plain },
        Attention { special: one('v', inf), batch: 2, lse: false, ..plain },
        Attention { special: one('k', nan), seq_q: 2, layouts: gaps, ..plain },
        Attention { special: Special::Scale(-6.0), sinks: Sinks::Far, ..plain },
        Attention { seq_q: 17, sinks: Sinks::Random, batch: 2, heads: (4, 2), layouts: gaps, ..plain },
        Attention { seq_q: 40, head_dim: 96, v_head_dim: 32, mask: Mask::Keys, layouts: tokens, ..plain },
        Attention { seq_q: 20, special: one('v', nan), ..plain },
        Attention { seq_q: 70, seq_kv: 40, head_dim: 512, v_head_dim: 512, heads: (1, 1), ..plain },
    ];
    let half = cases.into_iter().step_by(2).map(|case| Attention { dtypes: [DType::F16; 2], ..case });
    cases.into_iter().chain(half)
}

/// Keys and values in blocks of a pool, of each type: for few queries, which read them there, and for more.
fn paged() -> impl Iterator<Item = Attention> {
    let paging = |size| Some(Paging { size, outside: false });
    let plain = Attention {
        dtypes: DTYPES[0],
        blocks: false,
        batch: 3,
        heads: (4, 2),
        seq_q: 1,
        seq_kv: 70,
        head_dim: 64,
        v_head_dim: 64,
        causal: true,
        alignment: AttentionAlignment::KeyLengths,
        mask: Mask::None,
        hides: false,
        lengths: true,
        layouts: [Layout::Packed; 4],
        window: None,
        softcap: 0.0,
        lse: true,
        sinks: Sinks::None,
        special: Special::None,
        paging: paging(16),
    };
    let (tokens, gaps) = ([Layout::Tokens; 4], [Layout::Gaps; 4]);
    let nan = Special::One { of: 'v', at: At::Middle, value: f64::NAN };
    let outside = Some(Paging { size: 16, outside: true });
    let cases = [
        plain,
        Attention { batch: 5, heads: (8, 1), head_dim: 128, v_head_dim: 128, layouts: tokens, ..plain },
        Attention { seq_kv: 300, batch: 2, paging: paging(32), window: Some(9), layouts: tokens, ..plain },
        Attention { window: Some(20), seq_q: 3, sinks: Sinks::Random, layouts: gaps, ..plain },
        Attention { seq_kv: 300, batch: 1, lengths: false, softcap: 2.0, heads: (3, 3), ..plain },
        Attention { paging: paging(1024), batch: 2, seq_q: 2, heads: (9, 1), ..plain },
        Attention { paging: outside, batch: 2, seq_kv: 100, layouts: tokens, ..plain },
        Attention { seq_q: 16, batch: 5, lse: false, causal: false, sinks: Sinks::Far, ..plain },
        Attention { special: nan, seq_q: 2, lengths: false, ..plain },
        // Many queries, and masks.
        Attention { seq_q: 17, batch: 5, layouts: tokens, ..plain },
        Attention { seq_q: 40, paging: outside, window: Some(33), layouts: gaps, ..plain },
        Attention { mask: Mask::Full, batch: 2, paging: paging(64), layouts: tokens, ..plain },
    ];
    let of = |dtypes, at: &'static [usize]| {
        at.iter().map(move |&i: &usize| Attention { dtypes, ..cases[i] }).collect::<Vec<_>>()
    };
    // Vectors that don't have 16 bytes each, of two lengths.
    let narrow = |dtypes, i: usize| Attention { dtypes, head_dim: 40, v_head_dim: 23, ..cases[i] };
    let numbers = [
        cases.into(),
        of(DTYPES[1], &[0, 3, 6, 9]),
        of(DTYPES[2], &[1, 10, 11]),
        vec![narrow(DTYPES[0], 2), narrow(DTYPES[1], 9), narrow(DTYPES[2], 7)],
        vec![Attention { head_dim: 576, v_head_dim: 512, batch: 2, heads: (2, 1), ..plain }],
    ];
    let blocks = of(DTYPES[0], &[0, 3, 9]).into_iter().chain(of(DTYPES[1], &[6, 11]));
    let blocks = blocks.map(|case| Attention { blocks: true, ..case });
    numbers.concat().into_iter().chain(blocks)
}

/// The i-th number of a block whose scale is 2⁻⁷.
fn of_block(rng: &mut Rng, i: usize) -> f64 {
    let quant = if i == 0 { 127.0 } else { rng.below(255) as f64 - 127.0 };
    quant / 128.0
}

impl Attention {
    fn case(self) -> Case {
        let Self { batch, heads: (heads, kv_heads), seq_q, seq_kv, head_dim, window, softcap, .. } = self;
        let [dtype, kv_dtype] = self.dtypes.map(DType::name);
        let dtypes = format!("{dtype}-{}", if self.blocks { "q8_0" } else { kv_dtype });
        let causal = super::flag(self.causal, "causal", "full");
        let lengths = super::flag(self.lengths, "lengths", "whole");
        let mask = format!("mask{:?}{}", self.mask, super::flag(self.hides, "u32", "")).to_lowercase();
        let align = match self.alignment {
            AttentionAlignment::BottomRight => String::new(),
            alignment => format!("{alignment:?}").to_lowercase(),
        };
        let v = if self.v_head_dim == head_dim { String::new() } else { format!("v{}", self.v_head_dim) };
        let layouts = self.layouts.map(|layout| format!("{layout:?}").to_lowercase()).join("-");
        let window = window.map_or("all".to_owned(), |window| window.to_string());
        let lse = super::flag(self.lse, "_lse", "");
        let (sinks, special) = (self.sinks.name(), self.special);
        let paged = self.paging.map_or(String::new(), |Paging { size, outside }| {
            format!("_paged{size}{}", super::flag(outside, "outside", ""))
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

/// Queries, keys and values side by side in one projection, each through a view of it.
fn fused(by_offset: bool) -> Case {
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
