//! A kernel that a test or a measurement asks for.

use std::fmt;

#[cfg(feature = "test-hooks")]
use backend_api::{Activation, DType};

use super::kernel::Kernel;
#[cfg(feature = "test-hooks")]
use super::kernel::Signature;
use super::strategy::Strategy;
#[cfg(feature = "test-hooks")]
use crate::kernels::KernelSource;
use crate::ops::shared::kernel_override;

const SPLIT: &str = "+split";
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

    /// Reads `tiled/128x64x32+packed`, `cooperative/64x64x64+split4` and the like.
    fn read(name: &str) -> Option<Self> {
        let (name, edges) = name.strip_suffix(EDGES).map_or((name, false), |name| (name, true));
        let (name, packed) = name.strip_suffix(PACKED).map_or((name, false), |name| (name, true));
        let (name, splits) = name.split_once(SPLIT).unwrap_or((name, "1"));
        let strategy = match (splits.parse().ok()?, edges) {
            (0 | 1, false) => Strategy::Whole,
            (0 | 1, true) => Strategy::PeelEdges,
            (splits, false) => Strategy::SplitK(splits),
            (_, true) => return None,
        };
        Some(Self { kernel: kernel_override::find(Kernel::all(), name)?, strategy, packed })
    }
}

/// As it is read.
impl fmt::Display for KernelOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kernel)?;
        if let Strategy::SplitK(splits) = self.strategy {
            write!(f, "{SPLIT}{splits}")?;
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
                ("+split7", Strategy::SplitK(7)),
                ("+split7+packed", Strategy::SplitK(7)),
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
