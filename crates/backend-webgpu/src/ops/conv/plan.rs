//! Which kernel makes a convolution.

use std::fmt;

use backend_api::BackendResult;

use super::cooperative::{self, SourceTile};
use super::split::has_room;
use super::{Job, depthwise, direct, halo, tiled};
use crate::ops::op_context::OpContext;
use crate::ops::shared::kernel_names;
use crate::ops::shared::tile::Tile;

/// A kernel with the size of its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    /// A matrix product of what is in memory.
    Product,
    Depthwise,
    Direct,
    /// With sums in so many slices.
    Tiled(Tile, usize),
    Cooperative(SourceTile, usize),
    Halo,
}

/// Slices of sums that a test or a measurement can ask for.
const SLICES: [usize; 2] = [1, 3];

/// A kernel that a test or a measurement asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelOverride(Kernel);

impl KernelOverride {
    /// Every kernel that can be asked for, named as [`parse`](Self::parse) reads it.
    pub(crate) fn names() -> Vec<String> {
        kernel_names::all(Kernel::all())
    }

    /// Reads `direct`, `tiled/64x64x32`, `tiled/64x64x32+split3` and the like.
    ///
    /// # Errors
    /// [`Unsupported`](backend_api::BackendError::Unsupported).
    pub(crate) fn parse(op: &'static str, name: &str) -> BackendResult<Self> {
        let kernel = kernel_names::find(Kernel::all(), name);
        kernel.map(Self).ok_or_else(|| kernel_names::unknown(op, name, Kernel::all()))
    }
}

impl Kernel {
    /// Every kernel that can be asked for.
    fn all() -> impl Iterator<Item = Self> {
        let tiled = tiled::TILES.into_iter().flat_map(|tile| SLICES.map(|slices| Self::Tiled(tile, slices)));
        let cooperative =
            SourceTile::ALL.into_iter().flat_map(|tile| SLICES.map(|slices| Self::Cooperative(tile, slices)));
        [Self::Depthwise, Self::Direct, Self::Halo].into_iter().chain(tiled).chain(cooperative)
    }

    /// The kernel that is asked for if it can make the convolution, or the one that is likely to be the
    /// fastest.
    pub(super) fn choose(ctx: &OpContext, job: &Job) -> Self {
        let asked = *ctx.state.conv_override.lock();
        asked
            .map(|KernelOverride(kernel)| kernel)
            .filter(|kernel| kernel.is_possible(ctx, job))
            .unwrap_or_else(|| Self::by_estimate(ctx, job))
    }

    fn by_estimate(ctx: &OpContext, job: &Job) -> Self {
        let gather = &job.gather;
        if let Some(((tile, slices), time)) = cooperative::fastest(ctx, job) {
            let sooner = halo::time(ctx, job).is_some_and(|halo| halo < time);
            return if sooner && halo::is_verified(ctx, gather.layout) {
                Self::Halo
            } else {
                Self::Cooperative(tile, slices)
            };
        }
        if job.is_pointwise() && gather.groups == 1 {
            return Self::Product;
        }
        if depthwise::is_possible(job) {
            return Self::Depthwise;
        }
        match tiled::fastest(ctx, gather) {
            Some(((tile, slices), time)) if !direct::is_better(ctx, gather, time) => {
                Self::Tiled(tile, slices)
            }
            _ => Self::Direct,
        }
    }

    fn is_possible(self, ctx: &OpContext, job: &Job) -> bool {
        match self {
            Self::Product | Self::Direct => true,
            Self::Halo => halo::is_possible(ctx, job),
            Self::Depthwise => depthwise::is_possible(job),
            Self::Tiled(tile, slices) => tile.fits(&ctx.gpu().limits) && has_room(ctx, &job.gather, slices),
            Self::Cooperative(tile, slices) => {
                tile.is_possible(ctx, job, slices) && has_room(ctx, &job.gather, slices)
            }
        }
    }
}

/// As it is read.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Product => f.write_str("product"),
            Self::Halo => f.write_str("cooperative/halo"),
            Self::Depthwise => f.write_str("depthwise"),
            Self::Direct => f.write_str("direct"),
            Self::Tiled(tile, 1) => write!(f, "tiled/{tile}"),
            Self::Tiled(tile, slices) => write!(f, "tiled/{tile}+split{slices}"),
            Self::Cooperative(tile, 1) => write!(f, "cooperative/{tile}"),
            Self::Cooperative(tile, slices) => write!(f, "cooperative/{tile}+split{slices}"),
        }
    }
}

#[cfg(test)]
mod tests {
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
