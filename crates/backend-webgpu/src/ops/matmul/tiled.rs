//! gemm/tiled, in register tiles, which any GPU can run.

use backend_api::desc::MatmulDesc;
use backend_api::{Activation, DType};

use super::cost::{Cost, Estimate, SHORT, cheapest};
use super::kernel::{Family, GemmKernel, Kernel, Signature, TYPES, signatures};
use super::plan::{Candidate, Plan, Problem};
use super::strategy::Split;
use super::{Params, Windows};
use crate::device::{Gpu, h200};
use crate::kernels::libs::{ACTIVATE, ACTIVATE_HALF, C_ELEMENTS, C_VECTORS};
use crate::kernels::{KernelSource, Lib, Variant, constants, kernel};
use crate::ops::shared::tile::{Tile, TileConstants, tile_product};
use crate::recorder::Window;

constants! {
    struct Constants { tile: TileConstants, vec: bool, trans_a: bool, trans_b: bool, activation: Activation }
}

static TILED: KernelSource = KernelSource {
    unrolled: Some(tile_product),
    ..kernel!(
        "gemm/tiled", libs: [WORKGROUP_TILES, MATMUL, OPERAND_BLOCKS, TILE_PRODUCT],
        types: ["TA", "TB", "TC"], constants: Constants, params: Params,
        reads: ["a: TA", "a4: vec4<TA>", "b: TB", "b4: vec4<TB>", "bias: TC"], writes: ["c: StoredC"],
    )
};

impl Family for Tile {
    const LEAST: Cost = Cost::Registers(0);

    fn shapes() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().chain([Self::SLICED])
    }

    /// The tile and the split of k that are estimated to take the least time on a GPU.
    fn candidates(problem: &Problem<'_>) -> impl Iterator<Item = Candidate> {
        let is_for = !problem.is_on_software();
        if is_for { in_cheapest_tile(problem) } else { None }.into_iter()
    }

    fn variants() -> Vec<Variant> {
        let with_results = |signature: Signature| {
            let results = if signature.vectors { &[false, true][..] } else { &[false] };
            results.iter().map(move |&vector_results| Signature { vector_results, ..signature })
        };
        let of = |signature| Self::shapes().map(move |tile| tile.variant(&signature));
        signatures(&TYPES).flat_map(with_results).flat_map(of).collect()
    }
}

fn in_cheapest_tile(problem: &Problem<'_>) -> Option<Candidate> {
    let &Problem { desc, windows, .. } = problem;
    let fastest = fastest(problem)?;
    let cost = Cost::Registers(fastest.time);
    let candidate = problem.candidate(Kernel::Tiled(fastest.tile), fastest.split, cost)?;
    Some(Candidate { plan: candidate.plan.packing_if_long(desc, windows), ..candidate })
}

/// The nanoseconds that a product of more rows and columns than other kernels take is estimated to take; `None` for one of
/// fewer, or if the device has no room for a tile.
pub(super) fn time(problem: &Problem<'_>) -> Option<usize> {
    const FEW: usize = 32;
    let is_large = problem.desc.m.min(problem.desc.n) > FEW;
    if is_large { fastest(problem).map(|fastest| fastest.time) } else { None }
}

fn fastest(problem: &Problem<'_>) -> Option<Estimate<Tile>> {
    let &Problem { ctx, desc, .. } = problem;
    let compute_units = problem.compute_units();
    // Slices pay where there are few tiles for the device: an H200 takes 6.0 µs for 256³ instead of 8.4, 13.8 for 512³
    // instead of 16.5.
    let is_sliced_well =
        |tile: Tile| tile.count(desc.m, desc.n).saturating_mul(desc.batch) <= 5 * compute_units;
    let tiles = Tile::shapes()
        .filter(|tile| tile.fits(&ctx.gpu().limits))
        .filter(|&tile| tile != Tile::SLICED || is_sliced_well(tile));
    // Where a unit has room for more than two, short pieces begin before the others end, and make these slower.
    let splits = |tile: Tile| {
        Split::few_and_powers_of_two(desc.k)
            .filter(move |split| tile.is_paired() || matches!(split, Split::Pieces(_)))
    };
    cheapest(desc, tiles, splits, (combining, compute_units), |tile, sizes, last| {
        tile.time_of_pieces(sizes, last, compute_units)
    })
}

/// How results of this type are activated and written.
fn libs(dtype: DType, vector_results: bool) -> &'static [Lib] {
    match (dtype, vector_results) {
        (DType::F16, false) => &[ACTIVATE_HALF, C_ELEMENTS],
        (DType::F16, true) => &[ACTIVATE_HALF, C_VECTORS],
        (_, false) => &[ACTIVATE, C_ELEMENTS],
        (_, true) => &[ACTIVATE, C_VECTORS],
    }
}

/// The nanoseconds of a launch, of partial sums, 250 in each, and of short workgroups.
fn combining(results: usize, [length, pieces]: [usize; 2], compute_units: usize) -> usize {
    let short = if length < SHORT { 650 } else { 0 };
    h200::partial_sums(results.saturating_mul(pieces), 250, compute_units)
        .saturating_add(h200::COMBINING_LAUNCH + short)
}

impl GemmKernel for Tile {
    fn is_possible(&self, gpu: &Gpu, desc: &MatmulDesc) -> bool {
        desc.k > 0 && self.fits(&gpu.limits)
    }

    fn named(&self) -> Kernel {
        Kernel::Tiled(*self)
    }

    fn packing(&self, plan: Plan, desc: &MatmulDesc, windows: &Windows) -> Option<Plan> {
        Some(plan.packing(desc, windows))
    }

    fn tile(&self, _: &Signature) -> [usize; 2] {
        [self.m, self.n]
    }

    fn inputs<'a>(&self, Windows { a, b, bias, .. }: &'a Windows) -> Vec<&'a Window> {
        vec![a, a, b, b, bias]
    }

    fn variant(&self, signature: &Signature) -> Variant {
        let &Signature { vectors: vec, trans: [trans_a, trans_b], activation, vector_results, .. } =
            signature;
        let constants = Constants { tile: self.constants(), vec, trans_a, trans_b, activation };
        Variant::new(&TILED, signature.dtypes, constants)
            .with_libs(libs(signature.dtypes[2], vector_results))
            .with_workgroup(self.threads(), self.workgroup_bytes())
    }
}

#[cfg(test)]
mod tests {
    use backend_api::ComputeBackend as _;
    use backend_api::desc::Matrix;

    use super::*;
    use crate::ops::plans::of_h200;

    /// With the µs that an NVIDIA H200 takes as planned, and in another way (shaders/gemm/notes.md).
    #[test]
    fn tiles_and_pieces_are_those_that_were_the_fastest() {
        let backend = of_h200();
        for (m, n, k, kernel, times) in [
            (1500, 384, 1536, "tiled/128x64x32+k448", "54.5, in four pieces 60.6"),
            (577, 1024, 1024, "tiled/128x64x32+k320", "46.7, in two pieces 48.5"),
            (1500, 384, 384, "tiled/32x32x64", "22.2, in tiles of 64×64 25.3"),
            (594, 256, 2624, "tiled/64x64x32+split6", "32.3, in eight pieces 35.9"),
            (2023, 960, 704, "tiled/128x64x32", "74.9"),
            (1021, 2368, 576, "tiled/64x64x32", "80.8"),
        ] {
            let matrix = |rows: usize, columns: usize| {
                Matrix::new(backend.alloc(4 * rows * columns).unwrap(), DType::F32, columns)
            };
            let desc = MatmulDesc::new(m, n, k, matrix(m, k), matrix(k, n), matrix(m, n));
            assert_eq!(backend.explain_matmul(&desc).unwrap(), kernel, "{m}×{n}×{k} takes {times} µs");
        }
    }
}
