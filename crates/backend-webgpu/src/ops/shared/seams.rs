//! How workgroups take rows of f16 that share words, so that every word is written by one of them; see
//! shaders/lib/rows_halves.wgsl.

use super::vec_width::VecWidth;

/// The rows of a workgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) struct Seams {
    /// Rows that a row group takes one after the other.
    pub(in crate::ops) rows_per_group: u32,
    /// Rows by which the workgroups begin before the first, which is there for none of them.
    pub(in crate::ops) rows_before: u32,
}

impl Seams {
    /// Bytes of workgroup memory that lib/rows_halves takes for the ends of rows.
    pub(in crate::ops) const fn workgroup_bytes(vec_width: VecWidth) -> usize {
        if matches!(vec_width, VecWidth::Two) { 2048 } else { 0 }
    }

    /// For packed rows of `length` elements from element `offset` of a binding on, of which a workgroup has
    /// `abreast`, a power of two, at a time.
    pub(in crate::ops) fn new(vec_width: VecWidth, length: usize, offset: u32, abreast: usize) -> Self {
        if vec_width != VecWidth::Two || length.is_multiple_of(2) {
            return Self { rows_per_group: 1, rows_before: 0 };
        }
        // Two rows of odd length are whole words, if the first begins with one.
        Self { rows_per_group: if abreast == 1 { 2 } else { 1 }, rows_before: offset % 2 }
    }

    /// Workgroups for `rows`.
    pub(in crate::ops) fn groups(self, rows: usize, abreast: usize) -> usize {
        (rows + self.rows_before as usize).div_ceil(abreast * self.rows_per_group as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workgroup_begins_with_a_whole_word() {
        for (length, offset, abreast) in
            [(777, 0, 8), (777, 5, 8), (50_257, 0, 1), (50_257, 3, 1), (778, 2, 1)]
        {
            let Seams { rows_per_group, rows_before } = Seams::new(VecWidth::Two, length, offset, abreast);
            let begins = |group: usize| group * abreast * rows_per_group as usize * length + offset as usize;
            assert!((1..4).all(|group| (begins(group) - rows_before as usize * length).is_multiple_of(2)));
        }
    }

    /// Elsewhere, rows begin with whole words, or are read one by one.
    #[test]
    fn only_odd_rows_of_words_share_them() {
        let plain = Seams { rows_per_group: 1, rows_before: 0 };
        for (vec_width, length) in [(VecWidth::Two, 778), (VecWidth::One, 777), (VecWidth::Four, 776)] {
            assert_eq!(Seams::new(vec_width, length, 5, 1), plain, "{vec_width:?} {length}");
        }
    }

    #[test]
    fn a_workgroup_alone_takes_pairs_of_rows() {
        let groups = |offset, rows| Seams::new(VecWidth::Two, 777, offset, 1).groups(rows, 1);
        assert_eq!([groups(0, 16), groups(0, 17), groups(1, 15), groups(1, 16)], [8, 9, 8, 9]);
    }

    #[test]
    fn the_row_before_the_first_takes_a_place() {
        let groups = |offset, rows| Seams::new(VecWidth::Two, 777, offset, 8).groups(rows, 8);
        assert_eq!([groups(0, 16), groups(1, 16), groups(1, 15)], [2, 3, 2]);
    }
}
