//! What kernels see of a quantised matrix.

use backend_api::quant::{QuantFormat, QuantLayout, QuantPlane, ScaleKind};
use backend_api::{BackendError, BackendResult, DType};

use super::formats::kinds;
use crate::kernels::params;
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim};
use crate::recorder::{Window, cut};

params! {
    /// Where the quants, high bits and scales start and what their rows take, in what kernels read at once: vectors of
    /// 16 bytes for the quants, words for the high bits, and the `ScaleWords` of the format's helper file.
    pub(super) struct WeightParams {
        quants: u32,
        quants_row: u32,
        high: u32,
        high_row: u32,
        scales: u32,
        scales_row: u32,
    }
}

params! {
    /// What kernels that know every format are told of the planes.
    pub(super) struct PlaneParams {
        weights: WeightParams,
        // In words.
        extra: u32,
        extra_row: u32,
        // The logarithm of the weights that share a scale.
        group: u32,
    }
}

/// A quantised matrix in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored<'a> {
    pub(super) layout: &'a QuantLayout,
    /// `None` of a matrix without weights.
    pub(super) slice: Option<&'a DeviceSlice>,
}

/// Some rows of a quantised matrix.
#[derive(Debug)]
pub(super) struct Planes {
    /// Quants, high bits, scales and extra.
    windows: [Window; 4],
    /// Where they start and what their rows take, in what kernels read at once.
    places: [(u32, u32); 4],
    /// The logarithm of the weights that share a scale.
    group: u32,
}

impl Planes {
    /// The rows `first..end` of the matrix.
    ///
    /// # Errors
    /// [`Limit`](BackendError::Limit) if the rows are more than can be bound.
    pub(super) fn new(
        ctx: &OpContext,
        op: &'static str,
        Stored { layout, slice }: Stored<'_>,
        (first, end): (usize, usize),
        output: &Window,
    ) -> BackendResult<Self> {
        let part = |plane: QuantPlane, unit: usize| {
            let Some(slice) = slice.filter(|_| plane.row_bytes > 0 && end > first) else {
                return Ok((ctx.null(), (0, 0)));
            };
            // The operand, which was checked, has all rows.
            let rows = DeviceSlice {
                block: slice.block.clone(),
                offset: slice.offset + plane.offset + first * plane.row_bytes,
                len: (end - first) * plane.row_bytes,
            };
            let window = ctx.input(op, &rows, DType::U32, output)?;
            let place = (window.offset / (unit / 4) as u32, dim(op, "columns", plane.row_bytes / unit)?);
            Ok((window, place))
        };
        let parts = [
            part(layout.quants, 16)?,
            part(layout.high, 4)?,
            part(layout.scales, scale_bytes(layout.format))?,
            part(layout.extra, 4)?,
        ];
        Ok(Self {
            places: parts.each_ref().map(|part| part.1),
            windows: parts.map(|part| part.0),
            group: group_shift(layout.format),
        })
    }

    /// The rows from `first` on.
    pub(super) fn starting_at(self, first: u32) -> Self {
        // Within the bindings, whose elements have numbers of 32 bits.
        let places = self.places.map(|(start, row)| (start + first * row, row));
        Self { places, ..self }
    }

    /// The parameters of kernels that know every format.
    pub(super) fn params(&self) -> PlaneParams {
        let [.., (extra, extra_row)] = self.places;
        PlaneParams { weights: self.weight_params(), extra, extra_row, group: self.group }
    }

    /// The parameters of kernels for formats without a fourth plane.
    pub(super) fn weight_params(&self) -> WeightParams {
        let [(quants, quants_row), (high, high_row), (scales, scales_row), _] = self.places;
        WeightParams { quants, quants_row, high, high_row, scales, scales_row }
    }

    /// The windows in the order of the bindings.
    pub(super) fn windows(&self) -> [&Window; 4] {
        self.windows.each_ref()
    }
}

impl Stored<'_> {
    /// The parts of `first..end` matrices of `matrix` rows each whose planes can be bound.
    pub(super) fn bindable_matrices(
        self,
        ctx: &OpContext,
        matrix: usize,
        range: (usize, usize),
    ) -> impl Iterator<Item = (usize, usize)> + use<> {
        // Matrices without rows have nothing to be bound.
        let most = bindable_rows(ctx, self.layout, 0).checked_div(matrix);
        Quants::of(ctx, self, matrix).parts(most.map_or(usize::MAX, |most| most.max(1)), range)
    }

    /// The parts of `first..end` whose planes can be bound, and an output with so many bytes from row to row.
    pub(super) fn bindable(
        self,
        ctx: &OpContext,
        output_row: usize,
        range: (usize, usize),
    ) -> impl Iterator<Item = (usize, usize)> + use<> {
        Quants::of(ctx, self, 1).parts(bindable_rows(ctx, self.layout, output_row), range)
    }
}

/// Where the quants lie, which are the most of a matrix.
#[derive(Clone, Copy, Debug)]
struct Quants {
    /// The first byte in the block.
    start: usize,
    /// Bytes of an item: of a row, or of the rows of a matrix.
    item: usize,
    /// Bytes that can be bound.
    max: u64,
    /// Bytes of each buffer of a block that has several.
    part_len: Option<usize>,
}

impl Quants {
    fn of(ctx: &OpContext, Stored { layout, slice }: Stored<'_>, rows: usize) -> Self {
        Self {
            start: slice.map_or(0, |slice| slice.offset.saturating_add(layout.quants.offset)),
            item: layout.quants.row_bytes.saturating_mul(rows),
            max: ctx.device.limits.max_bytes,
            part_len: slice.and_then(|slice| slice.block.part_len()),
        }
    }

    /// Parts of at most so many items. Where a buffer ends, a part does, but for the few items that lie in two buffers,
    /// which are copied.
    fn parts(self, most: usize, (first, end): (usize, usize)) -> impl Iterator<Item = (usize, usize)> {
        let mut next = first;
        std::iter::from_fn(move || {
            let (first, count) = (next, most.min(end.checked_sub(next)?));
            // Within the operand, whose bytes are counted in `usize`.
            let at = cut(self.max, self.part_len, self.start + first * self.item, self.item, count);
            next = first + at.unwrap_or(count);
            (next > first).then_some((first, next))
        })
    }
}

/// How many rows can be bound, and of an output with so many bytes from row to row; at least 1.
fn bindable_rows(ctx: &OpContext, layout: &QuantLayout, output_row: usize) -> usize {
    let limits = ctx.device.limits;
    let widest = [layout.quants, layout.high, layout.scales, layout.extra].map(|plane| plane.row_bytes);
    let widest = widest.into_iter().fold(output_row, usize::max).max(1);
    // A binding may begin a little before its rows.
    let room = usize::try_from(limits.max_bytes.saturating_sub(limits.alignment)).unwrap_or(usize::MAX);
    (room / widest).max(1)
}

/// Whether all rows can be bound at once.
pub(super) fn is_bindable(ctx: &OpContext, layout: &QuantLayout) -> bool {
    Stored { layout, slice: None }.bindable(ctx, 0, (0, layout.rows)).count() <= 1
}

/// Bytes of the scales that a kernel reads at once, the `ScaleWords` of the format's helper file.
const fn scale_bytes(format: QuantFormat) -> usize {
    match format.scale_kind() {
        ScaleKind::BlockMin | ScaleKind::SuperBlock => 16,
        ScaleKind::Block | ScaleKind::SuperBlockSigned | ScaleKind::HalfBlock | ScaleKind::HalfBlockMin => 8,
        _ => 4,
    }
}

/// The logarithm of the weights that share a scale; 0 for formats that don't need it.
const fn group_shift(format: QuantFormat) -> u32 {
    match format {
        // Kernels shift by it. A group of 2³¹ weights is longer than any row that can be bound.
        QuantFormat::U4 { group, .. } if group < 1 << 31 => group.trailing_zeros(),
        QuantFormat::U4 { .. } => 31,
        _ => 0,
    }
}

/// # Errors
/// [`Unsupported`](BackendError::Unsupported) for a format that the kernels don't know, or element types that the device
/// doesn't have.
pub(super) fn require_types<const N: usize>(
    ctx: &OpContext,
    op: &'static str,
    format: QuantFormat,
    dtypes: [DType; N],
) -> BackendResult<()> {
    if !kinds().any(|kind| kind.name() == format.name()) {
        return Err(BackendError::Unsupported {
            op,
            need: format!("a backend that knows the format {format}"),
        });
    }
    dtypes.into_iter().try_for_each(|dtype| ctx.require_dtype(op, dtype))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_where_buffers_do_but_for_a_few_rows() {
        // Rows of 1,000 bytes in buffers of 256 KiB, of which 64 KiB can be bound and 16 KiB be copied.
        let quants = Quants { start: 500, item: 1000, max: 1 << 16, part_len: Some(1 << 18) };
        let parts: Vec<_> = quants.parts(65, (10, 600)).collect();
        let (mut next, mut copied) = (10, 0);
        for &(first, end) in &parts {
            assert!(first == next && end > first && end - first <= 65, "{parts:?}");
            next = end;
            let bytes = (end - first) * 1000;
            if crate::memory::are_cut(1 << 18, 500 + first * 1000, bytes) {
                copied += bytes;
            }
        }
        assert_eq!(next, 600);
        assert!(copied <= 2 * (16 << 10), "{copied} bytes at two ends: {parts:?}");
        let whole = Quants { part_len: None, ..quants };
        assert!(
            whole.parts(65, (10, 600)).eq((10..600).step_by(65).map(|first| (first, 600.min(first + 65))))
        );
        assert_eq!(whole.parts(65, (600, 600)).count(), 0);
    }
}
