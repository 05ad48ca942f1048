//! What the kernels for few queries share: keys in pieces, and attention/combine, which puts their parts
//! together where the last workgroup doesn't.

use std::fmt;

use backend_api::desc::{AttentionAlignment, AttentionDesc};
use backend_api::kv::KvFormat;
use backend_api::support::checked_product;
use backend_api::{BackendResult, DType};

use super::{Params, Problem, Types, Windows, every_types, params, types};
use crate::context::MAX_GROUPS;
use crate::kernels::libs::{
    ATTENTION, ATTENTION_NARROW, ATTENTION_OUTPUT, ATTENTION_Q8_0, ATTENTION_SEEN, GRID,
};
use crate::kernels::{KernelSource, Lib, Variant, kernel};
use crate::ops::op_context::linear_grid;
use crate::recorder::Window;

static COMBINE: KernelSource =
    combine_source(&[GRID, ATTENTION, ATTENTION_NARROW, ATTENTION_OUTPUT, ATTENTION_SEEN]);

/// The file for keys and values of Q8_0.
static COMBINE_BLOCKS: KernelSource =
    combine_source(&[GRID, ATTENTION, ATTENTION_Q8_0, ATTENTION_OUTPUT, ATTENTION_SEEN]);

/// The file with these helper files, one of which reads keys and values.
const fn combine_source(libs: &'static [Lib]) -> KernelSource {
    KernelSource {
        libs,
        ..kernel!(
            "attention/combine",
            libs: [],
            types: ["T", "M"],
            constants: ["THREADS", "LANES", "HALF_Q", "HALF_KV", "PAGED"],
            params: Params,
            reads: ["parts: vec4<f32>", "q: Words", "k: Words", "v: Words", "mask: M", "lengths: u32"],
            writes: ["lse: f32", "o: T"],
        )
    }
}

/// Rows of a workgroup of attention/split and attention/decode, a row being a query of one of the heads that
/// share keys.
pub(super) const ROWS: [usize; 3] = [1, 2, 4];

/// Elements of a part before its vector: what it is relative to, and its sum.
const STATE: usize = 4;

/// Invocations of attention/combine for a row, of few pieces and of many.
const THREADS: [usize; 2] = [128, 256];

/// Invocations that share a vector of the most elements, and of fewer.
const LANES: [usize; 5] = [128, 64, 32, 16, 8];

pub(super) fn variants() -> Vec<Variant> {
    let sizes =
        |types| LANES.map(|lanes| [1, usize::MAX].map(|pieces| combine_variant(types, 4 * lanes, pieces)));
    every_types().flat_map(|types| sizes(types).concat()).collect()
}

/// The variant of attention/combine for so many elements in a vector, and so many pieces.
pub(super) fn combine_variant(types: Types, head_dim: usize, pieces: usize) -> Variant {
    let lanes = LANES.into_iter().rfind(|lanes| 4 * lanes >= head_dim).unwrap_or(LANES[0]);
    // Each group of lanes reads two pieces in an iteration; more than two iterations are worth more groups.
    let [few, many] = THREADS;
    let threads = if pieces > 4 * few / lanes { many } else { few };
    let [q, kv, paged] = types.constants();
    let source = if types.kv == KvFormat::Q8_0 { &COMBINE_BLOCKS } else { &COMBINE };
    Variant::new(source, [types.q, types.mask()], [threads as u32, lanes as u32, q, kv, paged])
}

/// How the keys of tiles of queries are divided among workgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Division {
    /// Into so many pieces.
    Pieces(usize),
    /// Into pieces of so many blocks of attention/flash, the last of which may be shorter.
    Blocks(usize),
}

impl Division {
    /// All keys for one workgroup.
    pub(super) const WHOLE: Self = Self::Pieces(1);

    /// The pieces of a kernel without such blocks.
    pub(super) const fn pieces(self) -> usize {
        match self {
            Self::Pieces(pieces) if pieces > 0 => pieces,
            _ => 1,
        }
    }
}

/// Such as `+split16` or `+blocks7`.
impl fmt::Display for Division {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pieces(1) => Ok(()),
            Self::Pieces(pieces) => write!(f, "+split{pieces}"),
            Self::Blocks(blocks) => write!(f, "+blocks{blocks}"),
        }
    }
}

/// What a kernel for few queries writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Parts of rows, one for each piece of the keys, which attention/combine puts together.
    Parts,
    /// Rows of O, each from all of its keys.
    Whole,
    /// Rows of O, put together by the last workgroup of each tile.
    FixedUp,
}

/// Rows that share keys and values, a row being a query of a head.
pub(super) fn shared_rows(desc: &AttentionDesc) -> usize {
    desc.seq_q.saturating_mul(desc.heads / desc.kv_heads.max(1))
}

/// The fewest rows of a workgroup that hold so many, or the most that there are.
pub(super) fn rows_for(shared: usize) -> usize {
    ROWS.into_iter().find(|&rows| rows >= shared).unwrap_or(ROWS[ROWS.len() - 1])
}

/// As many keys as the rows together can see. A window hides no later keys, of which there may be many where
/// the first query is at the first key.
pub(super) fn seen_keys(desc: &AttentionDesc) -> usize {
    let sees_later = !desc.causal && desc.alignment == AttentionAlignment::TopLeft;
    match desc.window {
        Some(window) if !sees_later => window.saturating_add(desc.seq_q).min(desc.seq_kv),
        _ => desc.seq_kv,
    }
}

/// How attention/split and its like divide the work: pieces × chunks of rows of each head × batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    /// Keys of a piece, if all are real.
    pub(super) length: usize,
    /// What that is a multiple of.
    unit: usize,
    pub(super) count: usize,
    chunks: usize,
}

impl Pieces {
    /// Chunks of so many rows, and about so many pieces, each but the last a multiple of `unit` and none
    /// empty.
    pub(super) fn new(desc: &AttentionDesc, rows: usize, count: usize, unit: usize) -> Self {
        let seen = seen_keys(desc);
        let length = seen.div_ceil(count).next_multiple_of(unit);
        let count = seen.div_ceil(length).clamp(1, MAX_GROUPS as usize);
        Self { length, unit, count, chunks: shared_rows(desc).div_ceil(rows) }
    }

    /// Whether there are keys at all, and no more chunks and batches than a grid has places.
    pub(super) fn fit(desc: &AttentionDesc, rows: usize) -> bool {
        let chunks = shared_rows(desc).div_ceil(rows).saturating_mul(desc.kv_heads);
        desc.seq_kv > 0 && chunks.max(desc.batch) <= MAX_GROUPS as usize
    }

    /// Chunks of rows of all heads and batches.
    pub(super) fn tiles(desc: &AttentionDesc, rows: usize) -> usize {
        shared_rows(desc).div_ceil(rows).saturating_mul(desc.kv_heads).saturating_mul(desc.batch)
    }

    pub(super) fn grid(self, desc: &AttentionDesc) -> [u32; 3] {
        [self.count, self.chunks * desc.kv_heads, desc.batch].map(|groups| groups as u32)
    }

    /// Launches the kernel, of which `variant` is the one with this output, and attention/combine after parts.
    pub(super) fn run(self, problem: Problem<'_>, variant: &Variant, output: Output) -> BackendResult<()> {
        let Problem { ctx, op, desc, windows } = problem;
        let Windows { q, k, v, lengths, sinks, lse, o, .. } = windows;
        let mask = problem.mask_or_table();
        let (params, grid) = (self.params(problem)?, self.grid(desc));
        let launch = |beside: &[&Window], output: &Window| {
            let reads = [&[q, k, v, mask, lengths, sinks], beside].concat();
            ctx.launch(op, variant, &reads, output, &params, grid)
        };
        match output {
            Output::Whole => launch(&[lse], o),
            Output::FixedUp => launch(&[&ctx.fixup()?], o),
            Output::Parts => {
                let parts = parts(problem, self.count)?;
                launch(&[], &parts)?;
                combine(problem, &parts, self.count)
            }
        }
    }

    fn params(self, problem: Problem<'_>) -> BackendResult<Params> {
        let length = if problem.desc.key_lengths.is_some() { self.unit } else { self.length };
        params(problem, length, self.count)
    }
}

/// Bytes of the parts of every row: a state and a vector of whole vec4s for each piece.
pub(super) fn bytes_of_parts(op: &'static str, desc: &AttentionDesc, pieces: usize) -> BackendResult<usize> {
    let length = desc.v_head_dim.next_multiple_of(4) + STATE;
    checked_product(op, "scratch", &[desc.batch, desc.heads, desc.seq_q, pieces, length, size_of::<f32>()])
}

pub(super) fn parts(problem: Problem<'_>, pieces: usize) -> BackendResult<Window> {
    let Problem { ctx, op, desc, .. } = problem;
    let bytes = bytes_of_parts(op, desc, pieces)?;
    Ok(ctx.output(&ctx.scratch(op, bytes)?, DType::F32))
}

/// Makes O of the parts.
pub(super) fn combine(problem: Problem<'_>, parts: &Window, pieces: usize) -> BackendResult<()> {
    let Problem { ctx, op, desc, windows } = problem;
    let Windows { q, k, v, lengths, lse, o, .. } = windows;
    let mask = problem.mask_or_table();
    let rows = checked_product(op, "rows", &[desc.batch, desc.heads, desc.seq_q])?;
    let params = params(problem, rows, pieces)?;
    let inputs = [parts, q, k, v, mask, lengths, lse];
    let variant = combine_variant(types(desc), desc.v_head_dim, pieces);
    ctx.launch(op, &variant, &inputs, o, &params, linear_grid(op, rows)?)
}

#[cfg(test)]
mod tests {
    use backend_api::desc::AttentionShape;

    use super::*;

    #[test]
    fn pieces_cover_what_is_seen_and_none_is_empty() {
        let pieces = |seq_kv, window, count| {
            let mut desc = AttentionDesc::new(
                DType::F32,
                0,
                0,
                0,
                0,
                AttentionShape { batch: 2, heads: 8, seq_q: 1, seq_kv, head_dim: 64 },
            );
            (desc.kv_heads, desc.window) = (2, window);
            let pieces = Pieces::new(&desc, 2, count, 16);
            (pieces.length, pieces.count, pieces.grid(&desc))
        };
        assert_eq!(pieces(100, None, 3), (48, 3, [3, 4, 2]));
        assert_eq!(pieces(100, None, 6), (32, 4, [4, 4, 2]));
        assert_eq!(pieces(1, None, 1), (16, 1, [1, 4, 2]));
        assert_eq!(pieces(1000, Some(63), 2), (32, 2, [2, 4, 2]));
    }

    #[test]
    fn chunks_and_sequences_have_places_in_a_grid() {
        let fit = |batch, kv_heads, seq_kv| {
            let shape = AttentionShape { batch, heads: 2 * kv_heads, seq_q: 1, seq_kv, head_dim: 64 };
            Pieces::fit(&AttentionDesc::new(DType::F32, 0, 0, 0, 0, shape).with_kv_heads(kv_heads), 2)
        };
        let most = 65_535;
        assert!(fit(most, most, 1) && !fit(most + 1, 1, 1) && !fit(1, most + 1, 1) && !fit(1, 1, 0));
    }

    #[test]
    fn a_window_from_the_first_key_on_hides_no_later_keys() {
        let shape = AttentionShape { batch: 1, heads: 1, seq_q: 4, seq_kv: 50, head_dim: 64 };
        let mut desc = AttentionDesc::new(DType::F32, 0, 0, 0, 0, shape);
        desc.window = Some(7);
        assert_eq!(seen_keys(&desc), 11);
        desc.alignment = AttentionAlignment::TopLeft;
        assert_eq!(seen_keys(&desc), 50);
        desc.causal = true;
        assert_eq!(seen_keys(&desc), 11);
    }
}
