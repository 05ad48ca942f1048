//! The tile of the kernels on tensor cores that stage their operands in workgroup memory, with its constants: of
//! products, of those with a quantised matrix, and of convolutions.

use std::fmt;

use backend_api::Activation;

use super::tensor_cores::{FRAGMENT, SUBGROUP};
use super::tile::StepTime;
use crate::kernels::constants;
use crate::ops::has_room;

constants! {
    /// The first constants of each of these kernels.
    pub(in crate::ops) struct CooperativeConstants {
        tile_m: usize,
        tile_n: usize,
        tile_k: usize,
        subgroups_m: usize,
        subgroups_n: usize,
        trans_a: bool,
        trans_b: bool,
        activation: Activation,
    }
}

/// The sizes of a workgroup's tile, and how its subgroups share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CooperativeTile {
    pub(in crate::ops) m: usize,
    pub(in crate::ops) n: usize,
    pub(in crate::ops) k: usize,
    /// Rows and columns of parts. A subgroup makes a part; one part alone is shared along k.
    pub(in crate::ops) parts: [usize; 2],
    pub(in crate::ops) step: StepTime,
}

impl CooperativeTile {
    /// A tile of 2 × 2 parts.
    pub(in crate::ops) const fn new(sizes: [usize; 3], alone: usize, paired: usize) -> Self {
        Self::divided(sizes, [2, 2], alone, paired)
    }

    /// A tile of one part.
    pub(in crate::ops) const fn shared(sizes: [usize; 3], alone: usize, paired: usize) -> Self {
        Self::divided(sizes, [1, 1], alone, paired)
    }

    /// A tile of so many rows and columns of parts.
    pub(in crate::ops) const fn divided(
        [m, n, k]: [usize; 3],
        parts: [usize; 2],
        alone: usize,
        paired: usize,
    ) -> Self {
        Self { m, n, k, parts, step: StepTime::new(alone, paired) }
    }

    /// The tile of a variant.
    pub(in crate::ops) fn from_constants(constants: &CooperativeConstants) -> Self {
        let &CooperativeConstants { tile_m, tile_n, tile_k, subgroups_m, subgroups_n, .. } = constants;
        Self::divided([tile_m, tile_n, tile_k], [subgroups_m, subgroups_n], 0, 0)
    }

    /// The constants of a variant whose operands are stored transposed or not.
    pub(in crate::ops) fn constants(
        self,
        [trans_a, trans_b]: [bool; 2],
        activation: Activation,
    ) -> CooperativeConstants {
        let Self { m: tile_m, n: tile_n, k: tile_k, parts: [subgroups_m, subgroups_n], .. } = self;
        CooperativeConstants {
            tile_m,
            tile_n,
            tile_k,
            subgroups_m,
            subgroups_n,
            trans_a,
            trans_b,
            activation,
        }
    }

    /// Fragments of a subgroup's part of the tile, across m and n.
    pub(in crate::ops) fn fragments(self) -> [usize; 2] {
        let [rows, columns] = self.parts;
        [self.m / rows / FRAGMENT, self.n / columns / FRAGMENT]
    }

    /// Fragments of a step across k that a subgroup multiplies.
    pub(in crate::ops) fn depth(self) -> usize {
        self.k / self.sharers() / FRAGMENT
    }

    /// Steps whose operands are fetched ahead of their use.
    pub(in crate::ops) fn prefetch(self) -> usize {
        if self.sharers() > 1 { 2 } else { 1 }
    }

    /// How many groups of eight elements of A and of B each invocation fetches in a step, some for nothing.
    pub(in crate::ops) fn fetches(self) -> [usize; 2] {
        [self.m, self.n].map(|size| (size * self.k / 8).div_ceil(self.threads()))
    }

    /// Whether the loop over k stays rolled: unless subgroups share k, where a step has too little math to
    /// hide its loads.
    pub(in crate::ops) fn rolls_loops(self) -> bool {
        self.sharers() == 1
    }

    pub(in crate::ops) fn fits(self, limits: &wgpu::Limits) -> bool {
        has_room(limits, self.threads(), self.workgroup_bytes())
    }

    /// Tiles of an m×n product.
    pub(in crate::ops) fn count(self, m: usize, n: usize) -> usize {
        m.div_ceil(self.m).saturating_mul(n.div_ceil(self.n))
    }

    /// Nanoseconds that an m×k by k×n product takes, repeated `batch` times.
    pub(in crate::ops) fn time(self, [m, n, k, batch]: [usize; 4], compute_units: usize) -> usize {
        let tiles = self.count(m, n).saturating_mul(batch);
        self.step.of(tiles, k.div_ceil(self.k), compute_units)
    }

    /// Subgroups that share a part: of a tile of one part, each has a fragment's depth of every step.
    pub(in crate::ops) fn sharers(self) -> usize {
        if self.parts == [1, 1] { self.k / FRAGMENT } else { 1 }
    }

    fn subgroups(self) -> usize {
        self.parts[0] * self.parts[1] * self.sharers()
    }

    pub(in crate::ops) fn threads(self) -> usize {
        self.subgroups() * SUBGROUP
    }

    /// Bytes of workgroup memory at most: of A and B, of which the one with the more rows takes the more, as
    /// these are padded, and of a fragment of each subgroup.
    fn workgroup_bytes(self) -> usize {
        let staged = |across: usize| 2 * (across * (self.k + 8)).max(self.k * (across + 8));
        staged(self.m) + staged(self.n) + self.subgroups() * FRAGMENT * FRAGMENT * 4
    }
}

/// Such as `128x128x32`: rows, columns and depth.
impl fmt::Display for CooperativeTile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.m, self.n, self.k)
    }
}
