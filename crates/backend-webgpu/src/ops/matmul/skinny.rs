//! gemm/skinny: products of few rows or few columns, which take the time of reading one operand.

use std::fmt;

use backend_api::desc::MatmulDesc;
use backend_api::{Activation, DType};

use super::cost::{Cost, Staged};
use super::kernel::{Family, GemmKernel, Kernel, Signature, TYPES};
use super::large::{Large, Small, libs, oriented};
use super::layout::is_aligned;
use super::plan::{Candidate, Problem};
use super::shapes::Skinny;
use super::strategy::Split;
use super::{Params, Windows};
use crate::device::Gpu;
use crate::kernels::{KernelSource, Variant, constants, kernel};
use crate::ops::shared::vec_width::VecWidth;
use crate::recorder::Window;

constants! {
    struct Constants {
        rows: usize,
        threads_per_output: usize,
        columns_per_thread: usize,
        prefetch: usize,
        staged_k_blocks: usize,
        a_vec4s: bool,
        late_zeros: bool,
        trans_a: bool,
        trans_b: bool,
        trans_c: bool,
        activation: Activation,
    }
}

static SKINNY: KernelSource = kernel!(
    "gemm/skinny", libs: [WORKGROUP_TILES, MATMUL, C_ELEMENTS, FEW_ROWS],
    types: ["TA", "T", "TC", "A"], constants: Constants, params: Params,
    reads: ["a: TA", "a_vec4s: vec4<TA>", "b: V", "bias: TC"], writes: ["c: TC"],
);

/// Rows, or columns, of a workgroup's tile at most.
pub(super) const FEW: usize = 16;

/// The least k of products of more rows than a tile's that fill the device.
const LONG: usize = 1024;

/// The most rows, or columns, of products that don't fill it.
const MOST: usize = 4 * FEW;

const THREADS: usize = 256;

/// The k-blocks above which the sum of one row may be split.
const LEAST_SPLIT: usize = 5;

/// Elements of A in workgroup memory at most: on every device, and where there is room for twice as many.
const STAGED: [usize; 2] = [4096, 8192];

/// Sums of an invocation at most.
const SUMS: usize = 64;

/// The most k-blocks for which A is put into workgroup memory at once.
const MAX_STAGED_K_BLOCKS: usize = 2;

/// Vectors ahead that every device has room for. With more, workgroup memory has two parts of A, each for
/// half of a k-block.
const MIN_PREFETCH: usize = 2;

impl Skinny {
    /// Every shape, for products of as many rows as it can take.
    pub(super) const ALL: [Self; 6] = [
        Self::new(64, 2, 2),
        Self::new(64, 4, 2),
        Self::new(32, 2, 2),
        Self::new(32, 4, 2),
        Self::new(32, 4, 4),
        Self::new(32, 4, 8),
    ];

    const fn new(threads: usize, columns_per_thread: usize, prefetch: usize) -> Self {
        Self {
            threads,
            columns_per_thread,
            prefetch,
            rows: FEW,
            staged: STAGED[0],
            vec4s: false,
            late_zeros: true,
            transposed: false,
        }
    }

    /// The shape that is estimated to be the fastest for a product of few rows or columns, and into how many
    /// pieces k is split so that `workgroups` are at work.
    fn choose(desc: &MatmulDesc, workgroups: usize) -> Option<(Self, usize)> {
        let few = desc.m.min(desc.n);
        let large = Large::of(desc, desc.n < desc.m);
        if few > MOST || desc.k == 0 {
            return None;
        }
        if let Some(shape) = Self::for_short_sums(desc, workgroups) {
            return Some((shape, 1));
        }
        if few > 2 * FEW {
            return None;
        }
        // Many vectors ahead are for long sums, so where k isn't split, and of 8 rows they leave room for one
        // workgroup on a compute unit.
        let blocks = desc.m.max(desc.n).div_ceil(32);
        let whole = 2 * blocks > workgroups;
        // Two tiles of rows read the large operand twice, the second time from the cache.
        if few > FEW && !(whole && large.matrix.dtype == DType::F32 && desc.k >= LONG) {
            return None;
        }
        let shape = match few {
            1 if large.matrix.dtype == DType::F16 => Self::new(32, 2, 2),
            1 => Self::new(64, 2, 2),
            2..=4 if desc.k <= 128 || whole && !large.k_major => {
                Self::new(32, 4, if desc.k <= 128 { 2 } else { 4 })
            }
            2..=4 => Self::new(64, 4, 2),
            5..=8 if whole && blocks <= workgroups => Self::new(32, 4, 8),
            _ if whole && large.matrix.dtype == DType::F32 => Self::new(32, 4, 4),
            _ => Self::new(32, 4, 2),
        };
        let shape = shape.fitting(desc);
        let vec_width = VecWidth::of(large.matrix.dtype);
        let columns = shape.columns(large.k_major, vec_width);
        let groups = desc.m.max(desc.n).div_ceil(columns) * few.div_ceil(shape.rows);
        let k_block = shape.block_k(large.k_major, vec_width, MIN_PREFETCH);
        // Nearly all that would be multiplied is zeros, wave after wave.
        if 16 * desc.k < k_block && groups.saturating_mul(desc.batch) > workgroups {
            return None;
        }
        // Adding up pieces takes a launch, as long as some k-blocks.
        let longest = if few == 1 && desc.k <= LEAST_SPLIT * k_block { 1 } else { desc.k / (2 * k_block) };
        let splits = if desc.batch == 1 { (workgroups / groups).min(longest).max(1) } else { 1 };
        Some((shape, splits))
    }

    /// The shape that reads the most of k at once, where the device has room for all workgroups at a time and
    /// each takes a k-block or two: what takes the time then is waiting for loads.
    fn for_short_sums(desc: &MatmulDesc, workgroups: usize) -> Option<Self> {
        let few = desc.m.min(desc.n);
        let large = Large::of(desc, desc.n < desc.m);
        let shape = Self::new(64, 2, 2).fitting(desc);
        let columns = shape.columns(large.k_major, VecWidth::of(large.matrix.dtype));
        let groups = desc.m.max(desc.n).div_ceil(columns) * few.div_ceil(shape.rows);
        let is_short = (65..=LONG).contains(&desc.k);
        Some(shape).filter(|_| few > 4 && is_short && groups.saturating_mul(desc.batch) <= workgroups)
    }

    /// The shape for a product, whose smaller side becomes the rows, as many of them as fit.
    fn fitting(self, desc: &MatmulDesc) -> Self {
        let transposed = desc.n < desc.m;
        let large = Large::of(desc, transposed);
        let vec_width = VecWidth::of(large.matrix.dtype);
        let most = self.most_rows(large.k_major, vec_width);
        let rows = desc.m.min(desc.n).clamp(1, FEW).next_power_of_two().min(most);
        Self { rows, transposed, ..self }
    }

    /// The shape with as much of A in workgroup memory as a device has room for.
    fn on(self, limits: &wgpu::Limits) -> Self {
        let room = limits.max_compute_workgroup_storage_size as usize / size_of::<f32>();
        Self { staged: if room >= STAGED[1] { STAGED[1] } else { STAGED[0] }, ..self }
    }

    /// Rows that workgroup memory and registers have room for.
    fn most_rows(self, k_major: bool, vec_width: VecWidth) -> usize {
        (STAGED[0] / self.block_k(k_major, vec_width, MIN_PREFETCH))
            .min(SUMS / self.columns_per_thread(k_major, vec_width))
            .min(FEW)
    }

    /// Columns of an invocation.
    fn columns_per_thread(self, k_major: bool, vec_width: VecWidth) -> usize {
        if k_major { self.columns_per_thread } else { self.columns_per_thread.max(vec_width.width()) }
    }

    /// Columns of a workgroup.
    fn columns(self, k_major: bool, vec_width: VecWidth) -> usize {
        THREADS / self.threads * self.columns_per_thread(k_major, vec_width)
    }

    /// Vectors of each column, or vec4s of rows, that an invocation reads at once, and k-blocks for which A is
    /// put into workgroup memory at once, 0 for half of one.
    fn prefetch(self, k_major: bool, vec_width: VecWidth) -> (usize, usize) {
        let numbers = |prefetch| self.rows * self.block_k(k_major, vec_width, prefetch);
        let mut prefetch = self.prefetch;
        while prefetch > MIN_PREFETCH && numbers(prefetch) > self.staged {
            prefetch /= 2;
        }
        let staged_k_blocks = (self.staged / numbers(MIN_PREFETCH)).clamp(1, MAX_STAGED_K_BLOCKS);
        (prefetch, if prefetch > MIN_PREFETCH { 0 } else { staged_k_blocks })
    }

    /// Elements along k of a workgroup's k-block.
    fn block_k(self, k_major: bool, vec_width: VecWidth, prefetch: usize) -> usize {
        self.threads * prefetch * if k_major { vec_width.width() } else { 4 }
    }

    /// What a candidate for few rows or columns costs: the time of reading the other operand, unless tensor cores make
    /// so many rows in the time of one, as they do if they can read whole vectors.
    fn cost(&Problem { ctx, desc, windows }: &Problem<'_>) -> Cost {
        let large = Large::of(desc, desc.n < desc.m);
        let halves = [desc.a.dtype, desc.b.dtype] == [DType::F16; 2];
        let most = match ctx.gpu().cooperative_matrices && halves {
            true if large.reads_as_vectors(windows) => 1 + usize::from(large.k_major),
            true => 4,
            false => FEW,
        };
        if desc.m.min(desc.n) <= most { Self::LEAST } else { Cost::FewRows }
    }
}

impl Family for Skinny {
    const LEAST: Cost = Cost::Traffic(Staged::OperandAndSums);

    fn shapes() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter()
    }

    fn candidates(problem: &Problem<'_>) -> impl Iterator<Item = Candidate> {
        let is_for = !problem.is_on_software();
        let choice = if is_for { Self::choose(problem.desc, problem.compute_units()) } else { None };
        let candidate =
            |(shape, splits)| problem.candidate(Kernel::Skinny(shape), splits, Self::cost(problem));
        choice.and_then(candidate).into_iter()
    }

    /// Each shape for each number of rows, type, width and layout of B. The rest of the text depends on none of
    /// that, and its choices alternate.
    fn variants() -> Vec<Variant> {
        let flags = [false, true];
        let mut variants = Vec::new();
        for dtypes in TYPES {
            for (shape, vectors, trans_b) in
                Self::ALL.iter().flat_map(|&s| flags.map(|v| flags.map(|t| (s, v, t)))).flatten()
            {
                let vec_width = VecWidth::of(dtypes[1]);
                let most = shape.most_rows(trans_b, vec_width);
                for rows in [1, 2, 4, 8, 16].into_iter().filter(|&rows| rows <= most) {
                    let index = variants.len();
                    let activation = Activation::ALL[index % Activation::ALL.len()];
                    let (trans_a, transposed) = (index % 2 == 1, index / 2 % 2 == 1);
                    // `variant` swaps what is given for the product as a whole.
                    let (dtypes, trans) = oriented(transposed, dtypes, [trans_a, trans_b]);
                    let (vec4s, late_zeros) = (index % 4 == 0, index % 8 < 4);
                    let of = |staged| {
                        let skinny = Self { rows, staged, vec4s, late_zeros, transposed, ..shape };
                        skinny.variant(&Signature { vectors, ..Signature::new(dtypes, trans, activation) })
                    };
                    variants.push(of(STAGED[0]));
                    if of(STAGED[1]) != of(STAGED[0]) {
                        variants.push(of(STAGED[1]));
                    }
                }
            }
        }
        variants
    }
}

impl GemmKernel for Skinny {
    fn is_possible(&self, _: &Gpu, desc: &MatmulDesc) -> bool {
        desc.k > 0
    }

    fn for_product(&self, gpu: &Gpu, desc: &MatmulDesc) -> Kernel {
        Kernel::Skinny(self.on(&gpu.limits).fitting(desc))
    }

    fn reads_as_vectors(&self, desc: &MatmulDesc, windows: &Windows) -> bool {
        Large::of(desc, self.transposed).reads_as_vectors(windows)
    }

    fn for_operands(&self, desc: &MatmulDesc, windows: &Windows, split: Split) -> Option<Kernel> {
        let small = Small::of(desc, windows, self.transposed);
        let large = Large::of(desc, self.transposed);
        let vec_width = VecWidth::of(large.matrix.dtype).if_vectors(large.reads_as_vectors(windows));
        let (prefetch, _) = self.prefetch(large.k_major, vec_width);
        let k_block = self.block_k(large.k_major, vec_width, prefetch);
        let zeros = desc.k.next_multiple_of(k_block) - desc.k;
        let skinny = Self {
            vec4s: !small.across_k && is_aligned(small.matrix, small.offset, desc.k, 4),
            // Of fewer rows, there is little to multiply while a branch is waited for.
            late_zeros: self.rows < FEW || !split.is_whole() || 2 * zeros > k_block,
            ..*self
        };
        Some(Kernel::Skinny(skinny))
    }

    fn named(&self) -> Kernel {
        Kernel::Skinny(Self::new(self.threads, self.columns_per_thread, self.prefetch))
    }

    #[cfg(not(target_family = "wasm"))]
    fn measured_packings(&self, desc: &MatmulDesc, _: bool) -> &'static [bool] {
        if desc.m.min(desc.n) <= 2 * FEW { &[false] } else { &[] }
    }

    fn is_transposed(&self) -> bool {
        self.transposed
    }

    fn tile(&self, signature: &Signature) -> [usize; 2] {
        let ([_, dtype, _], [_, k_major]) = oriented(self.transposed, signature.dtypes, signature.trans);
        let columns = self.columns(k_major, VecWidth::of(dtype).if_vectors(signature.vectors));
        if self.transposed { [columns, self.rows] } else { [self.rows, columns] }
    }

    fn inputs<'a>(&self, Windows { a, b, bias, .. }: &'a Windows) -> Vec<&'a Window> {
        if self.transposed { vec![b, b, a, bias] } else { vec![a, a, b, bias] }
    }

    fn variant(&self, signature: &Signature) -> Variant {
        let ([a, b, c], [trans_a, trans_b]) = oriented(self.transposed, signature.dtypes, signature.trans);
        let vec_width = VecWidth::of(b).if_vectors(signature.vectors);
        let (prefetch, staged_k_blocks) = self.prefetch(trans_b, vec_width);
        let staged = self.rows * staged_k_blocks.max(1) * self.block_k(trans_b, vec_width, prefetch);
        // Both are for halves of k-blocks only.
        let [a_vec4s, late_zeros] = [self.vec4s, self.late_zeros].map(|flag| flag && staged_k_blocks == 0);
        let constants = Constants {
            rows: self.rows,
            threads_per_output: self.threads,
            columns_per_thread: self.columns_per_thread(trans_b, vec_width),
            prefetch,
            staged_k_blocks,
            a_vec4s,
            late_zeros,
            trans_a,
            trans_b,
            trans_c: self.transposed,
            activation: signature.activation,
        };
        Variant::new(&SKINNY, [a, b, c, DType::F32], constants)
            .with_libs(libs(vec_width, c))
            .with_workgroup(THREADS, staged * size_of::<f32>())
    }
}

/// Such as `64x2x2`: invocations of a sum, columns of an invocation, vectors ahead.
impl fmt::Display for Skinny {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.threads, self.columns_per_thread, self.prefetch)
    }
}

#[cfg(test)]
mod tests {
    use backend_api::desc::Matrix;

    use super::*;
    use crate::device::h200;

    fn desc(m: usize, n: usize, k: usize) -> MatmulDesc {
        let matrix = |ld| Matrix::new(0, DType::F32, ld);
        MatmulDesc::new(m, n, k, matrix(k), matrix(n), matrix(n))
    }

    #[test]
    fn the_smaller_side_becomes_the_rows() {
        for (m, n, rows, transposed) in
            [(1, 100, 1, false), (100, 3, 4, true), (9, 64, 16, false), (100, 50, 16, true)]
        {
            let fitting = Skinny::new(32, 2, 2).fitting(&desc(m, n, 64));
            assert_eq!((fitting.rows, fitting.transposed), (rows, transposed), "{m}x{n}");
        }
    }

    #[test]
    fn a_portable_device_has_room_for_what_is_staged() {
        let large = wgpu::Limits { max_compute_workgroup_storage_size: 32 << 10, ..Default::default() };
        for (limits, most) in [(wgpu::Limits::default(), 4096), (large, 8192)] {
            let staged = |(m, shape): (usize, Skinny)| {
                let shape = shape.on(&limits).fitting(&desc(m, 4096, 4096));
                let (prefetch, staged_k_blocks) = shape.prefetch(false, VecWidth::Four);
                shape.rows * staged_k_blocks.max(1) * shape.block_k(false, VecWidth::Four, prefetch)
            };
            let all = [1, 2, 4, 8, 16].into_iter().flat_map(|m| Skinny::ALL.map(|shape| (m, shape)));
            assert_eq!(all.map(staged).max(), Some(most));
        }
    }

    #[test]
    fn only_few_rows_or_columns_are_chosen_and_long_sums_split() {
        let choose = |desc: &MatmulDesc| Skinny::choose(desc, h200::COMPUTE_UNITS);
        assert_eq!(choose(&desc(17, 100, 64)), None);
        // Where they don't fill the device, more rows are as many tiles.
        let name = |m, n, k| choose(&desc(m, n, k)).map(|(shape, splits)| (shape.to_string(), splits));
        assert_eq!(name(48, 152, 272), Some(("64x2x2".to_owned(), 1)));
        assert_eq!([name(65, 152, 272), name(48, 1520, 272), name(48, 152, 2720)], [None, None, None]);
        assert!(choose(&desc(100, 16, 64)).is_some_and(|(shape, _)| shape.transposed));
        // As many again, of a long sum, read the other operand twice; an outer product is for other kernels.
        assert!(choose(&desc(32, 4096, 4096)).is_some_and(|(shape, _)| shape.rows == 16));
        assert_eq!([desc(32, 4096, 512), desc(33, 4096, 4096)].map(|desc| choose(&desc)), [None; 2]);
        assert_eq!(choose(&desc(16, 8192, 8)), None);
        assert!(choose(&desc(8, 1024, 4096)).is_some_and(|(_, splits)| splits == 4));
        assert!(choose(&desc(8, 4096, 4096)).is_some_and(|(_, splits)| splits == 1));
    }
}
