//! The operations, one file for each family.

pub(crate) mod attention;
pub(crate) mod backward;
pub(crate) mod conv;
pub(crate) mod conv_filter;
pub(crate) mod copy;
pub(crate) mod cumsum;
pub(crate) mod elementwise;
pub(crate) mod experts;
pub(crate) mod fold;
pub(crate) mod gather;
pub(crate) mod matmul;
pub(crate) mod matrix;
pub(crate) mod movement;
pub(crate) mod norm;
mod paged;
pub(crate) mod pointwise;
pub(crate) mod pool;
pub(crate) mod quant;
mod quant_int8;
pub(crate) mod quantize_rows;
pub(crate) mod random;
pub(crate) mod reduce;
pub(crate) mod rope;
pub(crate) mod sample;
mod shifted;
pub(crate) mod softmax;
pub(crate) mod top_k;
