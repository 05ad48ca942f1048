//! Products with a quantised matrix.

use backend_api::desc::QuantMatmulDesc;
use backend_api::quant::{QuantLayout, UNIT};
use backend_api::support::checked_product;
use backend_api::{BackendResult, Gate};

use super::cooperative;
use super::dequantized::{self, has_room_for_residual, prepare_residual};
use super::kernel::{Kernel, Signature, TILE};
use super::kernel_override::KernelOverride;
use super::planes::{Planes, bindable, group_shift, require_known};
use super::skinny_cooperative::Tile;
use super::{int8, stages};
use crate::kernels::{Variant, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::ops::shared::iterations;
use crate::ops::shared::long_work::{Run, in_parts, require_end};
use crate::ops::shared::vec_width::VecWidth;
use crate::recorder::Window;

params! {
    pub(super) struct Params {
        m: u32,
        n: u32,
        k: u32,
        // Units of 128 weights in a row of B.
        units: u32,
        tiles_n: u32,
        tiles: u32,
        // Of the planes: in vectors of 16 bytes for the quants, in `ScaleWords` for the scales, in words for the others.
        quants: u32,
        quants_row: u32,
        high: u32,
        high_row: u32,
        scales: u32,
        scales_row: u32,
        extra: u32,
        extra_row: u32,
        // The logarithm of the weights that share a scale.
        group: u32,
        a: u32,
        a_ld: u32,
        c: u32,
        c_ld: u32,
        bias: u32,
        residual: u32,
        residual_ld: u32,
        // Bit 0: there is a bias, 1: a residual, 2: it is C.
        terms: u32,
        alpha: f32,
        // Rows of B from a gate's row to the one that it opens.
        half: u32,
        // Vectors of eight elements before the norm's weight.
        norm: u32,
        eps: f32,
    }
}

/// The distance between rows of A, which leads nowhere where there is one, and their length.
pub(super) fn strides_of_a(desc: &QuantMatmulDesc) -> [usize; 2] {
    [if desc.m <= 1 { 0 } else { desc.a.ld }, desc.k()]
}

/// Bits of the parameter `terms`.
const HAS_BIAS: u32 = 1;
const HAS_RESIDUAL: u32 = 2;
const IN_PLACE: u32 = 4;

/// The operands of a product besides B.
#[derive(Debug)]
pub(super) struct Operands {
    pub(super) a: Window,
    pub(super) c: Window,
    pub(super) bias: Window,
    pub(super) residual: Window,
    /// The weight of the norm of A's rows.
    pub(super) norm: Window,
    /// Which of them there are.
    terms: u32,
}

/// The memory of a product, of what there is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slices<'a> {
    pub(super) a: Option<&'a DeviceSlice>,
    pub(super) b: Option<&'a DeviceSlice>,
    pub(super) bias: Option<&'a DeviceSlice>,
    pub(super) residual: Option<&'a DeviceSlice>,
    pub(super) norm: Option<&'a DeviceSlice>,
    pub(super) c: &'a DeviceSlice,
}

impl Operands {
    fn new(
        ctx: &OpContext,
        op: &'static str,
        desc: &QuantMatmulDesc,
        slices: &Slices<'_>,
    ) -> BackendResult<Self> {
        let &Slices { a, bias, residual, norm, c, .. } = slices;
        let dtype = desc.c.dtype;
        let in_place = residual.is_some_and(|residual| residual.region() == c.region());
        let bit = |holds: bool, bit: u32| if holds { bit } else { 0 };
        let terms =
            bit(bias.is_some(), HAS_BIAS) | bit(residual.is_some(), HAS_RESIDUAL) | bit(in_place, IN_PLACE);
        let c = ctx.output(c, dtype);
        Ok(Self {
            a: ctx.optional_input(op, a, desc.a.dtype, &c)?,
            bias: ctx.optional_input(op, bias, dtype, &c)?,
            residual: ctx.optional_input(op, residual.filter(|_| !in_place), dtype, &c)?,
            norm: ctx.optional_input(op, norm, desc.a.dtype, &c)?,
            c,
            terms,
        })
    }

    /// Without a bias and a residual.
    pub(super) fn alone(ctx: &OpContext, a: Window, c: Window) -> Self {
        Self { a, c, bias: ctx.null(), residual: ctx.null(), norm: ctx.null(), terms: 0 }
    }

    /// As columns of C from `first` on need them.
    pub(super) fn starting_at(&self, first: usize) -> Self {
        let advanced = |window: &Window, bit: u32| {
            if self.terms & bit != 0 { window.advanced(first) } else { window.clone() }
        };
        Self {
            a: self.a.clone(),
            c: self.c.advanced(first),
            bias: advanced(&self.bias, HAS_BIAS),
            residual: advanced(&self.residual, HAS_RESIDUAL),
            norm: self.norm.clone(),
            terms: self.terms,
        }
    }

    /// With other rows of A.
    pub(super) fn with_a(&self, a: Window) -> Self {
        Self { a, ..self.starting_at(0) }
    }

    /// Whether C is what is added to the product.
    pub(super) const fn residual_is_c(&self) -> bool {
        self.terms & IN_PLACE != 0
    }

    /// Whether anything but C is added to the product.
    pub(super) const fn has_residual_apart(&self) -> bool {
        self.terms & (HAS_RESIDUAL | IN_PLACE) == HAS_RESIDUAL
    }

    /// Whether A can be read four numbers at a time.
    pub(super) fn has_vectors(&self, desc: &QuantMatmulDesc) -> bool {
        VecWidth::four_if_fitting(&[&self.a], &strides_of_a(desc)) == VecWidth::Four
    }
}

/// `C = residual + activation(alpha · norm(A) · Bᵀ + bias)`, or with a gate
/// `C = residual + activation(P₁) · P₂`.
pub(crate) fn quant_matmul(ctx: &OpContext, op: &'static str, desc: &QuantMatmulDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [a, b, c, bias, residual, norm] = ctx.resolve(op, &operands)?;
    let Some(c) = c else { return Ok(()) };
    require_known(op, desc.b.format)?;
    ctx.require_dtype(op, desc.a.dtype)?;
    ctx.require_dtype(op, desc.c.dtype)?;
    let [a, b, bias, residual, norm] = [&a, &b, &bias, &residual, &norm].map(Option::as_ref);
    multiply(ctx, op, desc, &Slices { a, b, bias, residual, norm, c: &c })
}

/// The kernels that a product launches, in their order.
pub(crate) fn explain_quant_matmul(
    ctx: &OpContext,
    op: &'static str,
    desc: &QuantMatmulDesc,
) -> BackendResult<String> {
    let plan = ctx.dry_run();
    quant_matmul(&plan, op, desc)?;
    let names: Vec<_> = plan.take_variants().iter().map(Variant::kernel).collect();
    Ok(if names.is_empty() { "nothing".to_owned() } else { names.join(", ") })
}

/// [`quant_matmul`] with checked operands.
pub(super) fn multiply(
    ctx: &OpContext,
    op: &'static str,
    desc: &QuantMatmulDesc,
    slices: &Slices<'_>,
) -> BackendResult<()> {
    let layout = desc.b.layout(op)?;
    let windows = Operands::new(ctx, op, desc, slices)?;
    let asked = *ctx.state.quant_matmul_override.lock();
    let kernel = Kernel::plan(ctx, desc, Tile::candidate(ctx, desc, &layout, &windows), asked);
    let is_staged = desc.gate.is_some() || desc.norm.is_some();
    if is_staged && !matches!(kernel, Kernel::SkinnyCooperative(_)) {
        return stages::multiply(ctx, op, desc, slices);
    }
    if kernel == Kernel::Tiled
        && asked.is_none()
        && has_room_for_residual(desc)
        && let Some(tile) = cooperative::Tile::candidate(ctx, desc, &windows)
    {
        return multiply_by_tiles(ctx, op, desc, &layout, slices.b, &windows, tile);
    }
    let columns = Run::of_flops(desc.n(), desc.flops() / desc.n().max(1) as f64)
        .with_iterations(kernel.iterations(layout.units) as f64)
        .aligned(TILE);
    let may_dequantize = asked != Some(KernelOverride::Tiled);
    if kernel == Kernel::Tiled && may_dequantize && dequantized::is_possible(ctx, desc) {
        // Its parts know only their own work.
        require_end(ctx, op, &columns)?;
        return dequantized::multiply(ctx, op, desc, &layout, slices.b, &windows);
    }
    iterations::require(ctx, op, "units of 128 columns", layout.units, kernel.iterations(1))?;
    let (desc, windows) =
        if kernel.is_int8() { int8::rounded(ctx, op, desc, &windows)? } else { (*desc, windows) };
    let (desc, windows) = (&desc, &windows);
    in_parts(ctx, op, columns, |run| {
        let planes = |rows| Planes::new(ctx, op, &layout, slices.b, rows, &windows.c);
        if desc.gate.is_some() {
            let planes = planes((0, desc.b.rows))?.starting_at(dim(op, "n", run.first)?);
            return launch(ctx, op, desc, windows, kernel, &planes, (run.first, run.end));
        }
        bindable(ctx, &layout, 0, (run.first, run.end)).try_for_each(|(first, end)| {
            launch(ctx, op, desc, windows, kernel, &planes((first, end))?, (first, end))
        })
    })
}

/// The product on tensor cores, which add it to a residual in C.
fn multiply_by_tiles(
    ctx: &OpContext,
    op: &'static str,
    desc: &QuantMatmulDesc,
    layout: &QuantLayout,
    b: Option<&DeviceSlice>,
    windows: &Operands,
    tile: cooperative::Tile,
) -> BackendResult<()> {
    let columns = Run::of_flops(desc.n(), desc.flops() / desc.n().max(1) as f64).aligned(tile.tile()[1]);
    // Before C is written.
    require_end(ctx, op, &columns)?;
    prepare_residual(ctx, op, desc, windows)?;
    in_parts(ctx, op, columns, |run| {
        bindable(ctx, layout, 0, (run.first, run.end)).try_for_each(|(first, end)| {
            let planes = Planes::new(ctx, op, layout, b, (first, end), &windows.c)?;
            tile.launch(ctx, op, desc, windows, &planes, (first, end))
        })
    })
}

/// The columns `first..end` of the product.
fn launch(
    ctx: &OpContext,
    op: &'static str,
    desc: &QuantMatmulDesc,
    windows: &Operands,
    kernel: Kernel,
    planes: &Planes,
    (first, end): (usize, usize),
) -> BackendResult<()> {
    let here = windows.starting_at(first);
    let params = Params::new(op, desc, &here, planes, end - first, kernel.tile(desc.gate.is_some()))?;
    let signature = Signature {
        format: desc.b.format,
        dtypes: [desc.a.dtype, desc.c.dtype],
        activation: desc.gate.map_or(desc.activation, Gate::activation),
        vectors: windows.has_vectors(desc),
        normed: desc.norm.is_some(),
        gated: desc.gate.is_some(),
    };
    let [quants, high, scales, extra] = planes.windows();
    let added = if desc.norm.is_some() { &here.norm } else { &here.residual };
    let reads = [quants, high, scales, extra, &here.a, &here.bias, added];
    ctx.launch(
        op,
        &kernel.variant(&signature),
        &reads,
        &here.c,
        &params,
        linear_grid(op, params.tiles as usize)?,
    )
}

impl Params {
    /// A product with so many rows of the planes.
    pub(super) fn new(
        op: &'static str,
        desc: &QuantMatmulDesc,
        windows: &Operands,
        planes: &Planes,
        columns: usize,
        [tile_m, tile_n]: [usize; 2],
    ) -> BackendResult<Self> {
        let (m, k) = (desc.m, desc.k());
        let tiles_n = columns.div_ceil(tile_n);
        let tiles = checked_product(op, "tiles", &[m.div_ceil(tile_m), tiles_n])?;
        // A leading dimension that leads nowhere may be any number.
        let ld = |what, ld: usize| if m <= 1 { Ok(0) } else { dim(op, what, ld) };
        let [quants, high, scales, extra] = planes.places;
        Ok(Self {
            m: dim(op, "m", m)?,
            n: dim(op, "n", columns)?,
            k: dim(op, "k", k)?,
            units: dim(op, "k", k.div_ceil(UNIT))?,
            tiles_n: dim(op, "tiles", tiles_n)?,
            tiles: dim(op, "tiles", tiles)?,
            quants: quants.0,
            quants_row: quants.1,
            high: high.0,
            high_row: high.1,
            scales: scales.0,
            scales_row: scales.1,
            extra: extra.0,
            extra_row: extra.1,
            group: group_shift(desc.b.format),
            a: windows.a.offset,
            a_ld: ld("lda", desc.a.ld)?,
            c: windows.c.offset,
            c_ld: ld("ldc", desc.c.ld)?,
            bias: windows.bias.offset,
            residual: windows.residual.offset,
            residual_ld: ld("ld of the residual", desc.residual.map_or(0, |residual| residual.ld))?,
            terms: windows.terms,
            alpha: desc.alpha as f32,
            half: if desc.gate.is_some() { dim(op, "n", desc.n())? } else { 0 },
            norm: windows.norm.offset / 8,
            eps: desc.norm.map_or(0.0, |norm| norm.eps) as f32,
        })
    }
}
