//! The kernels for products with a quantised matrix, and which of them makes one.

use backend_api::desc::QuantMatmulDesc;
use backend_api::quant::{QuantFormat, UNIT};
use backend_api::{Activation, DType, Gate};

use super::append::AppendParams;
use super::formats::{int8_libs, kinds, product_libs};
use super::int8;
use super::kernel_override::KernelOverride;
use super::operands::Params;
use super::skinny_cooperative::Tile;
use crate::kernels::libs::{
    QUANT_LANES, QUANT_PLANES, QUANT_PRODUCT, QUANT_RESIDUAL, QUANT_RESULTS, QUANT_SUMS_INT8, SUBGROUP_TILES,
    WORKGROUP_TILES,
};
use crate::kernels::{KernelSource, Variant, constants, kernel};
use crate::ops::op_context::OpContext;
use crate::ops::shared::iterations;

constants! { struct RowConstants { rows: usize, columns_per_group: usize, activation: Activation } }
constants! { struct SubgroupConstants { rows: usize, columns_per_group: usize, subgroup: u32, activation: Activation } }
constants! { struct TileConstants { activation: Activation } }

const DECODE_ROWWISE: KernelSource = kernel!(
    "quant/decode",
    libs: [WORKGROUP_TILES, QUANT_PLANES, QUANT_PRODUCT, QUANT_RESULTS, QUANT_RESIDUAL, QUANT_LANES, QUANT_SUMS],
    types: ["TA", "TC"], constants: RowConstants, params: Params,
    reads: ["quants", "high", "scales", "extra", "a: AV", "bias: TC", "residual: TC"], writes: ["c: TC"],
);

const DECODE_SHARED: KernelSource = KernelSource {
    subgroups: true,
    ..kernel!(
        native "quant/decode_subgroup",
        libs: [SUBGROUP_TILES, QUANT_PLANES, QUANT_PRODUCT, QUANT_RESULTS, QUANT_RESIDUAL, QUANT_SUMS],
        types: ["TA", "TC"], constants: SubgroupConstants, params: Params,
        reads: ["quants", "high", "scales", "extra", "a: AV", "bias: TC", "residual: TC"], writes: ["c: TC"],
    )
};

static DECODE: KernelSource = DECODE_ROWWISE;
static DECODE_SUBGROUP: KernelSource = DECODE_SHARED;

/// The files for rows of A that are rounded to 8 bits.
static DECODE_INT8: KernelSource = KernelSource {
    libs: &[
        WORKGROUP_TILES,
        QUANT_PLANES,
        QUANT_PRODUCT,
        QUANT_RESULTS,
        QUANT_RESIDUAL,
        QUANT_LANES,
        QUANT_SUMS_INT8,
    ],
    ..DECODE_ROWWISE
};
static DECODE_SUBGROUP_INT8: KernelSource = KernelSource {
    libs: &[SUBGROUP_TILES, QUANT_PLANES, QUANT_PRODUCT, QUANT_RESULTS, QUANT_RESIDUAL, QUANT_SUMS_INT8],
    ..DECODE_SHARED
};

/// A kernel of products whose keys and values go to a cache, which takes values that may be in C before.
macro_rules! appended {
    ($name:literal, [$($lib:ident),*], $constants:ty, reads: [$($read:literal),*], writes: [$($write:literal),*]) => {
        KernelSource {
            mixes_outputs: true,
            ..kernel!(
                native $name, libs: [QUANT_PLANES, QUANT_PRODUCT, QUANT_NO_RESIDUAL, QUANT_SUMS, $($lib),*],
                types: ["TA", "TC", "KV"], constants: $constants, params: AppendParams,
                reads: [
                    "quants", "high", "scales", "extra", "a: AV", "bias: TC",
                    "cosines: f32", "sines: f32", "positions: u32", "indices: u32", $($read),*
                ],
                writes: ["c: TC", "cache: KV", $($write),*],
            )
        }
    };
}

static DECODE_APPENDED: KernelSource = appended!(
    "quant/decode", [WORKGROUP_TILES, QUANT_LANES, QUANT_RESULTS_APPENDED], RowConstants, reads: [], writes: []
);
static DECODE_SUBGROUP_APPENDED: KernelSource = KernelSource {
    subgroups: true,
    ..appended!(
        "quant/decode_subgroup", [SUBGROUP_TILES, QUANT_RESULTS_APPENDED], SubgroupConstants, reads: [], writes: []
    )
};

/// Products of one row with QK-norm.
static DECODE_QK_NORM: KernelSource = appended!(
    "quant/decode", [WORKGROUP_TILES, QUANT_LANES, QUANT_RESULTS_QK_NORM], RowConstants,
    reads: ["query_norm: TC", "key_norm: TC"], writes: ["fixup: atomic<u32>"]
);
static DECODE_SUBGROUP_QK_NORM: KernelSource = KernelSource {
    subgroups: true,
    ..appended!(
        "quant/decode_subgroup", [SUBGROUP_TILES, QUANT_RESULTS_QK_NORM], SubgroupConstants,
        reads: ["query_norm: TC", "key_norm: TC"], writes: ["fixup: atomic<u32>"]
    )
};

static TILED: KernelSource = kernel!(
    "quant/tiled", libs: [WORKGROUP_TILES, QUANT_PLANES, QUANT_TILE, QUANT_PRODUCT, QUANT_RESIDUAL],
    types: ["TA", "TC"], constants: TileConstants, params: Params,
    reads: ["quants", "high", "scales", "extra", "a: AV", "bias: TC", "residual: TC"], writes: ["c: TC"],
);

/// Rows of A for which there are variants of `quant/decode`.
const DECODE_ROWS: [usize; 4] = [1, 2, 4, 8];

/// Rows of A above which `quant/tiled` reads B less often.
const MOST_DECODE_ROWS: usize = 32;

/// Invocations of the subgroups that `quant/decode_subgroup` has variants for.
const SUBGROUPS: [u32; 2] = [8, 32];

/// Invocations of `quant/decode` that share rows of B.
pub(super) const DECODE_LANES: usize = 32;

/// Rows of B that its invocations share, and columns of C that a workgroup makes of them.
const COLUMNS_PER_GROUP: usize = 2;
const DECODE_COLUMNS: usize = 4 * COLUMNS_PER_GROUP;

/// Workgroup memory of every device, half of which `quant/decode` has for sums.
const LEAST_WORKGROUP_BYTES: usize = 16 << 10;
const _: () = {
    let [.., most] = DECODE_ROWS;
    assert!(most * COLUMNS_PER_GROUP * 4 * DECODE_LANES * size_of::<f32>() <= LEAST_WORKGROUP_BYTES / 2);
};

/// Rows and columns of a tile of `quant/tiled`.
pub(super) const TILE: usize = 64;

/// The kernel for a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    /// `quant/decode`.
    Decode(Rows),
    /// `quant/decode_subgroup` for subgroups of so many invocations.
    DecodeSubgroup(Rows, u32),
    /// `quant/skinny_cooperative`.
    SkinnyCooperative(Tile),
    Tiled,
}

/// The rows of A that a workgroup multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    count: usize,
    /// Whether they are rounded to 8 bits.
    int8: bool,
}

impl Rows {
    /// The rows of a workgroup for `m` rows of A; `None` if reading B for each would take long.
    fn choose(m: usize, int8: bool) -> Option<Self> {
        let [.., most] = DECODE_ROWS;
        let count = DECODE_ROWS.into_iter().find(|&count| m <= count).unwrap_or(most);
        (m <= MOST_DECODE_ROWS).then_some(Self { count, int8 })
    }

    /// Iterations of lib/quant_sums along a row of so many units that lanes share. A step goes through four blocks, and
    /// lavapipe, which unrolls the loop over one row, may leave that over several as it is.
    const fn iterations(self, units: usize, lanes: usize) -> usize {
        let step = if self.count == 1 { 6 } else { 4 * (self.count + 2) + 3 };
        units.saturating_mul((4 * step).div_ceil(lanes))
    }
}

impl Kernel {
    /// The kernel for a product: the one that is asked for, if it can make it. `tile` is the workgroup on tensor cores,
    /// if they can. Where loops would be longer than the device's may be, more lanes share a row of B, and a workgroup
    /// has one row of A.
    pub(super) fn plan(
        ctx: &OpContext,
        desc: &QuantMatmulDesc,
        tile: Option<Tile>,
        asked: Option<KernelOverride>,
    ) -> Self {
        let subgroup = ctx.gpu().subgroup.filter(|size| SUBGROUPS.contains(size));
        let int8 = int8::is_possible(ctx, desc);
        let units = desc.k().div_ceil(UNIT);
        let has_end = |kernel: &Self| iterations::exceeded(ctx, kernel.iterations(units)).is_none();
        let asked = asked.and_then(|asked| Self::asked_for(asked, desc.m, subgroup, tile, int8));
        if let Some(kernel) = asked.filter(has_end) {
            return kernel;
        }
        let kernel = match tile {
            Some(tile) => Self::SkinnyCooperative(tile),
            None => Self::choose(desc.m, subgroup, int8 && int8::is_faster(ctx, desc)),
        };
        let (Self::DecodeSubgroup(rows, _) | Self::Decode(rows)) = kernel else { return kernel };
        let single = Self::Decode(Rows { count: 1, ..rows });
        [kernel, Self::Decode(rows)].into_iter().find(has_end).unwrap_or(single)
    }

    /// The kernel for `m` rows, on a device whose subgroups all have `subgroup` invocations.
    fn choose(m: usize, subgroup: Option<u32>, int8: bool) -> Self {
        match (Rows::choose(m, int8), subgroup) {
            (Some(rows), Some(size)) => Self::DecodeSubgroup(rows, size),
            (Some(rows), None) => Self::Decode(rows),
            (None, _) => Self::Tiled,
        }
    }

    /// The kernel that is asked for, if it can make a product of `m` rows.
    fn asked_for(
        asked: KernelOverride,
        m: usize,
        subgroup: Option<u32>,
        tile: Option<Tile>,
        int8: bool,
    ) -> Option<Self> {
        let rows = |int8| Rows::choose(m, int8);
        match asked {
            KernelOverride::Decode => rows(false).map(Self::Decode),
            KernelOverride::DecodeInt8 => rows(true).filter(|_| int8).map(Self::Decode),
            KernelOverride::DecodeSubgroup => Some(Self::DecodeSubgroup(rows(false)?, subgroup?)),
            KernelOverride::DecodeSubgroupInt8 if int8 => Some(Self::DecodeSubgroup(rows(true)?, subgroup?)),
            KernelOverride::DecodeSubgroupInt8 => None,
            KernelOverride::SkinnyCooperative => tile.map(Self::SkinnyCooperative),
            KernelOverride::Tiled => Some(Self::Tiled),
        }
    }

    /// Workgroups for so many tiles of C.
    pub(super) fn workgroups(self, ctx: &OpContext, tiles: usize) -> usize {
        match self {
            Self::SkinnyCooperative(tile) => tile.workgroups(ctx, tiles),
            _ => tiles,
        }
    }

    /// Whether the activations are rounded to 8 bits.
    pub(super) const fn is_int8(self) -> bool {
        matches!(self, Self::Decode(rows) | Self::DecodeSubgroup(rows, _) if rows.int8)
    }

    /// Whether its results may also go to a cache. Pages are without the texts for it.
    pub(super) const fn may_append(self) -> bool {
        !cfg!(target_family = "wasm") && !self.is_int8() && !matches!(self, Self::Tiled)
    }

    /// Whether a workgroup has one row of A.
    const fn has_one_row(self) -> bool {
        let [rows, _] = self.tile(false);
        rows == 1
    }

    /// Whether a workgroup has room for so many bytes of something else, too. One that makes tile after tile has none.
    pub(super) fn has_room_beside(self, ctx: &OpContext, normed: bool, bytes: usize) -> bool {
        match self {
            Self::SkinnyCooperative(tile) => {
                !tile.is_persistent() && tile.has_room_beside(ctx, normed, bytes)
            }
            // Half of what every device has is free.
            Self::Decode(_) | Self::DecodeSubgroup(..) => bytes <= LEAST_WORKGROUP_BYTES / 2,
            Self::Tiled => false,
        }
    }

    pub(super) const fn tile(self, gated: bool) -> [usize; 2] {
        match self {
            Self::Decode(rows) | Self::DecodeSubgroup(rows, _) => [rows.count, DECODE_COLUMNS],
            Self::SkinnyCooperative(tile) => tile.tile(gated),
            Self::Tiled => [TILE, TILE],
        }
    }

    /// Steps of an invocation's loop along a row of so many units.
    pub(super) const fn steps(self, units: usize) -> usize {
        match self {
            Self::Decode(_) | Self::DecodeSubgroup(..) => units.div_ceil(2),
            Self::SkinnyCooperative(tile) => tile.iterations(units),
            Self::Tiled => units.saturating_mul(4 * 32),
        }
    }

    /// The most iterations of all of an invocation's loops along a row of so many units, as drivers count them that
    /// have a limit: with those within a step, unless they are unrolled.
    pub(super) const fn iterations(self, units: usize) -> usize {
        match self {
            Self::Decode(rows) => rows.iterations(units, DECODE_LANES),
            Self::DecodeSubgroup(rows, size) => rows.iterations(units, size as usize),
            Self::SkinnyCooperative(_) | Self::Tiled => self.steps(units),
        }
    }

    pub(super) fn variant(self, signature: &Signature) -> Variant {
        let Signature { format, dtypes: [a, c], activation, vectors, cache, .. } = *signature;
        // So that pages are without the kernels that no page launches.
        let cache = cache.filter(|_| !cfg!(target_family = "wasm"));
        let (half, columns_per_group) = (c == DType::F16, COLUMNS_PER_GROUP);
        // Integers are read as words, whatever they were rounded from.
        let a = if self.is_int8() { DType::U32 } else { a };
        let variant = match self {
            Self::SkinnyCooperative(tile) => return tile.variant(signature),
            Self::Decode(Rows { count: rows, int8 }) => {
                let constants = RowConstants { rows, columns_per_group, activation };
                match cache {
                    Some(Appended { dtype, qk_norm }) => {
                        let source = if qk_norm { &DECODE_QK_NORM } else { &DECODE_APPENDED };
                        Variant::new(source, [a, c, dtype], constants)
                    }
                    None => Variant::new(if int8 { &DECODE_INT8 } else { &DECODE }, [a, c], constants),
                }
            }
            Self::DecodeSubgroup(Rows { count: rows, int8 }, subgroup) => {
                let constants = SubgroupConstants { rows, columns_per_group, subgroup, activation };
                let source = if int8 { &DECODE_SUBGROUP_INT8 } else { &DECODE_SUBGROUP };
                match cache {
                    Some(Appended { dtype, qk_norm }) => {
                        let source =
                            if qk_norm { &DECODE_SUBGROUP_QK_NORM } else { &DECODE_SUBGROUP_APPENDED };
                        Variant::new(source, [a, c, dtype], constants)
                    }
                    None => Variant::new(source, [a, c], constants),
                }
            }
            Self::Tiled => Variant::new(&TILED, [a, c], TileConstants { activation }),
        };
        variant.with_libs(if self.is_int8() {
            int8_libs(format, half)
        } else {
            product_libs(format, vectors, half)
        })
    }
}

/// What a product's text depends on besides the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signature {
    pub(super) format: QuantFormat,
    /// Of A and C.
    pub(super) dtypes: [DType; 2],
    pub(super) activation: Activation,
    /// Whether A is read four numbers at a time.
    pub(super) vectors: bool,
    /// Whether its rows are normalised.
    pub(super) normed: bool,
    /// The function of both halves of the product, in place of the activation.
    pub(super) gate: Option<Gate>,
    /// The cache that a product of queries, keys and values is appended to.
    pub(super) cache: Option<Appended>,
}

/// What is done with queries, keys and values on their way to a cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Appended {
    /// Of the cache.
    pub(super) dtype: DType,
    /// Whether each head of queries and keys is normalised (QK-norm).
    pub(super) qk_norm: bool,
}

/// Each kernel for each format and width of A; types and activations, on which the rest of the text doesn't
/// depend, alternate.
pub(super) fn variants() -> Vec<Variant> {
    use DType::{F16, F32};
    const DTYPES: [[DType; 2]; 4] = [[F32, F32], [F16, F32], [F32, F16], [F16, F16]];
    let mut variants: Vec<Variant> = Vec::new();
    let decoding = |int8| {
        let rows = DECODE_ROWS.map(|count| Rows { count, int8 });
        let subgroups = SUBGROUPS.map(|size| rows.map(|rows| Kernel::DecodeSubgroup(rows, size))).concat();
        rows.map(Kernel::Decode).into_iter().chain(subgroups)
    };
    let mut index = 0;
    for kernel in decoding(false).chain([Kernel::Tiled]).chain(decoding(true)) {
        for (format, vectors) in kinds().flat_map(|format| [(format, false), (format, true)]) {
            if kernel.is_int8() && !(vectors && format.takes_int8()) {
                continue;
            }
            let (dtypes, activation) =
                (DTYPES[index / 2 % 4], Activation::ALL[index % Activation::ALL.len()]);
            let signature =
                Signature { format, dtypes, activation, vectors, normed: false, gate: None, cache: None };
            variants.push(kernel.variant(&signature));
            if kernel.may_append() {
                let dtype = if index / 8 % 2 == 0 { F16 } else { F32 };
                let activation = Activation::Identity;
                let cache = Some(Appended { dtype, qk_norm: kernel.has_one_row() && index / 16 % 2 == 1 });
                variants.push(kernel.variant(&Signature { activation, cache, ..signature }));
            }
            index += 1;
        }
    }
    variants
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn rows(count: usize) -> Rows {
        Rows { count, int8: false }
    }

    #[test]
    fn few_rows_take_the_smallest_tile_that_holds_them() {
        let of = [0, 1, 2, 3, 5, 8, 9, 32].map(|m| Kernel::choose(m, None, false).tile(false)[0]);
        assert_eq!(of, [1, 1, 2, 4, 8, 8, 8, 8]);
        assert_eq!(Kernel::choose(33, Some(32), true), Kernel::Tiled);
        assert_eq!(Kernel::choose(3, Some(32), false), Kernel::DecodeSubgroup(rows(4), 32));
        assert_eq!(Kernel::choose(3, None, true), Kernel::Decode(Rows { count: 4, int8: true }));
    }

    #[test]
    fn iterations_of_loops_within_steps_are_counted() {
        // Lavapipe made 43 for a step over eight rows that are read number by number, and 6 over one row.
        let counted = |kernel: Kernel| kernel.iterations(3200);
        assert_eq!(counted(Kernel::DecodeSubgroup(rows(8), 8)), 3200 * 43_usize.div_ceil(2));
        assert_eq!(counted(Kernel::DecodeSubgroup(rows(1), 8)), 3200 * 3);
        assert_eq!([1, 2, 8].map(|count| counted(Kernel::Decode(rows(count)))), [3200, 3200 * 3, 3200 * 6]);
        assert_eq!(counted(Kernel::Tiled), 3200 * 128);
    }

    #[test]
    fn a_kernel_that_cannot_make_a_product_is_not_used_for_it() {
        let asked = |kernel, m, subgroup, int8| Kernel::asked_for(kernel, m, subgroup, None, int8);
        assert_eq!(asked(KernelOverride::Decode, 9, None, true), Some(Kernel::Decode(rows(8))));
        assert_eq!(asked(KernelOverride::Decode, 33, None, true), None);
        assert_eq!(asked(KernelOverride::DecodeSubgroup, 1, None, true), None);
        for kernel in [KernelOverride::DecodeInt8, KernelOverride::DecodeSubgroupInt8] {
            assert_eq!(asked(kernel, 2, Some(32), false), None);
            assert!(asked(kernel, 2, Some(32), true).is_some_and(Kernel::is_int8));
        }
        assert_eq!(asked(KernelOverride::SkinnyCooperative, 1, Some(32), false), None);
        assert_eq!(asked(KernelOverride::Tiled, 1, None, false), Some(Kernel::Tiled));
    }
}
