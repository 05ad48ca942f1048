//! `copy_htod` and `copy_dtoh`.

use std::iter::{Enumerate, Peekable};
use std::slice::ChunksMut;

use backend_api::operand::{Access, Operand};
use backend_api::{BackendError, BackendResult};

use super::Signal;
use super::readback::{Mapped, Readback};
use crate::context::Context;
use crate::memory::DeviceSlice;
use crate::ops;
use crate::recorder::wait;

/// Bytes of a device copy start and end at multiples of this.
const WORD: usize = wgpu::COPY_BUFFER_ALIGNMENT as usize;

/// Writes `src` to the start of `dst`.
pub(crate) fn copy_htod(ctx: &Context, dst: u64, src: &[u8]) -> BackendResult<()> {
    let op = "copy_htod";
    let Some(slice) = resolve(
        ctx,
        op,
        Operand { arg: "dst", ptr: dst, bytes: src.len(), align: 1, access: Access::Write },
    )?
    else {
        return Ok(());
    };
    if slice.offset.is_multiple_of(WORD) && src.len().is_multiple_of(WORD) {
        return ctx.recorder.lock().upload(op, &slice, src, ctx.timeout());
    }
    // A word that is only partly written takes a kernel to keep its other bytes; so the data goes to a place of its
    // own first. Pieces bound the padded copy on the host.
    for (i, piece) in src.chunks(Readback::CHUNK).enumerate() {
        let mut padded = piece.to_vec();
        padded.resize(piece.len().next_multiple_of(WORD), 0);
        let scratch = ctx.memory.scratch(op, padded.len())?;
        ctx.recorder.lock().upload(op, &scratch, &padded, ctx.timeout())?;
        let mut part = slice.clone();
        part.offset += i * Readback::CHUNK;
        part.len = piece.len();
        ops::copy_bytes(ctx, op, &part, &scratch, piece.len())?;
    }
    Ok(())
}

/// Reads from the start of `src` into all of `dst`, blocking.
pub(crate) fn copy_dtoh(ctx: &Context, dst: &mut [u8], src: u64) -> BackendResult<()> {
    let op = "copy_dtoh";
    let Some(slice) = resolve_source(ctx, op, dst.len(), src)? else {
        return ctx.take_late(op);
    };
    if cfg!(target_family = "wasm") {
        return Err(BackendError::WouldBlock { op });
    }
    let mut pieces = Pieces::new(ctx, op, &slice, dst);
    while let Some((read, piece)) = pieces.next()? {
        read.block(ctx, op, piece)?;
    }
    Ok(())
}

/// Reads from the start of `src` into all of `dst` without blocking.
pub(crate) async fn copy_dtoh_async(ctx: &Context, dst: &mut [u8], src: u64) -> BackendResult<()> {
    let op = "copy_dtoh_async";
    let Some(slice) = resolve_source(ctx, op, dst.len(), src)? else {
        return ctx.take_late(op);
    };
    let mut pieces = Pieces::new(ctx, op, &slice, dst);
    while let Some((read, piece)) = {
        let _turn = ctx.gate.enter();
        pieces.next()?
    } {
        let mapped = read.mapped.wait(ctx).await?;
        if mapped.is_err() {
            ctx.gpu.health.settle(&ctx.gpu.device).await?;
        }
        let _turn = ctx.gate.enter();
        ctx.recorder.lock().retire();
        read.finish(ctx, op, mapped, piece)?;
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
    let block = crate::memory::Block::foreign(buffer.clone());
    let slice = DeviceSlice { len: dst.len(), offset: 0, block: block.into() };
    Read::begin(ctx, op, &slice, 0, dst.len())?.block(ctx, op, dst)
}

/// The pieces of a read-back, in order. While one is copied out, the next is on its way, if there is memory for both.
struct Pieces<'a> {
    ctx: &'a Context,
    op: &'static str,
    slice: &'a DeviceSlice,
    rest: Peekable<Enumerate<ChunksMut<'a, u8>>>,
    ahead: Option<Read>,
}

impl<'a> Pieces<'a> {
    fn new(ctx: &'a Context, op: &'static str, slice: &'a DeviceSlice, dst: &'a mut [u8]) -> Self {
        Self { ctx, op, slice, rest: dst.chunks_mut(Readback::CHUNK).enumerate().peekable(), ahead: None }
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
        let Some((i, dst)) = self.rest.peek() else { return Ok(None) };
        Read::begin(self.ctx, self.op, self.slice, i * Readback::CHUNK, dst.len()).map(Some)
    }
}

/// A piece of a read-back on its way.
struct Read {
    staging: wgpu::Buffer,
    submission: Option<wgpu::SubmissionIndex>,
    mapped: Signal<Mapped>,
    /// Bytes of the copied words before the first one asked for.
    skip: usize,
}

impl Read {
    fn begin(
        ctx: &Context,
        op: &'static str,
        slice: &DeviceSlice,
        start: usize,
        bytes: usize,
    ) -> BackendResult<Self> {
        let first = slice.offset + start;
        let skip = first % WORD;
        let words = (skip + bytes).next_multiple_of(WORD);
        let staging = ctx.readback.acquire(words)?;
        let mut recorder = ctx.recorder.lock();
        recorder.read_back(op, &slice.block, (first - skip) as u64, &staging, words as u64)?;
        let submission = recorder.newest();
        drop(recorder);
        let mapped = ctx.readback.map(&staging);
        Ok(Self { staging, submission, mapped, skip })
    }

    /// Waits for the piece and copies it out.
    fn block(self, ctx: &Context, op: &'static str, dst: &mut [u8]) -> BackendResult<()> {
        let (device, health) = (&ctx.gpu.device, &ctx.gpu.health);
        if let Some(index) = self.submission.clone() {
            wait(op, device, health, index, ctx.timeout())?;
        }
        ctx.recorder.lock().retire();
        let mapped = self.mapped.settle(op, device, health, ctx.timeout())?;
        self.finish(ctx, op, mapped, dst)
    }

    fn finish(self, ctx: &Context, op: &'static str, mapped: Mapped, dst: &mut [u8]) -> BackendResult<()> {
        if mapped.is_err() {
            ctx.gpu.health.confirm(&ctx.gpu.device)?;
        }
        ctx.gpu.health.check()?;
        // What failed late may be what should have written these bytes.
        ctx.take_late(op)?;
        ctx.readback.finish(op, self.staging, mapped, self.skip, dst)
    }
}

fn resolve_source(
    ctx: &Context,
    op: &'static str,
    bytes: usize,
    src: u64,
) -> BackendResult<Option<DeviceSlice>> {
    resolve(ctx, op, Operand { arg: "src", ptr: src, bytes, align: 1, access: Access::Read })
}

fn resolve(ctx: &Context, op: &'static str, operand: Operand) -> BackendResult<Option<DeviceSlice>> {
    let [slice] = ctx.resolve(op, &[operand])?;
    Ok(slice)
}
