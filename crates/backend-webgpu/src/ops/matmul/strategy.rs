//! In which launches a product is made: at once, with k in pieces, without its edges, or of f16 parts of f32 operands.

use backend_api::DType;
use backend_api::desc::MatmulDesc;

use crate::ops::shared::piece_lengths::{FEW, piece_lengths};

/// In which launches a product is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// One.
    Whole,
    /// One for partial sums over pieces of k, and one that adds them.
    SplitK(Split),
    /// One for whole tiles, and others for the rows and columns beyond them.
    PeelEdges,
    /// An f32 product of operands split into f16 parts, with k in pieces.
    Emulated(Split),
}

/// How k is split into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Split {
    /// Into at most so many of one length, but for the last.
    Pieces(usize),
    /// Into pieces of a length, of which the last may be much shorter.
    Length(usize),
}

impl Split {
    /// k in one piece.
    pub(super) const WHOLE: Self = Self::Pieces(1);

    /// Pieces of which none is shorter than a step, twice as many each time.
    pub(super) fn powers_of_two(k: usize) -> impl Iterator<Item = Self> {
        let pieces = [2, 4, 8, 16, 32].into_iter();
        pieces.filter(move |pieces| k / pieces >= STEP).map(Self::Pieces)
    }

    /// Few pieces, of one length or with a last one of a quarter, a half or three quarters of it, then
    /// [`powers_of_two`](Self::powers_of_two).
    pub(super) fn few_and_powers_of_two(k: usize) -> impl Iterator<Item = Self> {
        let few = piece_lengths(k, STEP, FEW).filter(move |&length| length < k).map(move |length| {
            let of_one_length = Self::Pieces(k.div_ceil(length));
            if of_one_length.length_and_count(k).0 == length { of_one_length } else { Self::Length(length) }
        });
        few.chain(Self::powers_of_two(k))
    }

    pub(super) fn is_whole(self) -> bool {
        matches!(self, Self::Pieces(0 | 1))
    }

    /// How long pieces of k are and how many there are.
    pub(super) fn length_and_count(self, k: usize) -> (usize, usize) {
        let length = match self {
            Self::Pieces(pieces) => k.div_ceil(pieces.max(1)),
            Self::Length(length) => length.min(k),
        };
        let length = length.next_multiple_of(STEP).max(STEP);
        (length, k.div_ceil(length).max(1))
    }

    /// The longest piece.
    pub(super) fn longest(self, k: usize) -> usize {
        self.length_and_count(k).0.min(k)
    }

    /// Into half as many pieces.
    fn halved(self) -> Self {
        match self {
            Self::Pieces(pieces) => Self::Pieces(pieces / 2),
            Self::Length(length) => Self::Length(length.saturating_mul(2)),
        }
    }
}

impl From<usize> for Split {
    fn from(pieces: usize) -> Self {
        Self::Pieces(pieces)
    }
}

impl Strategy {
    /// How k is split.
    pub(super) fn split(self) -> Split {
        match self {
            Self::SplitK(split) | Self::Emulated(split) => split,
            Self::Whole | Self::PeelEdges => Split::WHOLE,
        }
    }
}

/// A multiple of every kernel's step, of which pieces of k are multiples, and the lengths of f16 parts.
pub(super) const STEP: usize = 64;

/// The f16 parts of an f32 operand, which follow each other along k.
pub(super) const PARTS: usize = 3;

/// The pieces that are asked for, or so many of them that the partial sums can be bound at once.
pub(super) fn that_fit(max_bytes: u64, desc: &MatmulDesc, split: Split) -> Split {
    let one = desc.m.saturating_mul(desc.n).saturating_mul(DType::F32.size());
    let count = |split: Split| split.length_and_count(desc.k).1;
    let halves = std::iter::successors(Some(split), |split| Some(split.halved()));
    halves
        .take_while(|&split| !split.is_whole() && count(split) > 1)
        .find(|&split| one.saturating_mul(count(split)) as u64 <= max_bytes)
        .unwrap_or(Split::WHOLE)
}

/// The product that tensor cores make instead of an f32 one.
pub(super) fn product_of_parts(desc: &MatmulDesc) -> MatmulDesc {
    let mut parts = *desc;
    parts.k = PARTS * desc.k.next_multiple_of(STEP);
    (parts.a.dtype, parts.b.dtype) = (DType::F16, DType::F16);
    parts
}

/// Whether the parts of each operand can be bound at once.
pub(super) fn parts_fit(max_bytes: u64, &MatmulDesc { m, n, k, .. }: &MatmulDesc) -> bool {
    let element = PARTS * DType::F16.size();
    // Rows and columns are padded to whole vectors.
    let most = m.max(n).next_multiple_of(8).saturating_mul(k.next_multiple_of(STEP));
    most.saturating_mul(element) as u64 <= max_bytes
}

#[cfg(test)]
mod tests {
    use backend_api::desc::Matrix;

    use super::*;

    /// Parts take half as much again as an operand of f32.
    #[test]
    fn parts_can_be_bound() {
        let matrix = |columns| Matrix::new(1, DType::F32, columns);
        let desc = |m, n, k| MatmulDesc::new(m, n, k, matrix(k), matrix(n), matrix(n));
        assert!(parts_fit(128 << 20, &desc(4096, 5456, 4096)));
        assert!(!parts_fit(128 << 20, &desc(4096, 5462, 4096)));
        assert!(!parts_fit(128 << 20, &desc(5462, 64, 4096)));
        assert!(!parts_fit(u64::MAX >> 1, &desc(usize::MAX >> 8, 64, 4096)));
    }

    /// With pieces of 320 of 9242, 32 splits are 29 matrices of 776×1653, which 128 MiB don't hold.
    #[test]
    fn partial_sums_can_be_bound() {
        let matrix = |columns| Matrix::new(1, DType::F32, columns);
        let desc = MatmulDesc::new(776, 1653, 9242, matrix(9242), matrix(1653), matrix(1653));
        let bytes = |pieces| 776 * 1653 * 4 * Split::Pieces(pieces).length_and_count(9242).1 as u64;
        assert_eq!(Split::Pieces(32).length_and_count(9242), (320, 29));
        assert!(bytes(32) > 128 << 20 && bytes(16) <= 128 << 20);
        let pieces = |most, pieces| that_fit(most, &desc, Split::Pieces(pieces));
        assert_eq!(pieces(128 << 20, 32), Split::Pieces(16));
        assert_eq!(pieces(1 << 30, 32), Split::Pieces(32));
        assert_eq!(pieces(1 << 20, 32), Split::WHOLE);
        assert_eq!(pieces(128 << 20, 1), Split::WHOLE);
        let length = |most, length| that_fit(most, &desc, Split::Length(length));
        assert_eq!(length(128 << 20, 320), Split::Length(640));
        assert_eq!(length(128 << 20, 9216), Split::Length(9216));
        assert_eq!(
            [length(1 << 20, 320), length(1 << 30, 9242), length(1 << 30, usize::MAX)],
            [Split::WHOLE; 3]
        );
    }

    #[test]
    fn pieces_are_whole_steps_but_for_the_last() {
        let of_1536 = [0, 1, 3, 4, 100].map(|pieces| Split::Pieces(pieces).length_and_count(1536));
        assert_eq!(of_1536, [(1536, 1), (1536, 1), (512, 3), (384, 4), (64, 24)]);
        let of_1536 =
            [0, 1, 448, 1535, usize::MAX].map(|length| Split::Length(length).length_and_count(1536));
        assert_eq!(of_1536, [(64, 24), (64, 24), (448, 4), (1536, 1), (1536, 1)]);
        assert_eq!(Split::Pieces(2).longest(100), 64);
        assert_eq!(Split::WHOLE.longest(100), 100);
        assert_eq!(Split::Length(0).length_and_count(0), (64, 1));
    }
}
