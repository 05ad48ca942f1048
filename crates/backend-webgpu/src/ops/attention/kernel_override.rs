//! A kernel of attention that a test or a measurement asks for.

use std::fmt;

use super::pieces::Division;
use super::plan::Kernel;
#[cfg(feature = "test-hooks")]
use super::{cooperative, decode, decode_cooperative, flash, split};
#[cfg(feature = "test-hooks")]
use crate::kernels::KernelSource;
use crate::ops::shared::kernel_override;

/// The kernel to be used wherever it can be, how the keys are divided where it divides them, and whether the last
/// workgroup puts pieces together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelOverride {
    pub(super) kernel: Kernel,
    pub(super) division: Division,
    pub(super) fixup: bool,
}

/// Behind the name of a kernel whose last workgroup puts the pieces together.
const FIXUP: &str = "+fixup";

impl kernel_override::KernelOverride for KernelOverride {
    fn all() -> impl Iterator<Item = impl fmt::Display> {
        Kernel::all()
    }

    /// Reads `flash/64x64x64r8`, `flash/64x64x64r8+blocks7`, `split/4+split16`, `split/4+split16+fixup` and the like.
    fn read(name: &str) -> Option<Self> {
        let (plan, fixup) = name.strip_suffix(FIXUP).map_or((name, false), |plan| (plan, true));
        let (name, division) = plan.find('+').map_or((plan, ""), |at| plan.split_at(at));
        let kernel = kernel_override::find(Kernel::all(), name)?;
        let has_blocks = matches!(kernel, Kernel::Flash(_)) && !fixup;
        let division = match (division.strip_prefix("+split"), division.strip_prefix("+blocks")) {
            _ if division.is_empty() => Division::WHOLE,
            (Some(pieces), _) => Division::Pieces(count(pieces)?),
            (_, Some(blocks)) if has_blocks => Division::Blocks(count(blocks)?),
            _ => return None,
        };
        Some(Self { kernel, division, fixup })
    }
}

/// A number above 0 as it is written: no sign, no zero before it.
fn count(text: &str) -> Option<usize> {
    text.parse().ok().filter(|count: &usize| *count > 0 && count.to_string() == text)
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
        write!(f, "{}{}{}", self.kernel, self.division, if self.fixup { FIXUP } else { "" })
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
                let read = (forced.kernel.to_string(), forced.division, forced.fixup);
                assert_eq!(read, (name.clone(), Division::Pieces(splits), fixup));
            }
            let text = format!("{name}+blocks7");
            let read = KernelOverride::read(&text);
            assert_eq!(read.map(|forced| forced.to_string()), name.starts_with("flash/").then_some(text));
        }
        let counts = ["", "0", "00", "01", "+1", "-1", " 1", "1 ", "1+split2", "99999999999999999999"];
        let counts = ["split/4+split", "flash/64x64x64r8+blocks"]
            .map(|kernel| counts.map(|count| format!("{kernel}{count}")))
            .concat();
        for wrong in [
            "",
            "flash",
            "flash/1x1x1r1",
            "split/4+",
            "split/4 ",
            "x+split2",
            "split/4+fixup+split2",
            "flash/64x64x64r8+blocks2+fixup",
        ]
        .map(str::to_owned)
        .iter()
        .chain(&counts)
        {
            let error = KernelOverride::parse("test", wrong).unwrap_err();
            assert_eq!(error.kind(), backend_api::ErrorKind::Unsupported, "{wrong}");
        }
    }
}
