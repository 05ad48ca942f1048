//! Which kernel makes a convolution.

use std::fmt;

use backend_api::BackendResult;

use super::cooperative::{self, SourceTile};
use super::{Job, direct, tiled};
use crate::ops::op_context::OpContext;
use crate::ops::shared::kernel_names;
use crate::ops::shared::tile::Tile;

/// A kernel with the size of its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    /// A matrix product of what is in memory.
    Product,
    Direct,
    Tiled(Tile),
    Cooperative(SourceTile),
}

/// A kernel that a test or a measurement asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelOverride(Kernel);

impl KernelOverride {
    /// Every kernel that can be asked for, named as [`parse`](Self::parse) reads it.
    pub(crate) fn names() -> Vec<String> {
        kernel_names::all(Kernel::all())
    }

    /// Reads `direct`, `tiled/128x64x16` and the like.
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
        let tiled = tiled::TILES.into_iter().map(Self::Tiled);
        let cooperative = SourceTile::ALL.into_iter().map(Self::Cooperative);
        std::iter::once(Self::Direct).chain(tiled).chain(cooperative)
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
        if let Some(tile) = cooperative::fastest(ctx, job) {
            return Self::Cooperative(tile);
        }
        if job.is_pointwise() && gather.groups == 1 {
            return Self::Product;
        }
        if direct::is_better(gather) {
            return Self::Direct;
        }
        let rows = gather.batch.saturating_mul(gather.pixels());
        Self::Tiled(tiled::choose(ctx, [rows, gather.filters, gather.groups]))
    }

    fn is_possible(self, ctx: &OpContext, job: &Job) -> bool {
        match self {
            Self::Product | Self::Direct => true,
            Self::Tiled(tile) => tile.fits(&ctx.gpu().limits),
            Self::Cooperative(tile) => tile.is_possible(ctx, job),
        }
    }
}

/// As it is read.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Product => f.write_str("product"),
            Self::Direct => f.write_str("direct"),
            Self::Tiled(tile) => write!(f, "tiled/{tile}"),
            Self::Cooperative(tile) => write!(f, "cooperative/{tile}"),
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
