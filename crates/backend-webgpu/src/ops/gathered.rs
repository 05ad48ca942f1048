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
            let (start, size) = (window.bound.start as usize, window.size() as usize);
            let piece = window.block.piece(start, size);
            if piece.len == size {
                gathered.windows.push(window.placed(piece.block, piece.offset as u64));
                continue;
            }
            // Kernels on tensor cores write one output by several bindings, of which each has some elements.
            let is_here = |(written, _): &&(Window, DeviceSlice)| {
                let is_there = (written.block.id(), &written.bound) == (window.block.id(), &window.bound);
                i >= reads && is_there
            };
            if let Some((_, copy)) = gathered.written.iter().find(is_here) {
                gathered.windows.push(window.placed(&copy.block, 0));
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
    for piece in window.block.pieces(window.bound.start as usize, window.size() as usize) {
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

#[cfg(test)]
mod tests {
    use backend_api::support::{Access, Operand};
    use backend_api::{ComputeBackend, DType};

    use super::*;
    use crate::WebGpuBackend;

    const BUFFER: usize = 256 << 10;

    #[test]
    fn an_output_that_is_bound_several_times_has_one_copy() {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default()));
        let adapter = adapter.expect("a WebGPU adapter");
        let limits = wgpu::Limits {
            max_storage_buffer_binding_size: BUFFER as u64,
            max_buffer_size: BUFFER as u64,
            ..adapter.limits()
        };
        let descriptor = wgpu::DeviceDescriptor { required_limits: limits, ..Default::default() };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor)).unwrap();
        let backend = WebGpuBackend::from_wgpu(instance, adapter, device, queue).unwrap();
        let ptr = backend.alloc(3 * BUFFER).unwrap();

        let call = backend.context("test").unwrap();
        let ctx = &call.context;
        let operand = Operand::bytes("x", ptr, 3 * BUFFER, Access::Write);
        let [Some(mut slice)] = ctx.resolve("test", &[operand]).unwrap() else { panic!("no memory") };
        (slice.offset, slice.len) = (slice.offset + BUFFER / 2, BUFFER);
        let window = ctx.output(&slice, DType::F32);
        let read_and_written = Gathered::new(ctx, "test", 1, [&window; 4].into_iter()).unwrap();
        let blocks: Vec<_> = read_and_written.windows.iter().map(|window| window.block.id()).collect();
        assert_eq!((blocks[1], blocks[2]), (blocks[2], blocks[3]));
        assert!(blocks[0] != blocks[1], "what is read is a copy of its own");
        assert_eq!(read_and_written.written.len(), 1);
    }
}
