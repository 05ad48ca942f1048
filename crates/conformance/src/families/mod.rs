//! The cases, one file for each operation.

mod attention;
mod attention_ext;
mod attention_special;
mod backward;
mod batch_norm;
mod batched_gemm;
mod binary;
mod binary_ext;
mod capture;
mod channel_norm;
mod clamp;
mod compare;
mod conv;
mod conv2d_forward;
mod copy;
mod copy_dtod;
mod cumsum;
mod exact;
mod experts;
mod fill;
mod gather;
mod gemm;
mod group_norm;
mod heads;
mod integers;
mod large;
mod layout;
mod matmul;
mod memory;
mod movement;
mod norm;
mod numbers;
mod offsets;
mod order;
mod paged_cache;
mod pages;
mod payload;
mod pool;
mod quant;
mod quant_int8;
mod quant_rows;
mod quant_shapes;
mod quantize_rows;
mod random;
mod reduce;
mod reduce_ext;
mod rope;
mod rope_append;
mod sample;
mod scatter;
mod softmax;
mod top_k;
mod transfer;
mod unary;
mod unary_ext;
mod where_cond;

use std::collections::HashSet;

use backend_api::MathMode;

use crate::case::Case;

pub use attention_ext::attention_around;
pub use conv::conv_in_small;
pub use matmul::{matmul_along_k, matmul_around, matmul_in_vectors};

/// Products with a quantised matrix that are made in a mode, for suites that force kernels.
#[must_use]
pub fn quant_products(math: MathMode) -> Vec<Case> {
    if math == MathMode::Int8 { quant_int8::products() } else { quant::products() }
}

/// How much rarer a family's cases are in samples than those of others: the kernels of attention take a software adapter several
/// times as long to compile.
#[must_use]
pub fn rarity(family: &str) -> usize {
    match family {
        "attention" | "attention_ext" => 8,
        _ => 1,
    }
}

/// Every case, in an order that doesn't change. No two have the same [`path`](Case::path).
#[must_use]
pub fn cases() -> Vec<Case> {
    let families = [
        gemm::cases(),
        batched_gemm::cases(),
        matmul::cases(),
        quant::cases(),
        experts::cases(),
        quantize_rows::cases(),
        conv2d_forward::cases(),
        conv::cases(),
        pool::cases(),
        attention::cases(),
        attention_ext::cases(),
        reduce::cases(),
        reduce_ext::cases(),
        unary::cases(),
        unary_ext::cases(),
        binary::cases(),
        binary_ext::cases(),
        numbers::cases(),
        integers::cases(),
        compare::cases(),
        where_cond::cases(),
        clamp::cases(),
        copy::cases(),
        movement::cases(),
        softmax::cases(),
        norm::cases(),
        group_norm::cases(),
        batch_norm::cases(),
        backward::cases(),
        cumsum::cases(),
        rope::cases(),
        rope_append::cases(),
        top_k::cases(),
        sample::cases(),
        gather::cases(),
        scatter::cases(),
        fill::cases(),
        random::cases(),
        copy_dtod::cases(),
        transfer::cases(),
        memory::cases(),
        order::cases(),
        payload::cases(),
        capture::cases(),
        paged_cache::cases(),
        exact::cases(),
        large::cases(),
        offsets::cases(),
    ];
    // Several covering grids over the same values may share rows.
    let mut seen = HashSet::new();
    families.into_iter().flatten().filter(|case| seen.insert(case.path())).collect()
}

/// The name of a boolean choice.
const fn flag(on: bool, name: &'static str, otherwise: &'static str) -> &'static str {
    if on { name } else { otherwise }
}
