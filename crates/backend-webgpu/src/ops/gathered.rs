//! What launches bind of blocks that have several buffers.
//!
//! A window that lies in one buffer is bound there. What begins in one and ends in the next is copied to memory of
//! its own before the launch, and back after it if the kernel writes it, so that kernels know nothing of buffers.

use arrayvec::ArrayVec;
use backend_api::BackendResult;

use super::copy::copy_words;
use crate::device::MAX_BINDINGS;
use crate::memory::{DeviceSlice, Piece};
use crate::ops::op_context::OpContext;
use crate::recorder::Window;

/// The windows of a launch, each in one buffer.
#[derive(Debug)]
pub(super) struct Gathered {
    /// In the order of the bindings.
    pub(super) windows: ArrayVec<Window, MAX_BINDINGS>,
    /// Of what the kernel writes in copies: where it belongs, and the copy.
    written: Vec<(Window, DeviceSlice)>,
}

impl Gathered {
    /// Records the copies that a launch needs with these windows, of which the kernel only reads the first `reads`.
    pub(super) fn new<'a>(
        ctx: &OpContext,
        op: &'static str,
        reads: usize,
        windows: impl Iterator<Item = &'a Window>,
    ) -> BackendResult<Self> {
        let mut gathered = Self { windows: ArrayVec::new(), written: Vec::new() };
        for (i, window) in windows.take(MAX_BINDINGS).enumerate() {
            // A window shows bytes of a block, which are counted in `usize`.
            let (start, size) = (window.start as usize, window.size as usize);
            let piece = window.block.piece(start, size);
            if piece.len == size {
                gathered.windows.push(window.placed(piece.block, piece.offset as u64));
                continue;
            }
            let copy = ctx.scratch(op, size)?;
            // A kernel may write a part of what is bound, and the rest has to stay.
            move_words(ctx, op, window, &copy, true)?;
            gathered.windows.push(window.placed(&copy.block, 0));
            if i >= reads {
                gathered.written.push((window.clone(), copy));
            }
        }
        Ok(gathered)
    }

    /// Records the copies of what the kernel has written.
    pub(super) fn write_back(&self, ctx: &OpContext, op: &'static str) -> BackendResult<()> {
        self.written.iter().try_for_each(|(window, copy)| move_words(ctx, op, window, copy, false))
    }
}

/// Copies what a window shows to the start of `copy`, or from there.
fn move_words(
    ctx: &OpContext,
    op: &'static str,
    window: &Window,
    copy: &DeviceSlice,
    out_of_window: bool,
) -> BackendResult<()> {
    let mut done = 0;
    for piece in window.block.pieces(window.start as usize, window.size as usize) {
        let there = Window::of_words(piece);
        let here = Window::of_words(Piece { block: &copy.block, offset: 0, len: copy.len });
        // What is bound begins and ends at whole words, and so does each buffer.
        let here = here.advanced(done / size_of::<u32>());
        let windows = if out_of_window { [&there, &here] } else { [&here, &there] };
        copy_words(ctx, op, piece.len / size_of::<u32>(), windows)?;
        done += piece.len;
    }
    Ok(())
}
