//! Quantised matrices: `quant/decode` and `quant/decode_subgroup` multiply few rows, which `quant/quantize_rows` may have
//! rounded to 8 bits, `quant/skinny_cooperative` few rows of f16 on tensor cores, `quant/cooperative` many of them,
//! `quant/tiled` and the kernels of matrices many on other devices, `quant/gather` makes numbers of some rows and
//! `quant/dequantize` of all. Products with experts have `quant/expert_decode`, `quant/expert_decode_subgroup` and
//! `quant/expert_decode_cooperative` for few rows, `quant/expert_order` with `quant/expert_tiled` or
//! `quant/expert_rows_cooperative` for many, and `quant/expert_sum`.
//!
//! What differs between formats is in helper files, which read a unit of 128 weights from the planes; the
//! kernels know none of them.

mod append;
mod cooperative;
mod dense;
mod dequantize;
mod expert_cooperative;
mod expert_kernels;
mod expert_operands;
mod expert_order;
mod expert_self_test;
mod experts;
mod formats;
mod gather;
mod int8;
mod kernel;
mod kernel_override;
mod matmul;
mod operands;
mod planes;
mod self_test;
mod skinny_cooperative;
mod skinny_time;
mod stages;

pub(super) use append::{AppendWindows, QkvProduct};
pub(crate) use dequantize::dequantize;
pub(crate) use experts::expert_matmul;
pub(crate) use gather::quant_gather;
pub(crate) use kernel_override::KernelOverride;
pub(crate) use matmul::{explain_quant_matmul, quant_matmul};

use crate::kernels::Variant;

pub(super) fn variants() -> Vec<Variant> {
    [
        kernel::variants(),
        int8::variants(),
        skinny_cooperative::variants(),
        cooperative::variants(),
        expert_kernels::variants(),
        gather::variants(),
        dequantize::variants(),
    ]
    .concat()
}
