//! What the operations must give: computed in f64, written for clarity, with the bound of each element.
//!
//! Bounds count roundings in [`gamma`](crate::float::gamma) and hold for every order of summation.

pub(crate) mod attention;
pub(crate) mod binary;
pub(crate) mod conv;
pub(crate) mod convert;
pub(crate) mod cumsum;
pub(crate) mod elementwise;
pub(crate) mod experts;
pub(crate) mod norm;
pub(crate) mod pool;
pub(crate) mod product;
pub(crate) mod q8_0;
pub(crate) mod quant;
pub(crate) mod reduce;
pub(crate) mod rope;
pub(crate) mod sample;
pub(crate) mod scatter;
pub(crate) mod softmax;
pub(crate) mod unary;
