//! A kernel of attention that a test or a measurement asks for.

use std::fmt;

use super::plan::Kernel;
#[cfg(feature = "test-hooks")]
use super::{cooperative, decode, decode_cooperative, flash, split};
#[cfg(feature = "test-hooks")]
use crate::kernels::KernelSource;
use crate::ops::shared::kernel_override;

/// The kernel to be used wherever it can be, into how many pieces the keys are split where it splits them, and whether
/// the last workgroup puts these together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelOverride {
    pub(super) kernel: Kernel,
    pub(super) splits: usize,
    pub(super) fixup: bool,
}

/// Behind the name of a kernel whose last workgroup puts the pieces together.
const FIXUP: &str = "+fixup";

impl kernel_override::KernelOverride for KernelOverride {
    fn all() -> impl Iterator<Item = impl fmt::Display> {
        Kernel::all()
    }

    /// Reads `flash/64x64x64r8`, `split/4+split16`, `split/4+split16+fixup` and the like.
    fn read(name: &str) -> Option<Self> {
        let (plan, fixup) = name.strip_suffix(FIXUP).map_or((name, false), |plan| (plan, true));
        let (kernel, count) = plan.split_once("+split").unwrap_or((plan, "1"));
        let kernel = kernel_override::find(Kernel::all(), kernel)?;
        // As it is written: no sign, no zero before it.
        let splits = count.parse().ok().filter(|splits: &usize| *splits > 0 && splits.to_string() == count);
        Some(Self { kernel, splits: splits?, fixup })
    }
}

#[cfg(feature = "test-hooks")]
impl KernelOverride {
    /// The kernel's WGSL file.
    pub(crate) fn source(self) -> &'static KernelSource {
        match self.kernel {
            Kernel::Flash(_) => &flash::FLASH,
            Kernel::Cooperative(_) => &cooperative::COOPERATIVE,
            Kernel::DecodeCooperative(_) => &decode_cooperative::DECODE,
            Kernel::Decode(_) => &decode::DECODE,
            Kernel::Split(_) => &split::SPLIT,
        }
    }
}

/// As it is read.
impl fmt::Display for KernelOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.splits {
            1 => write!(f, "{}", self.kernel)?,
            splits => write!(f, "{}+split{splits}", self.kernel)?,
        }
        f.write_str(if self.fixup { FIXUP } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::kernel_override::KernelOverride as _;
    use super::*;

    #[test]
    fn names_are_read_back() {
        for name in KernelOverride::names() {
            for (splits, fixup) in [(1, false), (7, false), (7, true)] {
                let text = format!("{name}+split{splits}{}", if fixup { FIXUP } else { "" });
                let forced = KernelOverride::parse("test", &text).unwrap();
                let read = (forced.kernel.to_string(), forced.splits, forced.fixup);
                assert_eq!(read, (name.clone(), splits, fixup));
            }
        }
        let counts = ["", "0", "00", "01", "+1", "-1", " 1", "1 ", "1+split2", "99999999999999999999"];
        let counts = counts.map(|count| format!("split/4+split{count}"));
        for wrong in
            ["", "flash", "flash/1x1x1r1", "split/4+", "split/4 ", "x+split2", "split/4+fixup+split2"]
                .map(str::to_owned)
                .iter()
                .chain(&counts)
        {
            let error = KernelOverride::parse("test", wrong).unwrap_err();
            assert_eq!(error.kind(), backend_api::ErrorKind::Unsupported, "{wrong}");
        }
    }
}
