//! Read-backs: `copy_dtoh`.

use std::iter::Peekable;
use std::sync::Arc;

use backend_api::support::{Access, Operand};
use backend_api::{BackendError, BackendResult};

use super::Context;
use crate::device::Witness;
use crate::memory::{Block, DeviceSlice, Piece};
use crate::recorder::{Deadline, Mapped, Signal, Then, Ticket};
use crate::transfer::Readback;

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
    while let Some((read, piece)) = pieces.next()? {
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
    while let Some((read, piece)) = {
        let _guard = ctx.gl_lock.lock();
        pieces.next()?
    } {
        let mapped = read.mapped.wait(&ctx.submitter, &ctx.gl_lock).await?;
        if mapped.is_err() {
            ctx.gpu.health.settle(&ctx.gpu.device).await?;
        }
        let _guard = ctx.gl_lock.lock();
        ctx.recorder.lock().retire();
        read.finish(ctx, op, mapped, witness, piece)?;
    }
    Ok(())
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

/// The pieces of a read-back, in order. While one is copied out, the next is on its way, if there is memory
/// for both.
struct Pieces<'a> {
    ctx: &'a Context,
    rest: Peekable<Destinations<'a>>,
    ahead: Option<Read>,
}

impl<'a> Pieces<'a> {
    fn new(ctx: &'a Context, slice: &'a DeviceSlice, dst: &'a mut [u8]) -> Self {
        let most = Readback::chunk(&ctx.gpu.limits);
        let rest = Destinations { most, block: &slice.block, start: slice.offset, rest: dst };
        Self { ctx, rest: rest.peekable(), ahead: None }
    }

    /// The next piece and where it belongs.
    fn next(&mut self) -> BackendResult<Option<(Read, &'a mut [u8])>> {
        let read = match self.ahead.take() {
            Some(read) => Some(read),
            None => self.begin()?,
        };
        let (Some(read), Some((_, dst))) = (read, self.rest.next()) else { return Ok(None) };
        self.ahead = match self.begin() {
            Err(BackendError::OutOfMemory { .. }) => None,
            begun => begun?,
        };
        Ok(Some((read, dst)))
    }

    /// Begins what is first of the rest.
    fn begin(&mut self) -> BackendResult<Option<Read>> {
        let Some((from, _)) = self.rest.peek() else { return Ok(None) };
        Read::begin(self.ctx, from).map(Some)
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
