//! Buffers that the caller has beside the backend.

use std::sync::{Arc, Weak};

use super::{Block, Storage};

/// The buffers that were imported or exported and are still in use.
///
/// WebGPU orders uses of one buffer, and so does the recorder: an imported buffer that is known already has
/// to be the same block, or an upload through one handle would overtake a kernel that reads through the
/// other.
#[derive(Debug, Default)]
pub(crate) struct SharedBuffers {
    known: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    /// While a handle or a recorded use of it lives.
    block: Weak<Block>,
    /// While a batch that uses it has not been submitted, too: the recorder keeps it.
    storage: Weak<Storage>,
}

impl SharedBuffers {
    /// The block of a buffer.
    pub(crate) fn import(&mut self, buffer: wgpu::Buffer) -> Arc<Block> {
        self.forget_dropped();
        for known in &mut self.known {
            let Some(storage) = known.storage.upgrade().filter(|storage| storage.buffer() == &buffer) else {
                continue;
            };
            if let Some(block) = known.block.upgrade() {
                return block;
            }
            // No second entry, or the next import would find this one, whose block is gone.
            let block = Arc::new(Block::outside(storage));
            known.block = Arc::downgrade(&block);
            return block;
        }
        let block = Arc::new(Block::outside(Arc::new(Storage::new(buffer, None))));
        self.add(&block);
        block
    }

    /// Notes that the caller gets a block's buffer.
    pub(crate) fn export(&mut self, block: &Arc<Block>) {
        self.forget_dropped();
        block.share();
        if !self.known.iter().any(|known| std::ptr::eq(known.block.as_ptr(), Arc::as_ptr(block))) {
            self.add(block);
        }
    }

    fn add(&mut self, block: &Arc<Block>) {
        block.share();
        self.known.push(Known { block: Arc::downgrade(block), storage: Arc::downgrade(block.storage()) });
    }

    fn forget_dropped(&mut self) {
        self.known.retain(|known| known.storage.strong_count() > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WebGpuBackend;

    #[test]
    fn a_buffer_that_is_known_is_the_memory_that_it_was() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let buffer = || {
            let usage = wgpu::BufferUsages::STORAGE;
            let descriptor =
                wgpu::BufferDescriptor { label: None, size: 16, usage, mapped_at_creation: false };
            backend.device().unwrap().create_buffer(&descriptor)
        };
        let [first, second] = [buffer(), buffer()];
        let mut shared = SharedBuffers::default();
        let block = shared.import(first.clone());
        assert!(block.is_shared() && Arc::ptr_eq(&block, &shared.import(first.clone())));
        let other = shared.import(second.clone());
        assert!(!Arc::ptr_eq(&block, &other) && shared.known.len() == 2);
        // A batch still uses it when its handles are gone.
        let used = Arc::clone(block.storage());
        drop(block);
        let again = shared.import(first.clone());
        assert!(Arc::ptr_eq(again.storage(), &used) && again.is_shared());
        assert!(Arc::ptr_eq(&again, &shared.import(first)) && shared.known.len() == 2);
        shared.export(&again);
        assert_eq!(shared.known.len(), 2, "known already");
        drop((other, again, used));
        let exported = Arc::new(Block::foreign(buffer()));
        shared.export(&exported);
        assert!(exported.is_shared() && shared.known.len() == 1, "the others are forgotten");
        assert!(Arc::ptr_eq(&exported, &shared.import(exported.buffer().clone())));
    }
}
