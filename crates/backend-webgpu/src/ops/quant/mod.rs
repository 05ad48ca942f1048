//! Quantised matrices: `quant/decode` multiplies few rows, `quant/tiled` many, and `quant/gather` dequantises.
//!
//! What differs between formats is in helper files, which read a unit of 128 weights from the planes; the
//! kernels know none of them.

mod formats;
mod gather;
mod matmul;
mod planes;

pub(crate) use gather::{dequantize, quant_gather};
pub(crate) use matmul::quant_matmul;

use crate::kernels::Variant;

pub(super) fn variants() -> Vec<Variant> {
    [matmul::variants(), gather::variants()].concat()
}
