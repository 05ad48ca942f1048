//! The launch of a product whose operands need no copies.

use backend_api::BackendResult;

use super::kernel::Signature;
use super::layout::is_aligned;
use super::plan::Plan;
use super::{Product, Windows, params};
use crate::ops::op_context::{OpContext, linear_grid};

/// Launches the kernel of a plan.
pub(super) fn launch(
    ctx: &OpContext,
    op: &'static str,
    product: &Product,
    windows: &Windows,
    plan: &Plan,
) -> BackendResult<()> {
    let mut params = params(op, product, windows, plan.tile())?;
    let kernel = plan.implementation();
    if kernel.is_transposed() {
        params = params.transposed();
    }
    let grid = linear_grid(op, (params.sizes.tiles as usize).div_ceil(kernel.tiles_of_a_workgroup()))?;
    let shifts = kernel.shifts_vectors() && !plan.signature.vectors;
    let [a, b] = [&windows.a, &windows.b].map(|window| {
        let window = window.clone();
        if shifts { window.by_vectors() } else { window }
    });
    let windows = &Windows { a, b, ..windows.clone() };
    let c = &product.desc.c;
    let vector_results = plan.signature.vectors && is_aligned(c, windows.c.offset, product.desc.n, 4);
    let variant = kernel.variant(&Signature { vector_results, ..plan.signature });
    ctx.launch(op, &variant, &kernel.inputs(windows), &windows.c, &params, grid)
}
