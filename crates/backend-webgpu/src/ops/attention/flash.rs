//! Attention in registers: attention/flash and its tiles.

use std::fmt;

use backend_api::desc::AttentionDesc;
use backend_api::support::checked_product;
use backend_api::{BackendError, BackendResult, DType};

use super::flash_pieces::FlashPieces;
use super::pieces::{Division, combine, parts, seen_keys};
use super::{FLOATS, Params, Problem, Types, Windows, params, types};
use crate::kernels::libs::{ATTENTION_NARROW, ATTENTION_WIDE};
use crate::kernels::{KernelSource, Lib, Variant, kernel};
use crate::ops::has_room;
use crate::ops::op_context::linear_grid;
use crate::ops::shared::iterations;

pub(super) static FLASH: KernelSource = kernel!(
    "attention/flash",
    libs: [GRID, SPECIAL, ATTENTION, ATTENTION_STAGING, ATTENTION_CONTIGUOUS, ATTENTION_SEEN, ATTENTION_SINKS],
    types: ["T", "O"],
    constants: ["GROUPS", "LANES", "ROWS", "KEYS", "DIMS", "HALF_Q", "HALF_KV", "PARTS"],
    params: Params,
    reads: ["q: Words", "k: Words", "v: Words", "mask: T", "lengths: u32", "sinks: f32"],
    writes: ["lse: f32", "o: O"],
);

/// Vec4s of a chunk, as the kernel has it.
const VEC4S: usize = 8;

/// Workgroups that have equally many blocks of keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workgroups {
    pub(super) blocks: usize,
    pub(super) count: usize,
}

impl Workgroups {
    const NONE: Self = Self { blocks: 1, count: 0 };
}

/// How a workgroup's invocations share its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlashTile {
    /// Invocations along the queries and along the keys.
    groups: usize,
    lanes: usize,
    /// Queries of an invocation.
    rows: usize,
    /// Vec4s of its keys.
    keys: usize,
    /// Vec4s of an invocation in each vector of the output.
    dims: usize,
    /// How fast it is on a unit that has as many workgroups as it works on at a time, in percent of the fourth tile.
    /// Measured on an H200: what invocations read for each product decides, and in workgroups of two subgroups, which wait
    /// for each other, fewer queries are faster: 384 heads of 128 × 32 take 45 µs with 4 in each invocation, and 51 with 8.
    speed: u32,
}

impl FlashTile {
    /// Every tile; of those for vectors of one length, the best for many queries first.
    pub(super) const ALL: [Self; 15] = [
        Self::new([8, 8], [8, 1, 1], 60),
        Self::new([8, 8], [4, 1, 1], 75),
        Self::new([16, 8], [8, 2, 2], 112),
        Self::new([8, 16], [8, 1, 1], 100),
        Self::new([8, 16], [4, 1, 1], 75),
        Self::new([16, 16], [8, 2, 2], 112),
        Self::new([8, 16], [8, 2, 2], 112),
        Self::new([8, 16], [8, 1, 2], 103),
        Self::new([8, 16], [4, 1, 2], 75),
        Self::new([8, 32], [8, 2, 2], 112),
        Self::new([8, 16], [4, 2, 4], 93),
        Self::new([8, 16], [4, 1, 4], 80),
        Self::new([8, 32], [4, 2, 4], 92),
        Self::new([8, 32], [4, 1, 4], 74),
        Self::new([8, 16], [4, 1, 8], 37),
    ];

    const fn new([groups, lanes]: [usize; 2], [rows, keys, dims]: [usize; 3], speed: u32) -> Self {
        Self { groups, lanes, rows, keys, dims, speed }
    }

    /// Queries of a workgroup.
    pub(super) const fn queries(self) -> usize {
        self.groups * self.rows
    }

    /// Elements of the longest vectors of V and O that it can work on; those of Q and K may have any number.
    pub(super) const fn head_dim(self) -> usize {
        4 * self.lanes * self.dims
    }

    /// Its keys.
    pub(super) const fn block(self) -> usize {
        4 * self.lanes * self.keys
    }

    fn workgroup_bytes(self) -> usize {
        (self.queries() + self.block()) * VEC4S * 4 * size_of::<f32>()
    }

    /// Whether it works on queries of this type on a device of these limits.
    pub(super) fn fits(self, limits: &wgpu::Limits, q: DType) -> bool {
        self.stages(q) && has_room(limits, self.groups * self.lanes, self.workgroup_bytes())
    }

    /// Whether each invocation has something to stage of a chunk of the queries, which are read by vec4s, or vec8s of f16.
    const fn stages(self, q: DType) -> bool {
        let vec4s = if matches!(q, DType::F16) { 2 } else { 1 };
        self.queries() * VEC4S >= self.groups * self.lanes * vec4s
    }

    /// The tile for these heads on so many compute units: the one that should be the fastest.
    pub(super) fn choose(limits: &wgpu::Limits, desc: &AttentionDesc, compute_units: usize) -> Self {
        let long_enough = || Self::ALL.into_iter().filter(|tile| tile.head_dim() >= desc.v_head_dim);
        let least = long_enough().map(Self::head_dim).min().unwrap_or_default();
        let time = |tile: &Self| tile.nanoseconds_in_rounds(desc, compute_units);
        long_enough()
            .filter(|tile| tile.head_dim() == least && tile.fits(limits, desc.dtype))
            .min_by(|a, b| time(a).total_cmp(&time(b)))
            .unwrap_or(Self::ALL[Self::ALL.len() - 1])
    }

    /// Tiles of queries of all heads.
    pub(super) fn tiles(self, desc: &AttentionDesc) -> usize {
        desc.seq_q.div_ceil(self.queries()).saturating_mul(desc.heads).saturating_mul(desc.batch)
    }

    /// The nanoseconds that an H200 takes with a workgroup for each tile.
    pub(super) fn nanoseconds(self, desc: &AttentionDesc, compute_units: usize) -> f64 {
        self.nanoseconds_of(desc, self.whole(desc), Workgroups::NONE, compute_units)
    }

    /// A workgroup for each tile, with all keys.
    fn whole(self, desc: &AttentionDesc) -> Workgroups {
        Workgroups { blocks: desc.seq_kv.div_ceil(self.block()), count: self.tiles(desc) }
    }

    /// The nanoseconds that an H200 would take if each compute unit had as many blocks as every other.
    pub(super) fn balanced_nanoseconds(self, desc: &AttentionDesc, compute_units: usize) -> f64 {
        let Workgroups { blocks, count } = self.whole(desc);
        blocks as f64 * count as f64 / compute_units.max(1) as f64 * self.share(desc)
    }

    /// Of a compute unit that has as many workgroups as it works on at a time, a workgroup's share of the time for a block.
    fn share(self, desc: &AttentionDesc) -> f64 {
        let products = self.queries() * self.block() * (desc.head_dim + desc.v_head_dim);
        products as f64 / (f64::from(self.speed) / 100.0) / 116.0
    }

    /// [`nanoseconds`](Self::nanoseconds), with a last round of several that takes as long as those before it: workgroups
    /// come two by two, or as many as a compute unit works on at a time, where others have ended. 24 heads of 2048 queries,
    /// one and a half rounds of tiles of 128, take 1016 µs so and 861 in tiles of 64.
    fn nanoseconds_in_rounds(self, desc: &AttentionDesc, compute_units: usize) -> f64 {
        let places = compute_units.max(1) * self.at_a_time();
        let whole = self.whole(desc);
        let in_rounds = whole.count.checked_next_multiple_of(places).filter(|_| whole.count > places);
        let rounds = Workgroups { count: in_rounds.unwrap_or(whole.count), ..whole };
        let time = self.nanoseconds_of(desc, rounds, Workgroups::NONE, compute_units);
        // Of workgroups that have a unit each, those that see all blocks decide.
        if whole.count > compute_units { time * self.seen_share(desc) } else { time }
    }

    /// The share of all blocks that tiles see on average.
    fn seen_share(self, desc: &AttentionDesc) -> f64 {
        if !desc.causal {
            return 1.0;
        }
        let unseen = desc.seq_q.saturating_sub(self.queries()) as f64 / 2.0;
        let blocks = desc.seq_kv.div_ceil(self.block()).max(1) as f64;
        let seen = (desc.seq_kv as f64 - unseen) / self.block() as f64 + 0.5;
        (seen / blocks).clamp(1.0 / blocks, 1.0)
    }

    /// The nanoseconds that an H200 takes for workgroups of many blocks of keys, and behind them others of fewer, which go
    /// where the last round of the longer ones leaves places: one after the other where there are more than places.
    pub(super) fn nanoseconds_of(
        self,
        desc: &AttentionDesc,
        longer: Workgroups,
        shorter: Workgroups,
        compute_units: usize,
    ) -> f64 {
        // Fewer workgroups on a compute unit than it works on at a time wait for their own results: as long as so many
        // shares take.
        let alone: f64 = match (self.groups, self.lanes, self.vec4s()) {
            (8, 8, ..16) => 6.0,
            (8, 8, _) => 2.7,
            (_, _, ..16) => 2.0,
            (_, _, 16..32) => 1.5,
            (8, 16, 32) => 1.75,
            _ => 1.25,
        };
        let units = compute_units.max(1);
        let (at_a_time, places) = (self.at_a_time(), units * self.at_a_time());
        let alone = alone.min(at_a_time as f64);
        // Blocks, each with the others of its unit, of so many workgroups.
        let blocks = |Workgroups { blocks, count }: Workgroups| {
            let (rounds, rest) = (count / places * at_a_time, (count % places).div_ceil(units));
            let rest = if rest == 0 { 0.0 } else { alone.max(rest as f64) };
            blocks as f64 * (rounds as f64 + rest)
        };
        let rest = longer.count % places;
        if rest > 0 && rest + shorter.count.min(places) <= places {
            // All of the last round begin at once, spread over the units: a short one goes to a unit with the most long
            // ones where no other has fewer workgroups.
            let most = rest.div_ceil(units);
            let beside = (rest + shorter.count).saturating_sub(most * units).div_ceil(units);
            let rounds = Workgroups { count: longer.count - rest, ..longer };
            let together = (most * longer.blocks + beside * shorter.blocks) as f64;
            return self.share(desc) * (blocks(rounds) + together.max(alone * longer.blocks as f64));
        }
        let left = longer.count.checked_next_multiple_of(places).map_or(0, |all| all - longer.count);
        let in_each = longer.blocks / shorter.blocks.max(1);
        let filled = shorter.count.min(left.saturating_mul(in_each));
        let round =
            Workgroups { count: longer.count.saturating_add(filled.div_ceil(in_each.max(1))), ..longer };
        self.share(desc) * (blocks(round) + blocks(Workgroups { count: shorter.count - filled, ..shorter }))
    }

    /// Vec4s of scores and of the output in an invocation.
    const fn vec4s(self) -> usize {
        self.rows * (self.keys + self.dims)
    }

    /// How many of its workgroups have registers on a compute unit at a time.
    pub(super) fn at_a_time(self) -> usize {
        // Scores and output, and what else an invocation holds.
        let registers = self.groups * self.lanes * (4 * self.vec4s() + 100);
        ((1 << 16) / registers).max(1)
    }

    fn variant(self, types: Types, wide: bool, is_split: bool) -> Variant {
        let Self { groups, lanes, rows, keys, dims, .. } = self;
        let [groups, lanes, rows, keys, dims] = [groups, lanes, rows, keys, dims].map(|size| size as u32);
        let [q, kv, _] = types.constants();
        let reader: &[Lib] = if wide { &[ATTENTION_WIDE] } else { &[ATTENTION_NARROW] };
        let output = if is_split { DType::F32 } else { types.q };
        Variant::new(&FLASH, [types.q, output], [groups, lanes, rows, keys, dims, q, kv, is_split.into()])
            .with_libs(reader)
            .with_workgroup(self.groups * self.lanes, self.workgroup_bytes())
    }
}

/// Such as `flash/64x64x64r8`: queries, keys, the longest vectors, and the queries of an invocation.
impl fmt::Display for FlashTile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flash/{}x{}x{}r{}", self.queries(), self.block(), self.head_dim(), self.rows)
    }
}

/// The most iterations of an invocation's loops for each key that it sees.
pub(super) const ITERATIONS: usize = 40;

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for tile in FlashTile::ALL {
        for types in FLOATS.into_iter().filter(|types| tile.stages(types.q)) {
            for is_split in [false, true] {
                variants.extend([false, true].map(|wide| tile.variant(types, wide, is_split)));
            }
        }
    }
    variants
}

pub(super) fn run(
    problem: Problem<'_>,
    tile: FlashTile,
    wide: bool,
    division: Division,
) -> BackendResult<()> {
    let Problem { ctx, op, desc, windows } = problem;
    let is_short = || {
        let wanted = seen_keys(desc).saturating_mul(ITERATIONS);
        iterations::exceeded(ctx, wanted).is_none()
    };
    // Without room for parts, the keys stay in one piece, where the device's loops may take so many.
    let parts = match FlashPieces::new(tile, desc, division) {
        None => None,
        Some(pieces) => match parts(problem, pieces.count) {
            Err(BackendError::OutOfMemory { .. }) if is_short() => None,
            parts => Some((parts?, pieces)),
        },
    };
    let (length, count) = parts.as_ref().map_or((1, 1), |(_, pieces)| (pieces.length, pieces.count));
    let tiles = tile.tiles(desc);
    let params = params(problem, tiles, length)?;
    let grid = linear_grid(op, checked_product(op, "tiles", &[tiles, count])?)?;
    let Windows { q, k, v, mask, lengths, sinks, lse, o, .. } = windows;
    let inputs = [q, k, v, mask, lengths, sinks, lse];
    let variant = tile.variant(types(desc), wide, parts.is_some());
    let Some((parts, _)) = parts else { return ctx.launch(op, &variant, &inputs, o, &params, grid) };
    ctx.launch(op, &variant, &inputs, &parts, &params, grid)?;
    combine(problem, &parts, count)
}

#[cfg(test)]
mod tests {
    use backend_api::desc::AttentionShape;
    use backend_api::{ComputeBackend as _, DeviceKind, ErrorKind};

    use super::*;
    use crate::WebGpuBackend;
    use crate::device::h200;
    use crate::ops::plans::bounds::assert_room;

    #[test]
    fn workgroups_take_what_their_text_says() {
        for tile in FlashTile::ALL {
            assert_room(&tile.variant(FLOATS[0], false, false), 0, |limits| tile.fits(limits, DType::F32));
        }
    }

    #[test]
    fn portable_tiles_are_chosen_for_any_vector() {
        let portable = wgpu::Limits::default();
        for head_dim in 1..=512 {
            for seq_q in [1, 33, 4096] {
                let desc = AttentionDesc::new(
                    DType::F32,
                    0,
                    0,
                    0,
                    0,
                    AttentionShape { batch: 1, heads: 64, seq_q, seq_kv: seq_q, head_dim },
                );
                let tile = FlashTile::choose(&portable, &desc, h200::COMPUTE_UNITS);
                assert!(
                    tile.head_dim() >= head_dim && tile.fits(&portable, DType::F32),
                    "{head_dim}: {tile}"
                );
            }
        }
        let large = wgpu::Limits { max_compute_workgroup_storage_size: 49152, ..portable.clone() };
        let chosen = |limits, seq_q, heads| {
            let desc = AttentionDesc::new(
                DType::F32,
                0,
                0,
                0,
                0,
                AttentionShape { batch: 1, heads, seq_q, seq_kv: seq_q, head_dim: 64 },
            );
            FlashTile::choose(limits, &desc, h200::COMPUTE_UNITS).to_string()
        };
        assert_eq!(chosen(&portable, 2048, 128), "flash/64x64x64r8");
        // One and three halves of a round of the largest.
        assert_eq!(
            [16, 24].map(|heads| chosen(&large, 2048, heads)),
            ["flash/128x64x64r8", "flash/64x64x64r8"]
        );
        assert_eq!(chosen(&large, 64, 1), "flash/32x64x64r4");
        // Queries of f16 are read by vec8s, of which 32 queries have too few for 256 invocations.
        let of_vectors = |dtype, head_dim| {
            let shape = AttentionShape { batch: 1, heads: 8, seq_q: 4096, seq_kv: 4096, head_dim };
            let desc = AttentionDesc::new(dtype, 0, 0, 0, 0, shape);
            FlashTile::choose(&large, &desc, h200::COMPUTE_UNITS).to_string()
        };
        assert_eq!(
            [(DType::F32, 256), (DType::F32, 512), (DType::F16, 512)].map(|(dtype, d)| of_vectors(dtype, d)),
            ["flash/64x256x256r8", "flash/32x256x512r4", "flash/32x64x512r4"]
        );
        let of_32 = encoder([32, 12, 128, 32]);
        assert_eq!(FlashTile::choose(&large, &of_32, h200::COMPUTE_UNITS).to_string(), "flash/32x32x32r4");
    }

    fn encoder([batch, heads, seq, head_dim]: [usize; 4]) -> AttentionDesc {
        let shape = AttentionShape { batch, heads, seq_q: seq, seq_kv: seq, head_dim };
        AttentionDesc::new(DType::F32, 0, 0, 0, 0, shape)
    }

    /// Attention of five queries by a kernel that is forced, and while memory is refused, if it is to be.
    fn attend(
        backend: &WebGpuBackend,
        seq_kv: usize,
        kernel: &str,
        is_refused: bool,
    ) -> BackendResult<Vec<f32>> {
        let (seq_q, head_dim) = (5, 64);
        let filled = |rows: usize, step: usize| {
            let numbers: Vec<f32> =
                (0..rows * head_dim).map(|i| (i * step % 29) as f32 / 29.0 - 0.5).collect();
            let ptr = backend.alloc(4 * numbers.len()).unwrap();
            backend.copy_htod(ptr, bytemuck::cast_slice(&numbers)).map(|()| ptr).unwrap()
        };
        let [q, k, v, o] =
            [(seq_q, 7), (seq_kv, 11), (seq_kv, 13), (seq_q, 1)].map(|(rows, step)| filled(rows, step));
        backend.force_attention(Some(kernel)).unwrap();
        let shape = AttentionShape { batch: 1, heads: 1, seq_q, seq_kv, head_dim };
        backend.refuse_allocations(0, if is_refused { usize::MAX } else { 0 }).unwrap();
        let made = backend.attention_ext(&AttentionDesc::new(DType::F32, q, k, v, o, shape));
        backend.refuse_allocations(0, 0).unwrap();
        let mut numbers = vec![f32::NAN; seq_q * head_dim];
        made.and_then(|()| backend.copy_dtoh(bytemuck::cast_slice_mut(&mut numbers), o)).map(|()| numbers)
    }

    #[test]
    fn without_room_for_parts_the_keys_stay_in_one_piece() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let whole = attend(&backend, 200, "flash/32x64x64r4", false).unwrap();
        let split = attend(&backend, 200, "flash/32x64x64r4+split3", false).unwrap();
        assert!(whole.iter().zip(&split).all(|(a, b)| (a - b).abs() < 1e-5), "{whole:?} and {split:?}");
        assert_eq!(attend(&backend, 200, "flash/32x64x64r4+split3", true).unwrap(), whole);
        // A device that leaves long loops early may take so many keys in eight pieces, and not in one.
        let long = |is_refused| attend(&backend, 4000, "flash/32x64x64r4+split8", is_refused);
        long(false).unwrap();
        if backend.device_info().unwrap().kind == DeviceKind::SoftwareAdapter {
            assert_eq!(long(true).unwrap_err().kind(), ErrorKind::OutOfMemory);
        }
    }
}
