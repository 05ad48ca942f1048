//! Sizes that can't wrap around.

use crate::{BackendError, BackendResult};

/// The product of `factors`, or [`BackendError::Overflow`] naming `what`.
pub fn checked_product(op: &'static str, what: &'static str, factors: &[usize]) -> BackendResult<usize> {
    // A zero anywhere makes the product zero, whatever the order of the factors.
    if factors.contains(&0) {
        return Ok(0);
    }
    factors
        .iter()
        .try_fold(1usize, |product, &factor| product.checked_mul(factor))
        .ok_or(BackendError::Overflow { op, what })
}

/// `a + b`, or [`BackendError::Overflow`] naming `what`.
pub fn checked_add(op: &'static str, what: &'static str, a: usize, b: usize) -> BackendResult<usize> {
    a.checked_add(b).ok_or(BackendError::Overflow { op, what })
}

/// One past the largest element index that a strided shape reaches, 0 when it has no element.
pub(crate) fn strided_extent(
    op: &'static str,
    what: &'static str,
    dims: impl Iterator<Item = (usize, usize)> + Clone,
) -> BackendResult<usize> {
    if dims.clone().any(|(extent, _)| extent == 0) {
        return Ok(0);
    }
    let mut end = 1;
    for (extent, stride) in dims {
        end = checked_add(op, what, end, checked_product(op, what, &[extent - 1, stride])?)?;
    }
    Ok(end)
}

/// Sorts few items by ascending keys, stably. It is an insertion sort: the standard library's sort adds some 4 kB to a
/// WebAssembly module for each type of items.
pub fn sort_few_by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    for end in 1..items.len() {
        for at in (1..=end).rev() {
            if key(&items[at - 1]) <= key(&items[at]) {
                break;
            }
            items.swap(at - 1, at);
        }
    }
}

/// Whether the elements of a strided shape are certainly distinct: sorted by stride, each stride passes
/// everything that the smaller ones reach.
pub(crate) fn strides_are_injective(dims: &mut [(usize, usize)]) -> bool {
    if dims.iter().any(|&(extent, _)| extent == 0) {
        return true;
    }
    // Of an extent of 1, the stride leads nowhere, and there may be any number of them.
    let mut longer = 0;
    for k in 0..dims.len() {
        if dims[k].0 > 1 {
            dims.swap(longer, k);
            longer += 1;
        }
    }
    let dims = &mut dims[..longer];
    sort_few_by_key(dims, |&(_, stride)| stride);
    let mut reached = 0usize;
    for &(extent, stride) in dims.iter() {
        if stride <= reached {
            return false;
        }
        reached = reached.saturating_add((extent - 1).saturating_mul(stride));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_with_equal_keys_keep_their_order() {
        let mut items = [(3, 'a'), (1, 'b'), (2, 'c'), (1, 'd'), (3, 'e'), (4, 'f'), (1, 'g')];
        sort_few_by_key(&mut items, |&(key, _)| key);
        assert_eq!(items.map(|(_, name)| name), ['b', 'd', 'g', 'c', 'a', 'e', 'f']);
        sort_few_by_key(&mut [] as &mut [u8], |&key| key);
    }

    #[test]
    fn products_overflow_as_errors() {
        assert_eq!(checked_product("t", "x", &[usize::MAX, 2, 0]), Ok(0));
        assert_eq!(checked_product("t", "x", &[3, 4]), Ok(12));
        assert_eq!(
            checked_product("t", "x", &[usize::MAX, 2]),
            Err(BackendError::Overflow { op: "t", what: "x" })
        );
    }

    #[test]
    fn interleaved_rows_are_distinct_and_shared_ones_are_not() {
        assert!(strides_are_injective(&mut [(4, 8), (3, 32), (8, 1)]));
        assert!(strides_are_injective(&mut [(1, 0), (8, 1)]));
        assert!(!strides_are_injective(&mut [(2, 0), (8, 1)]));
        assert!(strides_are_injective(&mut [(2, 0), (8, 1), (0, 8)]));
        assert!(!strides_are_injective(&mut [(4, 7), (8, 1)]));
        assert!(strides_are_injective(&mut [(1, 9), (8, 1), (1, 8), (2, 8)]));
        // In linear time, as any rank is legal.
        let mut ones: Vec<(usize, usize)> = (0..300_000).rev().map(|stride| (1, stride)).collect();
        assert!(strides_are_injective(&mut ones));
    }

    #[test]
    fn extent_counts_to_the_last_element() {
        assert_eq!(strided_extent("t", "x", [(3, 10), (4, 1)].into_iter()), Ok(24));
        assert_eq!(strided_extent("t", "x", [(0, 10), (4, 1)].into_iter()), Ok(0));
        assert_eq!(strided_extent("t", "x", [].into_iter()), Ok(1));
    }
}
