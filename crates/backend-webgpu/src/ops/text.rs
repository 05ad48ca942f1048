//! What writes the parts of kernels that have to be unrolled.

pub(super) fn lines(statements: impl Iterator<Item = String>) -> String {
    statements.map(|statement| statement + "\n").collect()
}

/// Every pair of elements below `a` and `b`.
pub(super) fn pairs([a, b]: [usize; 2]) -> impl Iterator<Item = (usize, usize)> {
    (0..a).flat_map(move |i| (0..b).map(move |j| (i, j)))
}
