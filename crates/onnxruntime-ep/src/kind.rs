//! Element types of ONNX tensors, and how the device stores them.

use backend_api::DType;

/// An element type that the provider computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 64 bits: exact on the host, narrowed to 32 bits on the device, where only indices go.
    I64,
    /// A truth value: a byte on the host, a u32 of 0 or 1 on the device.
    Bool,
    /// Signed, 8 bits: a byte on the host, an i32 on the device.
    I8,
    /// Unsigned, 8 bits: a byte on the host, a u32 on the device; or bytes that ONNX Runtime copies without
    /// telling what they are. Only quantisation computes with numbers of 8 bits.
    Raw,
}

impl Kind {
    /// The type of a `TensorProto.DataType`; `None` for one that the provider leaves to ONNX Runtime.
    pub(crate) const fn from_onnx(code: i32) -> Option<Self> {
        Some(match code {
            1 => Self::F32,
            6 => Self::I32,
            7 => Self::I64,
            9 => Self::Bool,
            10 => Self::F16,
            12 => Self::U32,
            _ => return None,
        })
    }

    /// The type of a tensor that is copied: any type that a node may have, and bytes.
    pub(crate) const fn of_copies(code: i32) -> Option<Self> {
        match code {
            2 => Some(Self::Raw),
            3 => Some(Self::I8),
            _ => Self::from_onnx(code),
        }
    }

    /// Whether it has 8 bits, of which only some operators know what they are.
    pub(crate) const fn is_bytes(self) -> bool {
        matches!(self, Self::I8 | Self::Raw)
    }

    /// Bytes of an element in ONNX Runtime's tensors.
    pub(crate) const fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::Raw => 1,
            Self::F16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::I64 => 8,
        }
    }

    /// The element type in device memory.
    pub(crate) const fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F16 => DType::F16,
            Self::I32 | Self::I64 | Self::I8 => DType::I32,
            Self::U32 | Self::Bool | Self::Raw => DType::U32,
        }
    }

    /// Whether host and device store an element alike.
    pub(crate) const fn is_same_on_device(self) -> bool {
        !matches!(self, Self::I64 | Self::Bool | Self::I8 | Self::Raw)
    }

    /// Whether it is a floating-point type.
    pub(crate) const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16)
    }
}
