//! gemm/unstaged: products of f16 on tensor cores whose operands go from memory straight into fragments.

use std::fmt;

use backend_api::desc::MatmulDesc;
use backend_api::{Activation, DType};

use super::cost::{Cost, Estimate, cheapest};
use super::kernel::{Family, GemmKernel, Kernel, Needs, Signature};
use super::large::oriented;
use super::layout::reads_as_vectors;
use super::plan::{Candidate, Problem};
use super::shapes::Unstaged;
use super::strategy::Split;
use super::unstaged_step::{self, Constants};
use super::{Params, Windows, activation_libs, cooperative};
use crate::device::Gpu;
use crate::kernels::{KernelSource, Variant, kernel, native};
use crate::ops::has_room;
use crate::ops::shared::IS_NATIVE;
use crate::ops::shared::tensor_cores::{FRAGMENT, SUBGROUP};
use crate::ops::shared::tile::StepTime;

static UNSTAGED: KernelSource = KernelSource {
    unrolled: native(unstaged_step::multiply),
    cooperative: true,
    subgroups: true,
    ..kernel!(
        native "gemm/unstaged", libs: [WORKGROUP_TILES, MATMUL, C_ELEMENTS, HALVES, FRAGMENT_ELEMENTS],
        types: ["T", "TC"], constants: Constants, params: Params,
        reads: ["a: VecA", "b: VecB", "bias: TC"], writes: ["c: TC"],
    )
};

/// Elements of a vector.
const WIDTH: usize = 8;

/// Elements along k that a subgroup takes in a step.
const DEPTH: usize = 32;

/// The most rows, or columns, of products that this kernel is planned for.
const MOST: usize = 256;

/// Nanoseconds that a round of workgroups, one on each compute unit, takes longer than its k-blocks, beyond what
/// one of gemm/cooperative takes: sums of subgroups pass through workgroup memory, and results are written
/// number by number.
const OVERHEAD: usize = 1400;

/// Nanoseconds by which a round of partial sums, which are f32, takes longer still.
const PARTIAL: usize = 2000;

impl Unstaged {
    /// Every tile.
    pub(super) const ALL: [Self; 6] = [
        Self::new([32, 32], [1, 1], 8, 2).taking([1340, 2540], [1250, 2100]),
        Self::new([32, 32], [2, 1], 8, 1).taking([740, 1480], [560, 1120]),
        Self::new([64, 32], [2, 1], 8, 1).taking([1020, 2040], [1000, 2000]),
        Self::new([64, 64], [1, 1], 8, 1).taking([1410, 2950], [1500, 3170]),
        Self::new([64, 64], [2, 2], 4, 1).taking([910, 2000], [616, 1740]),
        Self::new([128, 64], [4, 1], 4, 1).taking([1790, 3580], [1230, 2500]),
    ];

    /// A tile of so many rows and columns of parts.
    const fn new([m, n]: [usize; 2], parts: [usize; 2], sharers: usize, prefetch: usize) -> Self {
        let unknown = StepTime::new(0, 0);
        Self { m, n, parts, sharers, prefetch, k_block_times: [unknown; 2], transposed: false }
    }

    /// The tile with the nanoseconds of its k-blocks, of a workgroup alone on a compute unit and of two: where
    /// B's rows run across k, and along it.
    const fn taking(mut self, across: [usize; 2], along: [usize; 2]) -> Self {
        let [across, along] = [StepTime::new(across[0], across[1]), StepTime::new(along[0], along[1])];
        self.k_block_times = [across, along];
        self
    }

    /// Whether a product waits for memory rather than for tensor cores, and the kernel's speed is known: one
    /// of f16 with few rows that run along k, or few such columns.
    fn is_for(desc: &MatmulDesc) -> bool {
        let few = desc.m.min(desc.n);
        let (_, [across_k, _]) = Self::oriented(desc);
        [desc.a.dtype, desc.b.dtype] == [DType::F16; 2] && few > FRAGMENT && few <= MOST && !across_k
    }

    /// Whether the product is transposed, and its operands then.
    fn oriented(desc: &MatmulDesc) -> (bool, [bool; 2]) {
        let signature = Signature::of(desc);
        let transposed = desc.n < desc.m;
        (transposed, oriented(transposed, signature.dtypes, signature.trans).1)
    }

    /// The tile that is estimated to be faster than any of gemm/cooperative, even where that isn't offered.
    fn estimate(desc: &MatmulDesc, compute_units: usize) -> Option<Estimate<Self>> {
        let (transposed, [_, k_major]) = Self::oriented(desc);
        let time = |tile: Self, [m, n, k, batch]: [usize; 4], _: usize| {
            let [m, n] = if transposed { [n, m] } else { [m, n] };
            let tiles = m.div_ceil(tile.m).saturating_mul(n.div_ceil(tile.n)).saturating_mul(batch);
            let k_blocks =
                tile.k_block_times[usize::from(k_major)].of(tiles, k.div_ceil(tile.block_k()), compute_units);
            let overhead = if k < desc.k { OVERHEAD + PARTIAL } else { OVERHEAD };
            k_blocks.saturating_add(overhead.saturating_mul(tiles.div_ceil(compute_units)))
        };
        let splits = |_| Split::powers_of_two(desc.k);
        let fastest =
            cheapest(desc, Self::ALL.into_iter(), splits, (cooperative::combining, compute_units), time)?;
        let staged = cooperative::cost(desc, cooperative::estimate(desc, compute_units)?.time);
        Some(fastest).filter(|fastest| fastest.time < staged)
    }

    fn subgroups(self) -> usize {
        self.parts[0] * self.parts[1] * self.sharers
    }

    /// Elements along k that a workgroup takes at once.
    const fn block_k(self) -> usize {
        self.sharers * self.prefetch * DEPTH
    }

    /// Bytes of workgroup memory: eight rows of sums of each subgroup.
    fn workgroup_bytes(self) -> usize {
        self.subgroups() * 8 * self.n / self.parts[1] * size_of::<f32>()
    }
}

impl Family for Unstaged {
    const LEAST: Cost = Cost::TensorCores(0);

    fn shapes() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter()
    }

    fn candidates(problem: &Problem<'_>) -> impl Iterator<Item = Candidate> {
        let &Problem { desc, windows, .. } = problem;
        // No browser offers tensor cores.
        let is_for = IS_NATIVE && Self::is_for(desc) && reads_as_vectors(desc, windows, WIDTH);
        let fastest = if is_for { Self::estimate(desc, problem.compute_units()) } else { None };
        let candidate = |Estimate { tile, split, time }| {
            problem.candidate(Kernel::Unstaged(tile), split, Cost::TensorCores(time))
        };
        fastest.and_then(candidate).into_iter()
    }

    /// Each tile for each layout of the operands and each type of C. Whether the product is transposed and the
    /// activation alternate.
    fn variants() -> Vec<Variant> {
        let mut variants = Vec::new();
        for tile in Self::ALL {
            for dtype in [DType::F16, DType::F32] {
                for trans in [[false, false], [false, true], [true, false], [true, true]] {
                    let index = variants.len();
                    let activation = Activation::ALL[index % Activation::ALL.len()];
                    let dtypes = [DType::F16, DType::F16, dtype];
                    let signature = Signature {
                        vectors: true,
                        element_access: true,
                        ..Signature::new(dtypes, trans, activation)
                    };
                    variants.push(Self { transposed: index / 4 % 2 == 1, ..tile }.variant(&signature));
                }
            }
        }
        variants
    }
}

impl GemmKernel for Unstaged {
    fn is_possible(&self, gpu: &Gpu, desc: &MatmulDesc) -> bool {
        gpu.takes_spirv
            && [desc.a.dtype, desc.b.dtype] == [DType::F16; 2]
            && desc.k > 0
            && has_room(&gpu.limits, self.subgroups() * SUBGROUP, self.workgroup_bytes())
    }

    fn for_product(&self, _: &Gpu, desc: &MatmulDesc) -> Kernel {
        Kernel::Unstaged(Self { transposed: desc.n < desc.m, ..*self })
    }

    fn reads_as_vectors(&self, desc: &MatmulDesc, windows: &Windows) -> bool {
        reads_as_vectors(desc, windows, WIDTH)
    }

    fn named(&self) -> Kernel {
        Kernel::Unstaged(Self { transposed: false, ..*self })
    }

    fn needs(&self) -> Needs {
        Needs { self_test: true, vectors: true }
    }

    #[cfg(not(target_family = "wasm"))]
    fn measured_packings(&self, desc: &MatmulDesc, _: bool) -> &'static [bool] {
        if Self::is_for(desc) { &[false] } else { &[] }
    }

    fn is_transposed(&self) -> bool {
        self.transposed
    }

    fn tile(&self, _: &Signature) -> [usize; 2] {
        if self.transposed { [self.n, self.m] } else { [self.m, self.n] }
    }

    fn k_block(&self) -> usize {
        self.block_k()
    }

    fn variant(&self, signature: &Signature) -> Variant {
        let (_, trans) = oriented(self.transposed, signature.dtypes, signature.trans);
        let &Self { m: tile_m, n: tile_n, parts: [subgroups_m, subgroups_n], prefetch, .. } = self;
        let constants = Constants {
            tile_m,
            tile_n,
            subgroups_m,
            subgroups_n,
            subgroups_k: self.sharers,
            prefetch,
            trans_a: trans[0],
            trans_b: trans[1],
            trans_c: self.transposed,
            activation: signature.activation,
        };
        let dtype = signature.dtypes[2];
        Variant::new(&UNSTAGED, [DType::F16, dtype], constants)
            .with_libs(activation_libs(dtype))
            .with_rolled_loops()
    }
}

/// Such as `64x32x512`: rows, columns and depth.
impl fmt::Display for Unstaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.m, self.n, self.block_k())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use backend_api::BackendTranspose::{NoTrans, Trans};
    use backend_api::desc::Matrix;

    use super::*;
    use crate::device::h200;
    use crate::ops::plans::bounds::assert_room;

    #[test]
    fn workgroups_take_what_their_text_says() {
        let signature = Signature::of_halves([false; 2], true);
        for tile in Unstaged::ALL {
            let fits = |limits: &_| has_room(limits, tile.subgroups() * SUBGROUP, tile.workgroup_bytes());
            assert_room(&tile.variant(&signature), 0, fits);
        }
    }

    #[test]
    fn every_tile_is_whole_and_has_a_name() {
        let names: HashSet<String> = Unstaged::ALL.iter().map(Unstaged::to_string).collect();
        assert_eq!(names.len(), Unstaged::ALL.len());
        for tile in Unstaged::ALL {
            let [rows, columns] = tile.parts;
            assert_eq!(tile.m % (rows * FRAGMENT) + tile.n % (columns * FRAGMENT), 0, "{tile}");
            assert!(tile.subgroups() * SUBGROUP <= 512 && tile.workgroup_bytes() <= 32 << 10, "{tile}");
        }
    }

    #[test]
    fn medium_rows_that_run_along_k_are_taken() {
        let plan = |m, n, k, trans_a, trans_b| {
            let matrix = Matrix::new(0, DType::F16, 1 << 14);
            let desc = MatmulDesc::new(m, n, k, matrix, matrix, matrix).with_transpose(trans_a, trans_b);
            let fastest =
                Unstaged::is_for(&desc).then(|| Unstaged::estimate(&desc, h200::COMPUTE_UNITS)).flatten();
            fastest.map(|fastest| fastest.tile.to_string())
        };
        for (m, tile) in [(32, "32x32x256"), (64, "64x32x256"), (128, "64x64x128"), (256, "128x64x128")] {
            assert_eq!(plan(m, 4096, 4096, NoTrans, Trans).as_deref(), Some(tile), "{m}");
            // The transposed product has B's columns as rows.
            assert_eq!(plan(4096, m, 4096, NoTrans, Trans).as_deref(), Some(tile), "{m}");
        }
        assert_eq!(plan(128, 4096, 4096, NoTrans, NoTrans).as_deref(), Some("64x64x256"));
        assert_eq!(plan(128, 4096, 4096, Trans, Trans), None);
        // Many rounds of workgroups with short sums write results most of the time.
        assert_eq!(plan(50176, 64, 256, NoTrans, Trans), None);
        assert_eq!(
            [plan(16, 4096, 4096, NoTrans, Trans), plan(4096, 4096, 4096, NoTrans, Trans)],
            [None, None]
        );
    }
}
