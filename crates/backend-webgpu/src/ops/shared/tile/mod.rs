//! The tiles of lib/tile_product.

mod step;
mod time;

use std::fmt;

use backend_api::BackendResult;
use backend_api::support::checked_product;

use crate::kernels::constants;
use crate::ops::has_room;
use crate::ops::op_context::dim;

pub(in crate::ops) use step::{Vec4s, tile_product, written};
pub(in crate::ops) use time::StepTime;

/// The sizes of a tile and of an invocation's part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) struct Tile {
    pub(in crate::ops) m: usize,
    pub(in crate::ops) n: usize,
    pub(in crate::ops) k: usize,
    thread_m: usize,
    thread_n: usize,
    step: StepTime,
}

constants! {
    /// The sizes of a tile, which are a kernel's first constants.
    pub(in crate::ops) struct TileConstants {
        tile_m: usize,
        tile_n: usize,
        tile_k: usize,
        thread_m: usize,
        thread_n: usize,
    }
}

impl Tile {
    /// Every tile, largest first. The first needs more than a portable device promises; the second exactly
    /// that.
    pub(in crate::ops) const ALL: [Self; 4] = [
        Self::new([128, 64, 32], [8, 8], 2840, 3050),
        Self::new([64, 64, 32], [8, 4], 1100, 1700).with_last(750),
        Self::new([32, 32, 32], [4, 4], 900, 1000),
        // For products of a few rows.
        Self::new([8, 128, 16], [4, 4], 460, 520),
    ];

    /// The tile whose steps are sliced, for products of few tiles.
    pub(in crate::ops) const SLICED: Self = Self::new([32, 32, 64], [4, 4], 780, 1380).with_last(520);

    /// Values of k of a slice at most.
    const SLICE: usize = 32;

    /// The second's, with steps of three.
    pub(in crate::ops) const THREES: Self = Self::new([64, 64, 24], [8, 4], 750, 1160);

    /// The first's, of twice as many invocations, for blocks that take long to fetch.
    pub(in crate::ops) const WIDE: Self = Self::new([128, 64, 32], [8, 4], 1980, 2900);

    const fn new(
        [m, n, k]: [usize; 3],
        [thread_m, thread_n]: [usize; 2],
        alone: usize,
        paired: usize,
    ) -> Self {
        Self { m, n, k, thread_m, thread_n, step: StepTime::new(alone, paired) }
    }

    /// The tile of which a compute unit has room for more than two, so that the last of several takes less than alone.
    const fn with_last(self, last: usize) -> Self {
        Self { step: self.step.with_last(last), ..self }
    }

    /// The tile of a variant, from what [`constants`](Self::constants) gave it.
    fn from_constants(constants: TileConstants) -> Self {
        let TileConstants { tile_m, tile_n, tile_k, thread_m, thread_n } = constants;
        Self::new([tile_m, tile_n, tile_k], [thread_m, thread_n], 0, 0)
    }

    /// The tile which is estimated to be the fastest for an m×n product, repeated `batch` times, on a device
    /// with these limits and so many compute units.
    pub(in crate::ops) fn choose_from(
        tiles: &[Self],
        limits: &wgpu::Limits,
        compute_units: usize,
        [m, n, batch]: [usize; 3],
    ) -> Self {
        // A larger k makes every tile slower by as much.
        const K: usize = 32;
        let time = |tile: &Self| tile.time([m, n, K, batch], compute_units);
        let fitting = tiles.iter().copied().filter(|tile| tile.fits(limits));
        fitting.min_by_key(time).unwrap_or(Self::ALL[2])
    }

    /// Nanoseconds that an m×k by k×n product takes, repeated `batch` times.
    pub(in crate::ops) fn time(self, [m, n, k, batch]: [usize; 4], compute_units: usize) -> usize {
        let tiles = self.count(m, n).saturating_mul(batch);
        self.step.of(tiles, k.div_ceil(self.k), compute_units)
    }

    /// Whether a compute unit has room for two of its workgroups and no more.
    pub(in crate::ops) fn is_paired(self) -> bool {
        self.m >= 128
    }

    /// [`time`](Self::time), with another k in the last of the products: workgroups for this one begin behind the others,
    /// where they end.
    pub(in crate::ops) fn time_of_pieces(
        self,
        [m, n, k, batch]: [usize; 4],
        k_last: usize,
        compute_units: usize,
    ) -> usize {
        let tiles = self.count(m, n);
        let [steps, last] = [k, k_last].map(|k| k.div_ceil(self.k));
        if batch == 1 || last >= steps {
            return self.time([m, n, k, batch], compute_units);
        }
        self.step.of_longer_and_shorter(
            [tiles.saturating_mul(batch - 1), tiles],
            [steps, last],
            compute_units,
        )
    }

    pub(in crate::ops) fn constants(self) -> TileConstants {
        let Self { m: tile_m, n: tile_n, k: tile_k, thread_m, thread_n, .. } = self;
        TileConstants { tile_m, tile_n, tile_k, thread_m, thread_n }
    }

    /// Tiles of an m×n product.
    pub(in crate::ops) fn count(self, m: usize, n: usize) -> usize {
        m.div_ceil(self.m).saturating_mul(n.div_ceil(self.n))
    }

    pub(in crate::ops) fn threads(self) -> usize {
        self.slices() * (self.m / self.thread_m) * (self.n / self.thread_n)
    }

    /// Slices of a step, each of which has invocations of its own.
    fn slices(self) -> usize {
        (self.k / Self::SLICE).max(1)
    }

    /// How many blocks of an operand of `size` rows or columns an invocation fetches in a step.
    fn fetches(self, size: usize) -> usize {
        (size * self.k / 16).div_ceil(self.threads())
    }

    /// Bytes of workgroup memory.
    pub(in crate::ops) fn workgroup_bytes(self) -> usize {
        // Of the steps of three, a little more.
        self.k.next_multiple_of(16) * (self.m + self.n) * size_of::<f32>()
    }

    pub(in crate::ops) fn fits(self, limits: &wgpu::Limits) -> bool {
        has_room(limits, self.threads(), self.workgroup_bytes())
    }
}

/// How many tiles an m×n result has, down and across, and how many all such results have together.
pub(in crate::ops) fn tiles<const N: usize>(
    op: &'static str,
    [m, n]: [usize; 2],
    [tile_m, tile_n]: [usize; 2],
    results: [usize; N],
) -> BackendResult<[u32; 3]> {
    let [down, across] = [m.div_ceil(tile_m), n.div_ceil(tile_n)];
    let all = checked_product(op, "tiles", &[down, across, checked_product(op, "tiles", &results)?])?;
    Ok([dim(op, "tiles", down)?, dim(op, "tiles", across)?, dim(op, "tiles", all)?])
}

/// Such as `128x64x32`: rows, columns and depth.
impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.m, self.n, self.k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::h200;

    #[test]
    fn all_but_the_first_are_portable() {
        let portable = wgpu::Limits::default();
        assert_eq!(Tile::ALL.map(|tile| tile.fits(&portable)), [false, true, true, true]);
    }

    #[test]
    fn tiles_are_as_large_as_fills_the_device() {
        let portable = wgpu::Limits::default();
        let large = wgpu::Limits { max_compute_workgroup_storage_size: 32 << 10, ..portable.clone() };
        for (sizes, limits, tile) in [
            ([4096, 4096, 1], &large, "128x64x32"),
            ([512, 512, 64], &large, "128x64x32"),
            ([4096, 4096, 1], &portable, "64x64x32"),
            ([1024, 1024, 1], &large, "64x64x32"),
            ([64, 64, 1], &large, "32x32x32"),
            ([1, 4096, 64], &large, "8x128x16"),
        ] {
            assert_eq!(
                Tile::choose_from(&Tile::ALL, limits, h200::COMPUTE_UNITS, sizes).to_string(),
                tile,
                "{sizes:?}"
            );
        }
    }
}
