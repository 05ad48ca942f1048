//! Which kernel makes a convolution.

use std::fmt;

use super::cooperative::{self, SourceTile};
use super::few_filters::{self, Block};
use super::halo::{self, HaloTile};
use super::split::has_room;
use super::{Job, depthwise, direct, tiled};
use crate::device::h200;
#[cfg(feature = "test-hooks")]
use crate::kernels::KernelSource;
use crate::ops::op_context::OpContext;
use crate::ops::shared::kernel_override;
use crate::ops::shared::tile::Tile;

/// A kernel with the size of its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    /// A matrix product of what is in memory.
    Product,
    Depthwise,
    Direct,
    /// With sums in so many slices, like those that follow.
    FewFilters(Block, usize),
    Tiled(Tile, usize),
    Cooperative(SourceTile, usize),
    Halo(HaloTile),
}

/// Nanoseconds that a convolution in tiles takes longer than its steps: its launch, and what a workgroup does once.
const TILED_OVERHEAD: usize = 5000;

/// Slices of sums that a test or a measurement can ask for.
const SLICES: [usize; 2] = [1, 3];

/// A kernel that a test or a measurement asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelOverride(Kernel);

#[cfg(feature = "test-hooks")]
impl KernelOverride {
    /// The kernel's WGSL file.
    pub(crate) fn source(self) -> Option<&'static KernelSource> {
        Some(match self.0 {
            Kernel::Product => return None,
            Kernel::Depthwise => &depthwise::DEPTHWISE,
            Kernel::Direct => &direct::DIRECT,
            Kernel::FewFilters(..) => &few_filters::FEW_FILTERS,
            Kernel::Tiled(..) => &tiled::IMPLICIT_GEMM,
            Kernel::Cooperative(..) => &cooperative::COOPERATIVE,
            Kernel::Halo(_) => &halo::HALO,
        })
    }
}

impl kernel_override::KernelOverride for KernelOverride {
    fn all() -> impl Iterator<Item = impl fmt::Display> {
        Kernel::all()
    }

    /// Reads `direct`, `tiled/64x64x32`, `tiled/64x64x32+split3` and the like.
    fn read(name: &str) -> Option<Self> {
        kernel_override::find(Kernel::all(), name).map(Self)
    }
}

impl fmt::Display for KernelOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Kernel {
    /// Every kernel that can be asked for.
    fn all() -> impl Iterator<Item = Self> {
        let tiled = tiled::TILES.into_iter().flat_map(|tile| SLICES.map(|slices| Self::Tiled(tile, slices)));
        let cooperative =
            SourceTile::ALL.into_iter().flat_map(|tile| SLICES.map(|slices| Self::Cooperative(tile, slices)));
        let few = Block::all().flat_map(|block| SLICES.map(|slices| Self::FewFilters(block, slices)));
        let halo = HaloTile::ALL.into_iter().map(Self::Halo);
        [Self::Depthwise, Self::Direct].into_iter().chain(halo).chain(few).chain(tiled).chain(cooperative)
    }

    /// The kernel that is asked for if it can make the convolution, or the one that is likely to be the
    /// fastest.
    pub(super) fn choose(ctx: &OpContext, job: &Job) -> Self {
        let asked = ctx.state.forced();
        asked
            .map(|KernelOverride(kernel)| kernel)
            .filter(|kernel| kernel.is_possible(ctx, job))
            .unwrap_or_else(|| Self::by_estimate(ctx, job))
    }

    /// The kernel that is likely to be the fastest.
    fn by_estimate(ctx: &OpContext, job: &Job) -> Self {
        let gather = &job.gather;
        let few = few_filters::fastest(ctx, gather)
            .map(|((block, slices), time)| (Self::FewFilters(block, slices), time));
        let direct = direct::time(ctx, gather).map(|time| (Self::Direct, time));
        if let Some(((tile, slices), time)) = cooperative::fastest(ctx, job) {
            if let Some((kernel, _)) = few.filter(|&(_, few)| few < time.saturating_add(h200::LAUNCH)) {
                return kernel;
            }
            let sooner = halo::fastest(ctx, job).filter(|&(_, halo)| halo < time);
            return match sooner {
                Some((halo, _)) if halo.is_verified(ctx, gather.layout) => Self::Halo(halo),
                _ => Self::Cooperative(tile, slices),
            };
        }
        if job.is_pointwise() && gather.groups == 1 {
            // The kernels of products have tiles for more filters than these.
            let few = few.filter(|_| gather.filters <= 8);
            let direct =
                direct.filter(|&(_, time)| (1..=4).contains(&gather.channels) && time < TILED_OVERHEAD);
            return soonest([few, direct, None]).unwrap_or(Self::Product);
        }
        if depthwise::is_possible(job) {
            return Self::Depthwise;
        }
        let tiled = tiled::fastest(ctx, gather)
            .map(|((tile, slices), time)| (Self::Tiled(tile, slices), time.saturating_add(TILED_OVERHEAD)));
        soonest([direct, few, tiled]).unwrap_or(Self::Direct)
    }

    fn is_possible(self, ctx: &OpContext, job: &Job) -> bool {
        match self {
            Self::Product | Self::Direct => true,
            Self::Halo(tile) => tile.is_possible(ctx, job),
            Self::Depthwise => depthwise::is_possible(job),
            Self::FewFilters(block, slices) => {
                block.is_possible(ctx, &job.gather) && has_room(ctx, &job.gather, slices)
            }
            Self::Tiled(tile, slices) => tile.fits(&ctx.gpu().limits) && has_room(ctx, &job.gather, slices),
            Self::Cooperative(tile, slices) => {
                tile.is_possible(ctx, job, slices) && has_room(ctx, &job.gather, slices)
            }
        }
    }
}

/// The kernel that is estimated to take the least time.
fn soonest(kernels: [Option<(Kernel, usize)>; 3]) -> Option<Kernel> {
    kernels.into_iter().flatten().min_by_key(|&(_, time)| time).map(|(kernel, _)| kernel)
}

/// As it is read.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Product => f.write_str("product"),
            Self::Halo(tile) => write!(f, "cooperative/halo/{tile}"),
            Self::Depthwise => f.write_str("depthwise"),
            Self::Direct => f.write_str("direct"),
            Self::FewFilters(block, 1) => write!(f, "few_filters/{block}"),
            Self::FewFilters(block, slices) => write!(f, "few_filters/{block}+split{slices}"),
            Self::Tiled(tile, 1) => write!(f, "tiled/{tile}"),
            Self::Tiled(tile, slices) => write!(f, "tiled/{tile}+split{slices}"),
            Self::Cooperative(tile, 1) => write!(f, "cooperative/{tile}"),
            Self::Cooperative(tile, slices) => write!(f, "cooperative/{tile}+split{slices}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::kernel_override::KernelOverride as _;
    use super::*;

    #[test]
    fn names_are_read_back() {
        for kernel in Kernel::all() {
            assert_eq!(KernelOverride::parse("test", &kernel.to_string()).unwrap().0, kernel);
        }
        for wrong in ["", "tiled", "product", "tiled/1x1x1"] {
            assert_eq!(
                KernelOverride::parse("test", wrong).unwrap_err().kind(),
                backend_api::ErrorKind::Unsupported
            );
        }
    }
}
