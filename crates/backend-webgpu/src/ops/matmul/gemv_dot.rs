//! The shapes of gemm/gemv_dot, for products of one row, or of one column, with a matrix whose rows run along
//! k.

use std::fmt;

use backend_api::desc::{MatmulDesc, Matrix};
use backend_api::{Activation, DType, DeviceKind};

use super::kernel::Kernel;
use super::large::{Large, Small, libs, oriented};
use super::layout::is_aligned;
use super::plan::Plan;
use super::{Params, Windows, activation_code};
use crate::context::Context;
use crate::kernels::{KernelSource, Variant, kernel};
use crate::ops::vec_width::VecWidth;

static GEMV_DOT: KernelSource = kernel!(
    "gemm/gemv_dot",
    libs: [GRID, SPECIAL, UNARY, MATMUL],
    types: ["T", "TC", "A"],
    constants: ["SPAN", "AHEAD", "TRANS_C", "ACTIVATION"],
    reads: 3,
    writes: 1,
    params: Params,
);

/// Invocations of a workgroup, and those that share a sum.
const THREADS: usize = 128;
const THREADS_PER_OUTPUT: usize = 32;

/// How a workgroup shares its work, and which products it does it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GemvDot {
    /// Columns of an invocation.
    span: usize,
    /// Vectors of each column that an invocation reads at once.
    ahead: usize,
    /// Whether the product is transposed as a whole, which makes one row of one column.
    pub(super) transposed: bool,
}

impl GemvDot {
    /// Every shape, for products of one row.
    pub(super) const ALL: [Self; 1] = [Self::new(2, 4)];

    const fn new(span: usize, ahead: usize) -> Self {
        Self { span, ahead, transposed: false }
    }

    /// Whether the kernel can make a product whose operands are aligned.
    pub(super) fn is_possible(desc: &MatmulDesc) -> bool {
        desc.m.min(desc.n) == 1 && Large::of(desc, desc.n < desc.m).along_k && desc.a.dtype == desc.b.dtype
    }

    /// The shape for a product, if that has enough columns for all `compute_units`. Of f32, `gemm/skinny` is
    /// as fast where they have few workgroups each.
    fn choose(desc: &MatmulDesc, compute_units: usize) -> Option<Self> {
        let [shape] = Self::ALL;
        let workgroups = desc.m.max(desc.n).div_ceil(shape.columns()).saturating_mul(desc.batch);
        let least = if desc.a.dtype == DType::F16 { compute_units } else { 8 * compute_units };
        Some(shape).filter(|_| workgroups >= least)
    }

    /// The same for a product.
    pub(super) fn fitting(self, desc: &MatmulDesc) -> Self {
        Self { transposed: desc.n < desc.m, ..self }
    }

    /// Whether both operands can be read by vectors.
    pub(super) fn reads_as_vectors(self, desc: &MatmulDesc, windows: &Windows) -> bool {
        let Small { matrix: row, offset, across_k } = Small::of(desc, windows, self.transposed);
        // Of a single row, the leading dimension is only where its elements are if it lies across memory.
        let width = VecWidth::of(row.dtype).width();
        let adjacent = Matrix { ld: width, ..*row };
        (!across_k || row.ld == 1)
            && is_aligned(&adjacent, offset, desc.k, width)
            && Large::of(desc, self.transposed).reads_as_vectors(windows)
    }

    /// The shape alone, as its name says it.
    pub(super) const fn named(self) -> Self {
        Self::new(self.span, self.ahead)
    }

    /// Columns of a workgroup.
    const fn columns(self) -> usize {
        THREADS / THREADS_PER_OUTPUT * self.span
    }

    /// Rows and columns of a workgroup, of C as it is stored.
    pub(super) const fn tile(self) -> [usize; 2] {
        if self.transposed { [self.columns(), 1] } else { [1, self.columns()] }
    }

    pub(super) fn variant(self, dtypes: [DType; 3], activation: Activation) -> Variant {
        let ([_, b, c], _) = oriented(self.transposed, dtypes, [false; 2]);
        let constants =
            [self.span as u32, self.ahead as u32, u32::from(self.transposed), activation_code(activation)];
        Variant::new(&GEMV_DOT, [b, c, DType::F32], constants).with_libs(libs(VecWidth::of(b), c))
    }
}

impl Plan {
    /// The plan for one row or column and a matrix whose rows run along k, where one launch keeps the device
    /// at work.
    pub(super) fn gemv_dot(ctx: &Context, desc: &MatmulDesc, windows: &Windows) -> Option<Self> {
        if ctx.gpu.info.kind == DeviceKind::SoftwareAdapter {
            return None;
        }
        let dots = GemvDot::choose(desc, ctx.gpu.profile.compute_units)?;
        Self::new(ctx, desc, Kernel::GemvDot(dots), 1)?.reading(desc, windows).verified(ctx)
    }
}

/// Such as `32x4x2`: invocations of a sum, columns of an invocation, vectors ahead.
impl fmt::Display for GemvDot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{THREADS_PER_OUTPUT}x{}x{}", self.span, self.ahead)
    }
}

/// Each shape for each type.
pub(super) fn variants() -> Vec<Variant> {
    use DType::{F16, F32};
    let mut variants = Vec::new();
    for dtypes in [[F32, F32, F32], [F16, F16, F16], [F16, F16, F32]] {
        for shape in GemvDot::ALL {
            for &activation in Activation::ALL {
                let transposed = variants.len() % 2 == 1;
                variants.push(GemvDot { transposed, ..shape }.variant(dtypes, activation));
            }
        }
    }
    variants
}

#[cfg(test)]
mod tests {
    use backend_api::BackendTranspose;

    use super::*;

    #[test]
    fn narrow_products_are_left() {
        let choose = |n, dtype| {
            let matrix = |ld| Matrix::new(0, dtype, ld);
            let desc = MatmulDesc::new(1, n, 4096, matrix(4096), matrix(4096), matrix(n));
            let desc = desc.with_transpose(BackendTranspose::NoTrans, BackendTranspose::Trans);
            GemvDot::choose(&desc, 132).is_some()
        };
        assert_eq!([14336, 4096, 1024].map(|n| choose(n, DType::F16)), [true, true, false]);
        assert_eq!([14336, 4096, 1024].map(|n| choose(n, DType::F32)), [true, false, false]);
    }
}
