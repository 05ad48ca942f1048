//! gemm/gemv: products of one row, or of one column, with a matrix that isn't K-major.

use std::fmt;

use backend_api::desc::MatmulDesc;
use backend_api::{Activation, DType};

use super::cost::{Cost, Staged};
use super::kernel::{Family, GemmKernel, Kernel, Signature, TYPES};
use super::large::{Large, libs, oriented};
use super::plan::{Candidate, Problem};
use super::shapes::Gemv;
use super::{Params, Windows};
use crate::device::Gpu;
use crate::kernels::{KernelSource, Variant, constants, kernel};
use crate::ops::has_room;
use crate::ops::shared::vec_width::VecWidth;

constants! {
    struct Constants {
        threads_per_output: usize,
        unroll: usize,
        trans_a: bool,
        trans_c: bool,
        activation: Activation,
    }
}

static GEMV: KernelSource = kernel!(
    "gemm/gemv", libs: [WORKGROUP_TILES, MATMUL, C_ELEMENTS],
    types: ["TA", "T", "TC", "A"], constants: Constants, params: Params,
    reads: ["a: TA", "b: V", "bias: TC"], writes: ["c: TC"],
);

const THREADS: usize = 1024;

/// Bytes in workgroup memory: a vector of sums for each invocation.
const SHARED: usize = 16 * THREADS;

/// Rows of which an invocation reads a vector at once.
const UNROLL: usize = 4;

impl Gemv {
    /// Every shape, for products of one row.
    pub(super) const ALL: [Self; 2] = [Self::new(256), Self::new(128)];

    const fn new(threads: usize) -> Self {
        Self { threads, transposed: false }
    }

    /// The shape for a product, if that has enough columns for all `compute_units`: the one that reads the
    /// longer pieces of rows where they all have work then, too.
    fn choose(desc: &MatmulDesc, compute_units: usize) -> Option<Self> {
        let vec_width = VecWidth::of(Large::of(desc, desc.n < desc.m).matrix.dtype);
        let workgroups =
            |shape: Self| desc.m.max(desc.n).div_ceil(shape.columns(vec_width)).saturating_mul(desc.batch);
        let [short, long] = Self::ALL;
        if 4 * workgroups(long) >= 3 * compute_units {
            Some(long)
        } else {
            Some(short).filter(|&shape| 2 * workgroups(shape) >= compute_units)
        }
    }

    /// Columns of a workgroup.
    fn columns(self, vec_width: VecWidth) -> usize {
        THREADS / self.threads * vec_width.width()
    }
}

impl Family for Gemv {
    const LEAST: Cost = Cost::Traffic(Staged::Sums);

    fn shapes() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter()
    }

    /// One row or column, where one launch keeps the device at work.
    fn candidates(problem: &Problem<'_>) -> impl Iterator<Item = Candidate> {
        let &Problem { desc, .. } = problem;
        let is_for = !problem.is_on_software() && desc.m.min(desc.n) == 1 && desc.k > 0;
        let shape = if is_for { Self::choose(desc, problem.compute_units()) } else { None };
        shape.and_then(|shape| problem.candidate(Kernel::Gemv(shape), 1, Self::LEAST)).into_iter()
    }

    /// Each shape for each type and width of B. The rest of the text depends on none of that, and its choices
    /// alternate.
    fn variants() -> Vec<Variant> {
        let mut variants = Vec::new();
        for dtypes in TYPES {
            for (shape, vectors) in Self::ALL.into_iter().flat_map(|shape| [(shape, false), (shape, true)]) {
                for &activation in Activation::ALL {
                    let index = variants.len();
                    let (trans_a, transposed) = (index % 2 == 1, index / 2 % 2 == 1);
                    let gemv = Self { transposed, ..shape };
                    // `variant` swaps what is given for the product as a whole.
                    let (dtypes, trans) = oriented(transposed, dtypes, [trans_a, false]);
                    let signature = Signature { vectors, ..Signature::new(dtypes, trans, activation) };
                    variants.push(gemv.variant(&signature));
                }
            }
        }
        variants
    }
}

impl GemmKernel for Gemv {
    fn is_possible(&self, gpu: &Gpu, desc: &MatmulDesc) -> bool {
        let k_major = Large::of(desc, desc.n < desc.m).k_major;
        desc.m.min(desc.n) == 1 && desc.k > 0 && !k_major && has_room(&gpu.limits, THREADS, SHARED)
    }

    fn for_product(&self, _: &Gpu, desc: &MatmulDesc) -> Kernel {
        Kernel::Gemv(Self { transposed: desc.n < desc.m, ..*self })
    }

    fn reads_as_vectors(&self, desc: &MatmulDesc, windows: &Windows) -> bool {
        Large::of(desc, self.transposed).reads_as_vectors(windows)
    }

    fn named(&self) -> Kernel {
        Kernel::Gemv(Self::new(self.threads))
    }

    #[cfg(not(target_family = "wasm"))]
    fn measured_packings(&self, desc: &MatmulDesc, _: bool) -> &'static [bool] {
        if desc.m.min(desc.n) == 1 { &[false] } else { &[] }
    }

    fn is_transposed(&self) -> bool {
        self.transposed
    }

    fn tile(&self, signature: &Signature) -> [usize; 2] {
        let ([_, dtype, _], _) = oriented(self.transposed, signature.dtypes, signature.trans);
        let columns = self.columns(VecWidth::of(dtype).if_vectors(signature.vectors));
        if self.transposed { [columns, 1] } else { [1, columns] }
    }

    fn variant(&self, signature: &Signature) -> Variant {
        let ([a, b, c], [trans_a, _]) = oriented(self.transposed, signature.dtypes, signature.trans);
        let vec_width = VecWidth::of(b).if_vectors(signature.vectors);
        let constants = Constants {
            threads_per_output: self.threads,
            unroll: UNROLL,
            trans_a,
            trans_c: self.transposed,
            activation: signature.activation,
        };
        Variant::new(&GEMV, [a, b, c, DType::F32], constants)
            .with_libs(libs(vec_width, c))
            .with_workgroup(THREADS, SHARED)
    }
}

/// Such as `128x1x4`: invocations of a sum, vectors of each row, rows at a time.
impl fmt::Display for Gemv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x1x{UNROLL}", self.threads)
    }
}

#[cfg(test)]
mod tests {
    use backend_api::desc::Matrix;

    use super::*;
    use crate::device::h200;

    #[test]
    fn wide_products_take_long_pieces_and_narrow_ones_are_left() {
        let choose = |n, dtype| {
            let matrix = |ld| Matrix::new(0, dtype, ld);
            let desc = MatmulDesc::new(1, n, 4096, matrix(4096), matrix(n), matrix(n));
            Gemv::choose(&desc, h200::COMPUTE_UNITS).map(|shape| shape.threads)
        };
        assert_eq!([choose(4096, DType::F32), choose(4096, DType::F16)], [Some(128), Some(256)]);
        assert_eq!([choose(14336, DType::F16), choose(1024, DType::F16)], [Some(128), None]);
    }
}
