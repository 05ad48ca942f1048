//! Rows that a graph's last launch normalises, with which the next call can share it.

use backend_api::desc::BinaryDesc;
use backend_api::support::Operand;
use backend_api::{BackendResult, BinaryOp, DType};

use super::capture::{Made, Replaced};
use super::norm_kernels::{Params, Place, normalize_added};
use super::op_context::OpContext;
use super::shared::vec_width::VecWidth;
use crate::memory::DeviceSlice;
use crate::recorder::Window;

/// A launch that normalises rows by their root mean square, as they are: all rows of a call, or its last ones.
#[derive(Debug)]
pub(super) struct NormedRows {
    /// The number of rows, and of the columns of each.
    pub(super) size: [usize; 2],
    /// Of the results.
    pub(super) dtype: DType,
    pub(super) vec_width: VecWidth,
    /// The input, unless it is where the output is, and a weight if there is one.
    pub(super) x: Option<Window>,
    pub(super) weight: Window,
    pub(super) y: Window,
    /// How rows are held, as [`normalize_added`] takes it.
    pub(super) held: (u32, bool),
    pub(super) params: Params,
    pub(super) grid: [u32; 3],
}

impl NormedRows {
    /// Whether there is a weight, and nothing else.
    pub(super) const fn is_weighted(&self) -> bool {
        self.params.scaled == 1
    }

    /// Has the launch also add what it makes to `sums`, the memory of as many rows.
    fn add_to(&self, ctx: &OpContext, op: &'static str, made: &Made, sums: &Window) -> BackendResult<bool> {
        let width = self.vec_width.width() as u32;
        let null = ctx.null();
        let (input, x) = self.x.as_ref().map_or((Place::Output, &null), |x| (Place::Bound, x));
        let windows = [x, &null, &self.weight, &null, &self.y, sums];
        if !sums.offset.is_multiple_of(width) {
            return Ok(false);
        }
        let params = Params { sum_offset: sums.offset / width, ..self.params };
        let variant = normalize_added(self.vec_width, input, self.held.0, self.held.1);
        let replaced = (made, Replaced::Launch);
        ctx.replace(op, replaced, &variant, windows.into_iter(), bytemuck::bytes_of(&params), self.grid)
    }
}

/// Adds a graph's last rows to others in the launch that normalises them, if `desc` does that; whether it does.
pub(super) fn add_with_norm(
    ctx: &OpContext,
    op: &'static str,
    desc: &BinaryDesc<'_>,
    operands: &[Operand; 3],
    is_contiguous: bool,
) -> BackendResult<bool> {
    if desc.op != BinaryOp::Add || !is_contiguous {
        return Ok(false);
    }
    let Some(made) = ctx.made_before() else { return Ok(false) };
    let Some(rows) = made.downcast_ref::<NormedRows>() else { return Ok(false) };
    let [Some(a), Some(b), Some(output)] = ctx.resolve(op, operands)? else { return Ok(false) };
    let is_f32 = [desc.output.dtype, rows.dtype] == [DType::F32; 2];
    let [count, columns] = rows.size;
    let bytes = count.saturating_mul(columns).saturating_mul(DType::F32.size());
    let is = |slice: &DeviceSlice, other: &DeviceSlice| slice.region() == other.region();
    let others = if is(&a, &output) { &b } else { &a };
    let in_place = is(&a, &output) || is(&b, &output);
    let [added, sums] = [others, &output].map(|slice| ctx.output(slice, DType::F32));
    if !(is_f32 && in_place && output.len == bytes && others.len == bytes && added.is_at(&rows.y)) {
        return Ok(false);
    }
    rows.add_to(ctx, op, &made, &sums)
}
