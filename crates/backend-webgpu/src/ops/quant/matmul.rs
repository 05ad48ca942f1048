//! Products with a quantised matrix.

use std::sync::Arc;

use backend_api::desc::QuantMatmulDesc;
use backend_api::quant::QuantFormat;
use backend_api::support::checked_product;
use backend_api::{Activation, BackendResult, DType};

use super::formats::{KINDS, product_libs};
use super::planes::{Planes, bindable, group_shift, require_known};
use crate::kernels::{KernelSource, Variant, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::matmul::activation_code;
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::ops::shared::long_work::{Run, in_parts};
use crate::ops::shared::vec_width::VecWidth;
use crate::recorder::Window;

static DECODE: KernelSource = kernel!(
    "quant/decode",
    libs: [GRID, SPECIAL, UNARY, QUANT_NIBBLES, QUANT_PRODUCT],
    types: ["TA", "TC"],
    constants: ["ROWS", "SPAN", "ACTIVATION"],
    reads: 7,
    writes: 1,
    params: Params,
);

static TILED: KernelSource = kernel!(
    "quant/tiled",
    libs: [GRID, SPECIAL, UNARY, QUANT_NIBBLES, QUANT_PRODUCT],
    types: ["TA", "TC"],
    constants: ["ACTIVATION"],
    reads: 7,
    writes: 1,
    params: Params,
);

params! {
    struct Params {
        m: u32,
        n: u32,
        k: u32,
        units: u32,
        tiles_n: u32,
        tiles: u32,
        quants: u32,
        quants_row: u32,
        high: u32,
        high_row: u32,
        scales: u32,
        scales_row: u32,
        extra: u32,
        extra_row: u32,
        group: u32,
        a: u32,
        a_ld: u32,
        c: u32,
        c_ld: u32,
        bias: u32,
        residual: u32,
        residual_ld: u32,
        terms: u32,
        alpha: f32,
    }
}

/// Rows of A for which there are variants of `quant/decode`.
const DECODE_ROWS: [usize; 4] = [1, 2, 4, 8];

/// Rows of A above which `quant/tiled` reads B less often.
const MOST_DECODE_ROWS: usize = 32;

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
    Tiled,
}

impl Kernel {
    fn choose(m: usize) -> Self {
        let [.., most] = DECODE_ROWS;
        match DECODE_ROWS.into_iter().find(|&rows| m <= rows) {
            Some(rows) => Self::Decode(rows),
            None if m <= MOST_DECODE_ROWS => Self::Decode(most),
            None => Self::Tiled,
        }
    }

    const fn tile(self) -> [usize; 2] {
        match self {
            Self::Decode(rows) => [rows, DECODE_COLUMNS],
            Self::Tiled => [TILE, TILE],
        }
    }

    /// Steps of an invocation's loop along a row of so many units.
    const fn iterations(self, units: usize) -> usize {
        match self {
            Self::Decode(_) => units.div_ceil(8),
            Self::Tiled => units.saturating_mul(4 * 32),
        }
    }

    fn variant(self, signature: &Signature) -> Variant {
        let Signature { format, dtypes, activation, vectors } = *signature;
        let activation = activation_code(activation);
        let variant = match self {
            Self::Decode(rows) => Variant::new(&DECODE, dtypes, [rows as u32, SPAN as u32, activation]),
            Self::Tiled => Variant::new(&TILED, dtypes, [activation]),
        };
        variant.with_libs(product_libs(format, vectors, dtypes[1] == DType::F16))
    }
}

/// What a product's text depends on besides the kernel.
#[derive(Clone, Copy, Debug)]
struct Signature {
    format: QuantFormat,
    /// Of A and C.
    dtypes: [DType; 2],
    activation: Activation,
    /// Whether A is read four numbers at a time.
    vectors: bool,
}

/// Each kernel for each format and width of A; types and activations, on which the rest of the text doesn't
/// depend, take turns.
pub(super) fn variants() -> Vec<Variant> {
    use DType::{F16, F32};
    const DTYPES: [[DType; 2]; 4] = [[F32, F32], [F16, F32], [F32, F16], [F16, F16]];
    let mut variants: Vec<Variant> = Vec::new();
    for kernel in DECODE_ROWS.map(Kernel::Decode).into_iter().chain([Kernel::Tiled]) {
        for (format, vectors) in KINDS.into_iter().flat_map(|format| [(format, false), (format, true)]) {
            let turn = variants.len();
            let (dtypes, activation) = (DTYPES[turn / 2 % 4], Activation::ALL[turn % Activation::ALL.len()]);
            variants.push(kernel.variant(&Signature { format, dtypes, activation, vectors }));
        }
    }
    variants
}

/// The operands of a product besides B.
struct Operands {
    a: Window,
    c: Window,
    bias: Window,
    residual: Window,
    /// The bits of the parameter `terms`.
    terms: u32,
}

impl Operands {
    fn new(
        ctx: &OpContext,
        op: &'static str,
        desc: &QuantMatmulDesc,
        [a, bias, residual]: [Option<&DeviceSlice>; 3],
        c: &DeviceSlice,
    ) -> BackendResult<Self> {
        let dtype = desc.c.dtype;
        let is_c = |residual: &DeviceSlice| {
            Arc::ptr_eq(&residual.block, &c.block) && (residual.offset, residual.len) == (c.offset, c.len)
        };
        let in_place = residual.is_some_and(is_c);
        let terms = u32::from(bias.is_some()) | u32::from(residual.is_some()) << 1 | u32::from(in_place) << 2;
        let c = ctx.output(op, c, dtype)?;
        Ok(Self {
            a: ctx.optional_input(op, a, desc.a.dtype, &c)?,
            bias: ctx.optional_input(op, bias, dtype, &c)?,
            residual: ctx.optional_input(op, residual.filter(|_| !in_place), dtype, &c)?,
            c,
            terms,
        })
    }
}

/// `C = residual + activation(alpha · A · Bᵀ + bias)`.
pub(crate) fn quant_matmul(ctx: &OpContext, op: &'static str, desc: &QuantMatmulDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let layout = desc.b.layout(op)?;
    let [a, b, c, bias, residual] = ctx.resolve(op, &operands)?;
    let Some(c) = c else { return Ok(()) };
    require_known(op, desc.b.format)?;
    ctx.require_dtype(op, desc.a.dtype)?;
    ctx.require_dtype(op, desc.c.dtype)?;
    let windows = Operands::new(ctx, op, desc, [a.as_ref(), bias.as_ref(), residual.as_ref()], &c)?;
    let kernel = Kernel::choose(desc.m);
    let columns = Run::of_flops(desc.n(), 2.0 * desc.m as f64 * desc.k() as f64)
        .with_iterations(kernel.iterations(layout.units) as f64)
        .aligned(TILE);
    in_parts(ctx, op, columns, |run| {
        bindable(ctx, &layout, 0, (run.first, run.end)).try_for_each(|(first, end)| {
            let planes = Planes::new(ctx, op, &layout, b.as_ref(), (first, end), &windows.c)?;
            launch(ctx, op, desc, &windows, kernel, &planes, (first, end))
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
    let (m, k) = (desc.m, desc.k());
    let [tile_m, tile_n] = kernel.tile();
    let tiles_n = (end - first).div_ceil(tile_n);
    let tiles = checked_product(op, "tiles", &[m.div_ceil(tile_m), tiles_n])?;
    // A leading dimension that leads nowhere may be any number.
    let ld = |what, ld: usize| if m <= 1 { Ok(0) } else { dim(op, what, ld) };
    let lines = if m <= 1 { 0 } else { desc.a.ld };
    let vectors = VecWidth::four_if_fitting(&[&windows.a], &[lines, k]) == VecWidth::Four;
    let [quants, high, scales, extra] = planes.places;
    let c = windows.c.advanced(first);
    let advanced = |window: &Window, bit: u32| {
        if windows.terms & bit != 0 { window.advanced(first) } else { window.clone() }
    };
    let (bias, residual) = (advanced(&windows.bias, 1), advanced(&windows.residual, 2));
    let params = Params {
        m: dim(op, "m", m)?,
        n: dim(op, "n", end - first)?,
        k: dim(op, "k", k)?,
        units: dim(op, "k", desc.k().div_ceil(backend_api::quant::UNIT))?,
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
        c: c.offset,
        c_ld: ld("ldc", desc.c.ld)?,
        bias: bias.offset,
        residual: residual.offset,
        residual_ld: ld("ld of the residual", desc.residual.map_or(0, |residual| residual.ld))?,
        terms: windows.terms,
        alpha: desc.alpha as f32,
    };
    let signature = Signature {
        format: desc.b.format,
        dtypes: [desc.a.dtype, desc.c.dtype],
        activation: desc.activation,
        vectors,
    };
    let [quants, high, scales, extra] = planes.windows();
    let reads = [quants, high, scales, extra, &windows.a, &bias, &residual];
    ctx.launch(op, &kernel.variant(&signature), &reads, &c, &params, linear_grid(op, tiles)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_take_the_smallest_tile_that_holds_them() {
        let rows = [0, 1, 2, 3, 5, 8, 9, 32].map(|m| Kernel::choose(m).tile()[0]);
        assert_eq!(rows, [1, 1, 2, 4, 8, 8, 8, 8]);
        assert_eq!(Kernel::choose(33), Kernel::Tiled);
    }
}
