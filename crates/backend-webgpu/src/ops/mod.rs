//! The operations: a launcher for each family.
//!
//! A launcher checks the descriptor, plans (which kernel, which variant, which grid) and launches. It never waits.

mod copy_bytes;
mod elementwise;
mod fill;
mod stubs;

pub(crate) use copy_bytes::{copy_bytes, copy_dtod};
pub(crate) use elementwise::unary;
pub(crate) use fill::fill;
pub(crate) use stubs::*;

use crate::kernels::Variant;

/// Every variant that the launchers can ask for.
pub(crate) fn all_variants() -> Vec<Variant> {
    [copy_bytes::variants(), elementwise::variants(), fill::variants()].concat()
}
