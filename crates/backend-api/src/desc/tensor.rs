//! A strided tensor, and how several of them are walked together.

use crate::size::{strided_extent, strides_are_injective};
use crate::{BackendError, BackendResult, Bound, DType};

use super::require_eq;

/// The most dimensions that a strided operation takes, counted after [`collapse`].
pub const MAX_RANK: usize = 6;

/// A tensor in device memory: element `(i₀, i₁, …)` lies `offset + Σ iₖ·strides[k]` elements after the handle's
/// start.
///
/// Columns 2 and 3 of a packed 4×5 matrix, added up row by row, without a view of its memory:
///
/// ```
/// use backend_api::desc::{ReduceDesc, TensorDesc};
/// use backend_api::{BackendResult, ComputeBackend, DType, ReduceOp};
///
/// fn sums(backend: &dyn ComputeBackend, matrix: u64, sums: u64) -> BackendResult<()> {
///     let columns = TensorDesc::strided(matrix, DType::F32, &[4, 2], &[5, 1]).with_offset(2);
///     backend.reduce_ext(&ReduceDesc::new(ReduceOp::Sum, columns, &[1], sums))
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorDesc<'a> {
    /// Handle of the memory.
    pub ptr: u64,
    /// Element type.
    pub dtype: DType,
    /// Elements from the handle's start to the first one.
    pub offset: usize,
    /// Extents, outermost first. Empty for a single number.
    pub shape: &'a [usize],
    /// Strides in elements, one for each extent; `None` for packed row-major. 0 repeats an input along a
    /// dimension.
    pub strides: Option<&'a [usize]>,
}

impl<'a> TensorDesc<'a> {
    /// A packed row-major tensor.
    #[must_use]
    pub const fn packed(ptr: u64, dtype: DType, shape: &'a [usize]) -> Self {
        Self { ptr, dtype, offset: 0, shape, strides: None }
    }

    /// A tensor with strides in elements.
    #[must_use]
    pub const fn strided(ptr: u64, dtype: DType, shape: &'a [usize], strides: &'a [usize]) -> Self {
        Self { ptr, dtype, offset: 0, shape, strides: Some(strides) }
    }

    setters! {
        /// Sets where the tensor begins, in elements after the handle's start.
        pub fn with_offset(offset: usize);

        /// Other strides, in elements; `None` for packed row-major.
        pub fn with_strides(strides: Option<&'a [usize]>);
    }

    /// Extent and stride of each dimension, outermost first.
    pub(crate) fn dims(&self, op: &'static str, what: &'static str) -> BackendResult<Vec<(usize, usize)>> {
        if let Some(strides) = self.strides {
            require_eq(op, what, self.shape.len(), strides.len())?;
            return Ok(self.shape.iter().copied().zip(strides.iter().copied()).collect());
        }
        let is_empty = self.shape.contains(&0);
        let mut dims = vec![(0, 0); self.shape.len()];
        let mut stride = 1usize;
        for (dim, &extent) in dims.iter_mut().zip(self.shape).rev() {
            *dim = (extent, stride);
            stride = match stride.checked_mul(extent.max(1)) {
                Some(product) => product,
                // No element lies anywhere.
                None if is_empty => 1,
                None => return Err(BackendError::Overflow { op, what }),
            };
        }
        Ok(dims)
    }
}

/// One past the last element that `dims` reach.
pub(crate) fn extent(op: &'static str, what: &'static str, dims: &[(usize, usize)]) -> BackendResult<usize> {
    strided_extent(op, what, dims.iter().copied())
}

/// An output whose elements share memory would be written twice.
pub(crate) fn require_distinct(
    op: &'static str,
    what: &'static str,
    dims: &[(usize, usize)],
) -> BackendResult<()> {
    if strides_are_injective(&mut dims.to_vec()) {
        Ok(())
    } else {
        Err(BackendError::Overlap { op, a: what, b: what })
    }
}

/// The dims of `input` as seen by `output`: aligned at the last dimension, extent 1 repeated by a stride of
/// 0.
pub(crate) fn broadcast(
    op: &'static str,
    what: &'static str,
    input: &[(usize, usize)],
    output: &[(usize, usize)],
) -> BackendResult<Vec<(usize, usize)>> {
    let missing = output.len().checked_sub(input.len()).ok_or(BackendError::Shape {
        op,
        what,
        expected: Bound::AtMost(output.len()),
        got: input.len(),
    })?;
    output
        .iter()
        .enumerate()
        .map(|(i, &(expected, _))| match i.checked_sub(missing).map(|i| input[i]) {
            None => Ok((expected, 0)),
            Some((got, stride)) if got == expected => Ok((got, stride)),
            Some((1, _)) => Ok((expected, 0)),
            Some((got, _)) => Err(BackendError::Shape { op, what, expected: Bound::Exactly(expected), got }),
        })
        .collect()
}

/// One loop of a walk over `N` tensors together: the extent and each tensor's stride in elements.
pub type Loop<const N: usize> = (usize, [usize; N]);

/// The fewest nested loops that walk `N` tensors of one shape together, outermost first: loops of extent 1
/// are dropped, and neighbours that every tensor walks like one are merged. Packed tensors become a single
/// loop.
///
/// `dims[t][k]` is extent and stride of tensor `t` in dimension `k`; all tensors have the same extents. An
/// empty shape gives no loop and names one element; a zero extent gives the one loop of extent 0.
#[must_use]
pub fn collapse<const N: usize>(dims: [&[(usize, usize)]; N]) -> Vec<Loop<N>> {
    // First, because the other extents of an empty shape may have a product that overflows.
    if dims[0].iter().any(|&(extent, _)| extent == 0) {
        return vec![(0, [0; N])];
    }
    let mut loops: Vec<Loop<N>> = Vec::with_capacity(dims[0].len());
    for k in 0..dims[0].len() {
        let extent = dims[0][k].0;
        let strides = dims.map(|tensor| tensor[k].1);
        if extent == 1 {
            continue;
        }
        match loops.last_mut() {
            Some((outer, outer_strides))
                if (0..N).all(|t| strides[t].checked_mul(extent) == Some(outer_strides[t])) =>
            {
                *outer *= extent;
                *outer_strides = strides;
            }
            _ => loops.push((extent, strides)),
        }
    }
    loops
}

/// [`collapse`] for tensors that an operation walks.
///
/// # Errors
/// [`Limit`](BackendError::Limit) for more than [`MAX_RANK`] loops.
pub(crate) fn walk<const N: usize>(
    op: &'static str,
    dims: [&[(usize, usize)]; N],
) -> BackendResult<Vec<Loop<N>>> {
    let loops = collapse(dims);
    if loops.len() > MAX_RANK {
        return Err(BackendError::Limit {
            op,
            what: "dimensions that can't be merged",
            requested: loops.len(),
            max: MAX_RANK,
        });
    }
    Ok(loops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_tensors_are_one_loop() {
        let shape = [2, 3, 4];
        let dims = TensorDesc::packed(1, DType::F32, &shape).dims("t", "x").unwrap();
        assert_eq!(collapse([&dims, &dims]), vec![(24, [1, 1])]);
    }

    #[test]
    fn a_broadcast_row_is_two_loops() {
        let (shape, row) = ([2, 3, 4], [4]);
        let out = TensorDesc::packed(1, DType::F32, &shape).dims("t", "x").unwrap();
        let row = TensorDesc::packed(1, DType::F32, &row).dims("t", "x").unwrap();
        let row = broadcast("t", "b", &row, &out).unwrap();
        assert_eq!(collapse([&out, &row]), vec![(6, [4, 0]), (4, [1, 1])]);
    }

    #[test]
    fn single_elements_and_empty_shapes() {
        assert_eq!(collapse::<1>([&[]]), vec![]);
        assert_eq!(collapse::<1>([&[(3, 4), (0, 4), (4, 1)]]), vec![(0, [0])]);
        let huge = 1 << (usize::BITS / 2);
        assert_eq!(
            collapse::<1>([&[(huge, huge), (huge, 1), (0, 1)]]),
            vec![(0, [0])],
            "their product overflows"
        );
    }

    #[test]
    fn broadcasting_errors_name_both_extents() {
        let error = broadcast("t", "b", &[(3, 1)], &[(2, 4), (4, 1)]).unwrap_err();
        assert_eq!(error, BackendError::Shape { op: "t", what: "b", expected: Bound::Exactly(4), got: 3 });
    }
}
