//! In which launches a product is made: at once, with k in splits, without its edges, or of f16 parts of f32 operands.

use backend_api::DType;
use backend_api::desc::MatmulDesc;

/// In which launches a product is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// One.
    Whole,
    /// One for partial sums over so many splits of k, and one that adds them.
    SplitK(usize),
    /// One for whole tiles, and others for the rows and columns beyond them.
    PeelEdges,
    /// An f32 product of operands split into f16 parts, with so many splits of k.
    Emulated(usize),
}

impl Strategy {
    /// Into how many pieces k is split.
    pub(super) fn splits(self) -> usize {
        match self {
            Self::SplitK(splits) | Self::Emulated(splits) => splits,
            Self::Whole | Self::PeelEdges => 1,
        }
    }
}

/// A multiple of every kernel's step, of which splits of k are multiples, and the lengths of f16 parts.
pub(super) const STEP: usize = 64;

/// The f16 parts of an f32 operand, which follow each other along k.
pub(super) const PARTS: usize = 3;

/// How long pieces of k are and how many there are, at most as many as asked for.
pub(super) fn length_and_count(k: usize, splits: usize) -> (usize, usize) {
    let length = k.div_ceil(splits).next_multiple_of(STEP).max(STEP);
    (length, k.div_ceil(length).max(1))
}

/// The splits that are asked for, or so many of them that the partial sums can be bound at once.
pub(super) fn that_fit(max_bytes: u64, desc: &MatmulDesc, splits: usize) -> usize {
    let one = desc.m.saturating_mul(desc.n).saturating_mul(DType::F32.size());
    let fits = |splits: usize| {
        let (_, count) = length_and_count(desc.k, splits);
        one.saturating_mul(count) as u64 <= max_bytes
    };
    let halves = std::iter::successors(Some(splits.max(1)), |&splits| (splits > 1).then_some(splits / 2));
    halves.take_while(|&splits| splits > 1).find(|&splits| fits(splits)).unwrap_or(1)
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
        let bytes = |splits| 776 * 1653 * 4 * length_and_count(9242, splits).1 as u64;
        assert_eq!(length_and_count(9242, 32), (320, 29));
        assert!(bytes(32) > 128 << 20 && bytes(16) <= 128 << 20);
        assert_eq!(that_fit(128 << 20, &desc, 32), 16);
        assert_eq!(that_fit(1 << 30, &desc, 32), 32);
        assert_eq!(that_fit(1 << 20, &desc, 32), 1);
        assert_eq!(that_fit(128 << 20, &desc, 1), 1);
    }
}
