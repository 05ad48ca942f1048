//! quant/skinny_cooperative: products of few rows of f16 on tensor cores.

use backend_api::desc::{QuantMatmulDesc, QuantMatrix};
use backend_api::quant::{QuantCode, QuantFormat, QuantLayout, ScaleKind, UNIT};
use backend_api::{Activation, BackendResult, DType, Gate};

use super::append::AppendParams;
use super::cooperative::is_faster_than_many_rows;
use super::formats::{fragment_libs, has_half_blocks, kinds};
use super::kernel::{Appended, Signature};
use super::operands::{Operands, Params, ProductOperands, strides_of_a};
use super::planes::is_bindable;
use super::self_test::check_product;
use super::skinny_time;
use crate::kernels::{KernelSource, Variant, constants, kernel};
use crate::ops::has_room;
use crate::ops::op_context::{OpContext, linear_grid};
use crate::ops::shared::self_test::{OP, numbers};
use crate::ops::shared::tensor_cores::{FRAGMENT, SUBGROUP};
use crate::ops::shared::vec_width::VecWidth;
use crate::recorder::Window;

constants! {
    struct Constants {
        subgroups: usize,
        rows: usize,
        persistent: bool,
        half_blocks: bool,
        ragged: bool,
        activation: Activation,
        gated: bool,
        gate: Gate,
    }
}

/// The kernel with what makes results of its sums.
macro_rules! source {
    ([$($lib:ident),*], $types:expr, $params:ty, reads: [$($read:literal),* $(,)?], $writes:expr) => {
        KernelSource {
            cooperative: true,
            subgroups: true,
            // A cache takes values that may be in C before.
            mixes_outputs: $writes.len() > 1,
            ..kernel!(
                native "quant/skinny_cooperative",
                libs: [GRID, QUANT_PLANES, QUANT_PRODUCT, FRAGMENT_ELEMENTS, GATE, $($lib),*],
                types: $types, constants: Constants, params: $params,
                reads: ["quants", "high", "scales", "extra", "a: vec4<u32>", "bias: TC", $($read),*],
                writes: $writes,
            )
        }
    };
}

static PLAIN: KernelSource =
    source!([QUANT_RESULTS, QUANT_RESIDUAL], ["TA", "TC"], Params, reads: ["residual: TC"], ["c: TC"]);

static NORMED: KernelSource =
    source!([QUANT_RESULTS, QUANT_NO_RESIDUAL], ["TA", "TC"], Params, reads: ["norm: vec4<u32>"], ["c: TC"]);

static APPENDED: KernelSource = source!(
    [QUANT_RESULTS_APPENDED, QUANT_NO_RESIDUAL],
    ["TA", "TC", "KV"],
    AppendParams,
    reads: ["cosines: f32", "sines: f32", "positions: u32", "indices: u32"],
    ["c: TC", "cache: KV"]
);

static NORMED_APPENDED: KernelSource = source!(
    [QUANT_RESULTS_APPENDED, QUANT_NO_RESIDUAL],
    ["TA", "TC", "KV"],
    AppendParams,
    reads: ["norm: vec4<u32>", "cosines: f32", "sines: f32", "positions: u32", "indices: u32"],
    ["c: TC", "cache: KV"]
);

static QK_NORM: KernelSource = source!(
    [QUANT_RESULTS_QK_NORM, QUANT_NO_RESIDUAL],
    ["TA", "TC", "KV"],
    AppendParams,
    reads: ["cosines: f32", "sines: f32", "positions: u32", "indices: u32", "query_norm: TC", "key_norm: TC"],
    ["c: TC", "cache: KV", "fixup: atomic<u32>"]
);

static NORMED_QK_NORM: KernelSource = source!(
    [QUANT_RESULTS_QK_NORM, QUANT_NO_RESIDUAL],
    ["TA", "TC", "KV"],
    AppendParams,
    reads: [
        "norm: vec4<u32>", "cosines: f32", "sines: f32", "positions: u32", "indices: u32", "query_norm: TC",
        "key_norm: TC",
    ],
    ["c: TC", "cache: KV", "fixup: atomic<u32>"]
);

/// Rows of A up to which the kernel is a candidate: for more, B is read too often.
const MOST_ROWS: usize = 256;

/// Rows of A up to which no other kernel is as fast.
const FEW_ROWS: usize = 2 * FRAGMENT;

/// Rows of A that are normalised in workgroup memory, and the most elements of all of them, as lib/quant_rows_normed has
/// them.
const STAGED_ROWS: usize = 4;
const MOST_STAGED: usize = 8 * 512;

/// Subgroups of a workgroup.
const FEW_SUBGROUPS: usize = 8;

/// Subgroups of a workgroup for one row that has no more steps.
const LEAST_SUBGROUPS: usize = 4;

/// Subgroups of a workgroup where all workgroups run at once even so: then more wait for memory.
const MANY_SUBGROUPS: usize = 16;

/// Units for each of few subgroups up to which a row is short: with more subgroups, a product takes longer.
const SHORT_UNITS: usize = 2;

/// Workgroups of many subgroups that run at once on a compute unit, as times tell: no driver says how many registers
/// they take.
const AT_ONCE: usize = 2;

/// Workgroups of few subgroups for each compute unit above which so many follow each other that one more subgroup of a tile costs more
/// than it saves.
const MANY_WAVES: usize = 6;

/// Workgroups of few subgroups for each compute unit that make tile after tile of one row of A, and of more rows, and how
/// many there would be otherwise for each, above which they do: normalising the rows once for each tile takes longer then.
const PERSISTENT_ROW: usize = 4;
const PERSISTENT_ROWS: usize = 3;
const MOST_PREPARED: usize = 4;

/// Weights of a block, of which a unit has four.
const BLOCK: usize = 32;

/// Elements of which a row has a multiple: whole blocks, or whole units if the halves of blocks have scales of their own.
pub(super) const fn step_of_k(format: QuantFormat) -> usize {
    if has_half_blocks(format) { UNIT } else { BLOCK }
}

/// Columns of B for a self-test, of more than so many units: where the format allows it, an odd number of them, the last of which
/// isn't whole if it `is_ragged`.
pub(super) fn tested_columns(format: QuantFormat, units: usize, is_ragged: bool) -> usize {
    let more = if format.block_elements() > UNIT { 2 } else { 1 };
    let is_whole = !is_ragged || format.block_elements().max(step_of_k(format)) > BLOCK;
    UNIT * (units + more) - if is_whole { 0 } else { BLOCK }
}

/// The workgroup: rows of A, subgroups that share k, and whether it makes tile after tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    rows: usize,
    subgroups: usize,
    persistent: bool,
    /// Whether several rows end within a unit.
    ragged: bool,
}

impl Tile {
    /// Every tile: for each number of rows, those of subgroups.
    fn all() -> impl Iterator<Item = Self> {
        let tiles = [(1, [4, 8, 16]), (8, [2, 4, 8]), (16, [4, 8, 16]), (32, [4, 8, 16])];
        tiles.into_iter().flat_map(|(rows, subgroups)| subgroups.map(|count| Self::new(rows, count)))
    }

    const fn new(rows: usize, subgroups: usize) -> Self {
        Self { rows, subgroups, persistent: false, ragged: false }
    }

    /// The workgroup for so many rows of A by B.
    fn choose(m: usize, b: &QuantMatrix, normed: bool, compute_units: usize) -> Self {
        let rows = match m {
            // All blocks have one zero point, as lib/quant_blocks_in_columns needs.
            1 if b.format.zero_point().is_some() => 1,
            0..=8 => 8,
            9..=FRAGMENT => FRAGMENT,
            _ => 2 * FRAGMENT,
        };
        let workgroups = m.div_ceil(rows).saturating_mul(b.rows.div_ceil(FRAGMENT));
        let is_above = |most: usize| workgroups > most.saturating_mul(compute_units);
        let units = b.columns.div_ceil(UNIT);
        // Of one row of whole blocks, a subgroup takes two units at once.
        let steps = if has_half_blocks(b.format) { units } else { units.div_ceil(2) };
        let is_short = rows <= 8 && units <= FEW_SUBGROUPS * SHORT_UNITS;
        let subgroups = match rows {
            1 if steps <= LEAST_SUBGROUPS => LEAST_SUBGROUPS,
            17.. => skinny_time::fastest(b.format, [workgroups, units], compute_units).0,
            1 | FRAGMENT if !is_short && !is_above(AT_ONCE) => MANY_SUBGROUPS,
            1 => FEW_SUBGROUPS,
            // Adding up the parts of many rows takes its time where workgroups follow each other; rows that are normalised lie
            // in the memory of a workgroup of eight.
            8 if is_above(MANY_WAVES) && !normed => 2,
            8 if is_above(AT_ONCE) && !normed => LEAST_SUBGROUPS,
            FRAGMENT if is_above(MANY_WAVES) && b.format.code() != QuantCode::Eight => LEAST_SUBGROUPS,
            _ => FEW_SUBGROUPS,
        };
        let ragged = rows > 1 && !b.columns.is_multiple_of(UNIT);
        Self { rows, subgroups, persistent: normed && is_above(MOST_PREPARED), ragged }
    }

    /// A format of each kind that it multiplies by, with blocks and half blocks.
    fn formats(self) -> impl Iterator<Item = QuantFormat> {
        let finest = QuantFormat::U4 { group: 16, zero_points: self.rows > 1 };
        kinds().chain([finest]).filter(move |&format| self.rows > 1 || format.zero_point().is_some())
    }

    /// Workgroups for so many tiles.
    pub(super) fn workgroups(self, ctx: &OpContext, tiles: usize) -> usize {
        if !self.persistent {
            return tiles;
        }
        let workgroups = if self.rows == 1 { PERSISTENT_ROW } else { PERSISTENT_ROWS };
        let workgroups = workgroups * FEW_SUBGROUPS / self.subgroups;
        tiles.min(workgroups.saturating_mul(ctx.profile().compute_units))
    }

    /// Rows and columns of C that a workgroup makes: half of a fragment's columns if the others are gates.
    pub(super) const fn tile(self, gated: bool) -> [usize; 2] {
        [self.rows, if gated { FRAGMENT / 2 } else { FRAGMENT }]
    }

    /// Whether the tile is one that products of one row have.
    const fn may_have_one_row(self) -> bool {
        self.rows <= 8
    }

    /// Whether a workgroup makes tile after tile.
    pub(super) const fn is_persistent(self) -> bool {
        self.persistent
    }

    /// Iterations of the longest loop along a row of so many units, at most.
    pub(super) const fn iterations(self, units: usize) -> usize {
        units.div_ceil(self.subgroups)
    }

    pub(super) fn variant(self, signature: &Signature) -> Variant {
        let &Signature { format, dtypes: [a, dtype], activation, normed, gate, cache, .. } = signature;
        let half_blocks = has_half_blocks(format);
        let Self { rows, subgroups, persistent, ragged } = self;
        let (gated, gate) = (gate.is_some(), gate.unwrap_or(Gate::Swiglu));
        let constants =
            Constants { subgroups, rows, persistent, half_blocks, ragged, activation, gated, gate };
        // So that pages are without the kernels that no page launches.
        let variant = match cache.filter(|_| !cfg!(target_family = "wasm")) {
            None => Variant::new(if normed { &NORMED } else { &PLAIN }, [a, dtype], constants),
            Some(Appended { dtype: cache, qk_norm }) => {
                let source = match (normed, qk_norm) {
                    (false, false) => &APPENDED,
                    (true, false) => &NORMED_APPENDED,
                    (false, true) => &QK_NORM,
                    (true, true) => &NORMED_QK_NORM,
                };
                Variant::new(source, [a, dtype, cache], constants)
            }
        };
        let libs = fragment_libs(format, rows == 1, normed.then_some(a), dtype == DType::F16);
        variant.with_libs(libs).with_rolled_loops()
    }

    /// The workgroup for a product, if the device and the operands allow it, and if it is fast unless it is asked for.
    pub(super) fn candidate(
        ctx: &OpContext,
        desc: &QuantMatmulDesc,
        layout: &QuantLayout,
        operands: &Operands,
        is_asked_for: bool,
    ) -> Option<Self> {
        let gpu = ctx.gpu();
        // No browser offers tensor cores.
        if cfg!(target_family = "wasm") || !(gpu.cooperative_matrices && gpu.takes_spirv) {
            return None;
        }
        let width =
            VecWidth::fitting(desc.a.dtype, &[&operands.product.a, &operands.norm], &strides_of_a(desc));
        let normed = desc.norm.is_some();
        let QuantMatrix { format, .. } = desc.b;
        let tile = Self::choose(desc.m, &desc.b, normed, ctx.profile().compute_units);
        let fits_staged = !normed
            || desc.m <= STAGED_ROWS
                && desc.m.saturating_mul(desc.k()) <= tile.staged()
                && !operands.has_residual_apart();
        let fits = desc.multiplied_dtype() == DType::F16
            && (1..=MOST_ROWS).contains(&desc.m)
            && desc.k() > 0
            && desc.k().is_multiple_of(step_of_k(format))
            && width != VecWidth::One
            && fits_staged
            && (desc.gate.is_none() || is_bindable(ctx, layout));
        let is_usable = (is_asked_for || tile.is_fast(format)) && tile.has_room(ctx, normed);
        let is_faster = || is_asked_for || desc.m <= FEW_ROWS || tile.beats_many_rows(ctx, desc, operands);
        (fits && is_usable && is_faster() && tile.passes(ctx, format)).then_some(tile)
    }

    /// Whether it takes less time than the kernels for many rows, of which those of matrices divide operands that can't be bound.
    fn beats_many_rows(self, ctx: &OpContext, desc: &QuantMatmulDesc, operands: &Operands) -> bool {
        let bound = [&operands.product.a, &operands.product.c, &operands.residual];
        if !bound.into_iter().all(Window::is_bindable) {
            return false;
        }
        let compute_units = ctx.profile().compute_units;
        let tiles = desc.m.div_ceil(self.rows).saturating_mul(desc.b.rows.div_ceil(FRAGMENT));
        let sizes = [tiles, desc.b.columns.div_ceil(UNIT)];
        let (_, time) = skinny_time::fastest(desc.b.format, sizes, compute_units);
        is_faster_than_many_rows(ctx, desc, operands, time)
    }

    /// Whether tile after tile with rows normalised once is faster than an operation for them all and a workgroup for each
    /// tile: not where scales have to be unpacked for each row.
    fn is_fast(self, format: QuantFormat) -> bool {
        let unpacks_scales = match format.scale_kind() {
            ScaleKind::Block | ScaleKind::BlockMin | ScaleKind::Exponent | ScaleKind::Group => false,
            _ => self.rows > 1 || has_half_blocks(format),
        };
        !(self.persistent && unpacks_scales)
    }

    /// Elements of normalised rows that it has in workgroup memory, two vectors of eight for each invocation.
    fn staged(self) -> usize {
        MOST_STAGED.min(2 * 8 * self.subgroups * SUBGROUP)
    }

    fn has_room(self, ctx: &OpContext, normed: bool) -> bool {
        self.has_room_beside(ctx, normed, 0)
    }

    /// Whether a workgroup has room beside so many bytes of something else.
    pub(super) fn has_room_beside(self, ctx: &OpContext, normed: bool, mut bytes: usize) -> bool {
        bytes += self.subgroups * self.rows * FRAGMENT * size_of::<f32>();
        if normed {
            bytes += self.staged() * DType::F16.size() + self.subgroups * STAGED_ROWS * size_of::<f32>();
        }
        has_room(&ctx.gpu().limits, self.subgroups * SUBGROUP, bytes)
    }

    /// Whether the device makes right products with it.
    fn passes(self, ctx: &OpContext, format: QuantFormat) -> bool {
        // What norms and gates add is arithmetic as everywhere.
        let alone = Self { persistent: false, ..self };
        let variant = alone.plain(format);
        ctx.is_right(&variant, move |ctx| alone.check(ctx, format, &variant))
    }

    /// The variant with nothing beside the product.
    fn plain(self, format: QuantFormat) -> Variant {
        self.variant(&Signature {
            format,
            dtypes: [DType::F16, DType::F32],
            activation: Activation::Identity,
            vectors: true,
            normed: false,
            gate: None,
            cache: None,
        })
    }

    /// More rows than a tile of several has, more columns, and more units than an iteration.
    fn tested_shape(self, format: QuantFormat) -> [usize; 3] {
        let rows = if self.rows == 1 { 1 } else { self.rows + 3 };
        let is_ragged = self.rows == 1 || self.ragged;
        [rows, FRAGMENT + 5, tested_columns(format, 4 * self.subgroups, is_ragged)]
    }

    fn check(self, ctx: &OpContext, format: QuantFormat, variant: &Variant) -> BackendResult<()> {
        let [m, n, k] = self.tested_shape(format);
        check_product(
            ctx,
            format,
            DType::F32,
            [m, n, k],
            &numbers(1, m * k, k),
            |test, desc, windows, planes| {
                let params = Params::new(OP, desc, windows, planes, n, self.tile(false))?;
                let [quants, high, scales, extra] = planes.windows();
                let Operands { product: ProductOperands { a, bias, c }, residual, .. } = windows;
                let bound = [quants, high, scales, extra, a, bias, residual, c];
                test.launch(variant, &bound, &params, linear_grid(OP, params.product.tiles as usize)?)
            },
        )
    }
}

/// Each workgroup for each kind of format and types of A and C, with activations and types of the cache alternating.
pub(super) fn variants() -> Vec<Variant> {
    let persistent = [Tile::new(1, 4), Tile::new(1, 8), Tile::new(8, 8)]
        .map(|tile| (Tile { persistent: true, ..tile }, true));
    let alone = Tile::all().flat_map(|tile| [(tile, false), (tile, true)]);
    let mut variants = Vec::new();
    for (tile, normed) in alone.chain(persistent) {
        for (number, format) in tile.formats().enumerate() {
            let types =
                [[DType::F16; 2], [DType::F16, DType::F32], [DType::F32, DType::F16], [DType::F32; 2]];
            let types = types.into_iter().filter(|[a, _]| normed || *a == DType::F16);
            for (types, dtypes) in types.enumerate() {
                let index = variants.len() / 4;
                let activation = Activation::ALL[index % Activation::ALL.len()];
                let gate = (index / 2 % 2 == 1).then_some(Gate::ALL[index / 4 % Gate::ALL.len()]);
                let signature =
                    Signature { format, dtypes, activation, vectors: true, normed, gate, cache: None };
                variants.push(tile.variant(&signature));
                let (activation, gate) = (Activation::Identity, None);
                let dtype = [DType::F16, DType::F32][(number + types) % 2];
                let qk_norm = tile.may_have_one_row() && !tile.persistent && number / 2 % 2 == 1;
                let cache = Some(Appended { dtype, qk_norm });
                variants.push(tile.variant(&Signature { activation, gate, cache, ..signature }));
            }
        }
    }
    variants
}

#[cfg(test)]
mod tests {
    use backend_api::ComputeBackend as _;
    use backend_api::desc::Matrix;

    use super::super::planes::{Planes, Stored};
    use super::*;
    use crate::WebGpuBackend;
    use crate::device::h200;
    use crate::ops::shared::self_test::SelfTest;

    /// No test of shaders checks what isn't listed.
    #[test]
    fn each_type_of_a_cache_is_listed_beside_each_type_of_rows() {
        let all: Vec<String> = variants().iter().map(|variant| format!("{variant:?}")).collect();
        for tile in Tile::all() {
            for (normed, a) in [(false, DType::F16), (true, DType::F16), (true, DType::F32)] {
                let caches = [DType::F16, DType::F32].map(|dtype| {
                    [false, tile.may_have_one_row()].map(|qk_norm| Some(Appended { dtype, qk_norm }))
                });
                for cache in caches.concat() {
                    let is_listed = |dtype| {
                        tile.formats().any(|format| {
                            let (activation, dtypes) = (Activation::Identity, [a, dtype]);
                            let signature = Signature {
                                format,
                                dtypes,
                                activation,
                                vectors: true,
                                normed,
                                gate: None,
                                cache,
                            };
                            all.contains(&format!("{:?}", tile.variant(&signature)))
                        })
                    };
                    let listed = [DType::F16, DType::F32].map(is_listed);
                    assert_eq!(listed, [true; 2], "{tile:?}: rows of {a}, normed: {normed}, {cache:?}");
                }
            }
        }
    }

    fn choose(m: usize, format: QuantFormat, [n, k]: [usize; 2], normed: bool) -> Tile {
        Tile::choose(m, &QuantMatrix::new(0, format, n, k), normed, h200::COMPUTE_UNITS)
    }

    #[test]
    fn few_workgroups_have_many_subgroups() {
        let choose = |m, n| {
            let tile = choose(m, QuantFormat::Q4_0, [n, 4096], false);
            (tile.rows, tile.subgroups)
        };
        assert_eq!([choose(1, 4096), choose(8, 14336), choose(9, 4096)], [(1, 16), (8, 2), (16, 16)]);
        assert_eq!([choose(1, 6144), choose(17, 8192), choose(1, 1)], [(1, 8), (32, 4), (1, 16)]);
        assert_eq!([choose(2, 4096), choose(8, 6144), choose(0, 4096)], [(8, 8), (8, 4), (8, 8)]);
    }

    #[test]
    fn subgroups_are_as_many_as_a_short_row_feeds() {
        let choose = |format, n, k, normed| {
            let tile = choose(1, format, [n, k], normed);
            (tile.rows, tile.subgroups)
        };
        let q4_0 = |n, k| choose(QuantFormat::Q4_0, n, k, false);
        assert_eq!([q4_0(896, 896), q4_0(151_936, 1024), q4_0(16, 32)], [(1, 4); 3]);
        assert_eq!([q4_0(2048, 2048), q4_0(3072, 1056), q4_0(3072, 3072)], [(1, 8), (1, 8), (1, 16)]);
        // Tile after tile, and where a subgroup takes a unit at once.
        assert_eq!(choose(QuantFormat::Q4_0, 9728, 896, true), (1, 4));
        assert_eq!([512, 768].map(|k| choose(QuantFormat::Q6_K, 4096, k, false)), [(1, 4), (1, 8)]);
    }

    /// A zero point for each block isn't what all columns of a fragment have.
    #[test]
    fn zero_points_of_groups_take_a_tile_of_more_rows() {
        let rows =
            |zero_points| choose(1, QuantFormat::U4 { group: 32, zero_points }, [4096, 4096], false).rows;
        assert_eq!([rows(false), rows(true)], [1, 8]);
    }

    /// A shape that a format doesn't have would pass for a driver's wrong numbers.
    #[test]
    fn every_format_has_the_shape_that_is_tested() {
        for tile in Tile::all() {
            for format in tile.formats() {
                let [_, n, k] = tile.tested_shape(format);
                assert!(QuantLayout::new(OP, format, n, k).is_ok(), "{format} {n} {k}");
            }
        }
    }

    /// No adapter of a test machine has tensor cores. What the kernel does with them is as the self-test wants it where
    /// fragments are emulated.
    fn check_emulated(rows: usize, is_checked: impl Fn(QuantFormat) -> bool) {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let ctx = backend.context("test").unwrap().context;
        assert!(ctx.gpu().device.features().contains(wgpu::Features::SHADER_F16));
        let tile = Tile::new(rows, 1);
        for format in tile.formats().filter(|&format| is_checked(format)) {
            // A driver takes seconds to compile a kernel, and all waits of one call share its timeout.
            let checked = tile.check(&ctx.call(), format, &tile.plain(format));
            checked.unwrap_or_else(|error| panic!("{format} by {tile:?}: {error:?}"));
        }
    }

    #[test]
    fn blocks_of_one_row_make_a_product_of_every_format() {
        check_emulated(1, |_| true);
    }

    /// Formats are read as for one row; some kernels of several rows take a CPU's driver minutes to compile.
    #[test]
    fn several_rows_make_products() {
        let zero_points = QuantFormat::U4 { group: 32, zero_points: true };
        let formats = [QuantFormat::Q8_0, QuantFormat::Q4_K, QuantFormat::Q6_K, zero_points];
        for rows in [8, 16, 32] {
            check_emulated(rows, |format| formats.contains(&format));
        }
    }

    /// Blocks beyond a row's end may share a scale with its last ones.
    #[test]
    fn an_infinite_scale_makes_nothing_of_what_is_beyond_a_row() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let ctx = backend.context("test").unwrap().context;
        let format = QuantFormat::U4 { group: 64, zero_points: false };
        let [n, k] = [3, 96];
        let layout = QuantLayout::new(OP, format, n, k).unwrap();
        // All quants are 12, four above the zero point.
        let mut planes = vec![0xCC; layout.bytes];
        let scales = layout.scales.offset..layout.scales.offset + n * layout.scales.row_bytes;
        planes[scales].chunks_exact_mut(2).for_each(|scale| scale.copy_from_slice(&[0x00, 0x7C]));
        for m in [1, 8, 35] {
            let tile = Tile { ragged: m > 1, ..Tile::new(m.min(32), 1) };
            let mut test = SelfTest::new(&ctx);
            let (b, c) = (test.upload(&planes).unwrap(), test.upload(&vec![0xff; 4 * m * n]).unwrap());
            let windows =
                Operands::alone(&ctx, test.halves(&vec![1; m * k]).unwrap(), ctx.output(&c, DType::F32));
            let stored = Stored { layout: &layout, slice: Some(&b) };
            let planes = Planes::new(&ctx, OP, stored, (0, n), &windows.product.c).unwrap();
            let matrix = |dtype, ld| Matrix::new(0, dtype, ld);
            let b = QuantMatrix::new(0, format, n, k);
            let desc = QuantMatmulDesc::new(m, matrix(DType::F16, k), b, matrix(DType::F32, n));
            let params = Params::new(OP, &desc, &windows, &planes, n, tile.tile(false)).unwrap();
            let [quants, high, scales, extra] = planes.windows();
            let Operands { product: ProductOperands { a, bias, c: to }, residual, .. } = &windows;
            let bound = [quants, high, scales, extra, a, bias, residual, to];
            let grid = linear_grid(OP, params.product.tiles as usize).unwrap();
            test.launch(&tile.plain(format), &bound, &params, grid).unwrap();
            let mut bytes = vec![0; 4 * m * n];
            test.read(&c, &mut bytes).unwrap();
            assert!(
                bytemuck::pod_collect_to_vec::<u8, f32>(&bytes).iter().all(|&x| x == f32::INFINITY),
                "{m} rows"
            );
        }
    }

    /// The kernels of a product of `m` rows of f16, whose columns are `n` or half of that with a gate.
    fn explain(backend: &WebGpuBackend, m: usize, [n, k, lda]: [usize; 3], gate: Option<Gate>) -> String {
        let [a, b, c] = [(); 3].map(|()| backend.alloc(1 << 29).unwrap());
        let matrix = |ptr, ld| Matrix::new(ptr, DType::F16, ld);
        let width = if gate.is_some() { n / 2 } else { n };
        let b = QuantMatrix::new(b, QuantFormat::Q4_K, n, k);
        let mut desc = QuantMatmulDesc::new(m, matrix(a, lda), b, matrix(c, width));
        desc.gate = gate;
        backend.explain_quant_matmul(&desc).unwrap()
    }

    /// A gate apart from a product that this kernel makes, too, would be a launch for nothing.
    #[test]
    fn gates_of_up_to_a_hundred_rows_are_opened_in_the_product() {
        let backend = crate::ops::plans::of_h200();
        for m in [33, 48, 64] {
            for shape in [[28672, 4096, 4096], [19456, 2560, 2560], [9728, 1024, 1024]] {
                let plan = explain(&backend, m, shape, Some(Gate::Swiglu));
                assert_eq!(plan, "quant/skinny_cooperative", "{m} rows, {shape:?}");
            }
        }
        for m in 33..=256 {
            let plan = explain(&backend, m, [19456, 2560, 2560], Some(Gate::Swiglu));
            assert!(!plan.contains("skinny_cooperative, "), "{m} rows: {plan}");
        }
        assert!(!explain(&backend, 257, [4096; 3], None).contains("skinny"));
    }

    /// Rows that reach beyond a binding are divided by the kernels of matrices.
    #[test]
    fn operands_beyond_a_binding_are_left_to_kernels_that_divide_them() {
        let backend = crate::ops::plans::of_h200_with_bindings(2 << 20, 1 << 30);
        for m in [33, 64, 128, 256] {
            let plan = explain(&backend, m, [256, 4096, 65536], None);
            assert!(plan.contains("gemm/"), "{m} rows: {plan}");
        }
    }

    #[test]
    fn many_tiles_share_normalised_rows() {
        let is_persistent = |n, normed| choose(1, QuantFormat::Q4_0, [n, 4096], normed).persistent;
        assert_eq!([6144, 14336, 28672].map(|n| is_persistent(n, true)), [false, true, true]);
        assert!(!is_persistent(28672, false));
    }
}
