//! Rows of queries and keys whose pairs are neighbours.

/// An order of the rows of stacked queries, keys and values in which the elements of a rotated pair are neighbours, where a file
/// pairs the halves of a head. Scores are sums over the elements of queries and keys, in whatever order both have them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NeighbouringPairs {
    /// Rows of queries and keys; others stay where they are.
    pub(crate) rows: usize,
    pub(crate) head_dim: usize,
    /// How many of a head's rows are rotated.
    pub(crate) rotary_dim: usize,
}

impl NeighbouringPairs {
    /// The file's row that comes at a place.
    pub(super) fn row_at(&self, place: usize) -> usize {
        let element = place % self.head_dim.max(1);
        if place >= self.rows || element >= self.rotary_dim {
            return place;
        }
        place - element + element / 2 + element % 2 * (self.rotary_dim / 2)
    }

    /// Whole heads of the stack from row `first` on, `row` items each, in this order.
    pub(super) fn arranged<T: Copy>(&self, first: usize, row: usize, items: &[T]) -> Vec<T> {
        let of_place = |place: usize| {
            let start = (self.row_at(first + place) - first) * row;
            items.get(start..start + row).unwrap_or_default()
        };
        (0..items.len() / row.max(1)).flat_map(of_place).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_rotated_elements_alternate() {
        let order = NeighbouringPairs { rows: 12, head_dim: 6, rotary_dim: 4 };
        let rows: Vec<usize> = (0..14).map(|place| order.row_at(place)).collect();
        assert_eq!(rows, [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11, 12, 13]);
        // The second head, of rows of two.
        let items: Vec<usize> = (12..28).collect();
        let arranged = order.arranged(6, 2, &items);
        assert_eq!(arranged, [12, 13, 16, 17, 14, 15, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27]);
    }
}
