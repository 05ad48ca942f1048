//! The tiles of lib/tile_product.

/// The sizes of a tile and of an invocation's part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) thread_m: usize,
    pub(super) thread_n: usize,
    /// Steps of k in workgroup memory at once.
    pub(super) stages: usize,
}

/// Names of the constants that [`Tile::constants`] binds.
pub(super) const TILE_CONSTANTS: [&str; 6] = ["TILE_M", "TILE_N", "TILE_K", "THREAD_M", "THREAD_N", "STAGES"];

impl Tile {
    /// For products that fill a large device; needs more than a portable device promises.
    const LARGE: Self = Self { m: 128, n: 128, k: 16, thread_m: 8, thread_n: 4, stages: 1 };
    /// For large products within the portable limits.
    const MEDIUM: Self = Self { m: 128, n: 64, k: 16, thread_m: 8, thread_n: 4, stages: 1 };
    /// For products of few tiles.
    const SMALL: Self = Self { m: 32, n: 32, k: 32, thread_m: 4, thread_n: 4, stages: 1 };
    /// For products of a few rows.
    const WIDE: Self = Self { m: 8, n: 128, k: 16, thread_m: 4, thread_n: 4, stages: 1 };

    /// Every tile, largest first.
    pub(super) const ALL: [Self; 4] = [Self::LARGE, Self::MEDIUM, Self::SMALL, Self::WIDE];

    /// The tile for an m×n product repeated `batch` times on a device with these limits.
    pub(super) fn choose(limits: &wgpu::Limits, m: usize, n: usize, batch: usize) -> Self {
        if m <= Self::WIDE.m {
            return Self::WIDE;
        }
        // A tile is worth its size when there are enough of them to occupy the device.
        let tiles = |tile: Self| tile.count(m, n).saturating_mul(batch);
        Self::ALL[..2]
            .iter()
            .copied()
            .find(|&tile| tile.fits(limits) && tiles(tile) >= 128)
            .unwrap_or(Self::SMALL)
    }

    pub(super) fn constants(self) -> [u32; 6] {
        [self.m, self.n, self.k, self.thread_m, self.thread_n, self.stages].map(|value| value as u32)
    }

    /// Tiles of an m×n product.
    pub(super) fn count(self, m: usize, n: usize) -> usize {
        m.div_ceil(self.m).saturating_mul(n.div_ceil(self.n))
    }

    pub(super) fn threads(self) -> usize {
        (self.m / self.thread_m) * (self.n / self.thread_n)
    }

    /// Bytes of workgroup memory, padding included.
    fn workgroup_bytes(self) -> usize {
        self.stages * self.k * (self.m + 4 + self.n + 4) * size_of::<f32>()
    }

    pub(super) fn fits(self, limits: &wgpu::Limits) -> bool {
        self.threads() <= limits.max_compute_invocations_per_workgroup as usize
            && self.threads() <= limits.max_compute_workgroup_size_x as usize
            && self.workgroup_bytes() <= limits.max_compute_workgroup_storage_size as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_the_large_tile_are_portable() {
        let portable = wgpu::Limits::default();
        assert_eq!(Tile::ALL.map(|tile| tile.fits(&portable)), [false, true, true, true]);
        assert_eq!(Tile::choose(&portable, 4096, 4096, 1), Tile::MEDIUM);
        assert_eq!(Tile::choose(&portable, 64, 64, 1), Tile::SMALL);
        assert_eq!(Tile::choose(&portable, 1, 4096, 64), Tile::WIDE);
    }
}
