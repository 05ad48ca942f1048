//! What kernels with lib/row_top_k are told.

use backend_api::desc::{SoftmaxOver, TopKDesc};

/// Numbers of a row up to which each is counted into its place.
pub(in crate::ops) const MOST: usize = 512;

/// The constant `SOFTMAX`.
pub(in crate::ops) const fn softmax_constant(softmax: Option<SoftmaxOver>) -> u32 {
    match softmax {
        None => 0,
        Some(SoftmaxOver::Row) => 2,
        Some(_) => 1,
    }
}

/// The place of the number whose exponential is 1, the largest: among those that are found, or in the whole row.
pub(in crate::ops) const fn place_of_largest(desc: &TopKDesc) -> usize {
    match desc.softmax {
        _ if desc.largest => 0,
        Some(SoftmaxOver::Row) => desc.columns.saturating_sub(1),
        _ => desc.k.saturating_sub(1),
    }
}
