//! How the kernels of normalisations hold slices of a tensor in registers.

use backend_api::{BackendResult, DType};

use super::row_groups::{DeviceSize, LEAST, RowGroups};
use super::seams::Seams;
use super::vec_width::VecWidth;
use crate::ops::op_context::linear_grid;
use crate::recorder::Window;

/// Bytes that an invocation reads at once where slices are long enough for that; a load of f16 has half of an
/// f32's.
const AHEAD_BYTES: usize = 64;
/// Words of 4 bytes that an invocation reads at once.
const AHEAD_WORDS: usize = AHEAD_BYTES / 4;
/// Loads of an invocation of softmax before more invocations are worth a workgroup's barriers rather than shuffles.
const SHUFFLED: usize = 10;
/// Elements that an invocation can hold one by one, words of f16, and vectors of four.
const BLOCKS: [(VecWidth, &[usize]); 3] = [
    (VecWidth::One, &[4, 8, 16, 24, 28, 32]),
    (VecWidth::Two, &[4, 8, 10, 12, 14, 16, 24, 32]),
    (VecWidth::Four, &[2, 4, 8, 16, 32]),
];

/// Slices of a tensor along an axis.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Slices {
    pub(in crate::ops) dtype: DType,
    /// Elements of a slice.
    pub(in crate::ops) length: usize,
    /// Distance between neighbours in it.
    pub(in crate::ops) inner: usize,
    pub(in crate::ops) count: usize,
}

/// The plan for slices that row groups of a workgroup hold whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) struct Rows {
    pub(in crate::ops) row_groups: RowGroups,
    /// Whether the members of a row group exchange their results within a subgroup.
    pub(in crate::ops) shuffled: bool,
    pub(in crate::ops) vec_width: VecWidth,
    /// Vectors that an invocation holds.
    pub(in crate::ops) block: u32,
    /// How workgroups take rows that share words.
    pub(in crate::ops) seams: Seams,
}

impl Rows {
    /// For slices in these windows, of which the last is the output's, on this device;
    /// `None` if a workgroup can't hold one.
    pub(in crate::ops) fn new(slices: Slices, windows: &[&Window], device: DeviceSize) -> Option<Self> {
        let Slices { dtype, length, inner, .. } = slices;
        let vec_width = if inner == 1 { VecWidth::of_rows(dtype, length, windows) } else { VecWidth::One };
        let offset = windows.last().map_or(0, |output| output.offset);
        let rows = |vec_width| {
            // Fewer members have fewer results to join.
            let longer = vec_width == VecWidth::One && inner == 1 && dtype.size() == 4;
            let words = if longer { 2 * AHEAD_WORDS } else { AHEAD_WORDS };
            Self::with_words(slices, vec_width, offset, [words, SHUFFLED], device)
        };
        rows(vec_width).or_else(|| rows(VecWidth::One).filter(|_| vec_width == VecWidth::Two))
    }

    /// [`new`](Self::new) with a given vector width, of an output that starts at element `offset`.
    pub(in crate::ops) fn of(
        slices: Slices,
        vec_width: VecWidth,
        offset: u32,
        device: DeviceSize,
    ) -> Option<Self> {
        Self::with_words(slices, vec_width, offset, [AHEAD_WORDS, 0], device)
    }

    /// [`of`](Self::of) with about so many loads for each invocation, where a load is of a word or less, and where
    /// shuffles join the results, with so many before more invocations are worth a workgroup's barriers.
    fn with_words(
        slices: Slices,
        vec_width: VecWidth,
        offset: u32,
        [words, shuffled]: [usize; 2],
        device: DeviceSize,
    ) -> Option<Self> {
        let Slices { dtype, length, inner, count } = slices;
        // The most that a row may have.
        let vectors = length / vec_width.width();
        let share = match vec_width {
            VecWidth::One | VecWidth::Two => words,
            _ => AHEAD_BYTES / (vec_width.width() * dtype.size()),
        };
        let row_groups = RowGroups::with_share(vectors, inner, LEAST, share);
        let row_groups = row_groups.spread(vectors, count, device, shuffled);
        let is_shuffled = row_groups.is_within(device.subgroup);
        if vec_width == VecWidth::Two && row_groups.size == 1 {
            // Two members have a row's edges.
            return None;
        }
        let (_, blocks) = BLOCKS.into_iter().find(|&(of, _)| of == vec_width)?;
        let block = blocks.iter().copied().find(|&block| block >= row_groups.share(vectors))?;
        let seams = Seams::new(vec_width, length, offset, row_groups.abreast());
        Some(Self { row_groups, shuffled: is_shuffled, vec_width, block: block as u32, seams })
    }

    /// The grid for `slices`.
    ///
    /// # Errors
    /// [`Limit`](backend_api::BackendError::Limit) as of [`linear_grid`].
    pub(in crate::ops) fn grid(&self, op: &'static str, slices: usize) -> BackendResult<[u32; 3]> {
        linear_grid(op, self.seams.groups(slices, self.row_groups.abreast()))
    }

    /// The vector widths and blocks of every plan.
    pub(in crate::ops) fn shapes(dtype: DType) -> impl Iterator<Item = (VecWidth, u32)> {
        BLOCKS
            .into_iter()
            .filter(move |&(vec_width, _)| dtype == DType::F16 || vec_width != VecWidth::Two)
            .flat_map(|(vec_width, blocks)| blocks.iter().map(move |&block| (vec_width, block as u32)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::h200;

    #[test]
    fn a_block_holds_the_share_of_each_member() {
        let shape = |dtype, length, inner, vec_width| {
            let device = DeviceSize { compute_units: h200::COMPUTE_UNITS, subgroup: None };
            Rows::of(Slices { dtype, length, inner, count: 1 << 16 }, vec_width, 0, device)
                .map(|rows| (rows.row_groups.size, rows.block))
        };
        assert_eq!(shape(DType::F32, 4096, 1, VecWidth::Four), Some((256, 4)));
        assert_eq!(shape(DType::F16, 4096, 1, VecWidth::Four), Some((128, 8)));
        assert_eq!(shape(DType::F32, 8192, 1, VecWidth::Four), Some((256, 8)));
        assert_eq!(shape(DType::F32, 8196, 1, VecWidth::Four), Some((256, 16)));
        assert_eq!(shape(DType::F32, 32_768, 1, VecWidth::Four), Some((256, 32)));
        assert_eq!(shape(DType::F32, 32_772, 1, VecWidth::Four), None);
        assert_eq!(shape(DType::F32, 32, 1, VecWidth::Four), Some((4, 2)));
        assert_eq!(shape(DType::F32, 8191, 1, VecWidth::One), Some((256, 32)));
        assert_eq!(shape(DType::F32, 256, 4096, VecWidth::One), Some((8, 32)));
        assert_eq!(shape(DType::F32, 257, 4096, VecWidth::One), None);
        assert_eq!(shape(DType::F32, 1, 1, VecWidth::One), Some((1, 4)));
        assert_eq!(shape(DType::F16, 777, 1, VecWidth::Two), Some((32, 14)));
        assert_eq!(shape(DType::F32, 777, 1, VecWidth::One), Some((64, 16)));
    }
}
