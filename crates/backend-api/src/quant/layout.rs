//! The planes of a quantised matrix.

use super::{QuantCode, QuantFormat, ScaleKind};
use crate::desc::{require_at_least, require_multiple};
use crate::{BackendError, BackendResult, Bound, checked_add, checked_product};

/// Weights in a unit, to whole multiples of which rows are padded.
pub const UNIT: usize = 128;

/// Bytes to whose multiples planes are aligned within the allocation.
const PLANE_ALIGN: usize = 256;

/// Bytes to whose multiple the allocation is rounded, so that 16-byte loads of its last plane stay inside.
const END_ALIGN: usize = 16;

/// One plane: rows of equal size, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuantPlane {
    /// Bytes from the start of the allocation to the first row; 0 if the plane is empty.
    pub offset: usize,
    /// Bytes of a row; 0 if the format has no such plane.
    pub row_bytes: usize,
}

/// Where the planes of a quantised matrix lie in its allocation, as described in [`quant`](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuantLayout {
    /// The format.
    pub format: QuantFormat,
    /// Rows of the matrix.
    pub rows: usize,
    /// Weights in a row, without padding.
    pub columns: usize,
    /// Units of 128 weights in a padded row.
    pub units: usize,
    /// The low four bits of each weight; two of [`QuantCode::Two`] and [`Three`](QuantCode::Three), all of
    /// [`Eight`](QuantCode::Eight).
    pub quants: QuantPlane,
    /// The bits above these.
    pub high: QuantPlane,
    /// The scales of blocks, half blocks or groups.
    pub scales: QuantPlane,
    /// The f16 scales of super-blocks whose half blocks have scales, or the zero points of U4.
    pub extra: QuantPlane,
    /// Bytes of the allocation.
    pub bytes: usize,
}

impl QuantLayout {
    /// The layout of `rows` rows of `columns` weights.
    ///
    /// # Errors
    /// As [`QuantFormat::bytes`].
    pub fn new(op: &'static str, format: QuantFormat, rows: usize, columns: usize) -> BackendResult<Self> {
        match format {
            QuantFormat::U4 { group, .. } => require_group(op, group)?,
            _ => require_multiple(op, "columns", format.block_elements(), columns)?,
        }
        let units = columns.div_ceil(UNIT);
        let super_blocks = units.div_ceil(2);
        let groups = groups(format, columns, units);
        let (quants, high) = match format.code() {
            QuantCode::Two => (32, 0),
            QuantCode::Three => (32, 16),
            QuantCode::Four | QuantCode::E2m1 | QuantCode::Iq4 => (64, 0),
            QuantCode::Five => (64, 16),
            QuantCode::Six => (64, 32),
            QuantCode::Eight => (128, 0),
        };
        let (quants, high) = ((units, quants), (units, high));
        let (scales, extra) = match format.scale_kind() {
            ScaleKind::Block => ((units, 8), (0, 0)),
            ScaleKind::BlockMin => ((units, 16), (0, 0)),
            ScaleKind::Exponent => ((units, 4), (0, 0)),
            ScaleKind::SuperBlock => ((super_blocks, 16), (0, 0)),
            ScaleKind::SuperBlockSigned => ((super_blocks, 8), (0, 0)),
            ScaleKind::HalfBlock => ((units, 8), (super_blocks.next_multiple_of(2), 2)),
            ScaleKind::HalfBlockMin => ((units, 8), (super_blocks, 4)),
            ScaleKind::Group => {
                let zeros = if format.zero_point().is_none() { groups.next_multiple_of(4) } else { 0 };
                ((groups.next_multiple_of(2), 2), (zeros, 1))
            }
        };
        let mut end = 0usize;
        let mut plane = |(items, size): (usize, usize)| {
            let row_bytes = checked_product(op, "quantised matrix", &[items, size])?;
            let bytes = checked_product(op, "quantised matrix", &[rows, row_bytes])?;
            if bytes == 0 {
                return Ok(QuantPlane { offset: 0, row_bytes });
            }
            let offset = aligned(op, end, PLANE_ALIGN)?;
            end = checked_add(op, "quantised matrix", offset, bytes)?;
            Ok(QuantPlane { offset, row_bytes })
        };
        let (quants, high, scales, extra) = (plane(quants)?, plane(high)?, plane(scales)?, plane(extra)?);
        let bytes = aligned(op, end, END_ALIGN)?;
        Ok(Self { format, rows, columns, units, quants, high, scales, extra, bytes })
    }

    /// Scales and zero points of a row of [`U4`](QuantFormat::U4), those of padding included but for what
    /// rounds the row to whole words.
    #[must_use]
    pub fn groups(&self) -> usize {
        groups(self.format, self.columns, self.units)
    }
}

fn require_group(op: &'static str, group: usize) -> BackendResult<()> {
    require_at_least(op, "group", 16, group)?;
    if group.is_power_of_two() {
        return Ok(());
    }
    Err(BackendError::Shape { op, what: "group", expected: Bound::PowerOfTwo, got: group })
}

/// Groups of a row; of small ones, as many as the units hold.
fn groups(format: QuantFormat, columns: usize, units: usize) -> usize {
    match format {
        // No more groups than columns, of which there are 16 to a group or it is the padding's.
        QuantFormat::U4 { group, .. } if group < UNIT => units * (UNIT / group),
        QuantFormat::U4 { group, .. } => columns.div_ceil(group),
        _ => 0,
    }
}

fn aligned(op: &'static str, bytes: usize, to: usize) -> BackendResult<usize> {
    bytes.checked_next_multiple_of(to).ok_or(BackendError::Overflow { op, what: "quantised matrix" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn layout(format: QuantFormat, rows: usize, columns: usize) -> QuantLayout {
        QuantLayout::new("t", format, rows, columns).unwrap()
    }

    #[test]
    fn planes_follow_each_other_at_multiples_of_256_bytes() {
        let q6 = layout(QuantFormat::Q6_K, 3, 256);
        assert_eq!(q6.quants, QuantPlane { offset: 0, row_bytes: 128 });
        assert_eq!(q6.high, QuantPlane { offset: 512, row_bytes: 64 });
        assert_eq!(q6.scales, QuantPlane { offset: 768, row_bytes: 16 });
        assert_eq!(q6.extra, QuantPlane { offset: 1024, row_bytes: 4 });
        assert_eq!(q6.bytes, 1040);
        let q8 = layout(QuantFormat::Q8_0, 1, 160);
        let mx = layout(QuantFormat::Mxfp4, 5, 160);
        assert_eq!((mx.quants.row_bytes, mx.scales), (128, QuantPlane { offset: 768, row_bytes: 8 }));
        assert_eq!((q8.units, q8.quants.row_bytes, q8.scales.offset, q8.bytes), (2, 256, 256, 272));
    }

    #[test]
    fn rows_of_groups_are_whole_words() {
        let u4 = |group, zero_points, columns| {
            let it = layout(QuantFormat::U4 { group, zero_points }, 1, columns);
            (it.groups(), it.scales.row_bytes, it.extra.row_bytes)
        };
        assert_eq!(u4(16, true, 1), (8, 16, 8));
        assert_eq!(u4(128, true, 129), (2, 4, 4));
        assert_eq!(u4(128, false, 300), (3, 8, 0));
        assert_eq!(u4(256, true, 257), (2, 4, 4));
        assert_eq!(u4(1 << 20, true, 5), (1, 4, 4));
    }

    #[test]
    fn what_no_matrix_can_be_is_an_error() {
        let kind = |format: QuantFormat, rows, columns| format.bytes(rows, columns).map_err(|e| e.kind());
        assert_eq!(kind(QuantFormat::Q4_0, 1, 33), Err(ErrorKind::Shape));
        assert_eq!(kind(QuantFormat::Q4_K, 1, 128), Err(ErrorKind::Shape));
        for group in [0, 8, 48, usize::MAX] {
            let format = QuantFormat::U4 { group, zero_points: false };
            assert_eq!(kind(format, 1, 64), Err(ErrorKind::Shape));
        }
        assert_eq!(kind(QuantFormat::Q8_0, usize::MAX, 32), Err(ErrorKind::Overflow));
        let finest = QuantFormat::U4 { group: 16, zero_points: true };
        assert_eq!(kind(finest, 2, usize::MAX), Err(ErrorKind::Overflow));
        assert_eq!(kind(finest, 0, usize::MAX), Ok(0));
        for format in QuantFormat::GGUF {
            assert_eq!(kind(format, 0, 256), Ok(0));
            assert_eq!(kind(format, 3, 0), Ok(0));
        }
    }
}
