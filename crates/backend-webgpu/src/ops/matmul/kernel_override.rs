//! A kernel that a test or a measurement asks for.

use std::fmt;

use backend_api::{BackendError, BackendResult};

use super::kernel::Kernel;

const SPLIT: &str = "+split";
const PACKED: &str = "+packed";
const STRIPS: &str = "+strips";

/// The kernel to be used wherever it can make a product, into how many pieces it splits k, whether operands
/// are copied first, and whether what whole tiles leave over becomes products of its own. `gemm/cooperative`
/// always copies badly aligned operands, and a B that is stored transposed if it is asked to; it alone leaves
/// something over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelOverride {
    pub(super) kernel: Kernel,
    pub(super) splits: usize,
    pub(super) packed: bool,
    pub(super) strips: bool,
}

impl KernelOverride {
    /// Every kernel, named as [`parse`](Self::parse) reads it.
    pub(crate) fn names() -> Vec<String> {
        Kernel::all().map(|kernel| kernel.to_string()).collect()
    }

    /// Reads `tiled/128x64x32+packed`, `cooperative/64x64x64+split4` and the like.
    ///
    /// # Errors
    /// [`Unsupported`](BackendError::Unsupported).
    pub(crate) fn parse(op: &'static str, name: &str) -> BackendResult<Self> {
        Self::read(name).ok_or_else(|| {
            let need = format!("one of the kernels {}, not {name:?}", Self::names().join(", "));
            BackendError::Unsupported { op, need }
        })
    }

    fn read(name: &str) -> Option<Self> {
        let (name, strips) = name.strip_suffix(STRIPS).map_or((name, false), |name| (name, true));
        let (name, packed) = name.strip_suffix(PACKED).map_or((name, false), |name| (name, true));
        let (name, splits) = name.split_once(SPLIT).unwrap_or((name, "1"));
        let kernel = Kernel::all().find(|known| known.to_string() == name)?;
        Some(Self { kernel, splits: splits.parse().ok()?, packed, strips })
    }
}

/// As it is read.
impl fmt::Display for KernelOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kernel)?;
        if self.splits > 1 {
            write!(f, "{SPLIT}{}", self.splits)?;
        }
        f.write_str(if self.packed { PACKED } else { "" })?;
        f.write_str(if self.strips { STRIPS } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for name in KernelOverride::names() {
            for (splits, packed) in [(1, ""), (7, ""), (7, "+packed"), (1, "+strips")] {
                let forced = KernelOverride::parse("test", &format!("{name}+split{splits}{packed}")).unwrap();
                assert_eq!((forced.kernel.to_string(), forced.splits), (name.clone(), splits));
                assert_eq!(KernelOverride::parse("test", &forced.to_string()).unwrap(), forced);
            }
        }
        for wrong in ["", "tiled", "tiled/1x1x1", "cooperative/64x64x64+split", "x+split2", "+packed"] {
            assert_eq!(
                KernelOverride::parse("test", wrong).unwrap_err().kind(),
                backend_api::ErrorKind::Unsupported
            );
        }
    }
}
