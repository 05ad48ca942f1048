//! Products of rows with the matrices that indices choose for them.

use backend_api::desc::{ExpertMatmulDesc, Matrix};
use backend_api::support::checked_product;
use backend_api::{BackendResult, DType};

use super::expert_kernels::{
    ADDS, HAS_BIAS, IS_SUM, Kernel, OrderParams, Params, SUBGROUPS, SUM_WORKGROUP, SumParams, TILE,
    order_variant, sum_variant,
};
use super::kernel_override::KernelOverride;
use super::operands::ProductParams;
use super::planes::{Planes, Stored, require_types};
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::ops::shared::iterations;
use crate::ops::shared::long_work::{Run, in_parts};
use crate::ops::shared::vec_width::VecWidth;
use crate::recorder::Window;

/// Rows for each expert from which a tile of them, which is as slow with one row as with all, takes less than reading
/// weights once for each row.
const TILED_ROWS: usize = 16;

/// Invocations of the workgroups of `quant/expert_order`.
const ORDER_WORKGROUP: usize = 256;

/// Bytes of products that wait to be summed.
const MAX_PRODUCTS: usize = 256 << 20;

/// The operands of a product besides B.
#[derive(Clone, Debug)]
struct Operands {
    a: Window,
    indices: Window,
    bias: Window,
    weights: Window,
    c: Window,
}

impl Operands {
    /// The windows of `count` rows from `first` on.
    fn rows(&self, desc: &ExpertMatmulDesc, (first, count): (usize, usize)) -> Self {
        let each = |apart: bool| if apart { desc.used } else { 1 };
        let part = |window: &Window, items: usize, row: usize, columns: usize| {
            // Rows of the part are within the operand, whose elements are counted in `usize`.
            let elements = (count * items).saturating_sub(1) * row + columns;
            window.advanced(first * items * row).truncated(elements)
        };
        Self {
            a: part(&self.a, each(desc.per_expert), desc.a.ld, desc.k()),
            indices: part(&self.indices, desc.used, 1, 1),
            bias: self.bias.clone(),
            weights: part(&self.weights, desc.used, 1, 1),
            c: part(&self.c, each(desc.weights.is_none()), desc.c.ld, desc.n()),
        }
    }
}

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
        a: ctx.optional_input(op, a.as_ref(), desc.a.dtype, &c)?,
        indices: ctx.optional_input(op, indices.as_ref(), DType::U32, &c)?,
        bias: ctx.optional_input(op, bias.as_ref(), DType::F32, &c)?,
        weights: ctx.optional_input(op, weights.as_ref(), DType::F32, &c)?,
        c,
    };
    in_parts(ctx, op, rows, |run| {
        let (mut part, windows) = (*desc, windows.rows(desc, (run.first, run.count())));
        part.rows = run.count();
        let call = Call { ctx, op, b: Stored { layout: &layout, slice: b.as_ref() } };
        if call.sums_apart(&part) {
            call.products_and_sums(&part, &windows)
        } else {
            call.products(&part, &windows)
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
    fn sums_apart(&self, desc: &ExpertMatmulDesc) -> bool {
        let kernel = self.kernel(desc);
        let is_rounded_between = desc.c.dtype != DType::F32 && self.bound(desc).nth(1).is_some();
        let has_terms = desc.weights.is_some() && desc.used > 0;
        // A binding has either the bias or the weights.
        let is_linear = desc.gate.is_none() && desc.bias.is_none();
        let in_one_launch =
            is_linear && kernel != Kernel::Tiled && !is_rounded_between && self.has_end(desc, kernel);
        has_terms && !in_one_launch
    }

    /// Whether an invocation makes no more iterations than the device's loops have: over all experts of a row where their
    /// products are summed, else over one.
    fn has_end(&self, desc: &ExpertMatmulDesc, kernel: Kernel) -> bool {
        let turns = if desc.weights.is_some() { desc.used } else { 1 };
        let wanted = turns.saturating_mul(kernel.iterations(self.b.layout.units));
        iterations::exceeded(self.ctx, wanted).is_none()
    }

    fn kernel(&self, desc: &ExpertMatmulDesc) -> Kernel {
        let asked = self.ctx.state.quant_matmul_override.get();
        let pairs = desc.rows.saturating_mul(desc.used);
        let is_many = pairs >= desc.experts.saturating_mul(TILED_ROWS);
        // Each invocation of the order looks at its share of the indices twice.
        let longest = Kernel::Tiled.iterations(self.b.layout.units).max(2 * pairs.div_ceil(ORDER_WORKGROUP));
        let has_end = iterations::exceeded(self.ctx, longest).is_none();
        if pairs > 0 && has_end && (asked == Some(KernelOverride::Tiled) || asked.is_none() && is_many) {
            return Kernel::Tiled;
        }
        let subgroup = self.ctx.gpu().subgroup.filter(|size| SUBGROUPS.contains(size));
        let subgroup = subgroup.filter(|_| asked != Some(KernelOverride::Decode)).map(Kernel::DecodeSubgroup);
        subgroup.filter(|&kernel| self.has_end(desc, kernel)).unwrap_or(Kernel::Decode)
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
            let into = Operands { weights: ctx.null(), c: products.clone(), ..here.clone() };
            self.products(&product, &into)?;

            let elements = checked_product(op, "sums", &[count, n])?;
            let params = SumParams {
                total: dim(op, "sums", elements)?,
                n: dim(op, "n", n)?,
                turns: dim(op, "used", used)?,
                experts: dim(op, "experts", desc.experts)?,
                products: products.offset,
                indices: here.indices.offset,
                weights: here.weights.offset,
                terms: if desc.accumulate { ADDS } else { 0 },
                c: here.c.offset,
                c_ld: if count > 1 { dim(op, "ldc", desc.c.ld)? } else { 0 },
            };
            let grid = linear_grid(op, elements.div_ceil(SUM_WORKGROUP))?;
            let reads = [&products, &here.indices, &here.weights];
            ctx.launch(op, &sum_variant(desc.c.dtype), &reads, &here.c, &params, grid)?;
        }
        Ok(())
    }

    /// The products, or where `desc` has weights their sums, in as few launches as B can be bound in.
    fn products(&self, desc: &ExpertMatmulDesc, windows: &Operands) -> BackendResult<()> {
        let &Self { ctx, op, b } = self;
        let kernel = self.kernel(desc);
        let is_sum = desc.weights.is_some();
        let [_, c_rows] = desc.rows_of(op)?;
        let pairs = checked_product(op, "indices", &[desc.rows, desc.used])?;
        let turns = if is_sum { desc.used } else { 1 };
        iterations::require(ctx, op, "experts of a row", turns, kernel.iterations(b.layout.units))?;
        let plan = if kernel == Kernel::Tiled { Some(self.order(desc, windows, pairs)?) } else { None };
        let stacked = desc.b.rows / desc.experts;
        for (first, end) in self.bound(desc) {
            let planes = Planes::new(ctx, op, b, (first * stacked, end * stacked), &windows.c)?;
            let tiles_n = desc.n().div_ceil(kernel.columns(desc.gate.is_some()));
            let tiles_m = if plan.is_some() { entries(desc, pairs) } else { c_rows };
            let tiles = checked_product(op, "tiles", &[tiles_m, tiles_n])?;
            let sum = if is_sum { IS_SUM } else { 0 };
            let has_bias = if desc.bias.is_some() { HAS_BIAS } else { 0 };
            let bias = windows.bias.advanced(first * stacked).truncated((end - first) * stacked);
            let adds = if desc.accumulate || is_sum && first > 0 { ADDS } else { 0 };
            let a_rows = if desc.per_expert { pairs } else { desc.rows };
            // A leading dimension that leads nowhere may be any number.
            let ld = |what, rows, ld: usize| if rows <= 1 { Ok(0) } else { dim(op, what, ld) };
            let order = plan.as_ref().map_or(0, |plan| plan.offset);
            let product = ProductParams {
                m: dim(op, "rows", a_rows)?,
                n: dim(op, "n", desc.n())?,
                k: dim(op, "k", desc.k())?,
                units: dim(op, "k", b.layout.units)?,
                tiles_n: dim(op, "tiles", tiles_n)?,
                tiles: dim(op, "tiles", tiles)?,
                planes: planes.params(),
                a: windows.a.offset,
                a_ld: ld("lda", a_rows, desc.a.ld)?,
                c: windows.c.offset,
                c_ld: ld("ldc", c_rows, desc.c.ld)?,
            };
            let params = Params {
                product,
                indices: windows.indices.offset,
                weights: windows.weights.offset,
                bias: bias.offset,
                terms: sum | adds | has_bias,
                turns: dim(op, "used", turns)?,
                sharing: if desc.per_expert { 1 } else { dim(op, "used", desc.used)? },
                first: dim(op, "experts", first)?,
                experts: dim(op, "experts", end - first)?,
                experts_of_all: dim(op, "experts", desc.experts)?,
                order,
                entries: order + dim(op, "indices", pairs)?,
            };
            let strides = [if a_rows <= 1 { 0 } else { desc.a.ld }, desc.k()];
            let vectors = VecWidth::four_if_fitting(&[&windows.a], &strides) == VecWidth::Four;
            let variant = kernel.variant(desc.b.format, [desc.a.dtype, desc.c.dtype], desc.gate, vectors);
            let [quants, high, scales, extra] = planes.windows();
            let factors = if is_sum { &windows.weights } else { &bias };
            let reads = match &plan {
                Some(plan) => vec![quants, high, scales, extra, &windows.a, &bias, plan],
                None => vec![quants, high, scales, extra, &windows.a, &windows.indices, factors],
            };
            ctx.launch(op, &variant, &reads, &windows.c, &params, linear_grid(op, tiles)?)?;
        }
        Ok(())
    }

    /// The indices in the order of their experts, and the entries of the tiles.
    fn order(&self, desc: &ExpertMatmulDesc, windows: &Operands, pairs: usize) -> BackendResult<Window> {
        let &Self { ctx, op, .. } = self;
        let words = checked_product(op, "entries", &[entries(desc, pairs), 4])?.saturating_add(pairs);
        let scratch = ctx.scratch(op, checked_product(op, "entries", &[words, size_of::<u32>()])?)?;
        let plan = ctx.output(&scratch, DType::U32);
        let params = OrderParams {
            pairs: dim(op, "indices", pairs)?,
            experts: dim(op, "experts", desc.experts)?,
            indices: windows.indices.offset,
            order: plan.offset,
            entries: plan.offset + dim(op, "indices", pairs)?,
        };
        // One more for indices that are no expert's.
        let grid = linear_grid(op, desc.experts.saturating_add(1))?;
        ctx.launch(op, &order_variant(), &[&windows.indices], &plan, &params, grid)?;
        Ok(plan)
    }
}

/// Entries for tiles of so many indices, wherever their experts begin.
const fn entries(desc: &ExpertMatmulDesc, pairs: usize) -> usize {
    (pairs / TILE).saturating_add(desc.experts).saturating_add(1)
}
