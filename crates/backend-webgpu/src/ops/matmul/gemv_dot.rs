//! gemm/gemv_dot: products of one row, or of one column, with a K-major matrix.

use std::fmt;

use backend_api::desc::MatmulDesc;
use backend_api::{Activation, DType};

use super::cost::{Cost, Staged};
use super::kernel::{Family, GemmKernel, Kernel, Needs, Signature};
use super::large::{Large, Small, libs, oriented};
use super::layout::is_aligned;
use super::plan::{Candidate, Problem};
use super::shapes::GemvDot;
use super::{Params, Windows};
use crate::device::Gpu;
use crate::kernels::{KernelSource, Variant, constants, kernel};
use crate::ops::shared::vec_width::VecWidth;

constants! { struct Constants { columns_per_thread: usize, prefetch: usize, trans_c: bool, activation: Activation } }

static GEMV_DOT: KernelSource = kernel!(
    "gemm/gemv_dot", libs: [WORKGROUP_TILES, MATMUL, C_ELEMENTS],
    types: ["T", "TC", "A"], constants: Constants, params: Params,
    reads: ["a: V", "b: V", "bias: TC"], writes: ["c: TC"],
);

/// Invocations of a workgroup, and those that share a sum.
const THREADS: usize = 128;
const THREADS_PER_OUTPUT: usize = 32;

impl GemvDot {
    /// Every shape, for products of one row.
    pub(super) const ALL: [Self; 1] = [Self::new(2, 4)];

    const fn new(columns_per_thread: usize, prefetch: usize) -> Self {
        Self { columns_per_thread, prefetch, transposed: false }
    }

    /// The shape for a product, if that has enough columns for all `compute_units`. Of f32, `gemm/skinny` is
    /// as fast where they have few workgroups each.
    fn choose(desc: &MatmulDesc, compute_units: usize) -> Option<Self> {
        let [shape] = Self::ALL;
        let workgroups = desc.m.max(desc.n).div_ceil(shape.columns()).saturating_mul(desc.batch);
        let least = if desc.a.dtype == DType::F16 { compute_units } else { 8 * compute_units };
        Some(shape).filter(|_| workgroups >= least)
    }

    /// Columns of a workgroup.
    const fn columns(self) -> usize {
        THREADS / THREADS_PER_OUTPUT * self.columns_per_thread
    }
}

impl Family for GemvDot {
    const LEAST: Cost = Cost::Traffic(Staged::Sums);

    fn shapes() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter()
    }

    /// One row or column with a K-major matrix, where one launch keeps the device at work.
    fn candidates(problem: &Problem<'_>) -> impl Iterator<Item = Candidate> {
        let is_for = !problem.is_on_software();
        let shape = if is_for { Self::choose(problem.desc, problem.compute_units()) } else { None };
        shape.and_then(|shape| problem.candidate(Kernel::GemvDot(shape), 1, Self::LEAST)).into_iter()
    }

    /// Each shape for each type.
    fn variants() -> Vec<Variant> {
        use DType::{F16, F32};
        let mut variants = Vec::new();
        for dtypes in [[F32, F32, F32], [F16, F16, F16], [F16, F16, F32]] {
            for shape in Self::ALL {
                for &activation in Activation::ALL {
                    let transposed = variants.len() % 2 == 1;
                    let trans = [false, true];
                    let signature = Signature { vectors: true, ..Signature::new(dtypes, trans, activation) };
                    variants.push(Self { transposed, ..shape }.variant(&signature));
                }
            }
        }
        variants
    }
}

impl GemmKernel for GemvDot {
    fn is_possible(&self, _: &Gpu, desc: &MatmulDesc) -> bool {
        let k_major = Large::of(desc, desc.n < desc.m).k_major;
        desc.m.min(desc.n) == 1 && desc.k > 0 && k_major && desc.a.dtype == desc.b.dtype
    }

    fn for_product(&self, _: &Gpu, desc: &MatmulDesc) -> Kernel {
        Kernel::GemvDot(Self { transposed: desc.n < desc.m, ..*self })
    }

    fn reads_as_vectors(&self, desc: &MatmulDesc, windows: &Windows) -> bool {
        let Small { matrix: row, offset, across_k } = Small::of(desc, windows, self.transposed);
        // Of a single row, the leading dimension is only where its elements are if it lies across memory.
        let width = VecWidth::of(row.dtype).width();
        let mut adjacent = *row;
        adjacent.ld = width;
        (!across_k || row.ld == 1)
            && is_aligned(&adjacent, offset, desc.k, width)
            && Large::of(desc, self.transposed).reads_as_vectors(windows)
    }

    fn named(&self) -> Kernel {
        Kernel::GemvDot(Self::new(self.columns_per_thread, self.prefetch))
    }

    fn needs(&self) -> Needs {
        Needs { self_test: false, vectors: true }
    }

    #[cfg(not(target_family = "wasm"))]
    fn measured_packings(&self, desc: &MatmulDesc, _: bool) -> &'static [bool] {
        if desc.m.min(desc.n) == 1 { &[false] } else { &[] }
    }

    fn is_transposed(&self) -> bool {
        self.transposed
    }

    fn tile(&self, _: &Signature) -> [usize; 2] {
        if self.transposed { [self.columns(), 1] } else { [1, self.columns()] }
    }

    fn variant(&self, signature: &Signature) -> Variant {
        let ([_, b, c], _) = oriented(self.transposed, signature.dtypes, [false; 2]);
        let &Self { columns_per_thread, prefetch, transposed: trans_c } = self;
        let constants = Constants { columns_per_thread, prefetch, trans_c, activation: signature.activation };
        Variant::new(&GEMV_DOT, [b, c, DType::F32], constants).with_libs(libs(VecWidth::of(b), c))
    }
}

/// Such as `32x4x2`: invocations of a sum, columns of an invocation, vectors prefetched.
impl fmt::Display for GemvDot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{THREADS_PER_OUTPUT}x{}x{}", self.columns_per_thread, self.prefetch)
    }
}

#[cfg(test)]
mod tests {
    use backend_api::BackendTranspose;

    use backend_api::desc::Matrix;

    use super::*;
    use crate::device::h200;

    #[test]
    fn narrow_products_are_left() {
        let choose = |n, dtype| {
            let matrix = |ld| Matrix::new(0, dtype, ld);
            let desc = MatmulDesc::new(1, n, 4096, matrix(4096), matrix(4096), matrix(n));
            let desc = desc.with_transpose(BackendTranspose::NoTrans, BackendTranspose::Trans);
            GemvDot::choose(&desc, h200::COMPUTE_UNITS).is_some()
        };
        assert_eq!([14336, 4096, 1024].map(|n| choose(n, DType::F16)), [true, true, false]);
        assert_eq!([14336, 4096, 1024].map(|n| choose(n, DType::F32)), [true, false, false]);
    }
}
