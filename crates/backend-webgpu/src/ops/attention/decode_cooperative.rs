//! Attention of few queries on tensor cores: attention/decode_cooperative and its tiles.

use std::fmt;

use backend_api::desc::AttentionDesc;
use backend_api::{BackendResult, DType};

use super::pieces::{Output, Pieces};
use super::{Params, Problem, decode_fragments, fixup};
use crate::kernels::libs::{ATTENTION_FIXUP, ATTENTION_PARTS_VEC4S, ATTENTION_VEC4S};
use crate::kernels::{KernelSource, MAX_CONSTANTS, Variant, kernel, native};
use crate::ops::has_room;
use crate::ops::shared::tensor_cores::{FRAGMENT, SUBGROUP};

const DECODE_KEYS: KernelSource = KernelSource {
    unrolled: native(decode_fragments::attend),
    cooperative: true,
    subgroups: true,
    ..kernel!(
        native "attention/decode_cooperative",
        libs: [
            SPECIAL, ATTENTION, ATTENTION_CONTIGUOUS, ATTENTION_PIECES, ATTENTION_SINKS, HALVES, FRAGMENT_ELEMENTS,
        ],
        types: ["T"],
        constants: ["ROWS", "BLOCK", "DIM"],
        params: Params,
        reads: ["q: vec4<u32>", "k: vec4<u32>", "v: vec4<u32>", "mask: T", "lengths: u32", "sinks: f32"],
        writes: ["parts"],
    )
};

/// The file with parts of rows as its output.
pub(super) static DECODE: KernelSource = DECODE_KEYS;

/// The file with outputs beside the parts of rows.
static DECODE_FIXED_UP: KernelSource = KernelSource { writes: &["fixup", "o"], ..DECODE_KEYS };

/// Subgroups of a workgroup.
const SUBGROUPS: usize = 4;
/// Rows of half a fragment.
const HALF: usize = FRAGMENT / 2;

/// The sizes that a workgroup works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    /// Rows that share keys, a row being a query of a head.
    pub(super) rows: usize,
    /// Keys of a block, of which each subgroup has a part.
    pub(super) block: usize,
    /// Elements of the longest vectors.
    pub(super) dim: usize,
}

impl Tile {
    /// Every tile, those for short vectors and for few rows first.
    pub(super) const ALL: [Self; 4] =
        [Self::new(8, 128, 64), Self::new(16, 128, 64), Self::new(8, 64, 128), Self::new(16, 64, 128)];

    const fn new(rows: usize, block: usize, dim: usize) -> Self {
        Self { rows, block, dim }
    }

    /// The tile of a variant, from its constants.
    pub(super) fn from_constants(&[rows, block, dim, ..]: &[u32; MAX_CONSTANTS]) -> Self {
        let [rows, block, dim] = [rows, block, dim].map(|value| value as usize);
        Self { rows, block, dim }
    }

    /// Fragments of scores of a subgroup.
    pub(super) const fn columns(self) -> usize {
        self.block / SUBGROUPS / FRAGMENT
    }

    /// Bytes of workgroup memory: a reference and a sum for each of eight rows of each subgroup, and a
    /// vector, and what puts pieces together.
    const fn workgroup_bytes(self) -> usize {
        SUBGROUPS * HALF * (2 + self.dim + 4) * size_of::<f32>() + fixup::WORKGROUP_BYTES
    }

    pub(super) fn fits(self, limits: &wgpu::Limits) -> bool {
        has_room(limits, SUBGROUPS * SUBGROUP, self.workgroup_bytes())
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

    pub(super) fn variant(self, output: Output) -> Variant {
        let constants = [self.rows, self.block, self.dim].map(|value| value as u32);
        let (source, libs): (_, &[_]) = match output {
            Output::FixedUp => (&DECODE_FIXED_UP, &[ATTENTION_FIXUP, ATTENTION_VEC4S]),
            _ => (&DECODE, &[ATTENTION_PARTS_VEC4S]),
        };
        Variant::new(source, [DType::F16], constants).with_libs(libs).with_rolled_loops()
    }
}

/// Such as `cooperative-decode/8x128x64`: rows, keys, and the longest vectors.
impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cooperative-decode/{}x{}x{}", self.rows, self.block, self.dim)
    }
}

pub(super) fn variants() -> Vec<Variant> {
    let outputs = [Output::Parts, Output::FixedUp];
    outputs.into_iter().flat_map(|output| Tile::ALL.map(|tile| tile.variant(output))).collect()
}

pub(super) fn run(problem: Problem<'_>, tile: Tile, splits: usize, output: Output) -> BackendResult<()> {
    tile.pieces(problem.desc, splits).run(problem, &tile.variant(output), output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::plans::bounds::assert_room;

    #[test]
    fn workgroups_take_what_their_text_says() {
        for tile in Tile::ALL {
            assert_room(&tile.variant(Output::FixedUp), 0, |limits| tile.fits(limits));
        }
    }

    #[test]
    fn every_tile_is_whole() {
        for tile in Tile::ALL {
            assert_eq!((tile.block % (SUBGROUPS * FRAGMENT), tile.dim % 64), (0, 0), "{tile}");
            // More than one workgroup is at work in a compute unit.
            assert!(tile.workgroup_bytes() < 20 << 10, "{tile}");
        }
    }

    #[test]
    fn rows_are_as_few_as_hold_those_that_share_keys() {
        let chosen = |head_dim, shared| Tile::choose(head_dim, shared).map(|tile| tile.to_string());
        assert_eq!(chosen(64, 8).as_deref(), Some("cooperative-decode/8x128x64"));
        assert_eq!(chosen(64, 100).as_deref(), Some("cooperative-decode/16x128x64"));
        assert_eq!(chosen(72, 9).as_deref(), Some("cooperative-decode/16x64x128"));
        assert_eq!(chosen(136, 1), None);
    }
}
