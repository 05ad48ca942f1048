//! The operands of products with experts, and the parameters of their kernels.

use std::ops::Range;

use backend_api::desc::ExpertMatmulDesc;
use backend_api::support::checked_product;
use backend_api::{BackendResult, DType};

use super::expert_order::entries;
use super::operands::{ProductOperands, ProductParams};
use super::planes::Planes;
use crate::kernels::params;
use crate::ops::op_context::dim;
use crate::ops::shared::vec_width::VecWidth;
use crate::recorder::Window;

params! {
    pub(super) struct Params {
        product: ProductParams,
        indices: u32,
        weights: u32,
        bias: u32,
        // Bit 0: C's rows are weighted sums, 1: what is in C is added, 2: products have a bias.
        terms: u32,
        // Indices that make a row of C, and those that share one of A.
        experts_per_sum: u32,
        sharing: u32,
        // Subgroups that share k on tensor cores.
        shares: u32,
        // The first expert that is bound, how many are, and how many there are.
        first: u32,
        experts: u32,
        experts_of_all: u32,
        // Words of the plan before the order of the indices, and before the entries of the tiles.
        order: u32,
        entries: u32,
    }
}

/// Bits of the parameter `terms`.
pub(super) const IS_SUM: u32 = 1;
pub(super) const ADDS: u32 = 2;
pub(super) const HAS_BIAS: u32 = 4;

/// The operands of a product besides B.
#[derive(Clone, Debug)]
pub(super) struct Operands {
    pub(super) product: ProductOperands,
    pub(super) indices: Window,
    pub(super) weights: Window,
}

impl Operands {
    /// The windows of `count` rows from `first` on.
    pub(super) fn rows(&self, desc: &ExpertMatmulDesc, (first, count): (usize, usize)) -> Self {
        let each = |apart: bool| if apart { desc.used } else { 1 };
        let part = |window: &Window, items: usize, row: usize, columns: usize| {
            // Rows of the part are within the operand, whose elements are counted in `usize`.
            let elements = (count * items).saturating_sub(1) * row + columns;
            window.advanced(first * items * row).truncated(elements)
        };
        let ProductOperands { a, bias, c } = &self.product;
        Self {
            product: ProductOperands {
                a: part(a, each(desc.per_expert), desc.a.ld, desc.k()),
                bias: bias.clone(),
                c: part(c, each(desc.weights.is_none()), desc.c.ld, desc.n()),
            },
            indices: part(&self.indices, desc.used, 1, 1),
            weights: part(&self.weights, desc.used, 1, 1),
        }
    }

    /// Whether A can be read four numbers at a time.
    pub(super) fn has_vectors(&self, desc: &ExpertMatmulDesc) -> bool {
        VecWidth::four_if_fitting(&[&self.product.a], &strides_of_a(desc)) == VecWidth::Four
    }

    /// Whether A of f16 can be read eight numbers at a time.
    pub(super) fn has_vec8s(&self, desc: &ExpertMatmulDesc) -> bool {
        VecWidth::fitting(DType::F16, &[&self.product.a], &strides_of_a(desc)) == VecWidth::Eight
    }
}

/// The distance between rows of A, which leads nowhere where there is one, and their length.
fn strides_of_a(desc: &ExpertMatmulDesc) -> [usize; 2] {
    let rows = if desc.per_expert { desc.rows.saturating_mul(desc.used) } else { desc.rows };
    [if rows <= 1 { 0 } else { desc.a.ld }, desc.k()]
}

/// The experts of B that are bound, and where.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) planes: Planes,
    /// Units of a row.
    pub(super) units: usize,
    pub(super) experts: Range<usize>,
}

/// How a kernel divides a product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiling {
    /// Columns of C that a workgroup makes.
    pub(super) columns: usize,
    /// Rows of tiles for which `quant/expert_order` has put indices into order, rather than one of C.
    pub(super) ordered_rows: Option<usize>,
    /// Subgroups that share k, where others have experts of their own.
    pub(super) shares: usize,
}

impl Params {
    /// The product with the experts that are bound; `plan` has the order of the indices for kernels that need it.
    pub(super) fn new(
        op: &'static str,
        desc: &ExpertMatmulDesc,
        windows: &Operands,
        bound: &Bound,
        tiling: Tiling,
        plan: Option<&Window>,
    ) -> BackendResult<Self> {
        let &Bound { ref planes, units, ref experts } = bound;
        let is_sum = desc.weights.is_some();
        let [_, c_rows] = desc.rows_of(op)?;
        let pairs = checked_product(op, "indices", &[desc.rows, desc.used])?;
        let experts_per_sum = if is_sum { desc.used } else { 1 };
        let tiles_n = desc.n().div_ceil(tiling.columns);
        let tiles_m = tiling.ordered_rows.map_or(c_rows, |rows| entries(desc, pairs, rows));
        let tiles = checked_product(op, "tiles", &[tiles_m, tiles_n])?;
        let sum = if is_sum { IS_SUM } else { 0 };
        let has_bias = if desc.bias.is_some() { HAS_BIAS } else { 0 };
        let adds = if desc.accumulate || is_sum && experts.start > 0 { ADDS } else { 0 };
        let a_rows = if desc.per_expert { pairs } else { desc.rows };
        // A leading dimension that leads nowhere may be any number.
        let ld = |what, rows, ld: usize| if rows <= 1 { Ok(0) } else { dim(op, what, ld) };
        let order = plan.map_or(0, |plan| plan.offset);
        let product = ProductParams {
            m: dim(op, "rows", a_rows)?,
            n: dim(op, "n", desc.n())?,
            k: dim(op, "k", desc.k())?,
            units: dim(op, "k", units)?,
            tiles_n: dim(op, "tiles", tiles_n)?,
            tiles: dim(op, "tiles", tiles)?,
            planes: planes.params(),
            a: windows.product.a.offset,
            a_ld: ld("lda", a_rows, desc.a.ld)?,
            c: windows.product.c.offset,
            c_ld: ld("ldc", c_rows, desc.c.ld)?,
        };
        Ok(Self {
            product,
            indices: windows.indices.offset,
            weights: windows.weights.offset,
            bias: windows.product.bias.offset,
            terms: sum | adds | has_bias,
            experts_per_sum: dim(op, "used", experts_per_sum)?,
            shares: dim(op, "subgroups", tiling.shares)?,
            sharing: if desc.per_expert { 1 } else { dim(op, "used", desc.used)? },
            first: dim(op, "experts", experts.start)?,
            experts: dim(op, "experts", experts.len())?,
            experts_of_all: dim(op, "experts", desc.experts)?,
            order,
            entries: order + dim(op, "indices", pairs)?,
        })
    }
}
