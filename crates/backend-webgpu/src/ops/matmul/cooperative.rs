//! gemm/cooperative: products on tensor cores, and the tiles for them.

use backend_api::desc::MatmulDesc;
use backend_api::{BackendResult, DType};

use super::cost::{Cost, Estimate, SHORT, cheapest};
use super::kernel::{Family, GemmKernel, Kernel, Needs, Signature, TYPES, signatures};
use super::pack::Prep;
use super::plan::{Candidate, Plan, Problem};
use super::strategy::Split;
use super::{Call, Params, Product, Windows, activation_libs, edges, fragments, pack, params};
use crate::device::{Gpu, h200};
use crate::kernels::libs::{
    ACTIVATE, ACTIVATE_HALF, FRAGMENT_ELEMENTS, LINE_EXPONENTS, NO_LINE_EXPONENTS, RESULTS_IN_REGISTERS,
    RESULTS_STAGED,
};
use crate::kernels::{KernelSource, Lib, Variant, constants, kernel, native};
use crate::ops::op_context::{OpContext, linear_grid};
use crate::ops::shared::IS_NATIVE;
use crate::ops::shared::cooperative_tile::{CooperativeConstants, CooperativeTile};
use crate::ops::shared::tensor_cores::FRAGMENT;
use crate::recorder::Window;

constants! { struct Constants { tile: CooperativeConstants, in_registers: bool, shifted: bool } }

static COOPERATIVE: KernelSource = SOURCE;

/// Of operands whose lines across k were scaled.
static UNSCALING: KernelSource = KernelSource {
    reads: &["a: vec4<u32>", "b: vec4<u32>", "bias: TC", "row_exponents: i32", "column_exponents: i32"],
    ..SOURCE
};

const SOURCE: KernelSource = KernelSource {
    unrolled: native(fragments::product),
    cooperative: true,
    subgroups: true,
    ..kernel!(
        native "gemm/cooperative", libs: [WORKGROUP_TILES, MATMUL, C_ELEMENTS, SHIFTED_VECTOR, OPERAND_TILE],
        types: ["TA", "TB", "TC"], constants: Constants, params: Params,
        reads: ["a: vec4<u32>", "b: vec4<u32>", "bias: TC"], writes: ["c: TC", "c2 or c_words", "c4 or c8"],
    )
};

/// Elements that an invocation moves at once.
const WIDTH: usize = 8;

/// The least k for which the operands that are read, rather than the workgroups' beginnings and ends, decide.
const LONG: usize = 2048;

/// Nanoseconds of a launch that copies operands, and the bytes that it copies in one.
const COPY: usize = 3000;
const COPIED: usize = 1500;

impl CooperativeTile {
    /// Every tile for products of many rows and columns, largest first.
    const ALL: [Self; 7] = [
        Self::new([128, 128, 32], 700, 860),
        // For products of a little more than whole waves of the largest.
        Self::new([96, 128, 32], 620, 765),
        Self::new([64, 128, 32], 390, 640),
        Self::new([64, 64, 64], 530, 750),
        Self::SHALLOW,
        Self::new([32, 64, 64], 380, 670),
        Self::new([32, 32, 64], 290, 490),
    ];

    /// The tile that three workgroups can have on a compute unit, which hides what they wait for.
    pub(super) const SHALLOW: Self = Self::new([64, 64, 32], 281, 430);

    /// Tiles of eight subgroups that each have a compute unit for themselves, for products that have no more
    /// of them than the device has compute units.
    const ALONE: [Self; 2] =
        [Self::divided([128, 64, 64], [4, 2], 720, 1500), Self::divided([32, 64, 128], [2, 4], 640, 1700)];

    /// Every tile for products of few rows or columns.
    pub(super) const FEW: [Self; 4] = [
        Self::shared([16, 32, 256], 720, 1440),
        Self::shared([16, 32, 128], 380, 640),
        Self::shared([32, 16, 256], 720, 1440),
        Self::shared([32, 16, 128], 380, 640),
    ];

    /// The tiles for an m×n product.
    pub(super) fn for_sizes(m: usize, n: usize) -> impl Iterator<Item = Self> + Clone {
        Self::all().filter(move |tile| tile.sharers() == 1 || m.min(n) <= FRAGMENT)
    }

    /// All tiles.
    pub(super) fn all() -> impl Iterator<Item = Self> + Clone {
        Self::ALL.into_iter().chain(Self::ALONE).chain(Self::FEW)
    }

    /// Whether the invocations can share rows of A as it is stored evenly.
    fn reads(self, trans_a: bool) -> bool {
        !trans_a || self.threads().is_multiple_of(self.m / WIDTH)
    }
}

impl Family for CooperativeTile {
    const LEAST: Cost = Cost::TensorCores(0);

    fn shapes() -> impl Iterator<Item = Self> {
        Self::all()
    }

    /// The tile and the splits of k that are estimated to take the least time. What copies and edges gain or cost
    /// decides among the candidates, not beside those of other kernels: they cost the same, and the faster ones stand
    /// first.
    fn candidates(problem: &Problem<'_>) -> impl Iterator<Item = Candidate> {
        // No browser offers tensor cores, and a page needn't load what plans for them.
        let plans = if IS_NATIVE { plans(problem) } else { [None; 3] };
        plans.into_iter().flatten()
    }

    fn variants() -> Vec<Variant> {
        let halves = TYPES.into_iter().filter(|dtypes| dtypes[..2] == [DType::F16; 2]).collect::<Vec<_>>();
        let both_forms = signatures(&halves).flat_map(|signature| {
            [false, true].map(|element_access| Signature { element_access, ..signature })
        });
        let tiles = |signature: Signature| Self::all().filter(move |tile| tile.reads(signature.trans[0]));
        let unscaling =
            signatures(&[[DType::F16, DType::F16, DType::F32]]).filter(|signature| signature.vectors);
        let unscaling = unscaling
            .flat_map(|signature| tiles(signature).map(move |tile| tile.unscaling_variant(&signature)));
        let variants =
            both_forms.flat_map(|signature| tiles(signature).map(move |tile| tile.variant(&signature)));
        variants.chain(unscaling).collect()
    }
}

/// Plans of operands that are shifted, of a B that is transposed, and of operands that are packed or read as they are.
fn plans(problem: &Problem<'_>) -> [Option<Candidate>; 3] {
    let &Problem { ctx, desc, windows } = problem;
    let prep = pack::needed(desc, windows);
    let is_misaligned = prep != [Prep::AsIs; 2] && pack::has_whole_vectors(desc, windows);
    let shifted = if is_misaligned { shifting(problem) } else { None };
    let prepared = in_cheapest_tile(ctx, desc, prep);
    let turned = prepared.filter(|_| pays_to_transpose_b(desc));
    let turned = turned.map(|(plan, time)| (plan.transposing_b(desc), time));
    let peeled = |(plan, time)| (edges::peeled_if_cheaper(ctx, desc, plan), time);
    let candidate = |(plan, time)| Candidate { plan, cost: Cost::TensorCores(cost(desc, time)) };
    [shifted, turned.map(peeled), prepared.map(peeled)].map(|plan| plan.map(candidate))
}

/// What the nanoseconds of a plan are compared as. What partial sums cost beside a long stream of operands is more than
/// their estimate.
pub(super) fn cost(desc: &MatmulDesc, time: usize) -> usize {
    if desc.k >= LONG { time / 4 * 5 } else { time }
}

/// The fastest plan that reads operands which aren't aligned where they are, if copies would take longer, and its
/// nanoseconds as if they were aligned.
fn shifting(problem: &Problem<'_>) -> Option<(Plan, usize)> {
    let &Problem { ctx, desc, .. } = problem;
    let (plan, estimate) = in_cheapest_tile(ctx, desc, [Prep::AsIs; 2])?;
    let Kernel::Cooperative(tile) = plan.kernel else { return None };
    let &MatmulDesc { m, n, k, batch, .. } = desc;
    let (length, count) = plan.split().length_and_count(k);
    let sizes = [m, n, length.min(k), batch * count];
    let bytes = m.saturating_add(n).saturating_mul(k).saturating_mul(2 * batch);
    let is_faster = tile.time(sizes, problem.compute_units()) / 2 < COPY + bytes / COPIED;
    let shifted = Plan { signature: Signature { vectors: false, ..plan.signature }, ..plan };
    is_faster.then_some((shifted, estimate))
}

/// The fastest plan whose operands are prepared so, if the product is worth it, and its nanoseconds.
pub(super) fn in_cheapest_tile(ctx: &OpContext, desc: &MatmulDesc, prep: [Prep; 2]) -> Option<(Plan, usize)> {
    // Tensor cores would spend most of their time on zeros, or copies take longer than the product.
    let &MatmulDesc { m, n, k, batch, .. } = desc;
    let as_is = prep == [Prep::AsIs; 2];
    // Copies for a whole batch are one launch.
    let copies_batch = !as_is && 2 * m.min(n) >= FRAGMENT && pack::fits(ctx, desc);
    let matrices = if as_is || copies_batch { batch } else { 1 };
    let work = m.saturating_mul(n).saturating_mul(k).saturating_mul(matrices);
    let least = match m.min(n) >= FRAGMENT {
        true if as_is => 1 << 18,
        false if as_is && m.min(n) > 4 => 1 << 17,
        false if as_is => 1 << 20,
        _ => 1 << 24,
    };
    if work < least || k < FRAGMENT && (!as_is || work < 1 << 20) {
        return None;
    }
    let Estimate { tile, split, time } = estimate(desc, ctx.profile().compute_units)?;
    Some((Plan::new(ctx, desc, Kernel::Cooperative(tile), split)?.aligned(prep), time))
}

/// The tile that is estimated to be the fastest.
pub(super) fn estimate(desc: &MatmulDesc, compute_units: usize) -> Option<Estimate<CooperativeTile>> {
    let &MatmulDesc { m, n, k, batch, .. } = desc;
    if streams_b(desc, compute_units) {
        let tile = CooperativeTile::SHALLOW;
        return Some(Estimate {
            tile,
            split: Split::WHOLE,
            time: tile.time([m, n, k, batch], compute_units),
        });
    }
    let tiles = CooperativeTile::for_sizes(m, n).filter(|tile| tile.reads(desc.trans_a.is_transposed()));
    let trans_b = desc.trans_b.is_transposed();
    cheapest(
        desc,
        tiles,
        |_| Split::powers_of_two(k),
        (combining, compute_units),
        |tile, sizes, _| {
            let time = tile.time(sizes, compute_units);
            // Half lines of the cache, of many rows of B at a time.
            let time = if trans_b && tile.n >= 128 { time / 8 * 9 } else { time };
            // One row or column of small tiles waits for all of an operand to come from memory.
            let streams = m <= tile.m.min(64) || n <= tile.n.min(64);
            if streams { time / 4 * 5 } else { time }
        },
    )
}

/// The nanoseconds that a product is estimated to take on tensor cores.
pub(in crate::ops) fn time(desc: &MatmulDesc, compute_units: usize) -> usize {
    estimate(desc, compute_units).map_or(usize::MAX, |estimate| estimate.time)
}

/// The nanoseconds of a launch, of partial sums, 450 in each, which an invocation adds one after another, and of short
/// workgroups.
pub(super) fn combining(results: usize, [length, pieces]: [usize; 2], compute_units: usize) -> usize {
    let short = if length < SHORT { 1500 } else { 0 };
    h200::partial_sums(results.saturating_mul(pieces), 450, compute_units)
        .saturating_add(h200::COMBINING_LAUNCH + 30 * pieces + short)
}

/// Whether a product is large enough that a copy of a K-major B takes less than the tenth by which the kernel
/// is slower with one.
fn pays_to_transpose_b(&MatmulDesc { m, n, k, .. }: &MatmulDesc) -> bool {
    m >= 2048 && n.saturating_mul(k) >= 1 << 23
}

/// Whether a product takes as long as reading B: one row of tiles, and at least two waves of them. The
/// estimate of a step leaves out memory latency, so this case is told apart.
fn streams_b(desc: &MatmulDesc, compute_units: usize) -> bool {
    let tile = CooperativeTile::SHALLOW;
    let &MatmulDesc { m, n, batch, .. } = desc;
    let tiles = tile.count(m, n).saturating_mul(batch);
    m <= tile.m && 2 * m > tile.m && !desc.trans_b.is_transposed() && tiles >= 2 * compute_units
}

impl GemmKernel for CooperativeTile {
    fn is_possible(&self, gpu: &Gpu, desc: &MatmulDesc) -> bool {
        let halves = [desc.a.dtype, desc.b.dtype] == [DType::F16; 2];
        let reads = self.reads(desc.trans_a.is_transposed());
        gpu.cooperative_matrices && self.fits(&gpu.limits) && halves && desc.k > 0 && reads
    }

    fn reads_as_vectors(&self, desc: &MatmulDesc, windows: &Windows) -> bool {
        pack::needed(desc, windows) == [Prep::AsIs; 2]
    }

    fn named(&self) -> Kernel {
        Kernel::Cooperative(*self)
    }

    fn needs(&self) -> Needs {
        Needs { self_test: true, vectors: false }
    }

    fn shifts_vectors(&self) -> bool {
        true
    }

    /// Operands that aren't aligned are copied, and a B that is stored transposed where all are or where that pays.
    fn packing(&self, plan: Plan, desc: &MatmulDesc, windows: &Windows) -> Option<Plan> {
        let plan = plan.packing(desc, windows);
        let aligned = plan.prep == [Prep::AsIs; 2];
        Some(if aligned || pays_to_transpose_b(desc) { plan.transposing_b(desc) } else { plan })
    }

    #[cfg(not(target_family = "wasm"))]
    fn measured_packings(&self, desc: &MatmulDesc, aligned: bool) -> &'static [bool] {
        if !Self::for_sizes(desc.m, desc.n).any(|tile| tile == *self) {
            &[]
        } else if aligned && !desc.trans_b.is_transposed() {
            &[false]
        } else {
            &[false, true]
        }
    }

    fn tile(&self, _: &Signature) -> [usize; 2] {
        [self.m, self.n]
    }

    fn k_block(&self) -> usize {
        self.k
    }

    /// The bindings of C, through which results are written by vectors too, follow each other.
    fn inputs<'a>(&self, Windows { a, b, bias, c }: &'a Windows) -> Vec<&'a Window> {
        vec![a, b, bias, c, c]
    }

    fn variant(&self, signature: &Signature) -> Variant {
        let &Signature { dtypes, element_access, .. } = signature;
        let in_registers = element_access && self.rolls_loops() && dtypes[2] == DType::F16;
        self.variant_of(&COOPERATIVE, signature, in_registers).with_libs(result_libs(dtypes[2], in_registers))
    }
}

impl CooperativeTile {
    fn variant_of(
        &self,
        source: &'static KernelSource,
        signature: &Signature,
        in_registers: bool,
    ) -> Variant {
        let tile = self.constants(signature.trans, signature.activation);
        let constants = Constants { tile, in_registers, shifted: !signature.vectors };
        let variant = Variant::new(source, signature.dtypes, constants);
        if self.rolls_loops() { variant.with_rolled_loops() } else { variant }
    }

    /// The variant for operands whose lines across k were scaled by powers of two, into f32.
    pub(super) fn unscaling_variant(&self, signature: &Signature) -> Variant {
        // No browser has tensor cores, and a page needn't load the text.
        let libs: &[Lib] = if IS_NATIVE { &[ACTIVATE, LINE_EXPONENTS, RESULTS_STAGED] } else { &[ACTIVATE] };
        self.variant_of(&UNSCALING, signature, false).with_libs(libs)
    }
}

/// Multiplies operands whose lines across k were scaled by powers of two, and undoes that with the exponents of the
/// rows of A and the columns of B.
pub(super) fn launch_unscaling(
    call: Call<'_>,
    tile: CooperativeTile,
    signature: &Signature,
    [rows, columns]: [&Window; 2],
) -> BackendResult<()> {
    let Call { ctx, op, desc, windows: Windows { a, b, bias, c } } = call;
    let params = params(op, &Product::whole(desc), call.windows, [tile.m, tile.n])?;
    let grid = linear_grid(op, params.sizes.tiles as usize)?;
    let inputs = [a, b, bias, rows, columns, c, c];
    ctx.launch(op, &tile.unscaling_variant(signature), &inputs, c, &params, grid)
}

/// How results of this type are made, which a page needn't load.
fn result_libs(dtype: DType, in_registers: bool) -> &'static [Lib] {
    if cfg!(target_family = "wasm") {
        return activation_libs(dtype);
    }
    match (dtype, in_registers) {
        (DType::F16, true) => &[ACTIVATE_HALF, FRAGMENT_ELEMENTS, NO_LINE_EXPONENTS, RESULTS_IN_REGISTERS],
        (DType::F16, false) => &[ACTIVATE_HALF, NO_LINE_EXPONENTS, RESULTS_STAGED],
        _ => &[ACTIVATE, NO_LINE_EXPONENTS, RESULTS_STAGED],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::plans::bounds::assert_room;

    #[test]
    fn workgroups_take_what_their_text_says() {
        for tile in CooperativeTile::all() {
            // Operands with the more rows, which are padded.
            let signature = Signature::of_halves([tile.k > tile.m, tile.n >= tile.k], false);
            assert_room(&tile.variant(&signature), 0, |limits| tile.fits(limits));
        }
    }

    /// What NVIDIA's Vulkan driver offers.
    fn nvidia() -> wgpu::Limits {
        wgpu::Limits {
            max_compute_workgroup_storage_size: 48 << 10,
            max_compute_invocations_per_workgroup: 1024,
            max_compute_workgroup_size_x: 1024,
            ..wgpu::Limits::default()
        }
    }

    #[test]
    fn every_tile_is_whole_and_fits() {
        for tile in CooperativeTile::all() {
            let [rows, columns] = tile.parts;
            assert!(tile.fits(&nvidia()), "{tile}");
            assert_eq!(tile.m % (rows * FRAGMENT) + tile.n % (columns * FRAGMENT), 0);
            assert_eq!(tile.k % (tile.sharers() * FRAGMENT), 0);
            assert!([tile.m, tile.n].iter().all(|size| (size * tile.k).is_multiple_of(8 * tile.threads())));
        }
    }

    #[test]
    fn a_second_workgroup_on_a_compute_unit_is_cheaper_than_the_first() {
        for tile in CooperativeTile::ALL {
            let time = |tiles| tile.time([tile.m, tile.n, 1024, tiles], 100);
            assert!(time(100) < time(200) && time(200) < 2 * time(100), "{tile}");
            assert_eq!(time(400), 2 * time(200), "{tile}");
        }
    }
}
