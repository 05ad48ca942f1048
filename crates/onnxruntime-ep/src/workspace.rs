//! Device memory of a run: where tensors get it from, and who gets it back.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use backend_api::ComputeBackend;
use backend_api::owned::Buffer;
use parking_lot::Mutex;

use crate::error::Result;

/// Where tensors get device memory from: the backend, or the arena of a capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workspace<'a> {
    backend: &'a Arc<dyn ComputeBackend>,
    arena: Option<&'a Arc<Arena>>,
}

impl<'a> Workspace<'a> {
    /// The backend's own memory.
    pub(crate) const fn new(backend: &'a Arc<dyn ComputeBackend>) -> Self {
        Self { backend, arena: None }
    }

    /// Memory for results between the operations of a capture.
    pub(crate) const fn of_capture(backend: &'a Arc<dyn ComputeBackend>, arena: &'a Arc<Arena>) -> Self {
        Self { backend, arena: Some(arena) }
    }

    /// Whose memory it is.
    pub(crate) const fn backend(self) -> &'a Arc<dyn ComputeBackend> {
        self.backend
    }

    /// Memory for a result of at least `bytes` bytes.
    pub(crate) fn result(self, bytes: usize) -> Result<Block> {
        let bytes = allocated(bytes);
        let Some(arena) = self.arena else { return self.upload(bytes) };
        let buffer = match arena.take(bytes) {
            Some(buffer) => buffer,
            None => Buffer::own(self.backend, self.backend.alloc(bytes)?, bytes),
        };
        Ok(Block::Leased(Lease { buffer: Some(buffer), arena: Arc::clone(arena) }))
    }

    /// Memory for at least `bytes` bytes that are uploaded. A captured graph may use it at any place, so it
    /// is never taken from an arena.
    pub(crate) fn upload(self, bytes: usize) -> Result<Block> {
        let bytes = allocated(bytes);
        Ok(Block::Own(Buffer::own(self.backend, self.backend.alloc(bytes)?, bytes)))
    }
}

/// Whole words, and never none.
fn allocated(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(4)
}

/// Memory that results of a captured graph share one after the other: what a tensor gives back, a later one
/// of the same capture takes. A backend's own pool can't know that, as a graph keeps every block that it
/// uses.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    free: Mutex<Vec<Buffer>>,
}

impl Arena {
    /// The smallest free buffer of at least `bytes` bytes and not of twice as many.
    fn take(&self, bytes: usize) -> Option<Buffer> {
        let mut free = self.free.lock();
        let fits = |buffer: &Buffer| buffer.bytes() >= bytes && buffer.bytes() / 2 < bytes;
        let fitting = free.iter().enumerate().filter(|(_, buffer)| fits(buffer));
        let (place, _) = fitting.min_by_key(|(_, buffer)| buffer.bytes())?;
        Some(free.swap_remove(place))
    }
}

/// A buffer of an arena, which gets it back.
#[derive(Debug)]
pub(crate) struct Lease {
    buffer: Option<Buffer>,
    arena: Arc<Arena>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.arena.free.lock().extend(self.buffer.take());
    }
}

/// The device memory of a tensor.
pub(crate) enum Block {
    /// Its own.
    Own(Buffer),
    /// An arena's: it has contents only while the graph runs.
    Leased(Lease),
    /// A graph's, which doesn't run again before the holder is dropped.
    Lent {
        /// The memory.
        of: Arc<Self>,
        /// What keeps the graph.
        _holder: Arc<dyn Any + Send + Sync>,
    },
}

impl Block {
    /// The memory.
    pub(crate) fn buffer(&self) -> Option<&Buffer> {
        match self {
            Self::Own(buffer) => Some(buffer),
            Self::Leased(lease) => lease.buffer.as_ref(),
            Self::Lent { of, .. } => of.buffer(),
        }
    }

    /// Whether the contents are there only while a graph runs.
    pub(crate) const fn is_leased(&self) -> bool {
        matches!(self, Self::Leased(_))
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Block").field(&self.buffer()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend_cpu::CpuBackend;

    #[test]
    fn an_arena_hands_out_what_it_got_back() {
        let backend: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
        let arena = Arc::new(Arena::default());
        let memory = Workspace::of_capture(&backend, &arena);
        let ptr = |block: &Block| block.buffer().unwrap().ptr();
        let (first, second) = (memory.result(100).unwrap(), memory.result(100).unwrap());
        let freed = ptr(&first);
        assert_ne!(freed, ptr(&second));
        drop(first);
        assert_ne!(ptr(&memory.result(10).unwrap()), freed, "much smaller");
        assert_eq!(ptr(&memory.result(90).unwrap()), freed);
        assert_ne!(ptr(&memory.upload(100).unwrap()), freed);
    }
}
