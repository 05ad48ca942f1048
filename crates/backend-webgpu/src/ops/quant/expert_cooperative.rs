//! quant/expert_decode_cooperative and quant/expert_rows_cooperative: products of rows of f16 with experts on tensor cores.

use backend_api::desc::ExpertMatmulDesc;
use backend_api::quant::{QuantFormat, QuantLayout, UNIT};
use backend_api::{BackendResult, DType, Gate};

use super::expert_operands::{Operands, Params, Tiling};
use super::expert_self_test::check_experts;
use super::formats::{fragment_libs, has_half_blocks, kinds};
use super::skinny_cooperative::{step_of_k, tested_columns};
use crate::kernels::{KernelSource, Variant, constants, kernel};
use crate::ops::has_room;
use crate::ops::op_context::OpContext;
use crate::ops::shared::tensor_cores::{FRAGMENT, SUBGROUP};

constants! { struct DecodeConstants { subgroups: usize, half_blocks: bool, gated: bool, gate: Gate } }

constants! {
    struct RowsConstants {
        subgroups: usize,
        rows: usize,
        half_blocks: bool,
        ragged: bool,
        gated: bool,
        gate: Gate,
    }
}

/// The file for a row of C, with a file that has biases of sums and the bindings that are read.
macro_rules! one_row {
    ($biases:ident, $reads:expr) => {
        KernelSource {
            cooperative: true,
            subgroups: true,
            ..kernel!(
                native "quant/expert_decode_cooperative",
                libs: [
                    WORKGROUP_TILES, QUANT_PLANES, FRAGMENT_ELEMENTS, GATE, QUANT_EXPERT_FRAGMENTS, QUANT_EXPERT_INDICES,
                    $biases,
                ],
                types: ["TA", "TC"], constants: DecodeConstants, params: Params, reads: $reads, writes: ["c: TC"],
            )
        }
    };
}

static DECODE: KernelSource = one_row!(
    QUANT_EXPERT_NO_BIASES,
    ["quants", "high", "scales", "extra", "a: vec4<u32>", "indices: u32", "factors: f32"]
);

static DECODE_BIASED: KernelSource = one_row!(
    QUANT_EXPERT_BIASES,
    ["quants", "high", "scales", "extra", "a: vec4<u32>", "indices: u32", "factors: f32", "bias: f32"]
);

static ROWS: KernelSource = KernelSource {
    cooperative: true,
    subgroups: true,
    ..kernel!(
        native "quant/expert_rows_cooperative",
        libs: [WORKGROUP_TILES, QUANT_PLANES, FRAGMENT_ELEMENTS, GATE, QUANT_EXPERT_FRAGMENTS, QUANT_EXPERT_TILES],
        types: ["TA", "TC"], constants: RowsConstants, params: Params,
        reads: ["quants", "high", "scales", "extra", "a: vec4<u32>", "bias: f32", "plan: u32"],
        writes: ["c: TC"],
    )
};

/// Subgroups of a workgroup for one row: with few steps, with more, and where workgroups are so few that all run at once.
const LEAST_SUBGROUPS: usize = 4;
const FEW_SUBGROUPS: usize = 8;
const MANY_SUBGROUPS: usize = 16;

/// The workgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tile {
    /// One row of C, which may be a sum of products that have biases.
    Decode { subgroups: usize, biased: bool },
    /// Rows with one expert, which may end within a unit.
    Rows { rows: usize, subgroups: usize, ragged: bool },
}

impl Tile {
    /// The workgroup for products with a matrix of so many units in a row.
    fn choose(desc: &ExpertMatmulDesc, units: usize, compute_units: usize) -> Self {
        /// Indices for each expert from which rows are multiplied together: nearly two of three experts have one then, and a
        /// tile takes less than one and a half times as long as a row.
        const ROWS_TOGETHER: usize = 1;
        /// Indices for each expert up to which tiles have eight rows.
        const FEW_ROWS: usize = 6;
        /// Steps of a row up to which it has the fewest subgroups.
        const FEW_STEPS: usize = 12;
        /// Units of a row up to which a tile of several rows has one subgroup. There are always many tiles, and what subgroups
        /// have of one has to be added up.
        const SHORT_UNITS: usize = 24;
        /// Workgroups of a compute unit that run at once.
        const AT_ONCE: usize = 2;
        let pairs = desc.rows.saturating_mul(desc.used);
        let of_experts = |most: usize| desc.experts.saturating_mul(most);
        if desc.rows > 1 && pairs >= of_experts(ROWS_TOGETHER) {
            let rows = match pairs {
                _ if pairs <= of_experts(FEW_ROWS) => FRAGMENT / 2,
                _ if pairs <= of_experts(FRAGMENT) => FRAGMENT,
                _ => 2 * FRAGMENT,
            };
            let subgroups = if units <= SHORT_UNITS { 1 } else { LEAST_SUBGROUPS };
            return Self::Rows { rows, subgroups, ragged: !desc.k().is_multiple_of(UNIT) };
        }
        let columns = desc.b.rows.div_ceil(desc.experts).div_ceil(FRAGMENT);
        let (rows, experts_per_sum) =
            if desc.weights.is_some() { (desc.rows, desc.used) } else { (pairs, 1) };
        let steps = experts_per_sum.saturating_mul(steps(desc.b.format, units));
        let is_few = rows.saturating_mul(columns) <= AT_ONCE * compute_units;
        let subgroups = match steps {
            _ if is_few && steps > FEW_SUBGROUPS => MANY_SUBGROUPS,
            0..=FEW_STEPS => LEAST_SUBGROUPS,
            _ => FEW_SUBGROUPS,
        };
        Self::Decode { subgroups, biased: desc.weights.is_some() && desc.bias.is_some() }
    }

    /// The fastest workgroup for a product, if the device and the operands allow it.
    pub(super) fn candidate(
        ctx: &OpContext,
        desc: &ExpertMatmulDesc,
        layout: &QuantLayout,
        operands: &Operands,
    ) -> Option<Self> {
        let gpu = ctx.gpu();
        // No browser offers tensor cores.
        if cfg!(target_family = "wasm") || !(gpu.cooperative_matrices && gpu.takes_spirv) {
            return None;
        }
        let format = desc.b.format;
        let tile = match Self::choose(desc, layout.units, ctx.profile().compute_units) {
            // Then the sums are another launch's.
            Self::Decode { subgroups, biased: true } if !ctx.has_bindings(DECODE_BIASED.reads.len() + 1) => {
                Self::Decode { subgroups, biased: false }
            }
            tile => tile,
        };
        let fits = desc.a.dtype == DType::F16
            && desc.k() > 0
            && desc.k().is_multiple_of(step_of_k(format))
            && operands.has_vec8s(desc)
            && tile.takes(format)
            && tile.has_room(ctx);
        (fits && tile.passes(ctx, format)).then_some(tile)
    }

    /// Whether all blocks have one zero point, as lib/quant_blocks_in_columns needs.
    fn takes(self, format: QuantFormat) -> bool {
        matches!(self, Self::Rows { .. }) || format.zero_point().is_some()
    }

    fn has_room(self, ctx: &OpContext) -> bool {
        let bytes = self.ordered_rows().unwrap_or(1) * self.subgroups() * FRAGMENT * size_of::<f32>();
        has_room(&ctx.gpu().limits, self.subgroups() * SUBGROUP, bytes)
    }

    const fn subgroups(self) -> usize {
        match self {
            Self::Decode { subgroups, .. } | Self::Rows { subgroups, .. } => subgroups,
        }
    }

    const fn source(self) -> &'static KernelSource {
        match self {
            Self::Decode { biased: false, .. } => &DECODE,
            Self::Decode { biased: true, .. } => &DECODE_BIASED,
            Self::Rows { .. } => &ROWS,
        }
    }

    /// Whether it binds biases beside the weights of sums.
    pub(super) const fn sums_biases(self) -> bool {
        matches!(self, Self::Decode { biased: true, .. })
    }

    /// Rows of the tiles for which `quant/expert_order` puts indices into order, if it does.
    pub(super) const fn ordered_rows(self) -> Option<usize> {
        match self {
            Self::Decode { .. } => None,
            Self::Rows { rows, .. } => Some(rows),
        }
    }

    /// How it divides a product with rows of so many units.
    pub(super) fn tiling(self, desc: &ExpertMatmulDesc, units: usize) -> Tiling {
        let experts_per_sum = if desc.weights.is_some() { desc.used } else { 1 };
        Tiling {
            columns: if desc.gate.is_some() { FRAGMENT / 2 } else { FRAGMENT },
            ordered_rows: self.ordered_rows(),
            shares: self.shares(desc.b.format, experts_per_sum, units),
        }
    }

    /// Subgroups that share k: all, or where the products of so many experts are summed, as few as leave the fewest steps to each.
    fn shares(self, format: QuantFormat, experts_per_sum: usize, units: usize) -> usize {
        let subgroups = self.subgroups();
        if self.ordered_rows().is_some() {
            return subgroups;
        }
        let steps = steps(format, units);
        let shares = (0..).map(|shift| 1 << shift).take_while(|&shares| shares <= subgroups);
        let taken = |&shares: &usize| {
            steps.div_ceil(shares).saturating_mul(experts_per_sum.div_ceil(subgroups / shares))
        };
        shares.min_by_key(taken).unwrap_or(subgroups)
    }

    pub(super) fn variant(self, format: QuantFormat, dtype: DType, gate: Option<Gate>) -> Variant {
        let half_blocks = has_half_blocks(format);
        let (gated, gate) = (gate.is_some(), gate.unwrap_or(Gate::Swiglu));
        let types = [DType::F16, dtype];
        let variant = match self {
            Self::Decode { subgroups, .. } => {
                Variant::new(self.source(), types, DecodeConstants { subgroups, half_blocks, gated, gate })
            }
            Self::Rows { rows, subgroups, ragged } => {
                let constants = RowsConstants { subgroups, rows, half_blocks, ragged, gated, gate };
                Variant::new(self.source(), types, constants)
            }
        };
        let is_decode = matches!(self, Self::Decode { .. });
        variant.with_libs(fragment_libs(format, is_decode, None, dtype == DType::F16)).with_rolled_loops()
    }

    /// Whether the device makes right products with it; gates are arithmetic as everywhere.
    fn passes(self, ctx: &OpContext, format: QuantFormat) -> bool {
        let variant = self.variant(format, DType::F32, None);
        ctx.is_right(&variant, move |ctx| self.check(ctx, format, &variant))
    }

    /// More columns than a tile has, and more units than an iteration, the last of which isn't whole if the format and the
    /// tile allow it.
    fn check(self, ctx: &OpContext, format: QuantFormat, variant: &Variant) -> BackendResult<()> {
        let is_ragged = !matches!(self, Self::Rows { ragged: false, .. });
        let shape = [FRAGMENT + 5, tested_columns(format, 2 * self.subgroups(), is_ragged)];
        check_experts(ctx, format, shape, (variant, self), |desc, units| self.tiling(desc, units))
    }

    /// Every workgroup.
    fn all() -> impl Iterator<Item = Self> {
        let decode = [LEAST_SUBGROUPS, FEW_SUBGROUPS, MANY_SUBGROUPS]
            .into_iter()
            .flat_map(|subgroups| [false, true].map(|biased| Self::Decode { subgroups, biased }));
        let sizes = [FRAGMENT / 2, FRAGMENT, 2 * FRAGMENT]
            .into_iter()
            .flat_map(|rows| [1, LEAST_SUBGROUPS].map(|subgroups| (rows, subgroups)));
        let rows = sizes
            .flat_map(|(rows, subgroups)| [false, true].map(|ragged| Self::Rows { rows, subgroups, ragged }));
        decode.chain(rows)
    }
}

/// Steps of a subgroup along a row of so many units, if it has the row alone: of whole blocks, it takes two units at once.
fn steps(format: QuantFormat, units: usize) -> usize {
    if has_half_blocks(format) { units } else { units.div_ceil(2) }
}

/// Each workgroup for each kind of format, with types of C and gates alternating.
pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for tile in Tile::all() {
        let finest = QuantFormat::U4 { group: 16, zero_points: false };
        for format in kinds().chain([finest]).filter(|&format| tile.takes(format)) {
            let index = variants.len();
            let gate = (index % 3 > 0).then_some(Gate::ALL[index / 3 % Gate::ALL.len()]);
            variants.push(tile.variant(format, [DType::F16, DType::F32][index / 2 % 2], gate));
        }
    }
    variants
}

#[cfg(test)]
mod tests {
    use backend_api::desc::{Matrix, QuantMatrix};

    use super::*;
    use crate::WebGpuBackend;
    use crate::device::h200;

    /// Rows of 4096 for experts with 14336 inside, or of 2048 with 768.
    fn choose([rows, used, experts]: [usize; 3], [n, k]: [usize; 2], is_sum: bool) -> Tile {
        let a = Matrix::new(0, DType::F16, k);
        let b = QuantMatrix::new(0, QuantFormat::Q4_0, experts * n, k);
        let desc = ExpertMatmulDesc::new([rows, used, experts], a, b, 0, Matrix::new(0, DType::F16, n));
        let desc = if is_sum { desc.with_weights(0) } else { desc };
        Tile::choose(&desc, k.div_ceil(UNIT), h200::COMPUTE_UNITS)
    }

    #[test]
    fn one_row_has_subgroups_for_its_steps() {
        let subgroups = |used, sizes, is_sum| choose([1, used, 128], sizes, is_sum).subgroups();
        assert_eq!([subgroups(8, [1536, 2048], false), subgroups(8, [512, 768], false)], [4, 4]);
        assert_eq!([subgroups(8, [2048, 768], true), subgroups(2, [4096, 14336], true)], [16, 16]);
        // A row whose products are summed may have as many experts as there are.
        assert!(matches!(choose([1, 4, 4], [64, 64], false), Tile::Decode { .. }));
    }

    #[test]
    fn subgroups_have_experts_of_their_own_where_these_have_few_steps() {
        let shares = |experts_per_sum, units| {
            Tile::Decode { subgroups: 16, biased: false }.shares(QuantFormat::Q4_0, experts_per_sum, units)
        };
        // Three steps of eight experts, twelve of four, and 56 of two.
        assert_eq!([shares(8, 6), shares(4, 23), shares(2, 112)], [2, 4, 8]);
        assert_eq!([shares(1, 112), shares(64, 2)], [16, 1]);
    }

    #[test]
    fn rows_that_share_experts_are_multiplied_together() {
        let rows = |rows| choose([rows, 8, 128], [1536, 2048], false).ordered_rows();
        assert_eq!([1, 15, 16, 96, 256].map(rows), [None, None, Some(8), Some(8), Some(16)]);
        assert_eq!(rows(257), Some(32));
    }

    /// No adapter of a test machine has tensor cores. What the kernels do with them is as the self-test wants it where
    /// fragments are emulated.
    fn check_emulated(tile: Tile, formats: impl IntoIterator<Item = QuantFormat>) {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let ctx = backend.context("test").unwrap().context;
        assert!(ctx.gpu().device.features().contains(wgpu::Features::SHADER_F16));
        for format in formats {
            let checked = tile.check(&ctx.call(), format, &tile.variant(format, DType::F32, None));
            checked.unwrap_or_else(|error| panic!("{format} by {tile:?}: {error:?}"));
        }
    }

    #[test]
    fn experts_of_a_row_make_its_sums() {
        check_emulated(
            Tile::Decode { subgroups: 1, biased: false },
            [QuantFormat::Q4_0, QuantFormat::Mxfp4, QuantFormat::Q6_K],
        );
        check_emulated(Tile::Decode { subgroups: 1, biased: true }, [QuantFormat::Q8_0, QuantFormat::Mxfp4]);
    }

    #[test]
    fn rows_in_the_order_of_their_experts_make_products() {
        for (rows, ragged) in [(8, true), (16, false), (16, true), (32, false), (32, true)] {
            let formats = if ragged { QuantFormat::Mxfp4 } else { QuantFormat::Q4_K };
            check_emulated(Tile::Rows { rows, subgroups: 1, ragged }, [formats]);
        }
    }
}
