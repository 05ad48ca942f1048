//! Attention in registers: attention/flash and its tiles.

use std::fmt;

use backend_api::BackendResult;
use backend_api::desc::AttentionDesc;
use backend_api::support::checked_product;

use super::{FLOATS, Params, Types, Windows, params, types};
use crate::kernels::libs::{ATTENTION_NARROW, ATTENTION_WIDE};
use crate::kernels::{KernelSource, Lib, Variant, kernel};
use crate::ops::has_room;
use crate::ops::op_context::{OpContext, linear_grid};

pub(super) static FLASH: KernelSource = kernel!(
    "attention/flash",
    libs: [GRID, SPECIAL, ATTENTION, ATTENTION_STAGING, ATTENTION_CONTIGUOUS, ATTENTION_SEEN, ATTENTION_SINKS],
    types: ["T"],
    constants: ["GROUPS", "LANES", "ROWS", "KEYS", "DIMS", "HALF_Q", "HALF_KV"],
    reads: 6,
    writes: 2,
    params: Params,
);

/// Fours of a chunk, as the kernel has it.
const FOURS: usize = 8;

/// How a workgroup's invocations share its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlashTile {
    /// Invocations along the queries and along the keys.
    groups: usize,
    lanes: usize,
    /// Queries of an invocation.
    rows: usize,
    /// Fours of its keys.
    keys: usize,
    /// Fours of an invocation in each vector of the output.
    dims: usize,
}

impl FlashTile {
    /// Every tile; of those for vectors of one length, the best for many queries first.
    pub(super) const ALL: [Self; 10] = [
        Self::new([8, 8], [8, 1, 1]),
        Self::new([8, 8], [4, 1, 1]),
        Self::new([16, 8], [8, 2, 2]),
        Self::new([8, 16], [8, 1, 1]),
        Self::new([8, 16], [4, 1, 1]),
        Self::new([16, 16], [8, 2, 2]),
        Self::new([8, 16], [8, 1, 2]),
        Self::new([8, 16], [4, 1, 2]),
        Self::new([8, 16], [4, 1, 4]),
        Self::new([8, 16], [4, 1, 8]),
    ];

    const fn new([groups, lanes]: [usize; 2], [rows, keys, dims]: [usize; 3]) -> Self {
        Self { groups, lanes, rows, keys, dims }
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
    const fn block(self) -> usize {
        4 * self.lanes * self.keys
    }

    fn workgroup_bytes(self) -> usize {
        (self.queries() + self.block()) * FOURS * 4 * size_of::<f32>()
    }

    pub(super) fn fits(self, limits: &wgpu::Limits) -> bool {
        has_room(limits, self.groups * self.lanes, self.workgroup_bytes())
    }

    /// The tile for these heads on so many compute units: the one that should be the fastest.
    pub(super) fn choose(limits: &wgpu::Limits, desc: &AttentionDesc, compute_units: usize) -> Self {
        let long_enough = || Self::ALL.into_iter().filter(|tile| tile.head_dim() >= desc.v_head_dim);
        let least = long_enough().map(Self::head_dim).min().unwrap_or_default();
        let time = |tile: &Self| tile.time(desc, compute_units);
        long_enough()
            .filter(|tile| tile.head_dim() == least && tile.fits(limits))
            .min_by(|a, b| time(a).total_cmp(&time(b)))
            .unwrap_or(Self::ALL[Self::ALL.len() - 1])
    }

    /// The time for these heads, in a unit of its own: rounds of as many workgroups as have registers at a
    /// time.
    fn time(self, desc: &AttentionDesc, compute_units: usize) -> f64 {
        // Scores and output, and what else an invocation holds.
        let fours = self.rows * (self.keys + self.dims);
        let registers = self.groups * self.lanes * (4 * fours + 100);
        let at_a_time = ((1 << 16) / registers).max(1);
        let heads = desc.heads as f64 * desc.batch as f64;
        let workgroups = desc.seq_q.div_ceil(self.queries()) as f64 * heads;
        let rounds = (workgroups / (compute_units.max(1) * at_a_time) as f64).ceil();
        // Measured: more results make more of what is read, but less than in proportion.
        let speed = match fours {
            ..16 => 0.75,
            16..24 => 1.0,
            24..32 => 1.03,
            _ => 1.12,
        };
        rounds * (at_a_time * self.queries()) as f64 / speed
    }

    fn variant(self, types: Types, wide: bool) -> Variant {
        let Self { groups, lanes, rows, keys, dims } = self;
        let [groups, lanes, rows, keys, dims] = [groups, lanes, rows, keys, dims].map(|size| size as u32);
        let [q, kv, _] = types.constants();
        let reader: &[Lib] = if wide { &[ATTENTION_WIDE] } else { &[ATTENTION_NARROW] };
        Variant::new(&FLASH, [types.q], [groups, lanes, rows, keys, dims, q, kv])
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

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for tile in FlashTile::ALL {
        for types in FLOATS {
            variants.extend([false, true].map(|wide| tile.variant(types, wide)));
        }
    }
    variants
}

pub(super) fn run(
    ctx: &OpContext,
    op: &'static str,
    desc: &AttentionDesc,
    windows: &Windows,
    tile: FlashTile,
    wide: bool,
) -> BackendResult<()> {
    let blocks = desc.seq_q.div_ceil(tile.queries());
    let tiles = checked_product(op, "tiles", &[blocks, desc.heads, desc.batch])?;
    let params = params(op, desc, windows, tiles, 1)?;
    let Windows { q, k, v, mask, lengths, sinks, lse, o, .. } = windows;
    let variant = tile.variant(types(desc), wide);
    ctx.launch(op, &variant, &[q, k, v, mask, lengths, sinks, lse], o, &params, linear_grid(op, tiles)?)
}

#[cfg(test)]
mod tests {
    use backend_api::DType;
    use backend_api::desc::AttentionShape;

    use super::*;
    use crate::device::h200;

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
                assert!(tile.head_dim() >= head_dim && tile.fits(&portable), "{head_dim}: {tile}");
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
    }
}
