//! Arithmetic of shapes and axes.

use crate::error::{Error, Result};

/// The shape that both are broadcast to, as NumPy has it.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |shape: &[usize], k: usize| {
        (k + shape.len()).checked_sub(rank).and_then(|k| shape.get(k)).copied().unwrap_or(1)
    };
    let extent = |k| match (at(a, k), at(b, k)) {
        (1, extent) | (extent, 1) => Ok(extent),
        (a, b) if a == b => Ok(a),
        _ => Err(Error::invalid(format!("{a:?} and {b:?} can't be broadcast"))),
    };
    (0..rank).map(extent).collect()
}

/// Strides of a packed row-major tensor, in elements.
pub(crate) fn packed_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for k in (1..shape.len()).rev() {
        strides[k - 1] = strides[k] * shape[k].max(1);
    }
    strides
}

/// Strides with which strided elements are read in another shape of as many, none of which is 0; `None` if
/// that needs a copy.
pub(crate) fn reshaped_strides(from: &[usize], strides: &[usize], to: &[usize]) -> Option<Vec<usize>> {
    // Dimensions that one step walks through together, innermost first.
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (&extent, &stride) in from.iter().zip(strides).rev().filter(|&(&extent, _)| extent != 1) {
        match runs.last_mut() {
            Some((length, step)) if *length * *step == stride => *length *= extent,
            _ => runs.push((extent, stride)),
        }
    }
    let mut runs = runs.into_iter();
    let (mut left, mut step) = runs.next().unwrap_or((1, 1));
    let mut reshaped = vec![1; to.len()];
    for (&extent, stride) in to.iter().zip(&mut reshaped).rev() {
        if left == 1 && extent != 1 {
            (left, step) = runs.next()?;
        }
        *stride = step;
        if !left.is_multiple_of(extent.max(1)) {
            return None;
        }
        left /= extent.max(1);
        step *= extent;
    }
    Some(reshaped)
}

/// A dimension that may be counted from the end.
pub(crate) fn axis(axis: i64, rank: usize) -> Result<usize> {
    let counted = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
    usize::try_from(counted)
        .ok()
        .filter(|&axis| axis < rank)
        .ok_or_else(|| Error::invalid(format!("axis {axis} of {rank} dimensions")))
}

/// Dimensions, each at most once, any of which may be counted from the end.
pub(crate) fn axes(named: &[i64], rank: usize) -> Result<Vec<usize>> {
    let mut axes = named.iter().map(|&named| axis(named, rank)).collect::<Result<Vec<_>>>()?;
    axes.sort_unstable();
    axes.dedup();
    if axes.len() == named.len() { Ok(axes) } else { Err(Error::invalid("an axis is named twice")) }
}

/// An extent or a count that isn't negative.
pub(crate) fn extent(number: i64) -> Result<usize> {
    usize::try_from(number)
        .map_err(|_| Error::invalid(format!("{number} is not a number of elements along a dimension")))
}

/// The most numbers that a list on the host may have: 2 GiB of them.
const MOST_LISTED: usize = 1 << 28;

/// As many numbers as a list on the host may have: what sizes at run time ask for is an error beyond it, and
/// no failed allocation, which would end the process.
pub(crate) fn listed(count: i64) -> Result<usize> {
    usize::try_from(count)
        .ok()
        .filter(|&count| count <= MOST_LISTED)
        .ok_or_else(|| Error::invalid(format!("a list of {count} numbers is longer than {MOST_LISTED}")))
}

/// The elements of a shape, whose product may be as many as a list on the host may have.
pub(crate) fn listed_elements(shape: &[usize]) -> Result<usize> {
    shape
        .iter()
        .try_fold(1usize, |count, &extent| count.checked_mul(extent))
        .filter(|&count| count <= MOST_LISTED)
        .ok_or_else(|| Error::invalid(format!("{shape:?} numbers on the host are more than {MOST_LISTED}")))
}

/// Every place of a tensor of `shape` in row-major order, as `offset + Σ index·stride`.
pub(crate) fn places(
    shape: &[usize],
    offset: isize,
    strides: &[isize],
) -> impl Iterator<Item = usize> + use<> {
    let (shape, strides) = (shape.to_vec(), strides.to_vec());
    let count = shape.iter().product();
    (0..count).map(move |mut i| {
        let mut place = offset;
        for (&extent, &stride) in shape.iter().zip(&strides).rev() {
            place += (i % extent) as isize * stride;
            i /= extent;
        }
        // A negative place is as wrong as one that is too large, and told by who looks there.
        usize::try_from(place).unwrap_or(usize::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_broadcast_from_the_end() {
        assert_eq!(broadcast(&[2, 1, 3], &[4, 1]).unwrap(), [2, 4, 3]);
        assert_eq!(broadcast(&[], &[0]).unwrap(), [0]);
        assert!(broadcast(&[2], &[3]).is_err());
    }

    #[test]
    fn places_walk_backwards_too() {
        assert_eq!(places(&[2, 2], 3, &[-2, -1]).collect::<Vec<_>>(), [3, 2, 1, 0]);
        assert_eq!(places(&[], 5, &[]).collect::<Vec<_>>(), [5]);
        assert_eq!(places(&[2, 0], 0, &[1, 1]).count(), 0);
    }

    #[test]
    fn strides_are_reshaped_where_no_copy_is_needed() {
        // Heads split from and merged into the columns of rows that are 12 apart.
        assert_eq!(reshaped_strides(&[5, 4], &[12, 1], &[5, 2, 2]).unwrap(), [12, 2, 1]);
        assert_eq!(reshaped_strides(&[5, 2, 2], &[12, 2, 1], &[5, 1, 4]).unwrap()[2], 1);
        assert_eq!(reshaped_strides(&[2, 3, 4], &[12, 4, 1], &[6, 4]).unwrap(), [4, 1]);
        assert!(reshaped_strides(&[2, 3], &[1, 2], &[6]).is_none(), "transposed");
        assert!(reshaped_strides(&[5, 4], &[12, 1], &[20]).is_none(), "rows apart");
        assert!(reshaped_strides(&[5, 4], &[12, 1], &[10, 2]).is_none(), "a row in two");
    }

    #[test]
    fn axes_are_counted_from_the_end() {
        assert_eq!(axis(-1, 3).unwrap(), 2);
        assert!(axis(3, 3).is_err() && axis(i64::MIN, 3).is_err());
        assert!(axes(&[0, -3], 3).is_err());
    }
}
