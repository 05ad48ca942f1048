//! How the kernels of normalisations hold slices of a tensor in registers.

use backend_api::DType;

use super::row_groups::RowGroups;
use super::vec_width::VecWidth;
use crate::recorder::Window;

/// The fewest loads of an invocation in a small row group.
const LEAST: usize = 2;
/// Bytes that an invocation reads at once where slices are long enough for that; a load of f16 has half of an
/// f32's.
const AHEAD_BYTES: usize = 64;
/// Elements that an invocation can hold one by one, and vectors of four.
const BLOCKS: [(VecWidth, &[usize]); 2] =
    [(VecWidth::One, &[4, 16, 32]), (VecWidth::Four, &[2, 4, 8, 16, 32])];

/// The plan for slices that row groups of a workgroup hold whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) struct Rows {
    pub(in crate::ops) row_groups: RowGroups,
    pub(in crate::ops) vec_width: VecWidth,
    /// Vectors that an invocation holds.
    pub(in crate::ops) block: u32,
    /// Vectors of a slice.
    pub(in crate::ops) length: usize,
}

impl Rows {
    /// For slices of `length` elements that lie `inner` apart; `None` if a workgroup can't hold one.
    pub(in crate::ops) fn new(
        dtype: DType,
        length: usize,
        inner: usize,
        windows: &[&Window],
    ) -> Option<Self> {
        let vec_width =
            if inner == 1 { VecWidth::four_if_fitting(windows, &[length]) } else { VecWidth::One };
        Self::of(dtype, length, inner, vec_width)
    }

    /// [`new`](Self::new) with a given vector width.
    pub(in crate::ops) fn of(dtype: DType, length: usize, inner: usize, vec_width: VecWidth) -> Option<Self> {
        let length = length / vec_width.width();
        let share = match vec_width {
            VecWidth::One => AHEAD_BYTES / 4,
            _ => AHEAD_BYTES / (vec_width.width() * dtype.size()),
        };
        let row_groups = RowGroups::with_share(length, inner, LEAST, share);
        let (_, blocks) = BLOCKS.into_iter().find(|&(of, _)| of == vec_width)?;
        let block = blocks.iter().copied().find(|&block| block >= row_groups.share(length))?;
        Some(Self { row_groups, vec_width, block: block as u32, length })
    }

    /// The vector widths and blocks of every plan.
    pub(in crate::ops) fn shapes() -> impl Iterator<Item = (VecWidth, u32)> {
        BLOCKS
            .into_iter()
            .flat_map(|(vec_width, blocks)| blocks.iter().map(move |&block| (vec_width, block as u32)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_holds_the_share_of_each_member() {
        let shape = |dtype, length, inner, vec_width| {
            Rows::of(dtype, length, inner, vec_width).map(|rows| (rows.row_groups.size, rows.block))
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
    }
}
