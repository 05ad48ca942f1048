//! How the kernels of normalisations hold slices of a tensor in registers.

use backend_api::DType;

use super::lanes::Lanes;
use super::teams::Teams;
use crate::recorder::Window;

/// The fewest loads of an invocation in a small team.
const LEAST: usize = 2;
/// Bytes that an invocation reads at once where slices are long enough for that; a load of f16 has half of an f32's.
const AHEAD_BYTES: usize = 64;
/// Numbers that an invocation can hold one by one, and vectors of four.
const BLOCKS: [(Lanes, &[usize]); 2] = [(Lanes::One, &[4, 16, 32]), (Lanes::Four, &[2, 4, 8, 16, 32])];

/// The plan for slices that teams of a workgroup hold whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) teams: Teams,
    pub(super) lanes: Lanes,
    /// Vectors that an invocation holds.
    pub(super) block: u32,
    /// Vectors of a slice.
    pub(super) length: usize,
}

impl Rows {
    /// For slices of `length` numbers that lie `inner` apart; `None` if a workgroup can't hold one.
    pub(super) fn new(dtype: DType, length: usize, inner: usize, windows: &[&Window]) -> Option<Self> {
        let lanes = if inner == 1 { Lanes::four_if_fitting(windows, &[length]) } else { Lanes::One };
        Self::of(dtype, length, inner, lanes)
    }

    /// [`new`](Self::new) with given lanes.
    pub(super) fn of(dtype: DType, length: usize, inner: usize, lanes: Lanes) -> Option<Self> {
        let length = length / lanes.width();
        let share = match lanes {
            Lanes::One => AHEAD_BYTES / 4,
            _ => AHEAD_BYTES / (lanes.width() * dtype.size()),
        };
        let teams = Teams::with_share(length, inner, LEAST, share);
        let (_, blocks) = BLOCKS.into_iter().find(|&(of, _)| of == lanes)?;
        let block = blocks.iter().copied().find(|&block| block >= teams.share(length))?;
        Some(Self { teams, lanes, block: block as u32, length })
    }

    /// The lanes and blocks of every plan.
    pub(super) fn shapes() -> impl Iterator<Item = (Lanes, u32)> {
        BLOCKS.into_iter().flat_map(|(lanes, blocks)| blocks.iter().map(move |&block| (lanes, block as u32)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_holds_the_share_of_each_member() {
        let shape = |dtype, length, inner, lanes| {
            Rows::of(dtype, length, inner, lanes).map(|rows| (rows.teams.size, rows.block))
        };
        assert_eq!(shape(DType::F32, 4096, 1, Lanes::Four), Some((256, 4)));
        assert_eq!(shape(DType::F16, 4096, 1, Lanes::Four), Some((128, 8)));
        assert_eq!(shape(DType::F32, 8192, 1, Lanes::Four), Some((256, 8)));
        assert_eq!(shape(DType::F32, 8196, 1, Lanes::Four), Some((256, 16)));
        assert_eq!(shape(DType::F32, 32_768, 1, Lanes::Four), Some((256, 32)));
        assert_eq!(shape(DType::F32, 32_772, 1, Lanes::Four), None);
        assert_eq!(shape(DType::F32, 32, 1, Lanes::Four), Some((4, 2)));
        assert_eq!(shape(DType::F32, 8191, 1, Lanes::One), Some((256, 32)));
        assert_eq!(shape(DType::F32, 256, 4096, Lanes::One), Some((8, 32)));
        assert_eq!(shape(DType::F32, 257, 4096, Lanes::One), None);
        assert_eq!(shape(DType::F32, 1, 1, Lanes::One), Some((1, 4)));
    }
}
