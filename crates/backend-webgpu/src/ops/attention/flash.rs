//! Attention in registers: attention/flash and its tiles.

use std::fmt;

use backend_api::desc::AttentionDesc;
use backend_api::{BackendResult, DType, checked_product};

use super::{DTYPES, Params, Windows, params, reader};
use crate::context::{Context, linear_grid};
use crate::kernels::{KernelSource, Variant, kernel};
use crate::ops::has_room;

static FLASH: KernelSource = kernel!(
    "attention/flash",
    libs: [GRID, SPECIAL, ATTENTION, ATTENTION_STAGING],
    types: ["T"],
    constants: ["GROUPS", "LANES", "ROWS", "DIMS", "HALF_Q", "HALF_KV"],
    reads: 5,
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
    /// Fours of an invocation in each vector of the output.
    dims: usize,
}

impl FlashTile {
    /// Every tile; of those for vectors of one length, the best for many queries first.
    pub(super) const ALL: [Self; 9] = [
        Self::new(8, 8, 8, 1),
        Self::new(8, 8, 4, 1),
        Self::new(8, 16, 8, 1),
        Self::new(8, 16, 4, 1),
        Self::new(16, 16, 4, 1),
        Self::new(16, 16, 8, 1),
        Self::new(8, 16, 8, 2),
        Self::new(8, 16, 4, 2),
        Self::new(8, 16, 4, 4),
    ];

    const fn new(groups: usize, lanes: usize, rows: usize, dims: usize) -> Self {
        Self { groups, lanes, rows, dims }
    }

    /// Queries of a workgroup.
    pub(super) const fn queries(self) -> usize {
        self.groups * self.rows
    }

    /// Numbers of the longest vectors that it can work on.
    pub(super) const fn head_dim(self) -> usize {
        4 * self.lanes * self.dims
    }

    const fn keys(self) -> usize {
        4 * self.lanes
    }

    fn workgroup_bytes(self) -> usize {
        (self.queries() + self.keys()) * FOURS * 4 * size_of::<f32>()
    }

    pub(super) fn fits(self, limits: &wgpu::Limits) -> bool {
        has_room(limits, self.groups * self.lanes, self.workgroup_bytes())
    }

    /// The tile for so many heads of `seq_q` queries each, to occupy so many multiprocessors.
    pub(super) fn choose(head_dim: usize, seq_q: usize, heads: usize, multiprocessors: usize) -> Self {
        let long_enough = |tile: &&Self| tile.head_dim() >= head_dim;
        let least =
            Self::ALL.iter().filter(long_enough).map(|tile| tile.head_dim()).min().unwrap_or_default();
        let [large, small] = match least {
            32 => [Self::ALL[0], Self::ALL[1]],
            64 => [Self::ALL[2], Self::ALL[3]],
            128 => [Self::ALL[6], Self::ALL[7]],
            _ => [Self::ALL[8]; 2],
        };
        let tiles = seq_q.div_ceil(large.queries()).saturating_mul(heads);
        if seq_q > small.queries() && tiles >= multiprocessors { large } else { small }
    }

    fn variant(self, [dtype, kv_dtype]: [DType; 2], wide: bool) -> Variant {
        let sizes = [self.groups, self.lanes, self.rows, self.dims].map(|value| value as u32);
        let [groups, lanes, rows, dims] = sizes;
        let halves = [dtype, kv_dtype].map(|dtype| u32::from(dtype == DType::F16));
        Variant::new(&FLASH, [dtype], [groups, lanes, rows, dims, halves[0], halves[1]])
            .with_libs(reader(wide))
    }
}

/// Such as `flash/64x64x64r8`: queries, keys, the longest vectors, and the queries of an invocation.
impl fmt::Display for FlashTile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flash/{}x{}x{}r{}", self.queries(), self.keys(), self.head_dim(), self.rows)
    }
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for tile in FlashTile::ALL {
        for dtypes in DTYPES {
            variants.extend([false, true].map(|wide| tile.variant(dtypes, wide)));
        }
    }
    variants
}

pub(super) fn run(
    ctx: &Context,
    op: &'static str,
    desc: &AttentionDesc,
    windows: &Windows,
    tile: FlashTile,
    wide: bool,
) -> BackendResult<()> {
    let blocks = desc.seq_q.div_ceil(tile.queries());
    let tiles = checked_product(op, "tiles", &[blocks, desc.heads, desc.batch])?;
    let params = params(op, desc, windows, tiles, 1)?;
    let Windows { q, k, v, mask, lengths, lse, o } = windows;
    let variant = tile.variant([desc.dtype, desc.kv_dtype], wide);
    ctx.launch(op, &variant, &[q, k, v, mask, lengths, lse], o, &params, linear_grid(op, tiles)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portable_tiles_are_chosen_for_any_vector() {
        let portable = wgpu::Limits::default();
        for head_dim in 1..=256 {
            for seq_q in [1, 33, 4096] {
                let tile = FlashTile::choose(head_dim, seq_q, 64, 132);
                assert!(tile.head_dim() >= head_dim && tile.fits(&portable), "{head_dim}: {tile}");
            }
        }
        assert_eq!(FlashTile::choose(64, 2048, 128, 132).to_string(), "flash/64x64x64r8");
        assert_eq!(FlashTile::choose(64, 64, 1, 132).to_string(), "flash/32x64x64r4");
    }
}
