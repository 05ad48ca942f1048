//! quant/expert_order: indices in the order of the experts that they choose.

use backend_api::BackendResult;
use backend_api::desc::ExpertMatmulDesc;
use backend_api::support::checked_product;

use crate::kernels::{KernelSource, Variant, constants, kernel, params};
use crate::ops::op_context::dim;
use crate::recorder::Window;

constants! { struct OrderConstants { tile: usize } }

static EXPERT_ORDER: KernelSource = kernel!(
    "quant/expert_order", libs: [GRID],
    types: [], constants: OrderConstants, params: OrderParams, reads: ["indices: u32"], writes: ["plan: u32"],
);

params! {
    pub(super) struct OrderParams {
        pairs: u32,
        experts: u32,
        indices: u32,
        order: u32,
        entries: u32,
    }
}

impl OrderParams {
    pub(super) fn new(
        op: &'static str,
        desc: &ExpertMatmulDesc,
        indices: &Window,
        plan: &Window,
    ) -> BackendResult<Self> {
        let pairs = dim(op, "indices", checked_product(op, "indices", &[desc.rows, desc.used])?)?;
        Ok(Self {
            pairs,
            experts: dim(op, "experts", desc.experts)?,
            indices: indices.offset,
            order: plan.offset,
            entries: plan.offset + pairs,
        })
    }
}

/// For tiles of so many rows.
pub(super) fn order_variant(tile: usize) -> Variant {
    Variant::new(&EXPERT_ORDER, [], OrderConstants { tile })
}

/// Entries for tiles of so many rows of so many indices, wherever their experts begin.
pub(super) const fn entries(desc: &ExpertMatmulDesc, pairs: usize, rows: usize) -> usize {
    (pairs / rows).saturating_add(desc.experts).saturating_add(1)
}

/// Words of what the kernel writes: the indices, and the entries.
pub(super) fn words(op: &'static str, desc: &ExpertMatmulDesc, rows: usize) -> BackendResult<usize> {
    let pairs = checked_product(op, "indices", &[desc.rows, desc.used])?;
    Ok(checked_product(op, "entries", &[entries(desc, pairs, rows), 4])?.saturating_add(pairs))
}
