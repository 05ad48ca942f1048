//! Covering grids: every pair of values instead of every combination.

use crate::rng::Rng;

/// Rows of choices, one column for each entry of `counts` with values below it, such that every pair of
/// values of two columns appears in some row. Greedy, after Cohen et al., "The AETG system", 1997. Another
/// `seed` gives other rows.
pub(crate) fn pairwise(counts: &[usize], seed: &str) -> Vec<Vec<usize>> {
    let mut rng = Rng::from_name(seed);
    let mut open = OpenPairs::new(counts);
    let mut rows = Vec::new();
    while let Some((first, second)) = open.pick(&mut rng) {
        let mut row: Vec<Option<usize>> = vec![None; counts.len()];
        row[first.0] = Some(first.1);
        row[second.0] = Some(second.1);
        for (column, &count) in counts.iter().enumerate() {
            if row[column].is_none() {
                let start = rng.below(count);
                // Ties fall to a random value, so that columns with few values are used evenly.
                let best = (0..count)
                    .map(|i| (start + i) % count)
                    .max_by_key(|&value| open.gain(&row, (column, value)));
                row[column] = best;
            }
        }
        let row: Vec<usize> = row.into_iter().flatten().collect();
        open.close(&row);
        rows.push(row);
    }
    rows
}

/// A column and a value in it.
type Choice = (usize, usize);

/// The pairs that no row has yet.
struct OpenPairs {
    /// `flags[a][b]` for columns a < b, flattened over their values.
    flags: Vec<Vec<Vec<bool>>>,
    counts: Vec<usize>,
    left: usize,
}

impl OpenPairs {
    fn new(counts: &[usize]) -> Self {
        let flags: Vec<Vec<Vec<bool>>> = (0..counts.len())
            .map(|a| {
                (0..counts.len())
                    .map(|b| if a < b { vec![true; counts[a] * counts[b]] } else { Vec::new() })
                    .collect()
            })
            .collect();
        let left = flags.iter().flatten().map(Vec::len).sum();
        Self { flags, counts: counts.to_vec(), left }
    }

    /// Some open pair, searched from a random one on.
    fn pick(&self, rng: &mut Rng) -> Option<(Choice, Choice)> {
        if self.left == 0 {
            return None;
        }
        let columns = self.counts.len();
        let start = rng.below(columns * columns);
        for at in (0..columns * columns).map(|i| (start + i) % (columns * columns)) {
            let (a, b) = (at / columns, at % columns);
            if let Some(flag) = self.flags[a][b].iter().position(|&open| open) {
                return Some(((a, flag / self.counts[b]), (b, flag % self.counts[b])));
            }
        }
        None
    }

    /// How many open pairs `choice` makes with what the row has already.
    fn gain(&self, row: &[Option<usize>], choice: Choice) -> usize {
        let chosen = row.iter().enumerate().filter_map(|(column, value)| value.map(|value| (column, value)));
        chosen.filter(|&other| self.is_open(choice, other)).count()
    }

    fn is_open(&self, x: Choice, y: Choice) -> bool {
        let (a, b) = if x.0 < y.0 { (x, y) } else { (y, x) };
        self.flags[a.0][b.0][a.1 * self.counts[b.0] + b.1]
    }

    fn close(&mut self, row: &[usize]) {
        for a in 0..row.len() {
            for b in a + 1..row.len() {
                let flag = &mut self.flags[a][b][row[a] * self.counts[b] + row[b]];
                self.left -= usize::from(std::mem::take(flag));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_appears_and_rows_are_few() {
        let counts = [17, 17, 17, 3, 5, 1];
        let rows = pairwise(&counts, "test");
        assert!(rows.len() < 400, "{} rows", rows.len());
        for a in 0..counts.len() {
            for b in a + 1..counts.len() {
                for pair in (0..counts[a]).flat_map(|x| (0..counts[b]).map(move |y| (x, y))) {
                    assert!(rows.iter().any(|row| (row[a], row[b]) == pair));
                }
            }
        }
    }
}
