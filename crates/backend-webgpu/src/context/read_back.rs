//! Read-backs: `copy_dtoh`.

use std::iter::Peekable;
use std::sync::Arc;

use backend_api::support::{Access, Operand};
use backend_api::{BackendError, BackendResult};

use super::Context;
use crate::device::Witness;
use crate::memory::{Block, DeviceSlice, Piece};
use crate::recorder::{Deadline, Mapped, Signal, Then, Ticket};
use crate::sync::bound;
use crate::transfer::Readback;

/// Pieces of an asynchronous read that begin at once. Other calls may write the memory while it waits, and it may be
/// cancelled: a read of so many pieces has what was there when it began, and leaves all of its destination as it was or none.
const AT_ONCE: usize = bound(16, 2);

/// Bytes of a device copy start and end at multiples of this.
const WORD: usize = wgpu::COPY_BUFFER_ALIGNMENT as usize;

/// Reads from the start of `src` into all of `dst`, blocking.
pub(crate) fn copy_dtoh(ctx: &Context, dst: &mut [u8], src: u64) -> BackendResult<()> {
    let op = "copy_dtoh";
    let witness = ctx.gpu.health.witness();
    let Some(slice) = resolve_source(ctx, op, dst.len(), src)? else {
        return ctx.take_late(op, witness, 0);
    };
    if cfg!(target_family = "wasm") {
        return Err(BackendError::WouldBlock { op });
    }
    let deadline = ctx.deadline(op);
    ctx.wait_for_backlog(&deadline)?;
    let mut pieces = Pieces::new(ctx, &slice, dst);
    while let Some((read, piece)) = pieces.next(&deadline)? {
        read.block(ctx, &deadline, witness, piece)?;
    }
    Ok(())
}

/// Reads from the start of `src` into all of `dst` without blocking.
pub(crate) async fn copy_dtoh_async(ctx: &Context, dst: &mut [u8], src: u64) -> BackendResult<()> {
    let op = "copy_dtoh_async";
    let witness = ctx.gpu.health.witness();
    let Some(slice) = resolve_source(ctx, op, dst.len(), src)? else {
        return ctx.take_late(op, witness, 0);
    };
    ctx.wait_for_backlog_async().await?;
    let mut pieces = Pieces::new(ctx, &slice, dst);
    loop {
        let begun = {
            let _guard = ctx.gl_lock.lock();
            pieces.begin_at_once()?
        };
        if begun.is_empty() {
            return Ok(());
        }
        let mut arrived = Vec::with_capacity(begun.len());
        for (read, dst) in begun {
            let mapped = read.mapped.wait(&ctx.submitter, &ctx.gl_lock).await?;
            if mapped.is_err() {
                ctx.gpu.health.settle(&ctx.gpu.device).await?;
            }
            arrived.push((read, mapped, dst));
        }
        let _guard = ctx.gl_lock.lock();
        ctx.recorder.lock().retire();
        arrived.into_iter().try_for_each(|(read, mapped, dst)| read.finish(ctx, op, mapped, witness, dst))?;
    }
}

/// Blocks for the first bytes of a buffer that is not in the handle table.
pub(crate) fn read_buffer(
    ctx: &Context,
    op: &'static str,
    buffer: &wgpu::Buffer,
    dst: &mut [u8],
) -> BackendResult<()> {
    let block = Arc::new(Block::foreign(buffer.clone()));
    let (deadline, witness) = (ctx.deadline(op), ctx.gpu.health.witness());
    Read::begin(ctx, &block.piece(0, dst.len()))?.block(ctx, &deadline, witness, dst)
}

/// The pieces of a read-back, in order.
struct Pieces<'a> {
    ctx: &'a Context,
    rest: Peekable<Destinations<'a>>,
    ahead: Option<Begun<'a>>,
}

/// A piece on its way, and where it belongs.
type Begun<'a> = (Read, &'a mut [u8]);

impl<'a> Pieces<'a> {
    fn new(ctx: &'a Context, slice: &'a DeviceSlice, dst: &'a mut [u8]) -> Self {
        let most = Readback::chunk(&ctx.gpu.limits);
        let rest = Destinations { most, block: &slice.block, start: slice.offset, rest: dst };
        Self { ctx, rest: rest.peekable(), ahead: None }
    }

    /// The next piece. While it is copied out, the one behind it is on its way, if there is memory for both.
    fn next(&mut self, deadline: &Deadline) -> BackendResult<Option<Begun<'a>>> {
        let begun = match self.ahead.take() {
            None => self.begin_or_reclaim(|ctx| ctx.reclaim(deadline))?,
            ahead => ahead,
        };
        let Some(begun) = begun else { return Ok(None) };
        self.ahead = self.begin_if_there_is_memory()?;
        Ok(Some(begun))
    }

    /// The next [`AT_ONCE`] pieces, or as many as there is memory for.
    fn begin_at_once(&mut self) -> BackendResult<Vec<Begun<'a>>> {
        let first = self.begin_or_reclaim(|ctx| ctx.trim().map(drop))?;
        let mut begun: Vec<_> = first.into_iter().collect();
        while (1..AT_ONCE).contains(&begun.len())
            && let Some(more) = self.begin_if_there_is_memory()?
        {
            begun.push(more);
        }
        Ok(begun)
    }

    /// Begins what is first of the rest. If there is no memory for it, tries once more after `reclaim`, which gives back
    /// what is only kept for reuse.
    fn begin_or_reclaim(
        &mut self,
        reclaim: impl FnOnce(&Context) -> BackendResult<()>,
    ) -> BackendResult<Option<Begun<'a>>> {
        match self.begin() {
            Err(BackendError::OutOfMemory { .. }) => {
                reclaim(self.ctx)?;
                self.begin()
            }
            begun => begun,
        }
    }

    fn begin_if_there_is_memory(&mut self) -> BackendResult<Option<Begun<'a>>> {
        match self.begin() {
            Err(BackendError::OutOfMemory { .. }) => Ok(None),
            begun => begun,
        }
    }

    /// Begins what is first of the rest.
    fn begin(&mut self) -> BackendResult<Option<Begun<'a>>> {
        let Some((from, _)) = self.rest.peek() else { return Ok(None) };
        let read = Read::begin(self.ctx, from)?;
        Ok(self.rest.next().map(|(_, dst)| (read, dst)))
    }
}

/// What of a block is read in one piece, and where it belongs: no more than a read-back buffer holds, and all of it from
/// one buffer.
struct Destinations<'a> {
    most: usize,
    block: &'a Arc<Block>,
    start: usize,
    rest: &'a mut [u8],
}

impl<'a> Iterator for Destinations<'a> {
    type Item = (Piece<'a>, &'a mut [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let len = self.rest.len().min(self.most);
        if len == 0 {
            return None;
        }
        let piece = self.block.piece(self.start, len);
        self.start += piece.len;
        let (dst, rest) = std::mem::take(&mut self.rest).split_at_mut(piece.len);
        self.rest = rest;
        Some((piece, dst))
    }
}

/// A piece of a read-back on its way.
struct Read {
    source: Arc<Block>,
    staging: wgpu::Buffer,
    ticket: Ticket,
    mapped: Signal<Mapped>,
    /// Bytes of the copied words before the first one asked for.
    skip: usize,
}

impl Read {
    fn begin(ctx: &Context, piece: &Piece<'_>) -> BackendResult<Self> {
        let skip = piece.offset % WORD;
        let words = (skip + piece.len).next_multiple_of(WORD);
        let staging = ctx.readback.acquire(words)?;
        let mapped = Signal::default();
        let then = Then::Map(staging.clone(), mapped.clone());
        let from = (piece.offset - skip) as u64;
        let ticket = ctx.recorder.lock().read_back(piece.block, from, &staging, words as u64, then)?;
        Ok(Self { source: Arc::clone(piece.block), staging, ticket, mapped, skip })
    }

    /// Waits for the piece and copies it out.
    fn block(
        self,
        ctx: &Context,
        deadline: &Deadline,
        witness: Witness,
        dst: &mut [u8],
    ) -> BackendResult<()> {
        ctx.submitter.wait(&self.ticket, deadline)?;
        ctx.recorder.lock().retire();
        let mapped = self.mapped.settle(&ctx.submitter, deadline)?;
        self.finish(ctx, deadline.op(), mapped, witness, dst)
    }

    fn finish(
        self,
        ctx: &Context,
        op: &'static str,
        mapped: Mapped,
        witness: Witness,
        dst: &mut [u8],
    ) -> BackendResult<()> {
        ctx.gpu.health.check()?;
        // What failed late may be what should have written these bytes, or the copy of them.
        ctx.take_late(op, witness, self.source.storage().spoiled())?;
        let read = ctx.readback.finish(op, self.staging, mapped, self.skip, dst);
        read.map_err(|error| ctx.explain(error))
    }
}

fn resolve_source(
    ctx: &Context,
    op: &'static str,
    bytes: usize,
    src: u64,
) -> BackendResult<Option<DeviceSlice>> {
    let operand = Operand::bytes("src", src, bytes, Access::Read);
    let [slice] = ctx.memory.resolve(op, &[operand])?;
    Ok(slice)
}

#[cfg(test)]
mod tests {
    use backend_api::{ComputeBackend as _, ErrorKind};
    use pollster::block_on;

    use super::*;
    use crate::WebGpuBackend;
    use crate::memory::Refusals;

    const BYTES: usize = 1 << 20;

    /// Reads memory with read-back buffers refused so often, while a megabyte is kept for reuse: whether that read what was
    /// written, and the bytes that are kept then.
    fn read(refusals: usize, is_async: bool) -> (BackendResult<bool>, usize) {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let [source, other] = [BYTES; 2].map(|bytes| backend.alloc(bytes).unwrap());
        let bytes: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
        backend.copy_htod(source, &bytes).unwrap();
        backend.free(other).unwrap();
        backend.synchronize().unwrap();
        assert!(backend.memory_stats().pooled >= BYTES);
        let left = &backend.opened().unwrap().device().readback.refusals;
        *left.lock() = Refusals::new(0, refusals);
        let mut dst = vec![255; BYTES];
        let result = if is_async {
            block_on(backend.copy_dtoh_async(&mut dst, source))
        } else {
            backend.copy_dtoh(&mut dst, source)
        };
        assert_eq!(left.lock().count, 0);
        let kept = backend.memory_stats().pooled;
        if result.is_err() {
            assert!(dst.iter().all(|&byte| byte == 255), "a read that fails has written");
            backend.copy_dtoh(&mut dst, source).unwrap();
            assert!(dst == bytes, "the read after it");
        }
        (result.map(|()| dst == bytes), kept)
    }

    #[test]
    fn a_read_without_memory_empties_the_pool_and_goes_on() {
        for is_async in [false, true] {
            let (found, kept) = read(1, is_async);
            assert_eq!((found.map_err(|error| error.kind()), kept), (Ok(true), 0));
            let (found, kept) = read(2, is_async);
            assert_eq!((found.map_err(|error| error.kind()), kept), (Err(ErrorKind::OutOfMemory), 0));
        }
    }
}
