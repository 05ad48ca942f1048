//! A kernel that a test or a measurement asks for.

use std::fmt;

#[cfg(feature = "test-hooks")]
use backend_api::{Activation, DType};

use super::kernel::Kernel;
#[cfg(feature = "test-hooks")]
use super::kernel::Signature;
use super::strategy::{Split, Strategy};
#[cfg(feature = "test-hooks")]
use crate::kernels::KernelSource;
use crate::ops::shared::kernel_override;

const SPLIT: &str = "+split";
const LENGTH: &str = "+k";
const PACKED: &str = "+packed";
const EDGES: &str = "+edges";

/// The kernel to be used wherever it can make a product, in which launches, and whether operands are copied
/// first: badly aligned ones, and by `gemm/cooperative` a B that is stored transposed, which alone peels off
/// edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelOverride {
    pub(super) kernel: Kernel,
    pub(super) strategy: Strategy,
    pub(super) packed: bool,
}

#[cfg(feature = "test-hooks")]
impl KernelOverride {
    /// The kernel's WGSL file.
    pub(crate) fn source(self) -> &'static KernelSource {
        let signature = Signature {
            vectors: true,
            element_access: true,
            ..Signature::new([DType::F16; 3], [false; 2], Activation::Identity)
        };
        self.kernel.implementation().variant(&signature).source()
    }
}

impl kernel_override::KernelOverride for KernelOverride {
    fn all() -> impl Iterator<Item = impl fmt::Display> {
        Kernel::all()
    }

    /// Reads `tiled/128x64x32+packed`, `cooperative/64x64x64+split4`, with k in four pieces, `tiled/128x64x32+k448`, with
    /// 448 of k in each piece but the last, and the like.
    fn read(name: &str) -> Option<Self> {
        let (name, edges) = name.strip_suffix(EDGES).map_or((name, false), |name| (name, true));
        let (name, packed) = name.strip_suffix(PACKED).map_or((name, false), |name| (name, true));
        let (name, split) = match (name.split_once(SPLIT), name.split_once(LENGTH)) {
            (Some((name, pieces)), _) => (name, Split::Pieces(pieces.parse().ok()?)),
            (None, Some((name, length))) => (name, Split::Length(length.parse().ok()?)),
            (None, None) => (name, Split::WHOLE),
        };
        let strategy = match (split.is_whole(), edges) {
            (true, false) => Strategy::Whole,
            (true, true) => Strategy::PeelEdges,
            (false, false) => Strategy::SplitK(split),
            (false, true) => return None,
        };
        Some(Self { kernel: kernel_override::find(Kernel::all(), name)?, strategy, packed })
    }
}

/// As it is read.
impl fmt::Display for KernelOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kernel)?;
        match self.strategy {
            Strategy::SplitK(Split::Pieces(pieces)) => write!(f, "{SPLIT}{pieces}")?,
            Strategy::SplitK(Split::Length(length)) => write!(f, "{LENGTH}{length}")?,
            _ => {}
        }
        f.write_str(if self.packed { PACKED } else { "" })?;
        f.write_str(if self.strategy == Strategy::PeelEdges { EDGES } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::kernel_override::KernelOverride as _;
    use super::*;

    #[test]
    fn names_are_read_back() {
        for name in KernelOverride::names() {
            for (text, strategy) in [
                ("", Strategy::Whole),
                ("+split1", Strategy::Whole),
                ("+split7", Strategy::SplitK(Split::Pieces(7))),
                ("+split7+packed", Strategy::SplitK(Split::Pieces(7))),
                ("+k448", Strategy::SplitK(Split::Length(448))),
                ("+k448+packed", Strategy::SplitK(Split::Length(448))),
                ("+edges", Strategy::PeelEdges),
            ] {
                let parsed = KernelOverride::parse("test", &format!("{name}{text}")).unwrap();
                assert_eq!((parsed.kernel.to_string(), parsed.strategy), (name.clone(), strategy));
                assert_eq!(KernelOverride::parse("test", &parsed.to_string()).unwrap(), parsed);
            }
        }
        for wrong in [
            "",
            "tiled",
            "tiled/1x1x1",
            "cooperative/64x64x64+split",
            "cooperative/64x64x64+split2+edges",
            "cooperative/64x64x64+k",
            "cooperative/64x64x64+k64+edges",
            "cooperative/64x64x64+k64+split2",
            "x+split2",
            "+packed",
        ] {
            assert_eq!(
                KernelOverride::parse("test", wrong).unwrap_err().kind(),
                backend_api::ErrorKind::Unsupported
            );
        }
    }
}
