//! The elements that tensors share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use backend_api::owned::Buffer;

use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::numbers::Numbers;
use crate::workspace::{Block, Workspace};

/// Elements in host memory, in device memory, or in both, each made of the other when it is asked for.
#[derive(Debug)]
pub(super) struct Elements {
    /// How many there are: a tensor of fewer is a view, as what is cached here has this length.
    pub(super) count: usize,
    pub(super) host: OnceLock<Numbers>,
    pub(super) device: OnceLock<Arc<Block>>,
    /// Whether the numbers were asked for, by which a capture knows what it depends on.
    pub(super) was_read: AtomicBool,
}

impl Elements {
    /// `count` elements that are neither on the host nor on the device yet.
    pub(super) const fn new(count: usize) -> Self {
        Self { count, host: OnceLock::new(), device: OnceLock::new(), was_read: AtomicBool::new(false) }
    }

    /// None, on the side where these are: a captured run does on the device what it did there.
    pub(super) fn none(&self, kind: Kind) -> Self {
        let none = Self::new(0);
        match (self.device.get(), self.host.get()) {
            (Some(block), _) => Self { device: Arc::clone(block).into(), ..none },
            (None, Some(_)) => Self { host: Numbers::decode(kind, &[]).into(), ..none },
            (None, None) => none,
        }
    }

    /// Reads from device memory.
    pub(super) fn read(&self, bytes: &mut [u8]) -> Result<()> {
        let block = self.device.get().ok_or_else(|| Error::invalid("a tensor without elements"))?;
        if block.is_leased() {
            return Err(Error::Uncapturable);
        }
        if let Some(buffer) = block.buffer().filter(|_| !bytes.is_empty()) {
            buffer.backend().copy_dtoh(bytes, buffer.ptr())?;
        }
        Ok(())
    }

    /// The handle of the device memory, to which numbers on the host are uploaded.
    pub(super) fn ptr(&self, kind: Kind, memory: Workspace<'_>) -> Result<u64> {
        if let Some(buffer) = self.device.get().and_then(|block| block.buffer()) {
            return if Arc::ptr_eq(buffer.backend(), memory.backend()) {
                Ok(buffer.ptr())
            } else {
                Err(Error::invalid("a tensor lies on another device, or on one that was lost"))
            };
        }
        let numbers = self.host.get().ok_or_else(|| Error::invalid("a tensor without elements"))?;
        let block = Arc::new(written(memory, &numbers.encode_device(kind))?);
        // Of two threads that upload at once, one keeps its buffer.
        let buffer = self.device.get_or_init(|| block).buffer();
        buffer.map(Buffer::ptr).ok_or_else(|| Error::invalid("a tensor without memory"))
    }
}

/// Memory that holds `bytes`.
pub(super) fn written(memory: Workspace<'_>, bytes: &[u8]) -> Result<Block> {
    let block = memory.upload(bytes.len())?;
    if let Some(buffer) = block.buffer().filter(|_| !bytes.is_empty()) {
        buffer.backend().copy_htod(buffer.ptr(), bytes)?;
    }
    Ok(block)
}
