//! The types of attention's operands, and how kernels read them.

use backend_api::DType;
use backend_api::desc::AttentionDesc;
use backend_api::kv::KvFormat;

/// The type of the queries, how keys and values are stored, and whether they lie in blocks of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types {
    pub(super) q: DType,
    pub(super) kv: KvFormat,
    pub(super) paged: bool,
}

/// Types of operands whose elements are numbers.
pub(super) const FLOATS: [Types; 3] = [
    Types::new(DType::F32, KvFormat::Float(DType::F32)),
    Types::new(DType::F16, KvFormat::Float(DType::F16)),
    Types::new(DType::F32, KvFormat::Float(DType::F16)),
];

/// Types of operands of which keys and values are blocks of Q8_0.
const BLOCKS: [Types; 2] = [Types::new(DType::F32, KvFormat::Q8_0), Types::new(DType::F16, KvFormat::Q8_0)];

/// Every type that kernels for few queries read, at strides and in blocks of a pool.
pub(super) fn every_types() -> impl Iterator<Item = Types> {
    let paged = |types| [false, true].map(|paged| Types { paged, ..types });
    FLOATS.into_iter().chain(BLOCKS).flat_map(paged)
}

pub(super) const fn types(desc: &AttentionDesc) -> Types {
    Types { q: desc.dtype, kv: desc.kv_format, paged: desc.block_table.is_some() }
}

impl Types {
    const fn new(q: DType, kv: KvFormat) -> Self {
        Self { q, kv, paged: false }
    }

    /// The type of what is bound as the mask: the block table is, where there is one.
    pub(super) const fn mask(self) -> DType {
        if self.paged { DType::U32 } else { self.q }
    }

    /// Whether queries, and whether keys and values have elements of f16, and whether these lie in blocks of a pool.
    pub(super) fn constants(self) -> [u32; 3] {
        let half = KvFormat::Float(DType::F16);
        [self.q == DType::F16, self.kv == half, self.paged].map(u32::from)
    }
}

/// How a kernel reads operands: 16 bytes at a time, number by number, or blocks of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Wide,
    Narrow,
    Q8_0,
}

impl Reader {
    /// The reader of these operands, which may begin and end at 16 bytes.
    pub(super) fn of(format: KvFormat, wide: bool) -> Self {
        match format {
            KvFormat::Q8_0 => Self::Q8_0,
            _ if wide => Self::Wide,
            _ => Self::Narrow,
        }
    }
}
