//! gemm/skinny_cooperative: products of few rows, or of few columns, of K-major f16 operands on tensor cores.

use std::fmt;

use backend_api::desc::MatmulDesc;
use backend_api::{Activation, DType};

use super::cost::{Cost, Staged};
use super::kernel::{Family, GemmKernel, Kernel, Needs, Signature};
use super::large::{Large, Small};
use super::layout::is_aligned;
use super::plan::{Candidate, Problem};
use super::shapes::SkinnyCooperative;
use super::{Params, Windows, activation_libs};
use crate::device::Gpu;
use crate::kernels::{KernelSource, Variant, constants, kernel};
use crate::ops::has_room;
use crate::ops::shared::IS_NATIVE;
use crate::ops::shared::tensor_cores::{FRAGMENT, SUBGROUP};
use crate::ops::shared::vec_width::VecWidth;

constants! { struct Constants { subgroups: usize, trans_c: bool, activation: Activation } }

static SKINNY_COOPERATIVE: KernelSource = KernelSource {
    cooperative: true,
    subgroups: true,
    ..kernel!(
        native "gemm/skinny_cooperative", libs: [WORKGROUP_TILES, MATMUL, C_ELEMENTS, FRAGMENT_ELEMENTS],
        types: ["T", "TC"], constants: Constants, params: Params,
        reads: ["a: vec4<u32>", "b: vec4<u32>", "bias: TC"], writes: ["c: TC"],
    )
};

/// Rows and columns of a workgroup.
const ROWS: usize = FRAGMENT;
const COLUMNS: usize = 2 * FRAGMENT;

/// Elements along k that a subgroup takes of each row at once.
const STEP: usize = 64;

impl SkinnyCooperative {
    /// Every shape: for a workgroup alone on a compute unit, and for two.
    pub(super) const ALL: [Self; 2] = [Self::new(16), Self::new(8)];

    const fn new(subgroups: usize) -> Self {
        Self { subgroups, transposed: false }
    }

    /// The shape for a product, if that has few rows or columns, and enough of the others for all
    /// `compute_units`.
    fn choose(desc: &MatmulDesc, compute_units: usize) -> Option<Self> {
        let [alone, paired] = Self::ALL;
        let few = desc.m.min(desc.n);
        let workgroups = desc.m.max(desc.n).div_ceil(COLUMNS).saturating_mul(desc.batch);
        let fills = 4 * workgroups >= 3 * compute_units;
        // Splitting a sum of a k-block or two would take another launch.
        let least = if fills { alone.block_k() } else { paired.block_k() };
        let most = if fills { usize::MAX } else { 2 * alone.block_k() };
        let shape = if workgroups > compute_units || desc.k < alone.block_k() { paired } else { alone };
        Some(shape).filter(|_| (2..=ROWS).contains(&few) && (least..=most).contains(&desc.k))
    }

    fn fits(self, limits: &wgpu::Limits) -> bool {
        let bytes = self.subgroups * ROWS * COLUMNS * size_of::<f32>();
        has_room(limits, self.subgroups * SUBGROUP, bytes)
    }

    /// Elements along k that a workgroup takes of each row at once.
    const fn block_k(self) -> usize {
        self.subgroups * STEP
    }
}

impl Family for SkinnyCooperative {
    const LEAST: Cost = Cost::Traffic(Staged::Sums);

    fn shapes() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter()
    }

    /// Few rows or columns of K-major operands, where one launch keeps the device at work.
    fn candidates(problem: &Problem<'_>) -> impl Iterator<Item = Candidate> {
        // No browser offers tensor cores.
        let shape = if IS_NATIVE { Self::choose(problem.desc, problem.compute_units()) } else { None };
        shape
            .and_then(|shape| problem.candidate(Kernel::SkinnyCooperative(shape), 1, Self::LEAST))
            .into_iter()
    }

    /// Each shape for each type of C.
    fn variants() -> Vec<Variant> {
        let mut variants = Vec::new();
        for shape in Self::ALL {
            for dtype in [DType::F16, DType::F32] {
                for &activation in Activation::ALL {
                    let transposed = variants.len() % 2 == 1;
                    let dtypes = [DType::F16, DType::F16, dtype];
                    let trans = [false, true];
                    let signature = Signature {
                        vectors: true,
                        element_access: true,
                        ..Signature::new(dtypes, trans, activation)
                    };
                    variants.push(Self { transposed, ..shape }.variant(&signature));
                }
            }
        }
        variants
    }
}

impl GemmKernel for SkinnyCooperative {
    fn is_possible(&self, gpu: &Gpu, desc: &MatmulDesc) -> bool {
        let halves = [desc.a.dtype, desc.b.dtype] == [DType::F16; 2];
        gpu.takes_spirv
            && halves
            && desc.k > 0
            && !desc.trans_a.is_transposed()
            && desc.trans_b.is_transposed()
            && self.fits(&gpu.limits)
    }

    fn for_product(&self, _: &Gpu, desc: &MatmulDesc) -> Kernel {
        Kernel::SkinnyCooperative(Self { transposed: desc.n < desc.m, ..*self })
    }

    fn reads_as_vectors(&self, desc: &MatmulDesc, windows: &Windows) -> bool {
        let Small { matrix, offset, .. } = Small::of(desc, windows, self.transposed);
        is_aligned(matrix, offset, desc.k, VecWidth::of(matrix.dtype).width())
            && Large::of(desc, self.transposed).reads_as_vectors(windows)
    }

    fn named(&self) -> Kernel {
        Kernel::SkinnyCooperative(Self::new(self.subgroups))
    }

    fn needs(&self) -> Needs {
        Needs { self_test: true, vectors: true }
    }

    #[cfg(not(target_family = "wasm"))]
    fn measured_packings(&self, desc: &MatmulDesc, _: bool) -> &'static [bool] {
        if desc.m.min(desc.n) <= ROWS { &[false] } else { &[] }
    }

    fn is_transposed(&self) -> bool {
        self.transposed
    }

    fn tile(&self, _: &Signature) -> [usize; 2] {
        if self.transposed { [COLUMNS, ROWS] } else { [ROWS, COLUMNS] }
    }

    fn k_block(&self) -> usize {
        self.block_k()
    }

    fn variant(&self, signature: &Signature) -> Variant {
        let dtype = signature.dtypes[2];
        let &Self { subgroups, transposed: trans_c } = self;
        let constants = Constants { subgroups, trans_c, activation: signature.activation };
        Variant::new(&SKINNY_COOPERATIVE, [DType::F16, dtype], constants)
            .with_libs(activation_libs(dtype))
            .with_rolled_loops()
    }
}

/// Such as `16x32x1024`: rows, columns and depth.
impl fmt::Display for SkinnyCooperative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ROWS}x{COLUMNS}x{}", self.block_k())
    }
}

#[cfg(test)]
mod tests {
    use backend_api::desc::Matrix;

    use super::*;
    use crate::device::h200;
    use crate::ops::plans::bounds::assert_room;

    #[test]
    fn workgroups_take_what_their_text_says() {
        let signature = Signature::of_halves([false, true], true);
        for shape in SkinnyCooperative::ALL {
            assert_room(&shape.variant(&signature), 0, |limits| shape.fits(limits));
        }
    }

    #[test]
    fn few_rows_of_wide_products_are_taken() {
        let choose = |m, n, k| {
            let matrix = Matrix::new(0, DType::F16, 1 << 14);
            SkinnyCooperative::choose(&MatmulDesc::new(m, n, k, matrix, matrix, matrix), h200::COMPUTE_UNITS)
                .map(|shape| shape.subgroups)
        };
        assert_eq!([choose(16, 4096, 4096), choose(2, 14336, 4096)], [Some(16), Some(8)]);
        assert_eq!(choose(4096, 8, 4096), Some(16));
        assert_eq!([choose(1, 4096, 4096), choose(17, 4096, 4096)], [None, None]);
        assert_eq!([choose(8, 2048, 4096), choose(8, 4096, 512)], [None, None]);
        assert_eq!(
            [choose(16, 176, 720), choose(16, 176, 1024), choose(16, 176, 2049)],
            [Some(8), Some(16), None]
        );
    }
}
