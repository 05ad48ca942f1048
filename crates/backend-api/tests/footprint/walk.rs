//! Loops over tensors, compared with the multi-indices that they stand for.

use backend_api::desc::MAX_RANK;
use backend_api::support::Loop;

use crate::judge::{Call, addresses, is_small, limit, volume};

/// The element index in each tensor, at every step of nested loops.
pub(crate) fn visited<const N: usize>(loops: &[Loop<N>]) -> Vec<[usize; N]> {
    loops.iter().fold(vec![[0; N]], |all, &(extent, strides)| {
        let from = |start: [usize; N]| {
            (0..extent).map(move |i| std::array::from_fn(|tensor| start[tensor] + i * strides[tensor]))
        };
        all.into_iter().flat_map(from).collect()
    })
}

/// The addresses in several tensors of each multi-index, in row-major order.
pub(crate) fn together<const N: usize>(dims: [&[(usize, usize)]; N]) -> Vec<[usize; N]> {
    let each = dims.map(addresses);
    (0..each[0].len()).map(|i| std::array::from_fn(|tensor| each[tensor][i])).collect()
}

fn is_one_loop<const N: usize>((_, outer): Loop<N>, (extent, inner): Loop<N>) -> bool {
    (0..N).all(|tensor| inner[tensor] as u128 * extent as u128 == outer[tensor] as u128)
}

/// How many loops are left when single steps are dropped and neighbours merged that every tensor walks as
/// one.
pub(crate) fn loops_needed<const N: usize>(dims: [&[(usize, usize)]; N]) -> usize {
    if volume(dims[0]) == 0 {
        return 1;
    }
    let dim = |k: usize| (dims[0][k].0, dims.map(|tensor| tensor[k].1));
    let loops: Vec<Loop<N>> = (0..dims[0].len()).map(dim).filter(|&(extent, _)| extent > 1).collect();
    loops.len() - loops.windows(2).filter(|pair| is_one_loop(pair[0], pair[1])).count()
}

/// Loops must visit the multi-indices of `dims` in row-major order, and be as few as possible.
#[track_caller]
pub(crate) fn walks<const N: usize>(loops: &[Loop<N>], dims: [&[(usize, usize)]; N]) {
    assert_eq!(loops.len(), loops_needed(dims), "{loops:?} over {dims:?}");
    if dims.iter().all(|dims| is_small(dims)) {
        assert_eq!(visited(loops), together(dims), "{loops:?} over {dims:?}");
    }
}

impl Call {
    pub(crate) fn limit_loops(&mut self, needed: usize) {
        self.fault_if(needed > MAX_RANK, limit(needed, MAX_RANK));
    }
}
