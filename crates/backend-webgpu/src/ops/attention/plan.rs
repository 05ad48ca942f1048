//! Which kernel computes attention, and how.

use std::fmt;

use backend_api::desc::{AttentionDesc, HeadLayout};
use backend_api::kv::KvFormat;
use backend_api::{BackendResult, DType, DeviceKind};

use super::cooperative::{self, CooperativeTile};
use super::flash::{self, FlashTile};
use super::flash_pieces::FlashPieces;
use super::pieces::{Division, Output, Pieces, ROWS, bytes_of_parts, rows_for, seen_keys, shared_rows};
use super::{KernelOverride, Problem, Windows, decode, decode_cooperative, fixup, has_small_scores, split};
use crate::ops::op_context::OpContext;
use crate::ops::shared::iterations;
use crate::recorder::Window;

/// A kernel with the size of its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    Flash(FlashTile),
    Cooperative(CooperativeTile),
    DecodeCooperative(decode_cooperative::Tile),
    Decode(decode::Workgroup),
    /// With so many rows in a workgroup.
    Split(usize),
}

/// How attention is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    kernel: Kernel,
    /// Whether operands are read 16 bytes at a time, or keys and values as blocks.
    wide: bool,
    division: Division,
    /// Whether the last workgroup puts these together.
    fixup: bool,
}

/// The most queries for which the keys are split: of numbers, and of blocks, which only such kernels read.
const FEW_QUERIES: usize = 8;
pub(super) const FEW_QUERIES_OF_BLOCKS: usize = 16;

/// The most queries for which the keys may be split on tensor cores.
const MOST_SPLIT_QUERIES: usize = 32;

/// Elements of K that a workgroup of attention/cooperative, which takes all keys of a head, goes through in the time in which
/// pieces of keys are put together (shaders/attention/notes.md).
const ELEMENTS_TO_COMBINE: f64 = (24 << 10) as f64;

/// Slowdown of workgroups of attention/cooperative on compute units that have several: two take 2 · 1.3 times as long as one.
const CROWDED: f64 = 1.3;

/// The fewest rows that share keys that are worth a fragment, which has 16.
const LEAST_SHARED: usize = 3;

/// The fewest keys that are worth a piece of their own.
const LEAST_KEYS: usize = 64;

/// The most steps of a workgroup of attention/decode that is faster than a wide one, if the device runs all of those at once. On an
/// H200, 14 heads over 2 of 64 elements take 5.4 and 5.2 µs for 256 keys of f16 (4 steps), 5.7 and 6.0 for 320, 6.8 and 6.1 for 428
/// (7); of f32 5.5 and 5.9 for 160 keys (5 steps), 6.3 and 5.8 for 220 (7).
const MOST_NARROW_STEPS: usize = 5;

impl Kernel {
    /// Every kernel in every tile.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let cooperative = CooperativeTile::ALL.into_iter().map(Self::Cooperative);
        let decode_cooperative = decode_cooperative::Tile::ALL.into_iter().map(Self::DecodeCooperative);
        let decode = decode::Workgroup::ALL.into_iter().map(Self::Decode);
        let split = ROWS.into_iter().map(Self::Split);
        let few = decode_cooperative.chain(decode).chain(split);
        FlashTile::ALL.into_iter().map(Self::Flash).chain(cooperative).chain(few)
    }

    /// Of kernels that split the keys: how many workgroups a compute unit works on at a time, and how many
    /// elements of K a workgroup has at least, where there are enough keys.
    const fn occupancy(self) -> (usize, usize) {
        match self {
            Self::DecodeCooperative(_) => (2, 1 << 14),
            Self::Decode(decode::Workgroup { rows: 3.., .. }) => (3, 1 << 14),
            Self::Decode(_) => (4, 1 << 14),
            _ => (4, 0),
        }
    }

    /// The most iterations of an invocation's loops for each key that it sees.
    const fn iterations(self, desc: &AttentionDesc) -> usize {
        match self {
            Self::Flash(_) => flash::ITERATIONS,
            Self::Cooperative(_) => 40,
            // It may take all keys, and take them again for values that aren't finite.
            Self::Decode(_) => 40,
            // As many lanes add up the products of four keys.
            Self::Split(_) if desc.head_dim > 256 || desc.v_head_dim > 256 => 40,
            _ => 12,
        }
    }

    /// Rows of a workgroup, if it splits the keys.
    const fn rows(self) -> Option<usize> {
        match self {
            Self::Flash(_) | Self::Cooperative(_) => None,
            Self::DecodeCooperative(tile) => Some(tile.rows),
            Self::Decode(workgroup) => Some(workgroup.rows),
            Self::Split(rows) => Some(rows),
        }
    }

    /// What its last workgroups would put together of so many pieces, if the device has room for that.
    fn parts(self, ctx: &OpContext, desc: &AttentionDesc, pieces: usize) -> Option<fixup::Parts> {
        let rows = self.rows().filter(|_| desc.lse.is_none())?;
        let tiles = [Pieces::tiles(desc, rows), rows.min(shared_rows(desc))];
        let iteration = match self {
            Self::DecodeCooperative(_) => fixup::COOPERATIVE_ITERATION,
            _ => fixup::ITERATION,
        };
        let parts = fixup::Parts::new(tiles, pieces, desc.v_head_dim, iteration);
        parts.fit(ctx).then_some(parts)
    }

    /// Whether its last workgroups should put so many pieces together faster than a launch for all tiles.
    fn fixes_up_fast(self, ctx: &OpContext, desc: &AttentionDesc, pieces: usize) -> bool {
        self.parts(ctx, desc, pieces).is_some_and(|parts| parts.are_fast(ctx))
    }

    /// Whether its last workgroups can put so many pieces together, and can be trusted to. Of a kernel that
    /// [suits](Self::suits): the first answer for one on tensor cores compiles and tests it.
    fn fixes_up(self, ctx: &OpContext, desc: &AttentionDesc, pieces: usize) -> bool {
        let is_verified = || match self {
            Self::DecodeCooperative(tile) => tile.is_verified(ctx, Output::FixedUp),
            _ => true,
        };
        self.parts(ctx, desc, pieces).is_some() && is_verified()
    }

    /// The kernel whose last workgroups put pieces together in place of a launch behind this one, if there is one that may be
    /// faster.
    const fn to_fix_up(self) -> Option<Self> {
        match self {
            // A workgroup of one row takes longer for this than one of two, even if the second row isn't there
            // (shaders/attention/notes.md).
            Self::Decode(workgroup) if workgroup.rows == 1 => Some(Self::Decode(decode::Workgroup::new(2))),
            Self::Decode(_) | Self::DecodeCooperative(_) => Some(self),
            Self::Flash(_) | Self::Cooperative(_) | Self::Split(_) => None,
        }
    }

    /// Whether it can do it on this device, and can be trusted there.
    fn suits(self, ctx: &OpContext, desc: &AttentionDesc, windows: &Windows) -> bool {
        let limits = &ctx.gpu().limits;
        let one_length = desc.head_dim == desc.v_head_dim;
        let blocks = desc.kv_format == KvFormat::Q8_0;
        let paged = desc.block_table.is_some();
        match self {
            Self::Flash(tile) => {
                !blocks && !paged && tile.head_dim() >= desc.v_head_dim && tile.fits(limits, desc.dtype)
            }
            // It fetches a key before it knows whether there is one.
            Self::Cooperative(tile) => {
                !paged
                    && desc.seq_kv > 0
                    && one_length
                    && reads_fragments(ctx, desc, windows)
                    && tile.dim >= desc.head_dim
                    && tile.fits(limits)
                    && writes_vec4s(desc, windows)
                    && tile.is_verified(ctx)
            }
            Self::DecodeCooperative(tile) => {
                !paged
                    && one_length
                    && reads_fragments(ctx, desc, windows)
                    && tile.dim >= desc.head_dim
                    && tile.fits(limits)
                    && Pieces::fit(desc, tile.rows)
                    && tile.is_verified(ctx, Output::Parts)
            }
            Self::Decode(workgroup) => {
                one_length && (blocks || reads_wide(desc, windows)) && decode::suits(ctx, desc, workgroup)
            }
            Self::Split(rows) => Pieces::fit(desc, rows) && split::fits(desc, reads_wide(desc, windows)),
        }
    }
}

impl Plan {
    /// The plan: the one that is forced, if it is possible, or the one that should be the fastest, in as many
    /// pieces as the device's loops need.
    pub(super) fn choose(ctx: &OpContext, desc: &AttentionDesc, windows: &Windows) -> Self {
        Self::fastest(ctx, desc, windows).in_short_pieces(ctx, desc)
    }

    /// The plan with no more keys in a split than the device's loops may take (see [`iterations`]), by a
    /// kernel that splits them.
    fn in_short_pieces(self, ctx: &OpContext, desc: &AttentionDesc) -> Self {
        let wanted = self.keys_of_workgroup(desc).saturating_mul(self.kernel.iterations(desc));
        if iterations::exceeded(ctx, wanted).is_none() {
            return self;
        }
        let rows = rows_for(shared_rows(desc));
        let kernel = match self.kernel {
            Kernel::Flash(_) | Kernel::Cooperative(_)
                if Pieces::fit(desc, rows) && split::fits(desc, self.wide) =>
            {
                Kernel::Split(rows)
            }
            // The launch is refused.
            Kernel::Flash(_) | Kernel::Cooperative(_) => return self,
            kernel => kernel,
        };
        let (keys, each) = (seen_keys(desc), kernel.iterations(desc));
        let splits = iterations::exceeded(ctx, keys.saturating_mul(each))
            .map_or(1, |most| keys.div_ceil((most / each).saturating_sub(LEAST_KEYS).max(1)));
        let fixup = self.fixup && kernel.fixes_up(ctx, desc, splits);
        Self { kernel, division: Division::Pieces(splits), fixup, ..self }
    }

    /// The most keys of a workgroup.
    fn keys_of_workgroup(self, desc: &AttentionDesc) -> usize {
        let seen = seen_keys(desc);
        match self.kernel {
            // Its pieces are of all keys, of which a window may lie in one.
            Kernel::Flash(tile) => FlashPieces::new(tile, desc, self.division)
                .map_or(seen, |pieces| pieces.length.saturating_mul(tile.block()).min(seen)),
            _ => seen.div_ceil(self.division.pieces()),
        }
    }

    /// Launches the kernel, and what puts its pieces together.
    pub(super) fn launch(self, problem: Problem<'_>) -> BackendResult<()> {
        let Problem { ctx, op, desc, .. } = problem;
        let Self { kernel, wide, division, fixup } = self;
        iterations::require(ctx, op, "seq_kv", self.keys_of_workgroup(desc), kernel.iterations(desc))?;
        let splits = division.pieces();
        let output = if fixup { Output::FixedUp } else { Output::Parts };
        match kernel {
            Kernel::Flash(tile) => flash::run(problem, tile, wide, division),
            Kernel::Cooperative(tile) => cooperative::run(problem, tile),
            Kernel::DecodeCooperative(tile) => decode_cooperative::run(problem, tile, splits, output),
            Kernel::Decode(workgroup) => decode::run(problem, workgroup, splits, output),
            Kernel::Split(rows) => split::run(problem, rows, wide, splits, output),
        }
    }

    fn fastest(ctx: &OpContext, desc: &AttentionDesc, windows: &Windows) -> Self {
        let wide = desc.kv_format == KvFormat::Q8_0 || reads_wide(desc, windows);
        // Whether it suits may take a self-test, during which nobody has to wait for the lock.
        let forced = ctx.state.forced();
        if let Some(KernelOverride { kernel, division, fixup }) = forced
            && kernel.suits(ctx, desc, windows)
            && (!fixup || kernel.fixes_up(ctx, desc, division.pieces()))
        {
            let division = match division {
                Division::Pieces(pieces) => Division::Pieces(pieces.min(desc.seq_kv.max(1))),
                blocks @ Division::Blocks(_) => blocks,
            };
            return Self { kernel, wide, division, fixup };
        }
        let compute_units = ctx.profile().compute_units;
        let blocks = desc.kv_format == KvFormat::Q8_0 || desc.block_table.is_some();
        let is_few = desc.seq_q <= FEW_QUERIES || blocks;
        let has_room = |pieces: usize| {
            bytes_of_parts("attention", desc, pieces)
                .is_ok_and(|bytes| bytes as u64 <= ctx.device.limits.max_bytes)
        };
        let may_split = is_few || reads_fragments(ctx, desc, windows) && are_pieces_faster(ctx, desc);
        let few_queries = may_split.then(|| for_few_queries(ctx, desc, windows)).flatten();
        let is_possible = |&(kernel, pieces): &(Kernel, usize)| {
            is_few || matches!(kernel, Kernel::DecodeCooperative(_)) && has_room(pieces)
        };
        if let Some((kernel, splits)) = few_queries.filter(is_possible) {
            let fixed_up = kernel.to_fix_up().filter(|kernel| {
                kernel.fixes_up_fast(ctx, desc, splits)
                    && kernel.suits(ctx, desc, windows)
                    && kernel.fixes_up(ctx, desc, splits)
            });
            let (kernel, fixup) = (fixed_up.unwrap_or(kernel), fixed_up.is_some());
            return Self { kernel, wide, division: Division::Pieces(splits), fixup };
        }
        let tiles = CooperativeTile::candidates(desc, compute_units);
        if let Some(kernel) = tiles.map(Kernel::Cooperative).find(|kernel| kernel.suits(ctx, desc, windows)) {
            return Self { kernel, wide, division: Division::WHOLE, fixup: false };
        }
        let limits = &ctx.gpu().limits;
        let tile = FlashTile::choose(limits, desc, compute_units);
        if ctx.gpu().info.kind == DeviceKind::SoftwareAdapter {
            return Self { kernel: Kernel::Flash(tile), wide, division: Division::WHOLE, fixup: false };
        }
        let in_pieces =
            FlashPieces::choose(tile, limits, desc, compute_units, |pieces| has_room(pieces.count));
        let (tile, division, time) = match in_pieces {
            Some((tile, pieces, time)) => (tile, Division::Blocks(pieces.length), time),
            None => (tile, Division::WHOLE, tile.nanoseconds(desc, compute_units)),
        };
        let (kernel, division) = match for_short_sequences(ctx, desc, windows, time) {
            Some(kernel) => (kernel, Division::WHOLE),
            None => (Kernel::Flash(tile), division),
        };
        Self { kernel, wide, division, fixup: false }
    }
}

/// attention/decode in the workgroups that should be the fastest, where it takes all keys in few steps and should be faster
/// than attention/flash, whose blocks take `flash` nanoseconds.
fn for_short_sequences(
    ctx: &OpContext,
    desc: &AttentionDesc,
    windows: &Windows,
    flash: f64,
) -> Option<Kernel> {
    /// Nanoseconds of attention/flash besides its blocks.
    const LAUNCH: f64 = 2000.0;
    let compute_units = ctx.profile().compute_units;
    let times =
        decode::Workgroup::ALL.map(|workgroup| (workgroup, workgroup.nanoseconds(desc, compute_units)));
    let faster = times.into_iter().filter(|&(workgroup, time)| {
        time < flash + LAUNCH
            && decode::has_few_keys(ctx, desc, workgroup)
            && Kernel::Decode(workgroup).suits(ctx, desc, windows)
    });
    faster.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(workgroup, _)| Kernel::Decode(workgroup))
}

/// Whether attention/decode_cooperative, whose workgroups each take some of the keys, should be faster for some queries than
/// attention/cooperative, which has a workgroup for each head then.
fn are_pieces_faster(ctx: &OpContext, desc: &AttentionDesc) -> bool {
    let Some(tile) = tile_of_fragments(desc).filter(|_| desc.seq_q <= MOST_SPLIT_QUERIES) else {
        return false;
    };
    let units = ctx.profile().compute_units as f64;
    let heads = desc.heads.saturating_mul(desc.batch) as f64;
    // Times in units of one workgroup that goes through all keys. Pieces fill two workgroups on each compute unit.
    let of_heads = (CROWDED * heads / units).max(1.0);
    let of_pieces = Pieces::tiles(desc, tile.rows) as f64 / (2.0 * units);
    let elements = seen_keys(desc).saturating_mul(desc.head_dim) as f64;
    // Of more heads, nothing was measured.
    heads <= 2.0 * units && elements * (of_heads - of_pieces) > ELEMENTS_TO_COMBINE
}

/// The tile of attention/decode_cooperative for the rows that share keys, if they are worth a fragment.
fn tile_of_fragments(desc: &AttentionDesc) -> Option<decode_cooperative::Tile> {
    let shared = shared_rows(desc);
    decode_cooperative::Tile::choose(desc.head_dim, shared).filter(|_| shared >= LEAST_SHARED)
}

/// The kernel for few queries that should be the fastest of those that are possible, if any is, and the
/// pieces of keys.
fn for_few_queries(ctx: &OpContext, desc: &AttentionDesc, windows: &Windows) -> Option<(Kernel, usize)> {
    /// Nanoseconds of a step of a wide workgroup, and by how much attention/decode_cooperative takes longer besides putting
    /// pieces together. On an H200, heads of 64 take 6.2, 6.9 and 7.5 µs for 2, 3 and 4 steps, and 6.5 so; those of 128 over 8
    /// of keys 6.2, 6.9, 7.6 and 6.7, over 4 6.1, 6.8, 7.5 and 7.6 to 7.8.
    const WIDE_STEP: usize = 700;
    const COOPERATIVE_EXTRA: usize = 1000;
    /// Steps of a wide workgroup that may take longer than that.
    const LEAST_SLOW_STEPS: usize = 3;
    let shared = shared_rows(desc);
    let rows = rows_for(shared);
    let cooperative = tile_of_fragments(desc).map(|tile| (Kernel::DecodeCooperative(tile), tile.rows));
    if let Some((kernel, steps)) = for_few_keys(ctx, desc, windows, shared) {
        let is_slow = kernel == Kernel::Decode(decode::Workgroup::WIDE) && steps >= LEAST_SLOW_STEPS;
        let pieces = cooperative.filter(|_| is_slow).and_then(|(other, rows)| {
            let splits = pieces_to_fix_up(ctx, desc, other, rows)?;
            let tail = other.parts(ctx, desc, splits)?.tail();
            let is_faster = steps * WIDE_STEP > COOPERATIVE_EXTRA + tail;
            // Last, as it compiles and tests the kernel.
            let is_possible =
                is_faster && other.suits(ctx, desc, windows) && other.fixes_up(ctx, desc, splits);
            is_possible.then_some((other, splits))
        });
        return Some(pieces.unwrap_or((kernel, 1)));
    }
    let decode = Kernel::Decode(decode::Workgroup::new(rows));
    let mut candidates = cooperative.into_iter().chain([(decode, rows), (Kernel::Split(rows), rows)]);
    let (kernel, rows) = candidates.find(|(kernel, _)| kernel.suits(ctx, desc, windows))?;
    let tiles = Pieces::tiles(desc, rows);
    // Workgroups beyond those that run at a time would end late.
    let (workgroups, worth) = kernel.occupancy();
    let for_each = ctx.profile().compute_units / tiles.max(1);
    let at_a_time = ctx.profile().compute_units * workgroups / tiles.max(1);
    let elements = desc.seq_kv.saturating_mul(desc.head_dim);
    let worthwhile = elements.checked_div(worth).unwrap_or(usize::MAX);
    let most = desc.seq_kv.div_ceil(LEAST_KEYS);
    let put_together = pieces_to_fix_up(ctx, desc, kernel, rows);
    let splits = put_together.unwrap_or_else(|| at_a_time.min(worthwhile.max(for_each)).min(most));
    Some((kernel, splits.max(1)))
}

/// The pieces of keys that the last workgroups of a kernel on tensor cores put together, with so many rows in each, if that is
/// faster than a launch.
fn pieces_to_fix_up(ctx: &OpContext, desc: &AttentionDesc, kernel: Kernel, rows: usize) -> Option<usize> {
    let tiles = Pieces::tiles(desc, rows).max(1);
    let (workgroups, _) = kernel.occupancy();
    let units = ctx.profile().compute_units;
    let for_each = units / tiles;
    if !matches!(kernel, Kernel::DecodeCooperative(_)) || for_each < fixup::PIECES_PER_ITERATION {
        return None;
    }
    let elements = desc.seq_kv.saturating_mul(desc.head_dim);
    let splits = fixup::pieces(elements, [for_each, units * workgroups / tiles]);
    let splits = splits.min(desc.seq_kv.div_ceil(LEAST_KEYS));
    kernel.fixes_up_fast(ctx, desc, splits).then_some(splits)
}

/// The kernel that takes all keys in few steps, if it is possible, and their number, with as few of the rows that share keys in a
/// workgroup as keep the device busy; with wide workgroups, if the device runs all of them at once.
fn for_few_keys(
    ctx: &OpContext,
    desc: &AttentionDesc,
    windows: &Windows,
    shared: usize,
) -> Option<(Kernel, usize)> {
    let units = ctx.profile().compute_units;
    let most = rows_for(shared);
    let rows = ROWS.into_iter().find(|&rows| rows >= most || Pieces::tiles(desc, rows) <= 2 * units)?;
    let wide = Some(decode::Workgroup::WIDE)
        .filter(|&wide| Pieces::tiles(desc, wide.rows) <= units && decode::suits(ctx, desc, wide));
    let steps = |workgroup| decode::steps(ctx, desc, workgroup);
    let narrow = Some(decode::Workgroup::new(rows))
        .filter(|&narrow| wide.is_none() || steps(narrow).is_some_and(|steps| steps <= MOST_NARROW_STEPS));
    let mut workgroups = narrow.into_iter().chain(wide);
    let workgroup = workgroups.find(|&workgroup| decode::has_few_keys(ctx, desc, workgroup))?;
    let kernel = Kernel::Decode(workgroup);
    Some((kernel, steps(workgroup)?)).filter(|(kernel, _)| kernel.suits(ctx, desc, windows))
}

/// Whether every vector of Q, K and V starts at 16 bytes and has whole groups of them.
fn reads_wide(desc: &AttentionDesc, windows: &Windows) -> bool {
    let KvFormat::Float(kv_dtype) = desc.kv_format else { return false };
    let unit = |dtype: DType| 16 / dtype.size();
    let [blocks, positions] = desc.kv_extents();
    let queries = [desc.batch, desc.heads, desc.seq_q];
    let keys = [blocks, desc.kv_heads, positions];
    let [q, k, v, _] = desc.layouts();
    desc.head_dim.is_multiple_of(unit(kv_dtype).max(unit(desc.dtype)))
        && desc.v_head_dim.is_multiple_of(unit(kv_dtype))
        && is_aligned(&windows.q, queries, q, unit(desc.dtype))
        && is_aligned(&windows.k, keys, k, unit(kv_dtype))
        && is_aligned(&windows.v, keys, v, unit(kv_dtype))
}

/// Whether Q, K and V can be made elements of fragments, on a device where kernels can name these, and scores
/// can be in powers of two.
fn reads_fragments(ctx: &OpContext, desc: &AttentionDesc, windows: &Windows) -> bool {
    ctx.gpu().takes_spirv
        && has_small_scores(desc)
        && desc.dtype == DType::F16
        && desc.kv_format == KvFormat::Float(DType::F16)
        && reads_wide(desc, windows)
}

/// Whether every vector of O starts at a multiple of four elements.
fn writes_vec4s(desc: &AttentionDesc, windows: &Windows) -> bool {
    let [.., o] = desc.layouts();
    is_aligned(&windows.o, [desc.batch, desc.heads, desc.seq_q], o, 4)
}

/// Whether every vector starts at a multiple of `unit` elements. A stride that leads nowhere may be any
/// number.
fn is_aligned(
    window: &Window,
    [batches, heads, seq]: [usize; 3],
    HeadLayout { batch, head, token, .. }: HeadLayout,
    unit: usize,
) -> bool {
    let strides = [(batches, batch), (heads, head), (seq, token)];
    (window.offset as usize).is_multiple_of(unit)
        && strides.iter().all(|&(count, stride)| count <= 1 || stride.is_multiple_of(unit))
}

/// Such as `split/4+split16` or `flash/64x64x64r8, element by element`: what [`KernelOverride`] reads, and
/// what else there is to know.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, division, fixup, .. } = *self;
        write!(f, "{}", KernelOverride { kernel, division, fixup })?;
        if self.wide { Ok(()) } else { f.write_str(", element by element") }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flash(tile) => tile.fmt(f),
            Self::Cooperative(tile) => tile.fmt(f),
            Self::DecodeCooperative(tile) => tile.fmt(f),
            Self::Decode(workgroup) => write!(f, "decode/{workgroup}"),
            Self::Split(rows) => write!(f, "split/{rows}"),
        }
    }
}
