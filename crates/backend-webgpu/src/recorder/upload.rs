//! Uploads in order with what is recorded.

use std::sync::Arc;

use backend_api::{BackendError, BackendResult};

use super::bounds::Count;
use super::{Recorder, Ticket};
use crate::memory::Block;

impl Recorder {
    /// Uploads at most [`StagingRing::chunk`] bytes to a buffer, from a multiple of 4 bytes on, in order with what
    /// is recorded. Returns the batch to wait for before another try, if there is no room for them yet.
    ///
    /// # Errors
    /// [`OutOfMemory`](BackendError::OutOfMemory), [`DeviceLost`](BackendError::DeviceLost).
    pub(crate) fn upload(
        &mut self,
        op: &'static str,
        dst: &Block,
        offset: usize,
        chunk: &[u8],
    ) -> BackendResult<Option<Ticket>> {
        if self.staging.is_none() {
            return self.write_by_queue(dst, offset, chunk).map(|()| None);
        }
        if let Some(full) = self.admit(Count::untimed(1), Count::untimed(1))? {
            return Ok(Some(full));
        }
        let written = self.staging.as_mut().map_or(Ok(None), |staging| staging.write(op, chunk));
        let Some((source, start)) = written.map_err(|error| self.unmapped(error))? else {
            // Every buffer of the ring has to reach the device first.
            self.submit()?;
            self.retire();
            return Ok(Some(self.oldest().unwrap_or_else(Ticket::finished)));
        };
        // Nothing in the batch uses the buffer: the copy may come first, and the pass stays open.
        let early = !dst.is_touched_by(self.number);
        let encoder = if early { Self::ensure(&self.device, &mut self.early) } else { self.encoder() };
        let offset = offset as u64;
        encoder.copy_buffer_to_buffer(&source, start, dst.buffer(), offset, chunk.len() as u64);
        if dst.storage().write(self.number) {
            self.written.push(Arc::clone(dst.storage()));
        }
        self.commands = self.commands + Count::untimed(1);
        Ok(None)
    }

    /// Has the queue copy the bytes, behind what the open batch does with the buffer.
    fn write_by_queue(&mut self, dst: &Block, offset: usize, bytes: &[u8]) -> BackendResult<()> {
        self.submitter.health().check()?;
        if dst.is_touched_by(self.number) {
            self.submit()?;
        }
        self.submitter.write(dst.buffer(), offset as u64, bytes);
        Ok(())
    }

    /// What it means that a mapped staging buffer can't be written: nothing but a loss unmaps one.
    fn unmapped(&self, error: BackendError) -> BackendError {
        self.submitter.health().explain(&self.device, error)
    }
}
