//! A kernel that a test or a measurement asks for.

use std::fmt;

use backend_api::desc::MatmulDesc;
use backend_api::{BackendError, BackendResult};

use super::cooperative::CooperativeTile;
use super::plan::{DIRECT_TILE, Kernel};
use super::skinny::Skinny;
use crate::ops::tile::Tile;

/// The kernel to be used wherever it can make a product, and into how many pieces it splits k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forced {
    pub(super) kernel: Kernel,
    pub(super) splits: usize,
}

impl Forced {
    /// Every kernel, named as [`parse`](Self::parse) reads it.
    pub(crate) fn names() -> Vec<String> {
        Kernel::all().map(|kernel| kernel.to_string()).collect()
    }

    /// Reads `tiled/128x128x16`, `cooperative/64x64x64+split4` and the like.
    ///
    /// # Errors
    /// [`Unsupported`](BackendError::Unsupported).
    pub(crate) fn parse(op: &'static str, name: &str) -> BackendResult<Self> {
        let (kernel, splits) = name.split_once("+split").unwrap_or((name, "1"));
        let kernel = Kernel::all().find(|known| known.to_string() == kernel);
        match (kernel, splits.parse()) {
            (Some(kernel), Ok(splits)) => Ok(Self { kernel, splits }),
            _ => {
                let need = format!("one of the kernels {}, not {name:?}", Self::names().join(", "));
                Err(BackendError::Unsupported { op, need })
            }
        }
    }
}

impl Kernel {
    /// Every kernel in every tile.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let tiled = Tile::ALL.into_iter().map(Self::Tiled);
        let cooperative = CooperativeTile::ALL.into_iter().map(Self::Cooperative);
        let skinny = Skinny::ALL.into_iter().map(Self::Skinny);
        std::iter::once(Self::Direct).chain(tiled).chain(cooperative).chain(skinny)
    }

    /// The kernel as it is made for a product.
    pub(super) fn fitting(self, desc: &MatmulDesc) -> Self {
        if let Self::Skinny(skinny) = self { Self::Skinny(skinny.fitting(desc)) } else { self }
    }

    /// The kernel as it is named, for any product.
    pub(super) fn named(self) -> Self {
        if let Self::Skinny(skinny) = self { Self::Skinny(skinny.named()) } else { self }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => write!(f, "direct/{DIRECT_TILE}x{DIRECT_TILE}x4"),
            Self::Tiled(Tile { m, n, k, .. }) => write!(f, "tiled/{m}x{n}x{k}"),
            Self::Cooperative(tile) => write!(f, "cooperative/{tile}"),
            Self::Skinny(skinny) => write!(f, "skinny/{skinny}"),
        }
    }
}

/// As it is read.
impl fmt::Display for Forced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.splits {
            1 => write!(f, "{}", self.kernel),
            splits => write!(f, "{}+split{splits}", self.kernel),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for name in Forced::names() {
            for splits in [1, 7] {
                let forced = Forced::parse("test", &format!("{name}+split{splits}")).unwrap();
                assert_eq!((forced.kernel.to_string(), forced.splits), (name.clone(), splits));
            }
        }
        for wrong in ["", "tiled", "tiled/1x1x1", "cooperative/64x64x64+split", "x+split2"] {
            assert_eq!(Forced::parse("test", wrong).unwrap_err().kind(), backend_api::ErrorKind::Unsupported);
        }
    }
}
