//! One allocation.

use std::sync::{Arc, Weak};

use super::{Pool, Use};
use crate::device::LastHandle;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Identifies a wgpu buffer for as long as the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BufferId(u64);

/// A buffer with what the recorder has to know of it. It outlives the allocations that reuse it.
#[derive(Debug)]
pub(crate) struct Storage {
    buffer: wgpu::Buffer,
    id: BufferId,
    /// The last batch of the recorder whose kernels use it.
    last_batch: AtomicU64,
    /// The last batch that writes it, by a kernel or an upload.
    last_write: AtomicU64,
    /// The late error that may have spoiled its content, by its number in `Health`; 0 for none.
    spoiled: AtomicU64,
    /// Whether no result is made of its content.
    is_internal: bool,
    /// Whether the caller has the buffer itself, by export or import.
    shared: AtomicBool,
    /// Below the buffer, as fields are dropped in their order; `None` for one that ends with the backend, or that the caller has.
    _last: Option<Arc<LastHandle>>,
}

impl Storage {
    pub(crate) fn new(buffer: wgpu::Buffer, last: Option<Arc<LastHandle>>) -> Self {
        // Not of `sync`: tests that run beside each other share it.
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let id = BufferId(NEXT.fetch_add(1, Ordering::Relaxed));
        Self {
            buffer,
            id,
            last_batch: AtomicU64::new(0),
            last_write: AtomicU64::new(0),
            spoiled: AtomicU64::new(0),
            is_internal: false,
            shared: AtomicBool::new(false),
            _last: last,
        }
    }

    pub(crate) fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// Bytes of the buffer; it was allocated within `usize`.
    pub(crate) fn size(&self) -> usize {
        self.buffer.size() as usize
    }

    /// The last batch that uses it.
    pub(crate) fn last_use(&self) -> u64 {
        self.last_batch.load(Ordering::Relaxed).max(self.last_write.load(Ordering::Relaxed))
    }

    /// Notes that `batch` writes the buffer; whether it had not before.
    pub(crate) fn write(&self, batch: u64) -> bool {
        self.last_write.swap(batch, Ordering::Relaxed) != batch
    }

    /// Notes that the late error of this number may have kept the content from being written.
    pub(crate) fn spoil(&self, error: u64) {
        if !self.is_internal {
            self.spoiled.fetch_max(error, Ordering::Relaxed);
        }
    }

    pub(crate) fn spoiled(&self) -> u64 {
        self.spoiled.load(Ordering::Relaxed)
    }

    /// Forgets the content, for the next allocation.
    pub(crate) fn renew(&self) {
        self.spoiled.store(0, Ordering::Relaxed);
    }
}

/// One allocation: its buffer goes back to the pool when the last handle and the last recorded use are gone.
///
/// An allocation that is larger than a buffer may be is [divided](Self::divided): its bytes lie in several blocks, one
/// behind the other. Launches, uploads and reads work with these [parts](Self::pieces); what is recorded keeps those
/// that it uses.
#[derive(Debug)]
pub(crate) struct Block {
    /// Of a divided block, its first part's.
    storage: Arc<Storage>,
    pool: Weak<Pool>,
    of: Use,
    parts: Option<Box<Parts>>,
}

/// The blocks that a divided one consists of.
#[derive(Debug)]
struct Parts {
    blocks: Vec<Arc<Block>>,
    /// Bytes of each but the last one.
    len: usize,
}

/// Some bytes of a block that lie in one buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) block: &'a Arc<Block>,
    /// Its first byte in that buffer.
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl Block {
    pub(crate) fn pooled(storage: Arc<Storage>, pool: Weak<Pool>, of: Use) -> Self {
        Self { storage, pool, of, parts: None }
    }

    /// A buffer that is not the pool's.
    pub(crate) fn foreign(buffer: wgpu::Buffer) -> Self {
        Self::outside(Arc::new(Storage::new(buffer, None)))
    }

    /// A buffer of the backend's own, of whose content no result is made, so that late errors don't spoil it.
    pub(crate) fn internal(buffer: wgpu::Buffer) -> Self {
        Self::outside(Arc::new(Storage { is_internal: true, ..Storage::new(buffer, None) }))
    }

    /// A buffer of a test's own. It may outlive the backend.
    #[cfg(test)]
    pub(crate) fn of_test(device: &wgpu::Device, size: u64) -> Arc<Self> {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
        let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        let last = Arc::new(LastHandle::new(device));
        Arc::new(Self::outside(Arc::new(Storage::new(device.create_buffer(&descriptor), Some(last)))))
    }

    /// A buffer that doesn't go back to a pool.
    pub(crate) fn outside(storage: Arc<Storage>) -> Self {
        let of = Use { asked: 0, is_scratch: false };
        Self { storage, pool: Weak::new(), of, parts: None }
    }

    /// A block whose bytes lie in several, `len` of them in each but the last one; the only block, if there is one.
    pub(crate) fn divided(first: Arc<Self>, rest: Vec<Arc<Self>>, len: usize) -> Arc<Self> {
        if rest.is_empty() {
            return first;
        }
        let storage = Arc::clone(&first.storage);
        let blocks = std::iter::once(first).chain(rest).collect();
        let parts = Some(Box::new(Parts { blocks, len }));
        let mut block = Self::outside(storage);
        block.parts = parts;
        Arc::new(block)
    }

    /// Whether it has several buffers.
    pub(crate) fn is_divided(&self) -> bool {
        self.parts.is_some()
    }

    /// Bytes of each buffer but the last one of a divided block.
    pub(crate) fn part_len(&self) -> Option<usize> {
        self.parts.as_ref().map(|parts| parts.len)
    }

    /// Whether some bytes lie in several buffers.
    pub(crate) fn is_cut_within(&self, start: usize, bytes: usize) -> bool {
        self.part_len().is_some_and(|len| are_cut(len, start, bytes))
    }

    /// What of the `bytes` bytes from `start` on lies in one buffer, from the first one on.
    pub(crate) fn piece<'a>(self: &'a Arc<Self>, start: usize, bytes: usize) -> Piece<'a> {
        if let Some(parts) = &self.parts {
            let at = (start / parts.len).min(parts.blocks.len() - 1);
            let offset = start - at * parts.len;
            let room = if at + 1 == parts.blocks.len() { bytes } else { parts.len - offset };
            return Piece { block: &parts.blocks[at], offset, len: bytes.min(room) };
        }
        Piece { block: self, offset: start, len: bytes }
    }

    /// The pieces of `bytes` bytes from `start` on, in order.
    pub(crate) fn pieces(self: &Arc<Self>, start: usize, bytes: usize) -> impl Iterator<Item = Piece<'_>> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let piece = (done < bytes).then(|| self.piece(start + done, bytes - done))?;
            done += piece.len;
            Some(piece)
        })
    }

    /// Of a divided block, that of its first part, which no other block has.
    pub(crate) fn id(&self) -> BufferId {
        self.storage.id
    }

    /// The buffer of a block that isn't divided.
    pub(crate) fn buffer(&self) -> &wgpu::Buffer {
        self.storage().buffer()
    }

    pub(crate) fn size(&self) -> usize {
        match &self.parts {
            None => self.storage.size(),
            // The last buffer may be larger than what was asked for.
            Some(parts) => parts.blocks.iter().map(|block| block.size().min(parts.len)).sum(),
        }
    }

    /// The storage of a block that isn't divided.
    pub(crate) fn storage(&self) -> &Arc<Storage> {
        debug_assert!(!self.is_divided(), "a divided block is used by its parts");
        &self.storage
    }

    /// Notes that kernels of `batch` use the buffer.
    pub(crate) fn touch(&self, batch: u64) {
        self.storage().last_batch.store(batch, Ordering::Relaxed);
    }

    /// Whether kernels of `batch` use the buffer.
    pub(crate) fn is_touched_by(&self, batch: u64) -> bool {
        self.storage().last_batch.load(Ordering::Relaxed) == batch
    }

    /// Keeps the buffer out of the pool for good: the caller may use or destroy it at any time.
    pub(crate) fn share(&self) {
        self.storage().shared.store(true, Ordering::Relaxed);
    }

    /// Whether the caller has the buffer itself.
    pub(crate) fn is_shared(&self) -> bool {
        self.storage().shared.load(Ordering::Relaxed)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            let storage = Arc::clone(&self.storage);
            pool.recycle(storage, self.of, !self.storage.shared.load(Ordering::Relaxed));
        }
    }
}

/// Whether some bytes lie in several buffers of `len` bytes.
pub(crate) fn are_cut(len: usize, start: usize, bytes: usize) -> bool {
    bytes > 0 && start / len != (start + bytes - 1) / len
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WebGpuBackend;

    /// Blocks of buffers of so many bytes.
    fn blocks<const N: usize>(bytes: [u64; N]) -> [Arc<Block>; N] {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        bytes.map(|size| Block::of_test(backend.device().unwrap(), size))
    }

    #[test]
    fn pieces_of_a_divided_block_lie_in_one_buffer_each() {
        let blocks = blocks([80, 64, 40]);
        let [first, rest @ ..] = blocks.clone();
        let divided = Block::divided(first, rest.to_vec(), 64);
        let pieces = |start, bytes| {
            let number = |piece: &Piece<'_>| blocks.iter().position(|block| Arc::ptr_eq(block, piece.block));
            let place = |piece: Piece<'_>| (number(&piece).unwrap(), piece.offset, piece.len);
            divided.pieces(start, bytes).map(place).collect::<Vec<_>>()
        };
        assert_eq!(pieces(0, 168), [(0, 0, 64), (1, 0, 64), (2, 0, 40)]);
        assert_eq!(pieces(10, 150), [(0, 10, 54), (1, 0, 64), (2, 0, 32)]);
        assert_eq!(pieces(60, 4), [(0, 60, 4)]);
        assert_eq!(pieces(64, 64), [(1, 0, 64)]);
        assert_eq!(pieces(150, 18), [(2, 22, 18)]);
        assert_eq!(pieces(100, 0), []);
        // What passes the end is the last buffer's.
        assert_eq!(pieces(200, 10), [(2, 72, 10)]);
        assert_eq!((divided.size(), divided.part_len()), (168, Some(64)));
        assert_eq!(divided.id(), blocks[0].id());
        assert!(divided.is_divided() && divided.is_cut_within(63, 2) && !divided.is_cut_within(64, 64));
    }

    #[test]
    fn a_block_of_one_buffer_is_not_divided() {
        let [only] = blocks([80]);
        let block = Block::divided(Arc::clone(&only), Vec::new(), 64);
        assert!(Arc::ptr_eq(&block, &only) && !block.is_divided());
        assert_eq!((block.size(), block.part_len(), block.is_cut_within(0, 80)), (80, None, false));
        let Piece { offset, len, .. } = block.piece(60, 20);
        assert_eq!((offset, len), (60, 20));
    }

    #[test]
    fn bytes_are_cut_where_a_buffer_ends_among_them() {
        let cut = [(0, 64), (0, 65), (63, 1), (63, 2), (64, 64), (1, 64), (64, 0), (0, 0)];
        assert_eq!(
            cut.map(|(start, bytes)| are_cut(64, start, bytes)),
            [false, true, false, true, false, true, false, false]
        );
    }

    #[test]
    fn a_buffer_is_in_use_until_the_last_batch_that_reads_or_writes_it() {
        let [block, other] = blocks([16, 16]);
        let storage = block.storage();
        assert_eq!(storage.last_use(), 0);
        assert_eq!(
            [3, 3, 4].map(|batch| storage.write(batch)),
            [true, false, true],
            "whether it is the first"
        );
        assert_eq!(storage.last_use(), 4);
        assert!(!block.is_touched_by(4));
        block.touch(7);
        assert!(block.is_touched_by(7) && !block.is_touched_by(6));
        assert_eq!((storage.last_use(), other.storage().last_use()), (7, 0));
        assert_ne!(block.id(), other.id());
        assert!(!block.is_shared());
        block.share();
        assert!(block.is_shared() && !other.is_shared());
    }

    #[test]
    fn the_newest_error_spoils_a_buffer_until_it_is_renewed() {
        let [block] = blocks([16]);
        let storage = block.storage();
        assert_eq!(storage.spoiled(), 0);
        [5, 2].into_iter().for_each(|error| storage.spoil(error));
        assert_eq!(storage.spoiled(), 5);
        storage.renew();
        assert_eq!(storage.spoiled(), 0);
    }
}
