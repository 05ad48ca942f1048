//! What writes the parts of kernels that have to be unrolled.

pub(in crate::ops) fn lines(statements: impl Iterator<Item = String>) -> String {
    statements.map(|statement| statement + "\n").collect()
}

/// Every pair of elements below `a` and `b`.
pub(in crate::ops) fn pairs([a, b]: [usize; 2]) -> impl Iterator<Item = (usize, usize)> {
    (0..a).flat_map(move |i| (0..b).map(move |j| (i, j)))
}
