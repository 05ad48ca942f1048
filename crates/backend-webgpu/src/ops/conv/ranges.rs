//! Ranges of the middle one of three packed dimensions: of channels, filters or groups.

use std::ops::Range;

use backend_api::support::{Loop, checked_product, collapse};
use backend_api::{BackendResult, DType};

use crate::ops::copy::copy_windows;
use crate::ops::op_context::OpContext;
use crate::recorder::Window;

/// Scratch memory for so many elements.
pub(super) fn scratch(
    ctx: &OpContext,
    op: &'static str,
    dtype: DType,
    elements: usize,
) -> BackendResult<Window> {
    let bytes = checked_product(op, "scratch", &[elements, dtype.size()])?;
    Ok(ctx.output(&ctx.scratch(op, bytes.next_multiple_of(16))?, dtype))
}

/// A packed copy of a range, converted.
pub(super) fn copied(
    ctx: &OpContext,
    op: &'static str,
    types: [DType; 2],
    whole: &Window,
    dims: [usize; 3],
    range: Range<usize>,
) -> BackendResult<Window> {
    let [outer, _, inner] = dims;
    let copy = scratch(ctx, op, types[1], checked_product(op, "scratch", &[outer, range.len(), inner])?)?;
    let first = whole.advanced(range.start * inner);
    copy_windows(ctx, op, types, loops(dims, range.len()), [&first, &copy])?;
    Ok(copy)
}

/// Copies a packed range to its place.
pub(super) fn put_back(
    ctx: &OpContext,
    op: &'static str,
    dtype: DType,
    packed: &Window,
    (whole, dims, range): (&Window, [usize; 3], Range<usize>),
) -> BackendResult<()> {
    let turned = loops(dims, range.len()).into_iter().map(|(extent, [x, y])| (extent, [y, x])).collect();
    let first = whole.advanced(range.start * dims[2]);
    copy_windows(ctx, op, [dtype; 2], turned, [packed, &first])
}

/// The loops over `count` of the middle dimension: strides of all of it, and of the packed range.
fn loops([outer, extent, inner]: [usize; 3], count: usize) -> Vec<Loop<2>> {
    let kept = count * inner;
    collapse([&[(outer, extent * inner), (kept, 1)], &[(outer, kept), (kept, 1)]])
}
