//! What a candidate costs, and the estimate of a tile and a split of k that take the least time.

use std::iter;

use backend_api::desc::MatmulDesc;

use super::strategy::Split;

/// What a candidate costs, from the least.
///
/// Estimates of one model are nanoseconds. Those of two models can't be compared (but for f32 products that may be
/// emulated, where both are an H200's), nor can the time of a product that waits for memory be told from its tiles: the
/// variants stand in the order in which kernels were measured to be faster wherever they are offered, so that a kernel
/// offers a candidate only where it keeps to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cost {
    /// The time of reading one operand, or of writing C, once: what passes through workgroup memory decides.
    Traffic(Staged),
    /// The nanoseconds of tiles on tensor cores.
    TensorCores(usize),
    /// A tile of few rows or columns, of which larger tiles would be mostly empty.
    FewRows,
    /// The nanoseconds of tiles in registers.
    Registers(usize),
    /// More than any kernel for GPUs.
    Unbounded,
}

/// What passes through workgroup memory, from the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Staged {
    Nothing,
    Sums,
    OperandAndSums,
}

/// A tile, how k is split, and the nanoseconds that a product is estimated to take so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate<T> {
    pub(super) tile: T,
    pub(super) split: Split,
    pub(super) time: usize,
}

/// The nanoseconds that writing and adding partial sums takes, of so many results, in pieces of a length and so many of
/// them, on so many compute units.
pub(super) type Combining = fn(usize, [usize; 2], usize) -> usize;

/// The length of a piece below which it matters how long workgroups take to begin and end.
pub(super) const SHORT: usize = 256;

/// The tile and the split of k, of those that `splits` has for a tile, that are estimated to take the least time. `time`
/// estimates that of a tile for m, n, k and the number of products, of which the last may have another k; `combining` that
/// of m·n results and their pieces on the device's compute units.
pub(super) fn cheapest<T: Copy, Splits: Iterator<Item = Split>>(
    desc: &MatmulDesc,
    tiles: impl Iterator<Item = T>,
    splits: impl Fn(T) -> Splits,
    (combining, compute_units): (Combining, usize),
    time: impl Fn(T, [usize; 4], usize) -> usize,
) -> Option<Estimate<T>> {
    let &MatmulDesc { m, n, k, batch, .. } = desc;
    let choices = tiles.flat_map(|tile| {
        let in_pieces = splits(tile).filter(|_| batch == 1);
        iter::once(Split::WHOLE).chain(in_pieces).map(move |split| (tile, split))
    });
    let estimates = choices.map(|(tile, split)| {
        if split.is_whole() {
            return Estimate { tile, split, time: time(tile, [m, n, k, batch], k) };
        }
        let (length, count) = split.length_and_count(k);
        let combining = combining(m.saturating_mul(n), [length, count], compute_units);
        let last = k.saturating_sub(length.saturating_mul(count - 1));
        Estimate { tile, split, time: time(tile, [m, n, length, count], last).saturating_add(combining) }
    });
    estimates.min_by_key(|estimate| estimate.time)
}
