//! What a candidate costs, and the estimate of a tile and a split-K that take the least time.

use backend_api::desc::MatmulDesc;

use super::strategy;

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

/// A tile, into how many splits k is divided, and the nanoseconds that a product is estimated to take so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate<T> {
    pub(super) tile: T,
    pub(super) splits: usize,
    pub(super) time: usize,
}

/// The nanoseconds that writing and adding partial sums takes, of so many results in so many splits, on so many
/// compute units.
pub(super) type Combining = fn(usize, usize, usize) -> usize;

/// The tile and the number of splits that are estimated to take the least time. `time` estimates that of a
/// tile for m, n, k and the number of products, `combining` that of m·n results and their splits on the device's
/// compute units.
pub(super) fn cheapest<T: Copy>(
    desc: &MatmulDesc,
    tiles: impl Iterator<Item = T>,
    (combining, compute_units): (Combining, usize),
    time: impl Fn(T, [usize; 4]) -> usize,
) -> Option<Estimate<T>> {
    /// Nanoseconds in which workgroups begin and end, which matter where their part of k is short.
    const SHORT: usize = 1500;
    let &MatmulDesc { m, n, k, batch, .. } = desc;
    let choices = tiles.flat_map(|tile| {
        let splits = [1, 2, 4, 8, 16, 32].into_iter();
        splits
            .filter(move |&splits| splits == 1 || batch == 1 && k / splits >= strategy::STEP)
            .map(move |splits| (tile, splits))
    });
    let estimates = choices.map(|(tile, splits)| {
        if splits == 1 {
            return Estimate { tile, splits, time: time(tile, [m, n, k, batch]) };
        }
        let (length, count) = strategy::length_and_count(k, splits);
        let short = if length < 256 { SHORT } else { 0 };
        let combining = combining(m.saturating_mul(n), count, compute_units).saturating_add(short);
        Estimate { tile, splits, time: time(tile, [m, n, length, count]).saturating_add(combining) }
    });
    estimates.min_by_key(|estimate| estimate.time)
}
