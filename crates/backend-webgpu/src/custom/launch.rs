//! One dispatch of a kernel of the caller's own.

use backend_api::support::{Access, Operand, check};
use backend_api::{BackendError, BackendResult, Bound};

use super::{BindingAccess, BindingInfo, Kernel, MAX_STORAGE_BINDINGS};
use crate::memory::DeviceSlice;
use crate::ops::{self, OpContext};
use crate::recorder::{Command, Window};

/// What errors call a launch's handle, and what of it is too large.
#[derive(Clone, Copy)]
struct Names {
    arg: &'static str,
    bytes: &'static str,
    /// Where it is larger than what is left of the buffer that it begins in.
    crossing: &'static str,
}

macro_rules! names {
    ($($index:literal)*) => {
        [$(Names {
            arg: concat!("bindings[", $index, "]"),
            bytes: concat!("bytes of `bindings[", $index, "]`"),
            crossing: concat!("bytes of `bindings[", $index, "]`, which crosses the end of a buffer,"),
        }),*]
    };
}

const NAMES: [Names; MAX_STORAGE_BINDINGS] = names!(0 1 2 3 4 5 6 7);

/// Bytes of a binding are a multiple of this.
const WORD: usize = 4;

/// Checks a launch and records it.
///
/// # Errors
/// What [`WebGpuBackend::launch`](crate::WebGpuBackend::launch) says.
pub(crate) fn launch(
    ctx: &OpContext,
    op: &'static str,
    kernel: &Kernel,
    bindings: &[u64],
    params: &[u8],
    grid: [u32; 3],
) -> BackendResult<()> {
    let code = kernel.on(ctx, op)?;
    require_eq(op, "number of bindings", kernel.bindings().len(), bindings.len())?;
    require_eq(op, "bytes of params", kernel.params().map_or(0, |params| params.bytes), params.len())?;
    let max = ctx.gpu().limits.max_compute_workgroups_per_dimension;
    if let Some(groups) = grid.into_iter().find(|&groups| groups > max) {
        let what = "workgroups along a dimension";
        return Err(BackendError::Limit { op, what, requested: groups as usize, max: max as usize });
    }
    let groups = grid.iter().fold(1, |all: u64, &groups| all.saturating_mul(groups.into()));
    // Drivers count workgroups in 32 bits, and leave out what is beyond.
    if groups > u64::from(u32::MAX) {
        let requested = usize::try_from(groups).unwrap_or(usize::MAX);
        return Err(BackendError::Limit { op, what: "workgroups", requested, max: u32::MAX as usize });
    }
    let slices = resolve(ctx, op, kernel.bindings(), bindings)?;
    if grid.contains(&0) {
        return Ok(());
    }
    let of = |access| {
        let all = kernel.bindings().iter().zip(slices.iter().zip(NAMES));
        all.filter(move |(info, _)| info.access == access).map(|(_, named)| named)
    };
    let mut windows = Vec::with_capacity(slices.len());
    for named in of(BindingAccess::Read) {
        windows.push(input(ctx, op, named, of(BindingAccess::ReadWrite).map(|(slice, _)| slice))?);
    }
    for named in of(BindingAccess::ReadWrite) {
        windows.push(exact(ctx, op, named)?);
    }
    let mut params = params.to_vec();
    // Immediates are whole words.
    params.resize(params.len().next_multiple_of(WORD), 0);
    let mut command = Command::new(op, code, windows, &params, grid)?;
    command.mixes_outputs = true;
    ctx.launch_command(command);
    Ok(())
}

/// The memory behind the handles, which has to be live, long enough, whole words where it is written, and apart.
fn resolve(
    ctx: &OpContext,
    op: &'static str,
    infos: &[BindingInfo],
    handles: &[u64],
) -> BackendResult<Vec<DeviceSlice>> {
    let mut operands = [Operand::absent(""); MAX_STORAGE_BINDINGS];
    let mut slices = Vec::with_capacity(handles.len());
    let alignment = ctx.device.limits.alignment as usize;
    for (((info, &ptr), Names { arg, .. }), operand) in
        infos.iter().zip(handles).zip(NAMES).zip(&mut operands)
    {
        let slice = ctx.device.memory.lookup(op, arg, ptr)?;
        let (have, need) = (slice.len, info.min_bytes);
        if have < need {
            return Err(BackendError::BufferTooSmall { op, arg, have, need });
        }
        let is_written = info.access == BindingAccess::ReadWrite;
        if is_written && have % WORD != 0 {
            let (what, expected) = ("bytes of a written binding", Bound::MultipleOf(WORD));
            return Err(BackendError::Shape { op, what, expected, got: have });
        }
        let (access, align) = if is_written { (Access::Write, alignment) } else { (Access::Read, 1) };
        *operand = Operand { arg, ptr, offset: 0, bytes: have, align, access };
        slices.push(slice);
    }
    let mut regions = slices.iter().map(DeviceSlice::region);
    check(op, &operands, |_| regions.next())?;
    Ok(slices)
}

/// What the kernel sees of memory that it reads. What can't be bound as it is gets copied first: it begins off
/// the device's alignment, it ends within a word, or its buffer is written in the same dispatch.
fn input<'a>(
    ctx: &OpContext,
    op: &'static str,
    (slice, names): (&DeviceSlice, Names),
    mut written: impl Iterator<Item = &'a DeviceSlice>,
) -> BackendResult<Window> {
    let is_aligned = (slice.offset as u64).is_multiple_of(ctx.device.limits.alignment);
    let is_apart = !written.any(|other| other.block.id() == slice.block.id());
    let is_whole = !slice.block.is_cut_within(slice.offset, slice.len);
    if is_aligned && slice.len.is_multiple_of(WORD) && is_apart && is_whole {
        return exact(ctx, op, (slice, names));
    }
    exact(ctx, op, (&copied(ctx, op, slice)?, names))
}

/// A copy in whole words: what the last one has beyond the slice is 0, as nobody else's bytes are the kernel's to see.
fn copied(ctx: &OpContext, op: &'static str, slice: &DeviceSlice) -> BackendResult<DeviceSlice> {
    let copy = ctx.scratch(op, slice.len.next_multiple_of(WORD))?;
    if copy.len > slice.len {
        let last = DeviceSlice { offset: copy.len - WORD, len: WORD, ..copy.clone() };
        ops::zero_bytes(ctx, op, &last)?;
    }
    ops::copy_bytes(ctx, op, &copy, slice, slice.len)?;
    Ok(copy)
}

/// The window of nothing but a slice.
fn exact(ctx: &OpContext, op: &'static str, (slice, names): (&DeviceSlice, Names)) -> BackendResult<Window> {
    let piece = slice.block.piece(slice.offset, slice.len);
    let (start, size) = (piece.offset as u64, slice.len as u64);
    let bound = usize::try_from(ctx.device.limits.max_bytes).unwrap_or(usize::MAX);
    let (requested, max) = (slice.len, bound.min(piece.len));
    if requested > max {
        let what = if requested > bound { names.bytes } else { names.crossing };
        return Err(BackendError::Limit { op, what, requested, max });
    }
    let max = u32::try_from(ctx.device.limits.max_bytes).unwrap_or(u32::MAX);
    Ok(Window::of_bound(piece.block, start..start + size, 1, max))
}

fn require_eq(op: &'static str, what: &'static str, expected: usize, got: usize) -> BackendResult<()> {
    if expected == got {
        return Ok(());
    }
    Err(BackendError::Shape { op, what, expected: Bound::Exactly(expected), got })
}
