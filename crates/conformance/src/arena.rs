//! Operands inside memory that is larger than what a kernel can bind.

use backend_api::{BackendResult, ComputeBackend};

/// The most operands that a call has.
const OPERANDS: usize = 12;

/// Byte offset of what lies in a block. Kernels bind from a multiple of 256 bytes, so all that lies there is
/// bound from the same byte on, however long it is.
const START: usize = 4096;

/// Large allocations that stay, in which cases place their operands: each in a block of its own or all in
/// one, from the same byte on in every case. Bindings of the same start and of other lengths follow each
/// other, as those of a cache of keys and values do.
///
/// One case at a time may run within an arena.
#[derive(Debug)]
pub struct Arena {
    blocks: Vec<u64>,
    bytes: usize,
    /// The byte that operands lie around.
    middle: Option<usize>,
}

impl Arena {
    /// An arena of blocks of `bytes` each.
    ///
    /// # Errors
    /// What [`alloc`](ComputeBackend::alloc) returns.
    pub fn new(backend: &dyn ComputeBackend, bytes: usize) -> BackendResult<Self> {
        let mut arena = Self { blocks: Vec::new(), bytes, middle: None };
        for _ in 0..OPERANDS {
            match backend.alloc(bytes) {
                Ok(block) => arena.blocks.push(block),
                Err(error) => {
                    arena.free(backend)?;
                    return Err(error);
                }
            }
        }
        Ok(arena)
    }

    /// An arena of blocks of `bytes` each, in which operands begin before byte `middle` and end behind it, if they are
    /// long enough: a place where a block may be cut in two.
    ///
    /// # Errors
    /// What [`alloc`](ComputeBackend::alloc) returns.
    pub fn around(backend: &dyn ComputeBackend, bytes: usize, middle: usize) -> BackendResult<Self> {
        Ok(Self { middle: Some(middle), ..Self::new(backend, bytes)? })
    }

    /// Frees the blocks.
    ///
    /// # Errors
    /// What [`free`](ComputeBackend::free) returns.
    pub fn free(self, backend: &dyn ComputeBackend) -> BackendResult<()> {
        self.blocks.into_iter().try_for_each(|block| backend.free(block))
    }

    /// A view of `len` bytes for the operand of this index, behind `before` bytes of others if they share a
    /// block; an allocation of its own where it doesn't fit.
    pub(crate) fn place(
        &self,
        backend: &dyn ComputeBackend,
        operand: usize,
        before: Option<usize>,
        len: usize,
    ) -> BackendResult<u64> {
        let (index, start) = match before {
            Some(before) => {
                let first = self.middle.map_or(START, |middle| middle.saturating_sub(START));
                (0, first + before.next_multiple_of(256))
            }
            None => {
                let start = |middle: usize| middle.saturating_sub((len / 2).next_multiple_of(256));
                (operand, self.middle.map_or(START, start))
            }
        };
        match self.blocks.get(index) {
            Some(&block) if start + len <= self.bytes => backend.view(block, start, len),
            _ => backend.alloc(len),
        }
    }
}
