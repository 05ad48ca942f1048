//! The operations: a launcher for each family.
//!
//! A launcher checks the descriptor, plans (which kernel, which variant, which grid) and launches. It never waits.

mod attention;
mod conv2d;
mod copy_bytes;
mod elementwise;
mod fill;
mod matmul;
mod stubs;
mod tile;

pub(crate) use attention::attention;
pub(crate) use conv2d::conv2d;
pub(crate) use copy_bytes::{copy_bytes, copy_dtod};
pub(crate) use elementwise::unary;
pub(crate) use fill::fill;
pub(crate) use matmul::matmul;
pub(crate) use stubs::*;

use crate::kernels::Variant;

/// Every variant that the launchers can ask for.
pub(crate) fn all_variants() -> Vec<Variant> {
    [
        attention::variants(),
        conv2d::variants(),
        copy_bytes::variants(),
        elementwise::variants(),
        fill::variants(),
        matmul::variants(),
    ]
    .concat()
}
