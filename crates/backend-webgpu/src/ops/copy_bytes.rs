//! Bytes from one buffer to another, at any offset.

use backend_api::support::{Access, Operand};
use backend_api::{BackendResult, DType};

use super::copy::copy_words;
use crate::kernels::{KernelSource, Variant, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim, invocation_grid};
use crate::recorder::Window;
use crate::transfer::Readback;

static COPY_BYTES: KernelSource = kernel!(
    "memory/copy_bytes", libs: [GRID],
    types: [], constants: [], params: Params, reads: ["src: u32"], writes: ["dst: u32"],
);

params! {
    struct Params {
        src_byte: u32,
        dst_byte: u32,
        bytes: u32,
    }
}

/// Bytes of a device copy start and end at multiples of this.
const WORD: usize = wgpu::COPY_BUFFER_ALIGNMENT as usize;

pub(super) fn variants() -> Vec<Variant> {
    vec![Variant::new(&COPY_BYTES, [], [])]
}

/// Writes `src` to the start of `dst`. A word of which only a part is written takes a kernel to keep its
/// other bytes; so the data goes to memory of its own first, in pieces, which bound the padded copy on the
/// host.
pub(crate) fn copy_htod(ctx: &OpContext, dst: u64, src: &[u8]) -> BackendResult<()> {
    let op = "copy_htod";
    let operand = Operand::bytes("dst", dst, src.len(), Access::Write);
    let [Some(slice)] = ctx.resolve(op, &[operand])? else { return Ok(()) };
    if slice.offset.is_multiple_of(WORD) && src.len().is_multiple_of(WORD) {
        return ctx.upload(op, &slice, src);
    }
    let ctx = &ctx.for_transfers();
    let most = Readback::chunk(&ctx.gpu().limits);
    for (i, piece) in src.chunks(most).enumerate() {
        let mut padded = piece.to_vec();
        padded.resize(piece.len().next_multiple_of(WORD), 0);
        let scratch = ctx.scratch(op, padded.len())?;
        ctx.upload(op, &scratch, &padded)?;
        let mut part = slice.clone();
        part.offset += i * most;
        part.len = piece.len();
        copy_bytes(ctx, op, &part, &scratch, piece.len())?;
        ctx.commit(op)?;
    }
    Ok(())
}

/// `dst = src` for handles that may be views of one buffer.
pub(crate) fn copy_dtod(
    ctx: &OpContext,
    op: &'static str,
    dst: u64,
    src: u64,
    bytes: usize,
) -> BackendResult<()> {
    let operands =
        [Operand::bytes("dst", dst, bytes, Access::Write), Operand::bytes("src", src, bytes, Access::Read)];
    let [Some(dst), Some(src)] = ctx.resolve(op, &operands)? else {
        return Ok(());
    };
    copy_bytes(ctx, op, &dst, &src, bytes)
}

/// Records `dst = src` for the first `bytes` bytes.
pub(crate) fn copy_bytes(
    ctx: &OpContext,
    op: &'static str,
    dst: &DeviceSlice,
    src: &DeviceSlice,
    bytes: usize,
) -> BackendResult<()> {
    // Windows count words, so that a slice may start inside of one.
    let (dst_word, dst_byte) = word_aligned(dst);
    let (src_word, src_byte) = word_aligned(src);
    let output = ctx.output(&dst_word, DType::U32);
    let input = ctx.input(op, &src_word, DType::U32, &output)?;
    if src_byte == 0 && dst_byte == 0 && bytes.is_multiple_of(4) {
        return copy_words(ctx, op, bytes / 4, [&input, &output]);
    }
    // Of what is larger than can be bound, some words at a time.
    let most = if input.is_wide() || output.is_wide() {
        (output.max.min(input.max) as usize / 2 / WORD * WORD).max(WORD)
    } else {
        bytes.max(1)
    };
    (0..bytes).step_by(most).try_for_each(|first| {
        let bytes = most.min(bytes - first);
        let part = |window: &Window, byte: u32| {
            window.advanced(first / WORD).truncated((byte as usize + bytes).div_ceil(WORD))
        };
        let (input, output) = (part(&input, src_byte), part(&output, dst_byte));
        let params = Params {
            src_byte: input.offset * 4 + src_byte,
            dst_byte: output.offset * 4 + dst_byte,
            bytes: dim(op, "bytes", bytes)?,
        };
        let words = (params.dst_byte as usize % 4 + bytes).div_ceil(4);
        let grid = invocation_grid(op, words)?;
        ctx.launch(op, &Variant::new(&COPY_BYTES, [], []), &[&input], &output, &params, grid)
    })
}

/// The slice from the word in which it starts, and the byte in that word.
fn word_aligned(slice: &DeviceSlice) -> (DeviceSlice, u32) {
    let byte = slice.offset % 4;
    let mut aligned = slice.clone();
    aligned.offset -= byte;
    aligned.len += byte;
    (aligned, byte as u32)
}
