//! The kernels for products with experts.

use backend_api::desc::ExpertMatmulDesc;
use backend_api::quant::QuantFormat;
use backend_api::{DType, Gate};

use super::expert_cooperative::{self, Tile};
use super::expert_operands::{Params, Tiling};
use super::expert_order::order_variant;
use super::formats::{kinds, product_libs};
use super::kernel::DECODE_LANES;
use crate::kernels::{KernelSource, Variant, constants, kernel, params};

constants! { struct RowConstants { columns_per_group: usize, gated: bool, gate: Gate } }
constants! { struct SubgroupConstants { columns_per_group: usize, subgroup: u32, gated: bool, gate: Gate } }
constants! { struct TileConstants { gated: bool, gate: Gate } }

static EXPERT_DECODE: KernelSource = kernel!(
    "quant/expert_decode", libs: [WORKGROUP_TILES, GATE, QUANT_PLANES, QUANT_LANES, QUANT_EXPERT_SUMS],
    types: ["TA", "TC"], constants: RowConstants, params: Params,
    reads: ["quants", "high", "scales", "extra", "a: AV", "indices: u32", "factors: f32"], writes: ["c: TC"],
);

static EXPERT_DECODE_SUBGROUP: KernelSource = KernelSource {
    subgroups: true,
    ..kernel!(
        native "quant/expert_decode_subgroup", libs: [SUBGROUP_TILES, GATE, QUANT_PLANES, QUANT_EXPERT_SUMS],
        types: ["TA", "TC"], constants: SubgroupConstants, params: Params,
        reads: ["quants", "high", "scales", "extra", "a: AV", "indices: u32", "factors: f32"], writes: ["c: TC"],
    )
};

static EXPERT_TILED: KernelSource = kernel!(
    "quant/expert_tiled", libs: [WORKGROUP_TILES, GATE, QUANT_PLANES, QUANT_TILE, QUANT_EXPERT_TILES],
    types: ["TA", "TC"], constants: TileConstants, params: Params,
    reads: ["quants", "high", "scales", "extra", "a: AV", "bias: f32", "plan: u32"], writes: ["c: TC"],
);

static EXPERT_SUM: KernelSource = kernel!(
    "quant/expert_sum", libs: [INVOCATION_OUTPUTS, QUANT_EXPERTS],
    types: ["TC"], constants: [], params: SumParams,
    reads: ["products: f32", "indices: u32", "weights: f32"], writes: ["c: TC"],
);

params! {
    pub(super) struct SumParams {
        total: u32,
        n: u32,
        experts_per_sum: u32,
        experts: u32,
        products: u32,
        indices: u32,
        weights: u32,
        terms: u32,
        c: u32,
        c_ld: u32,
    }
}

/// Rows of a tile of `quant/expert_tiled`, and columns of its product.
const TILE: usize = 64;

/// Rows of B that invocations share, and of which a workgroup makes results.
const COLUMNS_PER_GROUP: usize = 2;
const DECODE_LINES: usize = 4 * COLUMNS_PER_GROUP;

/// Invocations of the subgroups that `quant/expert_decode_subgroup` has variants for.
pub(super) const SUBGROUPS: [u32; 2] = [8, 32];

/// Results of a workgroup of `quant/expert_sum`.
pub(super) const SUM_WORKGROUP: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    /// `quant/expert_decode`.
    Decode,
    /// `quant/expert_decode_subgroup` for subgroups of so many invocations.
    DecodeSubgroup(u32),
    /// `quant/expert_tiled`, of rows in the order of `quant/expert_order`.
    Tiled,
    /// On tensor cores.
    Cooperative(Tile),
}

impl Kernel {
    /// How it divides a product with rows of so many units.
    pub(super) fn tiling(self, desc: &ExpertMatmulDesc, units: usize) -> Tiling {
        let columns = |lines: usize| if desc.gate.is_some() { lines / 2 } else { lines };
        match self {
            Self::Decode | Self::DecodeSubgroup(_) => {
                Tiling { columns: columns(DECODE_LINES), ordered_rows: None, shares: 1 }
            }
            Self::Tiled => Tiling { columns: columns(TILE), ordered_rows: Some(TILE), shares: 1 },
            Self::Cooperative(tile) => tile.tiling(desc, units),
        }
    }

    /// Whether it makes tiles of rows that `quant/expert_order` has put into order.
    pub(super) const fn is_ordered(self) -> bool {
        match self {
            Self::Decode | Self::DecodeSubgroup(_) => false,
            Self::Tiled => true,
            Self::Cooperative(tile) => tile.ordered_rows().is_some(),
        }
    }

    /// Whether it binds biases beside the weights of sums.
    pub(super) const fn sums_biases(self) -> bool {
        match self {
            Self::Cooperative(tile) => tile.sums_biases(),
            _ => false,
        }
    }

    /// The most iterations of an invocation's loops along a row of so many units, for each of its experts: with those
    /// within a step, as drivers count them that have a limit.
    pub(super) const fn iterations(self, units: usize) -> usize {
        // A step of lib/quant_sums and its loop over four blocks; an expert and the loop over its COLUMNS_PER_GROUP sums. Drivers
        // count the iteration in which a loop ends, too.
        const STEP: usize = 1 + 4 + 1;
        const PER_EXPERT: usize = 1 + 2 + 1;
        let lanes = match self {
            Self::Decode => DECODE_LANES,
            Self::DecodeSubgroup(size) => size as usize,
            Self::Tiled => return units.saturating_mul(4 * 32),
            Self::Cooperative(_) => return units.saturating_add(PER_EXPERT),
        };
        units.saturating_mul(4).div_ceil(lanes).saturating_mul(STEP).saturating_add(PER_EXPERT)
    }

    /// `vectors` says that A is read four numbers at a time.
    pub(super) fn variant(
        self,
        format: QuantFormat,
        [a, c]: [DType; 2],
        gate: Option<Gate>,
        vectors: bool,
    ) -> Variant {
        let (gated, gate, columns_per_group) =
            (gate.is_some(), gate.unwrap_or(Gate::Swiglu), COLUMNS_PER_GROUP);
        let variant = match self {
            Self::Decode => {
                Variant::new(&EXPERT_DECODE, [a, c], RowConstants { columns_per_group, gated, gate })
            }
            Self::DecodeSubgroup(subgroup) => {
                let constants = SubgroupConstants { columns_per_group, subgroup, gated, gate };
                Variant::new(&EXPERT_DECODE_SUBGROUP, [a, c], constants)
            }
            Self::Tiled => Variant::new(&EXPERT_TILED, [a, c], TileConstants { gated, gate }),
            Self::Cooperative(tile) => return tile.variant(format, c, Some(gate).filter(|_| gated)),
        };
        variant.with_libs(product_libs(format, vectors, c == DType::F16))
    }
}

pub(super) fn sum_variant(dtype: DType) -> Variant {
    Variant::new(&EXPERT_SUM, [dtype], [])
}

/// Each kernel for each format and width of A; types and gates, on which the rest of the text doesn't depend, take
/// alternate.
pub(super) fn variants() -> Vec<Variant> {
    use DType::{F16, F32};
    const DTYPES: [[DType; 2]; 4] = [[F32, F32], [F16, F32], [F32, F16], [F16, F16]];
    let subgroups = SUBGROUPS.map(Kernel::DecodeSubgroup);
    let mut variants = Vec::new();
    for kernel in subgroups.into_iter().chain([Kernel::Decode, Kernel::Tiled]) {
        for format in kinds() {
            for vectors in [false, true] {
                let index = variants.len();
                let gate = [None, Some(Gate::ALL[index / 4 % Gate::ALL.len()])][(index + index / 2) % 2];
                variants.push(kernel.variant(format, DTYPES[index / 2 % 4], gate, vectors));
            }
        }
    }
    variants.extend([sum_variant(F32), sum_variant(F16)]);
    variants.extend([8, 16, 32, TILE].map(order_variant));
    variants.extend(expert_cooperative::variants());
    variants
}
