//! The shapes of gemm/skinny_cooperative, for products of few rows, or of few columns, of f16 operands whose
//! rows run along k, on tensor cores.

use std::fmt;

use backend_api::desc::MatmulDesc;
use backend_api::{Activation, DType};

use super::kernel::Kernel;
use super::large::{Large, Small};
use super::layout::is_aligned;
use super::plan::Plan;
use super::{Params, Windows, activation_code, activation_libs};
use crate::context::Context;
use crate::kernels::{KernelSource, Variant, kernel};
use crate::ops::has_room;
use crate::ops::tensor_cores::{FRAGMENT, SUBGROUP};
use crate::ops::vec_width::VecWidth;

static SKINNY_COOPERATIVE: KernelSource = KernelSource {
    cooperative: true,
    subgroups: true,
    ..kernel!(
        native "gemm/skinny_cooperative",
        libs: [GRID, SPECIAL, UNARY, MATMUL, FRAGMENT_ELEMENTS],
        types: ["T", "TC"],
        constants: ["SUBGROUPS", "TRANS_C", "ACTIVATION"],
        reads: 3,
        writes: 1,
        params: Params,
    )
};

/// Rows and columns of a workgroup.
const ROWS: usize = FRAGMENT;
const COLUMNS: usize = 2 * FRAGMENT;

/// Elements along k that a subgroup takes of each row at once.
const STEP: usize = 64;

/// How many subgroups share k, and which products it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SkinnyCooperative {
    subgroups: usize,
    /// Whether the product is transposed as a whole, which makes few rows of few columns.
    pub(super) transposed: bool,
}

impl SkinnyCooperative {
    /// Every shape: for a workgroup alone on a compute unit, and for two.
    pub(super) const ALL: [Self; 2] = [Self::new(16), Self::new(8)];

    const fn new(subgroups: usize) -> Self {
        Self { subgroups, transposed: false }
    }

    /// Whether the kernel can make a product whose operands are aligned.
    pub(super) fn is_possible(self, desc: &MatmulDesc, limits: &wgpu::Limits) -> bool {
        let halves = [desc.a.dtype, desc.b.dtype] == [DType::F16; 2];
        let bytes = self.subgroups * ROWS * COLUMNS * size_of::<f32>();
        halves
            && !desc.trans_a.is_transposed()
            && desc.trans_b.is_transposed()
            && has_room(limits, self.subgroups * SUBGROUP, bytes)
    }

    /// The shape for a product, if that has few rows or columns, and enough of the others for all
    /// `compute_units`.
    fn choose(desc: &MatmulDesc, compute_units: usize) -> Option<Self> {
        let [alone, paired] = Self::ALL;
        let few = desc.m.min(desc.n);
        let workgroups = desc.m.max(desc.n).div_ceil(COLUMNS).saturating_mul(desc.batch);
        let long = desc.k >= alone.turn();
        let shape = if workgroups > compute_units { paired } else { alone };
        Some(shape).filter(|_| (2..=ROWS).contains(&few) && long && 4 * workgroups >= 3 * compute_units)
    }

    /// The same for a product.
    pub(super) fn fitting(self, desc: &MatmulDesc) -> Self {
        Self { transposed: desc.n < desc.m, ..self }
    }

    /// Whether both operands can be read by vectors.
    pub(super) fn reads_as_vectors(self, desc: &MatmulDesc, windows: &Windows) -> bool {
        let Small { matrix, offset, .. } = Small::of(desc, windows, self.transposed);
        is_aligned(matrix, offset, desc.k, VecWidth::of(matrix.dtype).width())
            && Large::of(desc, self.transposed).reads_as_vectors(windows)
    }

    /// The shape alone, as its name says it.
    pub(super) const fn named(self) -> Self {
        Self::new(self.subgroups)
    }

    /// Rows and columns of a workgroup, of C as it is stored.
    pub(super) const fn tile(self) -> [usize; 2] {
        if self.transposed { [COLUMNS, ROWS] } else { [ROWS, COLUMNS] }
    }

    /// Elements along k that a workgroup takes of each row at once.
    pub(super) const fn turn(self) -> usize {
        self.subgroups * STEP
    }

    pub(super) fn variant(self, dtype: DType, activation: Activation) -> Variant {
        let constants = [self.subgroups as u32, u32::from(self.transposed), activation_code(activation)];
        Variant::new(&SKINNY_COOPERATIVE, [DType::F16, dtype], constants)
            .with_libs(activation_libs(dtype))
            .with_rolled_loops()
    }
}

impl Plan {
    /// The plan for few rows or columns of operands along k, where one launch keeps the device at work.
    pub(super) fn skinny_cooperative(ctx: &Context, desc: &MatmulDesc, windows: &Windows) -> Option<Self> {
        // No browser offers tensor cores.
        if cfg!(target_family = "wasm") {
            return None;
        }
        let dots = SkinnyCooperative::choose(desc, ctx.gpu.profile.compute_units)?;
        Self::new(ctx, desc, Kernel::SkinnyCooperative(dots), 1)?.reading(desc, windows).verified(ctx)
    }
}

/// Such as `16x32x1024`: rows, columns and depth.
impl fmt::Display for SkinnyCooperative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ROWS}x{COLUMNS}x{}", self.turn())
    }
}

/// Each shape for each type of C.
pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for shape in SkinnyCooperative::ALL {
        for dtype in [DType::F16, DType::F32] {
            for &activation in Activation::ALL {
                let transposed = variants.len() % 2 == 1;
                variants.push(SkinnyCooperative { transposed, ..shape }.variant(dtype, activation));
            }
        }
    }
    variants
}

#[cfg(test)]
mod tests {
    use backend_api::desc::Matrix;

    use super::*;

    #[test]
    fn few_rows_of_wide_products_are_taken() {
        let choose = |m, n, k| {
            let matrix = Matrix::new(0, DType::F16, 1 << 14);
            SkinnyCooperative::choose(&MatmulDesc::new(m, n, k, matrix, matrix, matrix), 132)
                .map(|shape| shape.subgroups)
        };
        assert_eq!([choose(16, 4096, 4096), choose(2, 14336, 4096)], [Some(16), Some(8)]);
        assert_eq!(choose(4096, 8, 4096), Some(16));
        assert_eq!([choose(1, 4096, 4096), choose(17, 4096, 4096)], [None, None]);
        assert_eq!([choose(8, 2048, 4096), choose(8, 4096, 512)], [None, None]);
    }
}
