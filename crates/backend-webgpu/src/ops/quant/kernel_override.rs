//! A kernel for products with a quantised matrix that a test or a measurement asks for.

use std::fmt;

use crate::ops::shared::kernel_override;

/// The kernel to be used wherever it can make a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelOverride {
    Decode,
    DecodeSubgroup,
    SkinnyCooperative,
    Tiled,
    /// `quant/decode` of activations of 8 bits.
    DecodeInt8,
    /// `quant/decode_subgroup` of activations of 8 bits.
    DecodeSubgroupInt8,
}

impl KernelOverride {
    const ALL: [Self; 6] = [
        Self::Decode,
        Self::DecodeSubgroup,
        Self::SkinnyCooperative,
        Self::Tiled,
        Self::DecodeInt8,
        Self::DecodeSubgroupInt8,
    ];
}

impl kernel_override::KernelOverride for KernelOverride {
    fn all() -> impl Iterator<Item = impl fmt::Display> {
        Self::ALL.into_iter()
    }

    /// Reads `decode+int8` and the like.
    fn read(name: &str) -> Option<Self> {
        kernel_override::find(Self::ALL.into_iter(), name)
    }
}

/// As it is read.
impl fmt::Display for KernelOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Decode => "decode",
            Self::DecodeSubgroup => "decode_subgroup",
            Self::SkinnyCooperative => "skinny_cooperative",
            Self::Tiled => "tiled",
            Self::DecodeInt8 => "decode+int8",
            Self::DecodeSubgroupInt8 => "decode_subgroup+int8",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::kernel_override::KernelOverride as _;
    use super::*;

    #[test]
    fn names_are_read_back() {
        for name in KernelOverride::names() {
            assert_eq!(KernelOverride::parse("test", &name).unwrap().to_string(), name);
        }
        assert!(KernelOverride::parse("test", "decode+int4").is_err());
    }
}
