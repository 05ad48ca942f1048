//! `attention_ext`: element types, layouts, masks of numbers and of u32, key lengths, grouped heads, windows,
//! alignments, values of another length, softcaps and log-sum-exp.

mod fused;
mod shapes;
mod trial;

use backend_api::DType;
use backend_api::desc::AttentionAlignment;

use super::attention::{HEAD_DIMS, SEQ_KV, SEQ_Q};
use super::attention_special::{SPECIAL, Special};
use super::heads::{Layout, Mask};
use super::pages::Paging;
use crate::case::Case;
use crate::data::uniform;
use crate::float::round_to;
use crate::grid::pairwise;
use crate::rng::Rng;
use fused::fused;
use shapes::{blocks, edges, paged};

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

/// Attention of one head without options.
const PLAIN: Attention = Attention {
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
        ..PLAIN
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
        heads: [(1, 1), (2, 1), (4, 1), (9, 1)][row[1]],
        seq_q: seq_q[row[2]].max(1),
        seq_kv: seq_kv[row[3]].max(1),
        head_dim: head_dims[row[4]],
        v_head_dim: head_dims[row[4]],
        causal: row[5] == 1,
        alignment: AttentionAlignment::ALL[row[12]],
        mask: [Mask::None, Mask::None, Mask::Full][row[6]],
        lengths: row[7] == 1,
        // Gaps make vectors that don't start at 16 bytes.
        layouts: [[Layout::Packed; 4], [Layout::Gaps; 4]][row[8]],
        window: [None, None, Some(3), Some(keys + 1)][row[9]],
        softcap: [0.0, 0.0, 2.0][row[10]],
        lse: row[11] == 1,
        sinks: Sinks::ALL[row[13]],
        ..PLAIN
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
        batch: 1 + i % 2,
        heads: [(1, 1), (2, 1), (4, 2)][i % 3],
        seq_q,
        seq_kv,
        head_dim,
        v_head_dim: head_dim,
        causal: i % 4 == 1,
        // Its own numbers would part scores that shall be equal.
        mask: if special.needs_mask() || (i % 4 == 2 && !special.is_distinct()) {
            Mask::Full
        } else {
            Mask::None
        },
        lengths: i % 5 == 3,
        window: (i % 7 == 4).then_some(seq_kv / 2),
        softcap: special.softcap(),
        lse: i % 3 > 0,
        // One that isn't far from other scores would mix with equal ones.
        sinks: if i % 4 == 3 && !special.is_distinct() { Sinks::Random } else { Sinks::None },
        special,
        ..PLAIN
    };
    cases.map(case).collect()
}
