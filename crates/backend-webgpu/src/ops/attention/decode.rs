//! Attention of few queries by shuffles: the keys in one piece, or in pieces that attention/combine puts
//! together.

use backend_api::desc::AttentionDesc;
use backend_api::kv::KvFormat;
use backend_api::{BackendError, BackendResult};

use super::pieces::{Pieces, ROWS};
use super::{Params, Types, Windows, every_types, types};
use crate::kernels::libs::{ATTENTION_OUTPUTS, ATTENTION_PARTS, ROWS_1, ROWS_2, ROWS_4};
use crate::kernels::{KernelSource, Lib, Variant, kernel};
use crate::ops::op_context::OpContext;

const DECODE_ROWS: KernelSource = KernelSource {
    subgroups: true,
    ..kernel!(
        native "attention/decode",
        libs: [ATTENTION, ATTENTION_PIECES, ATTENTION_WIDE, ATTENTION_LOADS, ATTENTION_ROWS, ATTENTION_SINKS],
        types: ["T", "M"],
        constants: ["SUBGROUP", "LANES", "HALF_Q", "HALF_KV", "PAGED"],
        reads: 6,
        writes: 1,
        params: Params,
    )
};

/// The file with parts of rows as its output.
pub(super) static DECODE: KernelSource = DECODE_ROWS;

/// The file with whole rows as its output, and the logarithms of their sums.
static DECODE_WHOLE: KernelSource = KernelSource { writes: 2, ..DECODE_ROWS };

/// The files for keys and values of Q8_0, with parts of rows and with whole ones.
static DECODE_BLOCKS: KernelSource = DECODE_ROWS_OF_BLOCKS;
static DECODE_WHOLE_OF_BLOCKS: KernelSource = KernelSource { writes: 2, ..DECODE_ROWS_OF_BLOCKS };

const DECODE_ROWS_OF_BLOCKS: KernelSource = KernelSource {
    subgroups: true,
    ..kernel!(
        native "attention/decode",
        libs: [ATTENTION, ATTENTION_PIECES, ATTENTION_Q8_0, ATTENTION_LOADS, ATTENTION_ROWS, ATTENTION_SINKS],
        types: ["T", "M"],
        constants: ["SUBGROUP", "LANES", "HALF_Q", "HALF_KV", "PAGED"],
        reads: 6,
        writes: 1,
        params: Params,
    )
};

/// The helper files for so many rows, with all of their keys or a piece of them.
const fn libs(rows: usize, whole: bool) -> &'static [Lib] {
    match (rows, whole) {
        (1, true) => &[ATTENTION_OUTPUTS, ROWS_1],
        (2, true) => &[ATTENTION_OUTPUTS, ROWS_2],
        (_, true) => &[ATTENTION_OUTPUTS, ROWS_4],
        (1, false) => &[ATTENTION_PARTS, ROWS_1],
        (2, false) => &[ATTENTION_PARTS, ROWS_2],
        (_, false) => &[ATTENTION_PARTS, ROWS_4],
    }
}

/// Invocations of the subgroups that there are variants for.
const SUBGROUPS: [usize; 2] = [8, 32];

/// Lanes that a key may be spread over.
const LANES: [usize; 3] = [8, 16, 32];

/// Keys that a slot takes in a step.
const TURNS: usize = 4;

/// The most steps of a workgroup that takes all keys: together they are shorter than the launch that would put
/// pieces together.
const MOST_STEPS: usize = 7;

/// Subgroups of a workgroup, and the most slots of a subgroup.
const WORKGROUP: usize = 4;
const MOST_SLOTS: usize = 4;

/// How a workgroup is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    rows: usize,
    subgroup: usize,
    lanes: usize,
}

impl Tile {
    /// The tile for so many rows, where the device's subgroups and the vectors allow it.
    fn find(rows: usize, subgroup: Option<u32>, desc: &AttentionDesc) -> Option<Self> {
        let subgroup = subgroup.map(|size| size as usize).filter(|size| SUBGROUPS.contains(size))?;
        let width = desc.kv_format.dtype().map_or(8, |dtype| 16 / dtype.size());
        let long_enough = |&lanes: &usize| lanes <= subgroup && lanes * width >= desc.head_dim;
        LANES.into_iter().find(long_enough).map(|lanes| Self { rows, subgroup, lanes })
    }

    /// Keys that a workgroup works on side by side.
    fn slots(self) -> usize {
        WORKGROUP * self.subgroup / self.lanes
    }

    /// The most keys that a workgroup takes in few steps.
    fn few_keys(self) -> usize {
        MOST_STEPS * TURNS * self.slots()
    }

    /// Bytes of workgroup memory: vectors of eight elements for each lane, references and sums.
    fn workgroup_bytes(self) -> usize {
        WORKGROUP * self.rows * (8 * self.lanes + 2) * size_of::<f32>()
    }

    /// The variant for all of the keys, or for a piece of them.
    fn variant(self, types: Types, whole: bool) -> Variant {
        let [q, kv, paged] = types.constants();
        let source = match (types.kv == KvFormat::Q8_0, whole) {
            (false, false) => &DECODE,
            (false, true) => &DECODE_WHOLE,
            (true, false) => &DECODE_BLOCKS,
            (true, true) => &DECODE_WHOLE_OF_BLOCKS,
        };
        let constants = [self.subgroup as u32, self.lanes as u32, q, kv, paged];
        Variant::new(source, [types.q, types.mask()], constants)
            .with_libs(libs(self.rows, whole))
            .with_workgroup(WORKGROUP * self.subgroup, self.workgroup_bytes())
    }
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for rows in ROWS {
        for subgroup in SUBGROUPS {
            let lanes =
                LANES.into_iter().filter(|&lanes| lanes <= subgroup && subgroup <= MOST_SLOTS * lanes);
            for tile in lanes.map(|lanes| Tile { rows, subgroup, lanes }) {
                for whole in [false, true] {
                    variants.extend(every_types().map(|types| tile.variant(types, whole)));
                }
            }
        }
    }
    variants
}

/// Whether the kernel for so many rows can do it on this device, operands aside, which have to be read 16
/// bytes at a time.
pub(super) fn suits(ctx: &OpContext, desc: &AttentionDesc, rows: usize) -> bool {
    let most = ctx.gpu().limits.max_compute_workgroup_storage_size as usize;
    Tile::find(rows, ctx.gpu().subgroup, desc).is_some_and(|tile| tile.workgroup_bytes() <= most)
        && Pieces::fit(desc, rows)
}

/// Whether a workgroup with so many rows takes all keys in few steps.
pub(super) fn has_few_keys(ctx: &OpContext, desc: &AttentionDesc, rows: usize) -> bool {
    Tile::find(rows, ctx.gpu().subgroup, desc).is_some_and(|tile| desc.seq_kv <= tile.few_keys())
}

pub(super) fn run(
    ctx: &OpContext,
    op: &'static str,
    desc: &AttentionDesc,
    windows: &Windows,
    splits: usize,
    rows: usize,
) -> BackendResult<()> {
    let Some(tile) = Tile::find(rows, ctx.gpu().subgroup, desc) else {
        return Err(BackendError::Unsupported { op, need: "subgroups of 8 or 32".to_owned() });
    };
    let pieces = Pieces::new(desc, rows, splits, tile.slots());
    // Where values aren't finite, outputs in one launch take the scores of all keys for each element again, which
    // gets expensive with their number.
    let whole = pieces.count == 1 && desc.seq_kv <= tile.few_keys();
    let variant = tile.variant(types(desc), whole);
    if whole {
        pieces.run_whole(ctx, op, desc, windows, &variant)
    } else {
        pieces.run(ctx, op, desc, windows, &variant)
    }
}

#[cfg(test)]
mod tests {
    use backend_api::DType;
    use backend_api::desc::AttentionShape;

    use super::*;

    #[test]
    fn keys_are_spread_over_as_few_lanes_as_hold_them() {
        let lanes = |kv_dtype: DType, head_dim, subgroup| {
            let mut desc = AttentionDesc::new(
                DType::F32,
                0,
                0,
                0,
                0,
                AttentionShape { batch: 1, heads: 1, seq_q: 1, seq_kv: 1, head_dim },
            );
            desc.kv_format = kv_dtype.into();
            Tile::find(4, subgroup, &desc).map(|tile| tile.lanes)
        };
        assert_eq!(
            [16, 64, 72, 128, 256].map(|d| lanes(DType::F16, d, Some(32))),
            [8, 8, 16, 16, 32].map(Some)
        );
        assert_eq!([32, 128, 132].map(|d| lanes(DType::F32, d, Some(32))), [Some(8), Some(32), None]);
        assert_eq!([64, 72].map(|d| lanes(DType::F16, d, Some(8))), [Some(8), None]);
        assert_eq!([None, Some(64)].map(|subgroup| lanes(DType::F16, 64, subgroup)), [None; 2]);
    }
}
