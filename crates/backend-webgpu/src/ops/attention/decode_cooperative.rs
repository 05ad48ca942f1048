//! Attention of few queries on matrix units: attention/decode_cooperative and its tiles.

use std::fmt;

use backend_api::desc::AttentionDesc;
use backend_api::{BackendResult, DType};

use super::pieces::Pieces;
use super::{Params, Windows, decode_fragments, proof};
use crate::context::Context;
use crate::kernels::{KernelSource, MAX_CONSTANTS, Variant, kernel};
use crate::ops::matrix_units::{FRAGMENT, SUBGROUP};

static DECODE: KernelSource = KernelSource {
    unrolled: Some(decode_fragments::attend),
    cooperative: true,
    ..kernel!(
        native "attention/decode_cooperative",
        libs: [GRID, SPECIAL, ATTENTION, ATTENTION_PIECES],
        types: ["T"],
        constants: ["ROWS", "BLOCK", "DIM"],
        reads: 5,
        writes: 1,
        params: Params,
    )
};

/// Subgroups of a workgroup, and invocations.
pub(super) const SUBGROUPS: usize = 4;
const THREADS: usize = SUBGROUPS * SUBGROUP;

/// The sizes that a workgroup works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    /// Rows that share keys, a row being a query of a head.
    pub(super) rows: usize,
    /// Keys of a block.
    pub(super) block: usize,
    /// Numbers of the longest vectors.
    pub(super) dim: usize,
}

impl Tile {
    /// Every tile, those for short vectors and for few rows first.
    pub(super) const ALL: [Self; 4] =
        [Self::new(8, 64, 64), Self::new(16, 64, 64), Self::new(8, 32, 128), Self::new(16, 32, 128)];

    const fn new(rows: usize, block: usize, dim: usize) -> Self {
        Self { rows, block, dim }
    }

    /// The tile of a variant, from its constants.
    pub(super) fn from_constants(&[rows, block, dim, ..]: &[u32; MAX_CONSTANTS]) -> Self {
        let [rows, block, dim] = [rows, block, dim].map(|value| value as usize);
        Self { rows, block, dim }
    }

    /// How many groups of eight elements of the keys, and of the values, each invocation fetches for a block.
    pub(super) const fn fetches(self) -> usize {
        self.block * self.dim / 8 / THREADS
    }

    /// Products that a subgroup adds up in its fragment of scores.
    pub(super) const fn products(self) -> usize {
        let columns = self.block / FRAGMENT;
        self.dim / FRAGMENT * columns / SUBGROUPS
    }

    /// How many fours of scores, and of the output, an invocation has at most.
    pub(super) const fn fours(self) -> usize {
        (self.rows * self.block / 4).div_ceil(THREADS)
    }

    pub(super) const fn sums(self) -> usize {
        (self.rows * self.dim / 4).div_ceil(THREADS)
    }

    /// Bytes of workgroup memory: keys or values, weights, scores or sums, and a number of each invocation and each row.
    const fn workgroup_bytes(self) -> usize {
        let layers = SUBGROUPS * FRAGMENT / self.block;
        let (scores, sums) = (layers * (self.block + 4), self.dim + 4);
        let larger = if scores > sums { scores } else { sums };
        let fragments = FRAGMENT * (2 * (self.block + 8) + 4 * larger);
        2 * self.block * (self.dim + 8) + fragments + 4 * (THREADS + self.rows)
    }

    pub(super) fn fits(self, limits: &wgpu::Limits) -> bool {
        self.workgroup_bytes() <= limits.max_compute_workgroup_storage_size as usize
    }

    /// The tile for so many rows that share keys.
    pub(super) fn choose(head_dim: usize, shared: usize) -> Option<Self> {
        let mut long_enough = Self::ALL.into_iter().filter(|tile| tile.dim >= head_dim);
        let least = long_enough.clone().map(|tile| tile.dim).min()?;
        let widest = Self::ALL.into_iter().rfind(|tile| tile.dim == least);
        long_enough.find(|tile| tile.dim == least && tile.rows >= shared).or(widest)
    }

    pub(super) fn pieces(self, desc: &AttentionDesc, splits: usize) -> Pieces {
        Pieces::new(desc, self.rows, splits, FRAGMENT)
    }

    pub(super) fn variant(self) -> Variant {
        let constants = [self.rows, self.block, self.dim].map(|value| value as u32);
        Variant::new(&DECODE, [DType::F16], constants)
    }

    /// Whether it gives right results on this device; found out at its first use.
    pub(super) fn holds(self, ctx: &Context) -> bool {
        ctx.proofs.holds(&self.variant(), || proof::check_decode(ctx, self))
    }
}

/// Such as `cooperative-decode/8x64x64`: rows, keys, and the longest vectors.
impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cooperative-decode/{}x{}x{}", self.rows, self.block, self.dim)
    }
}

pub(super) fn variants() -> Vec<Variant> {
    Tile::ALL.map(Tile::variant).into()
}

pub(super) fn run(
    ctx: &Context,
    op: &'static str,
    desc: &AttentionDesc,
    windows: &Windows,
    splits: usize,
    tile: Tile,
) -> BackendResult<()> {
    tile.pieces(desc, splits).run(ctx, op, desc, windows, &tile.variant())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_is_whole() {
        for tile in Tile::ALL {
            assert_eq!(
                (tile.block * tile.dim / 8 % THREADS, tile.dim % (SUBGROUPS * FRAGMENT)),
                (0, 0),
                "{tile}"
            );
            assert!(tile.products() > 0 && tile.workgroup_bytes() < 20 << 10, "{tile}");
        }
    }

    #[test]
    fn rows_are_as_few_as_hold_those_that_share_keys() {
        let chosen = |head_dim, shared| Tile::choose(head_dim, shared).map(|tile| tile.to_string());
        assert_eq!(chosen(64, 8).as_deref(), Some("cooperative-decode/8x64x64"));
        assert_eq!(chosen(64, 100).as_deref(), Some("cooperative-decode/16x64x64"));
        assert_eq!(chosen(72, 9).as_deref(), Some("cooperative-decode/16x32x128"));
        assert_eq!(chosen(136, 1), None);
    }
}
