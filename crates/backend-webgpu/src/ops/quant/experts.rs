//! Products of rows with the matrices that indices choose for them.

use backend_api::desc::{ExpertMatmulDesc, Matrix};
use backend_api::support::checked_product;
use backend_api::{BackendResult, DType};

use super::expert_cooperative::Tile;
use super::expert_kernels::{Kernel, SUBGROUPS, SUM_WORKGROUP, SumParams, sum_variant};
use super::expert_operands::{ADDS, Bound, Operands, Params};
use super::expert_order::{OrderParams, order_variant, words};
use super::kernel_override::KernelOverride;
use super::operands::ProductOperands;
use super::planes::{Planes, Stored, require_types};
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::ops::shared::iterations;
use crate::ops::shared::long_work::{Run, in_parts};
use crate::recorder::Window;

/// Rows for each expert from which a tile of them, which is as slow with one row as with all, takes less than reading
/// weights once for each row.
const TILED_ROWS: usize = 16;

/// Invocations of the workgroups of `quant/expert_order`.
const ORDER_WORKGROUP: usize = 256;

/// Bytes of products that wait to be summed.
const MAX_PRODUCTS: usize = 256 << 20;

/// `C[i · used + u] = A[i] · Bₑᵀ` for `e = indices[i, u]`, or the weighted sums of these rows.
pub(crate) fn expert_matmul(ctx: &OpContext, op: &'static str, desc: &ExpertMatmulDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [a, b, indices, bias, weights, c] = ctx.resolve(op, &operands)?;
    let Some(c) = c else { return Ok(()) };
    require_types(ctx, op, desc.b.format, [desc.a.dtype, desc.c.dtype])?;
    let layout = desc.b.layout(op)?;
    let mut desc = *desc;
    if desc.k() == 0 {
        // Without columns, a leading dimension leads nowhere and may be any number.
        desc.a.ld = 0;
    }
    let desc = &desc;
    let mut rows = Run::of_flops(desc.rows, desc.flops() / desc.rows.max(1) as f64);
    let [a_rows, c_rows] = desc.rows_of(op)?;
    for (slice, matrix, count) in [(a.as_ref(), desc.a, a_rows), (Some(&c), desc.c, c_rows)] {
        if let (Some(slice), true) = (slice, desc.rows > 1) {
            rows = rows.over(ctx, slice, count / desc.rows * matrix.ld * matrix.dtype.size());
        }
    }
    let c = ctx.output(&c, desc.c.dtype);
    let windows = Operands {
        indices: ctx.optional_input(op, indices.as_ref(), DType::U32, &c)?,
        weights: ctx.optional_input(op, weights.as_ref(), DType::F32, &c)?,
        product: ProductOperands {
            a: ctx.optional_input(op, a.as_ref(), desc.a.dtype, &c)?,
            bias: ctx.optional_input(op, bias.as_ref(), DType::F32, &c)?,
            c,
        },
    };
    in_parts(ctx, op, rows, |run| {
        let (mut part, windows) = (*desc, windows.rows(desc, (run.first, run.count())));
        part.rows = run.count();
        let call = Call { ctx, op, b: Stored { layout: &layout, slice: b.as_ref() } };
        let kernel = call.kernel(&part, &windows);
        if call.sums_apart(&part, kernel) {
            call.products_and_sums(&part, &windows)
        } else {
            call.products(&part, &windows, kernel)
        }
    })
}

/// What all launches of a call know.
struct Call<'a> {
    ctx: &'a OpContext,
    op: &'static str,
    b: Stored<'a>,
}

impl Call<'_> {
    /// The experts that are bound in each launch.
    fn bound(&self, desc: &ExpertMatmulDesc) -> impl Iterator<Item = (usize, usize)> + use<> {
        let all = (0, desc.experts);
        // Without indices, none is looked at.
        let rows = if desc.used > 0 { desc.b.rows / desc.experts } else { 0 };
        self.b.bindable_matrices(self.ctx, rows, all)
    }

    /// Whether the sums of rows are another launch's.
    fn sums_apart(&self, desc: &ExpertMatmulDesc, kernel: Kernel) -> bool {
        let is_rounded_between = desc.c.dtype != DType::F32 && self.bound(desc).nth(1).is_some();
        let has_terms = desc.weights.is_some() && desc.used > 0;
        // Of most kernels, a binding has either the bias or the weights.
        let is_linear = desc.gate.is_none() && (desc.bias.is_none() || kernel.sums_biases());
        let in_one_launch =
            is_linear && !kernel.is_ordered() && !is_rounded_between && self.has_end(desc, kernel);
        has_terms && !in_one_launch
    }

    /// Whether an invocation makes no more iterations than the device's loops have: over all experts of a row where their
    /// products are summed, else over one.
    fn has_end(&self, desc: &ExpertMatmulDesc, kernel: Kernel) -> bool {
        let experts_per_sum = if desc.weights.is_some() { desc.used } else { 1 };
        let wanted = experts_per_sum.saturating_mul(kernel.iterations(self.b.layout.units));
        iterations::exceeded(self.ctx, wanted).is_none()
    }

    fn kernel(&self, desc: &ExpertMatmulDesc, windows: &Operands) -> Kernel {
        let asked = self.ctx.state.forced();
        let takes = |kernel| asked.is_none_or(|asked| asked == kernel);
        let pairs = desc.rows.saturating_mul(desc.used);
        // Each invocation of the order looks at its share of the indices twice.
        let can_order =
            pairs > 0 && iterations::exceeded(self.ctx, 2 * pairs.div_ceil(ORDER_WORKGROUP)).is_none();
        let fits = |kernel: Kernel| self.has_end(desc, kernel) && (!kernel.is_ordered() || can_order);
        let cooperative = || {
            let tile = Tile::candidate(self.ctx, desc, self.b.layout, windows)?;
            Some(Kernel::Cooperative(tile)).filter(|&kernel| fits(kernel))
        };
        if takes(KernelOverride::SkinnyCooperative)
            && let Some(kernel) = cooperative()
        {
            return kernel;
        }
        let is_many = pairs >= desc.experts.saturating_mul(TILED_ROWS);
        if fits(Kernel::Tiled) && takes(KernelOverride::Tiled) && (asked.is_some() || is_many) {
            return Kernel::Tiled;
        }
        let subgroup = self.ctx.gpu().subgroup.filter(|size| SUBGROUPS.contains(size));
        let subgroup = subgroup.filter(|_| asked != Some(KernelOverride::Decode)).map(Kernel::DecodeSubgroup);
        subgroup.filter(|&kernel| fits(kernel)).unwrap_or(Kernel::Decode)
    }

    /// Products in f32, a share of the rows after the other, and their sums.
    fn products_and_sums(&self, desc: &ExpertMatmulDesc, windows: &Operands) -> BackendResult<()> {
        let &Self { ctx, op, .. } = self;
        let (n, used) = (desc.n(), desc.used);
        iterations::require(ctx, op, "experts of a row", used, 1)?;
        let row = checked_product(op, "products", &[used, n, size_of::<f32>()])?;
        let most = usize::try_from(ctx.device.limits.max_bytes).unwrap_or(usize::MAX).min(MAX_PRODUCTS);
        let share = (most / row.max(1)).clamp(1, desc.rows);
        for first in (0..desc.rows).step_by(share) {
            let _part = ctx.begin_part();
            let count = share.min(desc.rows - first);
            let here = windows.rows(desc, (first, count));
            let scratch = ctx.scratch(op, checked_product(op, "products", &[count, row])?)?;
            let products = ctx.output(&scratch, DType::F32);
            let mut product = *desc;
            (product.rows, product.weights, product.accumulate) = (count, None, false);
            product.c = Matrix::new(0, DType::F32, n);
            let mut into = Operands { weights: ctx.null(), ..here.clone() };
            into.product.c = products.clone();
            self.products(&product, &into, self.kernel(&product, &into))?;

            let elements = checked_product(op, "sums", &[count, n])?;
            let params = SumParams {
                total: dim(op, "sums", elements)?,
                n: dim(op, "n", n)?,
                experts_per_sum: dim(op, "used", used)?,
                experts: dim(op, "experts", desc.experts)?,
                products: products.offset,
                indices: here.indices.offset,
                weights: here.weights.offset,
                terms: if desc.accumulate { ADDS } else { 0 },
                c: here.product.c.offset,
                c_ld: if count > 1 { dim(op, "ldc", desc.c.ld)? } else { 0 },
            };
            let grid = linear_grid(op, elements.div_ceil(SUM_WORKGROUP))?;
            let reads = [&products, &here.indices, &here.weights];
            ctx.launch(op, &sum_variant(desc.c.dtype), &reads, &here.product.c, &params, grid)?;
        }
        Ok(())
    }

    /// The products, or where `desc` has weights their sums, in as few launches as B can be bound in.
    fn products(&self, desc: &ExpertMatmulDesc, windows: &Operands, kernel: Kernel) -> BackendResult<()> {
        let &Self { ctx, op, b } = self;
        let is_sum = desc.weights.is_some();
        let units = b.layout.units;
        let experts_per_sum = if is_sum { desc.used } else { 1 };
        iterations::require(ctx, op, "experts of a row", experts_per_sum, kernel.iterations(units))?;
        let tiling = kernel.tiling(desc, units);
        let plan = tiling.ordered_rows.map(|rows| self.order(desc, windows, rows)).transpose()?;
        let stacked = desc.b.rows / desc.experts;
        for (first, end) in self.bound(desc) {
            let planes = Planes::new(ctx, op, b, (first * stacked, end * stacked), &windows.product.c)?;
            let mut here = windows.clone();
            let bias = windows.product.bias.advanced(first * stacked).truncated((end - first) * stacked);
            here.product.bias = bias;
            let bound = Bound { planes, units, experts: first..end };
            let params = Params::new(op, desc, &here, &bound, tiling, plan.as_ref())?;
            let vectors = windows.has_vectors(desc);
            let variant = kernel.variant(desc.b.format, [desc.a.dtype, desc.c.dtype], desc.gate, vectors);
            let [quants, high, scales, extra] = bound.planes.windows();
            let ProductOperands { a, bias, c } = &here.product;
            let factors = if is_sum { &here.weights } else { bias };
            let reads = match &plan {
                Some(plan) => vec![quants, high, scales, extra, a, bias, plan],
                None => vec![quants, high, scales, extra, a, &here.indices, factors],
            };
            let reads = if kernel.sums_biases() { [reads, vec![bias]].concat() } else { reads };
            let grid = linear_grid(op, params.product.tiles as usize)?;
            ctx.launch(op, &variant, &reads, c, &params, grid)?;
        }
        Ok(())
    }

    /// The indices in the order of their experts, and the entries of the tiles of so many rows.
    fn order(&self, desc: &ExpertMatmulDesc, windows: &Operands, rows: usize) -> BackendResult<Window> {
        let &Self { ctx, op, .. } = self;
        let words = words(op, desc, rows)?;
        let scratch = ctx.scratch(op, checked_product(op, "entries", &[words, size_of::<u32>()])?)?;
        let plan = ctx.output(&scratch, DType::U32);
        let params = OrderParams::new(op, desc, &windows.indices, &plan)?;
        // One more for indices that are no expert's.
        let grid = linear_grid(op, desc.experts.saturating_add(1))?;
        ctx.launch(op, &order_variant(rows), &[&windows.indices], &plan, &params, grid)?;
        Ok(plan)
    }
}
