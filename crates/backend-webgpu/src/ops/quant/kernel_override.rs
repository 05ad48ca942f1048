//! A kernel for products with a quantised matrix that a test or a measurement asks for.

use std::fmt;

use backend_api::BackendResult;

use crate::ops::shared::kernel_names;

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

    /// Every kernel, named as [`parse`](Self::parse) reads it.
    pub(crate) fn names() -> Vec<String> {
        kernel_names::all(Self::ALL.into_iter())
    }

    /// Reads `decode+int8` and the like.
    ///
    /// # Errors
    /// [`Unsupported`](backend_api::BackendError::Unsupported).
    pub(crate) fn parse(op: &'static str, name: &str) -> BackendResult<Self> {
        let all = Self::ALL.into_iter();
        kernel_names::find(all.clone(), name).ok_or_else(|| kernel_names::unknown(op, name, all))
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
    use super::*;

    #[test]
    fn names_are_read_back() {
        for name in KernelOverride::names() {
            assert_eq!(KernelOverride::parse("test", &name).unwrap().to_string(), name);
        }
        assert!(KernelOverride::parse("test", "decode+int4").is_err());
    }
}
