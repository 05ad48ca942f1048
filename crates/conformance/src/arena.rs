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
}

impl Arena {
    /// An arena of blocks of `bytes` each.
    ///
    /// # Errors
    /// What [`alloc`](ComputeBackend::alloc) returns.
    pub fn new(backend: &dyn ComputeBackend, bytes: usize) -> BackendResult<Self> {
        let mut arena = Self { blocks: Vec::new(), bytes };
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
            Some(before) => (0, START + before.next_multiple_of(256)),
            None => (operand, START),
        };
        match self.blocks.get(index) {
            Some(&block) if start + len <= self.bytes => backend.view(block, start, len),
            _ => backend.alloc(len),
        }
    }
}
