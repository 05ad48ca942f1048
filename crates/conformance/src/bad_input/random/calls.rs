//! A call of any method with any arguments.

use backend_api::{BackendResult, ComputeBackend};

use super::pool::Pool;
use super::{Call, elementwise, images, memory, movement, products, quant, rows};
use crate::rng::Rng;

pub(super) fn call<'a>(
    label: String,
    verdict: BackendResult<()>,
    make: impl Fn(&dyn ComputeBackend) -> BackendResult<()> + 'a,
) -> Call<'a> {
    Call { label, verdict, make: Box::new(make) }
}

/// A call of any method with any arguments.
pub(super) fn random<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let methods: [fn(&mut Rng, &Pool<'_>) -> Call<'a>; 46] = [
        products::gemm,
        products::batched_gemm,
        products::conv2d,
        images::conv2d,
        images::conv_transpose2d,
        images::backward_data,
        images::backward_filter,
        images::pool2d,
        products::attention,
        rows::reduce,
        rows::reduce_ext,
        elementwise::unary,
        elementwise::binary,
        memory::transfer,
        memory::copy_dtod,
        memory::fill,
        memory::view,
        products::matmul,
        products::attention_ext,
        elementwise::unary_ext,
        elementwise::binary_ext,
        elementwise::copy,
        rows::softmax,
        rows::norm,
        rows::group_norm,
        rows::batch_norm,
        rows::cumsum,
        rows::backward,
        rows::rope,
        rows::gather,
        rows::top_k,
        rows::sample,
        rows::random,
        elementwise::compare,
        elementwise::where_cond,
        elementwise::clamp,
        elementwise::affine,
        movement::permute,
        movement::slice,
        movement::repeat,
        movement::pad,
        movement::concat,
        memory::alloc,
        quant::quant_matmul,
        quant::quant_gather,
        quant::dequantize,
    ];
    rng.pick(&methods)(rng, pool)
}
