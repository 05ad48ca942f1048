//! The operands of products with a quantised matrix, and the parameters of their kernels.

use backend_api::BackendResult;
use backend_api::desc::QuantMatmulDesc;
use backend_api::quant::UNIT;
use backend_api::support::checked_product;

use super::planes::{PlaneParams, Planes};
use crate::kernels::params;
use crate::memory::DeviceSlice;
use crate::ops::matmul::factor;
use crate::ops::op_context::{OpContext, dim};
use crate::ops::shared::vec_width::VecWidth;
use crate::recorder::Window;

params! {
    /// What every kernel has to know of a product.
    pub(super) struct ProductParams {
        // Rows of A.
        m: u32,
        n: u32,
        k: u32,
        // Units of 128 weights in a row of B.
        units: u32,
        tiles_n: u32,
        tiles: u32,
        planes: PlaneParams,
        a: u32,
        a_ld: u32,
        c: u32,
        c_ld: u32,
    }
}

/// What every product binds besides B.
#[derive(Clone, Debug)]
pub(super) struct ProductOperands {
    pub(super) a: Window,
    pub(super) bias: Window,
    pub(super) c: Window,
}

params! {
    pub(super) struct Params {
        product: ProductParams,
        bias: u32,
        residual: u32,
        residual_ld: u32,
        // Bit 0: there is a bias, 1: a residual, 2: it is C.
        terms: u32,
        alpha: f32,
        // Rows of B from a gate's row to the one that it opens.
        half: u32,
        // Elements before the norm's weight.
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
    pub(super) product: ProductOperands,
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
    pub(super) fn new(
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
        let a = ctx.optional_input(op, a, desc.a.dtype, &c)?;
        let bias = ctx.optional_input(op, bias, dtype, &c)?;
        let residual = ctx.optional_input(op, residual.filter(|_| !in_place), dtype, &c)?;
        let norm = ctx.optional_input(op, norm, desc.a.dtype, &c)?;
        Ok(Self { product: ProductOperands { a, bias, c }, residual, norm, terms })
    }

    /// Without a bias and a residual.
    pub(super) fn alone(ctx: &OpContext, a: Window, c: Window) -> Self {
        let product = ProductOperands { a, bias: ctx.null(), c };
        Self { product, residual: ctx.null(), norm: ctx.null(), terms: 0 }
    }

    /// As columns of C from `first` on need them.
    pub(super) fn starting_at(&self, first: usize) -> Self {
        let advanced = |window: &Window, bit: u32| {
            if self.terms & bit != 0 { window.advanced(first) } else { window.clone() }
        };
        let ProductOperands { a, bias, c } = &self.product;
        Self {
            product: ProductOperands { a: a.clone(), bias: advanced(bias, HAS_BIAS), c: c.advanced(first) },
            residual: advanced(&self.residual, HAS_RESIDUAL),
            norm: self.norm.clone(),
            terms: self.terms,
        }
    }

    /// With other rows of A.
    pub(super) fn with_a(&self, a: Window) -> Self {
        let mut other = self.starting_at(0);
        other.product.a = a;
        other
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
        VecWidth::four_if_fitting(&[&self.product.a], &strides_of_a(desc)) == VecWidth::Four
    }
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
        let product = ProductParams {
            m: dim(op, "m", m)?,
            n: dim(op, "n", columns)?,
            k: dim(op, "k", k)?,
            units: dim(op, "k", k.div_ceil(UNIT))?,
            tiles_n: dim(op, "tiles", tiles_n)?,
            tiles: dim(op, "tiles", tiles)?,
            planes: planes.params(),
            a: windows.product.a.offset,
            a_ld: ld("lda", desc.a.ld)?,
            c: windows.product.c.offset,
            c_ld: ld("ldc", desc.c.ld)?,
        };
        Ok(Self {
            product,
            bias: windows.product.bias.offset,
            residual: windows.residual.offset,
            residual_ld: ld("ld of the residual", desc.residual.map_or(0, |residual| residual.ld))?,
            terms: windows.terms,
            alpha: factor(desc.alpha, k),
            half: if desc.gate.is_some() { dim(op, "n", desc.n())? } else { 0 },
            norm: windows.norm.offset,
            eps: desc.norm.map_or(0.0, |norm| norm.eps) as f32,
        })
    }
}
