//! Products with a quantised matrix.

use backend_api::desc::QuantMatmulDesc;
use backend_api::quant::{QuantFormat, QuantLayout, UNIT};
use backend_api::support::checked_product;
use backend_api::{Activation, BackendResult, DType, Gate};

use super::cooperative;
use super::dequantized::{self, has_room_for_residual, prepare_residual};
use super::formats::{KINDS, product_libs};
use super::planes::{Planes, bindable, group_shift, require_known};
use super::skinny_cooperative::Tile;
use super::stages;
use crate::kernels::{KernelSource, Variant, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::matmul::activation_code;
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::ops::shared::iterations;
use crate::ops::shared::long_work::{Run, in_parts, require_end};
use crate::ops::shared::vec_width::VecWidth;
use crate::recorder::Window;

static DECODE: KernelSource = kernel!(
    "quant/decode",
    libs: [GRID, QUANT_PRODUCT, QUANT_RESIDUAL, QUANT_SUMS],
    types: ["TA", "TC"],
    constants: ["ROWS", "SPAN", "ACTIVATION"],
    reads: 7,
    writes: 1,
    params: Params,
);

static DECODE_SUBGROUP: KernelSource = KernelSource {
    subgroups: true,
    ..kernel!(
        native "quant/decode_subgroup",
        libs: [GRID, QUANT_PRODUCT, QUANT_RESIDUAL, QUANT_SUMS],
        types: ["TA", "TC"],
        constants: ["ROWS", "SPAN", "SUBGROUP", "ACTIVATION"],
        reads: 7,
        writes: 1,
        params: Params,
    )
};

static TILED: KernelSource = kernel!(
    "quant/tiled",
    libs: [GRID, QUANT_NIBBLES, QUANT_PRODUCT, QUANT_RESIDUAL],
    types: ["TA", "TC"],
    constants: ["ACTIVATION"],
    reads: 7,
    writes: 1,
    params: Params,
);

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

/// Rows of A for which there are variants of `quant/decode`.
const DECODE_ROWS: [usize; 4] = [1, 2, 4, 8];

/// Rows of A above which `quant/tiled` reads B less often.
const MOST_DECODE_ROWS: usize = 32;

/// Invocations of the subgroups that `quant/decode_subgroup` has variants for.
const SUBGROUPS: [u32; 2] = [8, 32];

/// Rows of B that its invocations share, and columns of C that a workgroup makes of them.
const SPAN: usize = 2;
const DECODE_COLUMNS: usize = 4 * SPAN;

/// Rows and columns of a tile of `quant/tiled`.
const TILE: usize = 64;

/// The kernel for a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    /// `quant/decode` for so many rows at a time.
    Decode(usize),
    /// `quant/decode_subgroup` for so many rows at a time and subgroups of so many invocations.
    DecodeSubgroup(usize, u32),
    /// `quant/skinny_cooperative`.
    SkinnyCooperative(Tile),
    Tiled,
}

impl Kernel {
    /// The kernel for `m` rows, on a device whose subgroups all have `subgroup` invocations.
    fn choose(m: usize, subgroup: Option<u32>) -> Self {
        let [.., most] = DECODE_ROWS;
        let rows = match DECODE_ROWS.into_iter().find(|&rows| m <= rows) {
            Some(rows) => rows,
            None if m <= MOST_DECODE_ROWS => most,
            None => return Self::Tiled,
        };
        match subgroup.filter(|size| SUBGROUPS.contains(size)) {
            Some(size) => Self::DecodeSubgroup(rows, size),
            None => Self::Decode(rows),
        }
    }

    const fn tile(self, gated: bool) -> [usize; 2] {
        match self {
            Self::Decode(rows) | Self::DecodeSubgroup(rows, _) => [rows, DECODE_COLUMNS],
            Self::SkinnyCooperative(tile) => tile.tile(gated),
            Self::Tiled => [TILE, TILE],
        }
    }

    /// Steps of an invocation's loop along a row of so many units.
    const fn iterations(self, units: usize) -> usize {
        match self {
            Self::Decode(_) | Self::DecodeSubgroup(..) => units.div_ceil(2),
            Self::SkinnyCooperative(tile) => tile.iterations(units),
            Self::Tiled => units.saturating_mul(4 * 32),
        }
    }

    fn variant(self, signature: &Signature) -> Variant {
        let Signature { format, dtypes, activation, vectors, .. } = *signature;
        let code = activation_code(activation);
        let variant = match self {
            Self::SkinnyCooperative(tile) => return tile.variant(signature),
            Self::Decode(rows) => Variant::new(&DECODE, dtypes, [rows as u32, SPAN as u32, code]),
            Self::DecodeSubgroup(rows, subgroup) => {
                let constants = [rows as u32, SPAN as u32, subgroup, code];
                Variant::new(&DECODE_SUBGROUP, dtypes, constants)
            }
            Self::Tiled => Variant::new(&TILED, dtypes, [code]),
        };
        variant.with_libs(product_libs(format, vectors, dtypes[1] == DType::F16))
    }
}

/// What a product's text depends on besides the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signature {
    pub(super) format: QuantFormat,
    /// Of A and C.
    pub(super) dtypes: [DType; 2],
    pub(super) activation: Activation,
    /// Whether A is read four numbers at a time.
    pub(super) vectors: bool,
    /// Whether its rows are normalised.
    pub(super) normed: bool,
    /// Whether the second half of the product is multiplied by the activation of the first.
    pub(super) gated: bool,
}

/// Each kernel for each format and width of A; types and activations, on which the rest of the text doesn't
/// depend, take turns.
pub(super) fn variants() -> Vec<Variant> {
    use DType::{F16, F32};
    const DTYPES: [[DType; 2]; 4] = [[F32, F32], [F16, F32], [F32, F16], [F16, F16]];
    let mut variants: Vec<Variant> = Vec::new();
    let subgroups = SUBGROUPS.map(|size| DECODE_ROWS.map(|rows| Kernel::DecodeSubgroup(rows, size))).concat();
    let kernels = DECODE_ROWS.map(Kernel::Decode).into_iter().chain(subgroups).chain([Kernel::Tiled]);
    for kernel in kernels {
        for (format, vectors) in KINDS.into_iter().flat_map(|format| [(format, false), (format, true)]) {
            let turn = variants.len();
            let (dtypes, activation) = (DTYPES[turn / 2 % 4], Activation::ALL[turn % Activation::ALL.len()]);
            let signature = Signature { format, dtypes, activation, vectors, normed: false, gated: false };
            variants.push(kernel.variant(&signature));
        }
    }
    variants
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

    /// Whether C is what is added to the product.
    pub(super) const fn residual_is_c(&self) -> bool {
        self.terms & IN_PLACE != 0
    }

    /// Whether anything but C is added to the product.
    pub(super) const fn has_residual_apart(&self) -> bool {
        self.terms & (HAS_RESIDUAL | IN_PLACE) == HAS_RESIDUAL
    }

    /// Whether A can be read four numbers at a time.
    fn has_vectors(&self, desc: &QuantMatmulDesc) -> bool {
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

/// [`quant_matmul`] with checked operands.
pub(super) fn multiply(
    ctx: &OpContext,
    op: &'static str,
    desc: &QuantMatmulDesc,
    slices: &Slices<'_>,
) -> BackendResult<()> {
    let layout = desc.b.layout(op)?;
    let windows = Operands::new(ctx, op, desc, slices)?;
    let cooperative = Tile::candidate(ctx, desc, &layout, &windows).map(Kernel::SkinnyCooperative);
    if cooperative.is_none() && (desc.gate.is_some() || desc.norm.is_some()) {
        return stages::multiply(ctx, op, desc, slices);
    }
    let kernel = cooperative.unwrap_or_else(|| Kernel::choose(desc.m, ctx.gpu().subgroup));
    if kernel == Kernel::Tiled
        && has_room_for_residual(desc)
        && let Some(tile) = cooperative::Tile::candidate(ctx, desc, &windows)
    {
        return multiply_by_tiles(ctx, op, desc, &layout, slices.b, &windows, tile);
    }
    let columns = Run::of_flops(desc.n(), desc.flops() / desc.n().max(1) as f64)
        .with_iterations(kernel.iterations(layout.units) as f64)
        .aligned(TILE);
    if kernel == Kernel::Tiled && dequantized::is_possible(ctx, desc) {
        // Its parts know only their own work.
        require_end(ctx, op, &columns)?;
        return dequantized::multiply(ctx, op, desc, &layout, slices.b, &windows);
    }
    iterations::require(ctx, op, "units of 128 columns", layout.units, kernel.iterations(1))?;
    in_parts(ctx, op, columns, |run| {
        let planes = |rows| Planes::new(ctx, op, &layout, slices.b, rows, &windows.c);
        if desc.gate.is_some() {
            let planes = planes((0, desc.b.rows))?.starting_at(dim(op, "n", run.first)?);
            return launch(ctx, op, desc, &windows, kernel, &planes, (run.first, run.end));
        }
        bindable(ctx, &layout, 0, (run.first, run.end)).try_for_each(|(first, end)| {
            launch(ctx, op, desc, &windows, kernel, &planes((first, end))?, (first, end))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_take_the_smallest_tile_that_holds_them() {
        let rows = [0, 1, 2, 3, 5, 8, 9, 32].map(|m| Kernel::choose(m, None).tile(false)[0]);
        assert_eq!(rows, [1, 1, 2, 4, 8, 8, 8, 8]);
        assert_eq!(Kernel::choose(33, Some(32)), Kernel::Tiled);
        assert_eq!(Kernel::choose(3, Some(32)), Kernel::DecodeSubgroup(4, 32));
        assert_eq!(Kernel::choose(3, Some(4)), Kernel::Decode(4));
    }
}
