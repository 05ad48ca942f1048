//! Attention of few queries by shuffles: the keys in one piece, or in pieces that attention/combine or the last
//! workgroup puts together.

use std::fmt;

use backend_api::desc::AttentionDesc;
use backend_api::kv::KvFormat;
use backend_api::{BackendError, BackendResult};

use super::pieces::{Output, Pieces, ROWS};
use super::{Params, Problem, Types, every_types, fixup, types};
use crate::kernels::libs::{
    ATTENTION, ATTENTION_FIXUP_ROWS, ATTENTION_LOADS, ATTENTION_OUTPUTS, ATTENTION_PARTS, ATTENTION_PIECES,
    ATTENTION_Q8_0, ATTENTION_ROWS, ATTENTION_SINKS, ATTENTION_WIDE, ROWS_1, ROWS_2, ROWS_4,
};
use crate::kernels::{KernelSource, Lib, Variant, kernel};
use crate::ops::has_room;
use crate::ops::op_context::OpContext;

/// The file with parts of rows as its output.
pub(super) static DECODE: KernelSource = decode_source(FLOATS);

/// The file with outputs: of whole rows, with the logarithms of their sums, or beside the parts of rows.
static DECODE_WHOLE: KernelSource = KernelSource { writes: WHOLE, ..decode_source(FLOATS) };

/// The outputs of lib/attention_outputs, or of the file that puts parts together.
const WHOLE: &[&str] = &["lse or fixup", "o"];

/// The files for keys and values of Q8_0, with parts of rows and with outputs.
static DECODE_BLOCKS: KernelSource = decode_source(BLOCKS);
static DECODE_WHOLE_OF_BLOCKS: KernelSource = KernelSource { writes: WHOLE, ..decode_source(BLOCKS) };

/// The helper files for keys and values of floating-point numbers and of Q8_0.
const FLOATS: &[Lib] =
    &[ATTENTION, ATTENTION_PIECES, ATTENTION_WIDE, ATTENTION_LOADS, ATTENTION_ROWS, ATTENTION_SINKS];
const BLOCKS: &[Lib] =
    &[ATTENTION, ATTENTION_PIECES, ATTENTION_Q8_0, ATTENTION_LOADS, ATTENTION_ROWS, ATTENTION_SINKS];

const fn decode_source(libs: &'static [Lib]) -> KernelSource {
    KernelSource {
        libs,
        subgroups: true,
        ..kernel!(
            native "attention/decode",
            libs: [],
            types: ["T", "M"],
            constants: ["SUBGROUP", "SUBGROUPS", "LANES", "HALF_Q", "HALF_KV", "PAGED"],
            params: Params,
            reads: ["q: Words", "k: Words", "v: Words", "mask: M", "lengths: u32", "sinks: f32"],
            writes: ["parts"],
        )
    }
}

/// The helper files for so many rows and what becomes of them.
const fn libs(rows: usize, output: Output) -> &'static [Lib] {
    match (rows, output) {
        (1, Output::Whole) => &[ATTENTION_OUTPUTS, ROWS_1],
        (2, Output::Whole) => &[ATTENTION_OUTPUTS, ROWS_2],
        (_, Output::Whole) => &[ATTENTION_OUTPUTS, ROWS_4],
        (1, Output::Parts) => &[ATTENTION_PARTS, ROWS_1],
        (2, Output::Parts) => &[ATTENTION_PARTS, ROWS_2],
        (_, Output::Parts) => &[ATTENTION_PARTS, ROWS_4],
        (1, Output::FixedUp) => &[ATTENTION_FIXUP_ROWS, ROWS_1],
        (2, Output::FixedUp) => &[ATTENTION_FIXUP_ROWS, ROWS_2],
        (_, Output::FixedUp) => &[ATTENTION_FIXUP_ROWS, ROWS_4],
    }
}

/// Invocations of the subgroups that there are variants for.
const SUBGROUPS: [usize; 2] = [8, 32];

/// Lanes that a key may be spread over.
const LANES: [usize; 3] = [8, 16, 32];

/// Keys that a slot takes in a step.
const KEYS_PER_SLOT: usize = 4;

/// The most steps of a workgroup that takes all keys: together they are shorter than the launch that would put
/// pieces together. Four steps of a wide workgroup are as short, eight aren't (shaders/attention/notes.md).
const MOST_STEPS: usize = 7;
const MOST_WIDE_STEPS: usize = 4;

/// The most slots of a subgroup.
const MOST_SLOTS: usize = 4;

/// The rows that a workgroup takes, and the subgroups that share their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Workgroup {
    pub(super) rows: usize,
    subgroups: usize,
}

impl Workgroup {
    /// Of a row whose keys are too many for few subgroups, and too few to be worth pieces.
    pub(super) const WIDE: Self = Self { rows: 1, subgroups: 16 };

    pub(super) const ALL: [Self; 4] =
        [Self::new(ROWS[0]), Self::new(ROWS[1]), Self::new(ROWS[2]), Self::WIDE];

    /// Of so many rows.
    pub(super) const fn new(rows: usize) -> Self {
        Self { rows, subgroups: 4 }
    }

    /// The nanoseconds that an H200 takes with all keys in one piece: of a launch, and of either the steps of a workgroup,
    /// which wait for each other, or the work of all workgroups of a compute unit (shaders/attention/notes.md has measurements).
    pub(super) fn nanoseconds(self, desc: &AttentionDesc, compute_units: usize) -> f64 {
        let [launch, by_key, workgroup, by_element] = match self {
            Self::WIDE => [4200.0, 15.0, 1600.0, 0.07],
            Self { rows: 1, .. } => [3400.0, 35.0, 200.0, 0.09],
            Self { rows: 2, .. } => [3800.0, 40.0, 300.0, 0.16],
            _ => [4800.0, 40.0, 800.0, 0.3],
        };
        let keys = desc.seq_kv as f64;
        let workgroups = Pieces::tiles(desc, self.rows).div_ceil(compute_units.max(1)) as f64;
        let work = workgroups * (workgroup + by_element * keys * desc.head_dim as f64);
        launch + work.max(by_key * keys)
    }
}

/// Such as `4`, the rows, or `1s16` with other subgroups than four.
impl fmt::Display for Workgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self { rows, subgroups } = self;
        if subgroups == 4 { write!(f, "{rows}") } else { write!(f, "{rows}s{subgroups}") }
    }
}

/// How a workgroup is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    workgroup: Workgroup,
    subgroup: usize,
    lanes: usize,
}

impl Tile {
    /// The tile of a workgroup, where the device's subgroups and the vectors allow it.
    fn find(workgroup: Workgroup, subgroup: Option<u32>, desc: &AttentionDesc) -> Option<Self> {
        let subgroup = subgroup.map(|size| size as usize).filter(|size| SUBGROUPS.contains(size))?;
        let width = desc.kv_format.dtype().map_or(8, |dtype| 16 / dtype.size());
        let long_enough = |&lanes: &usize| lanes <= subgroup && lanes * width >= desc.head_dim;
        LANES.into_iter().find(long_enough).map(|lanes| Self { workgroup, subgroup, lanes })
    }

    fn invocations(self) -> usize {
        self.workgroup.subgroups * self.subgroup
    }

    /// Keys that a workgroup works on side by side.
    fn slots(self) -> usize {
        self.invocations() / self.lanes
    }

    /// The most keys that a workgroup takes in few steps.
    fn few_keys(self) -> usize {
        let steps = if self.workgroup == Workgroup::WIDE { MOST_WIDE_STEPS } else { MOST_STEPS };
        steps * KEYS_PER_SLOT * self.slots()
    }

    /// Bytes of workgroup memory: vectors of eight elements for each lane, references and sums, and what puts pieces
    /// together.
    fn workgroup_bytes(self, output: Output) -> usize {
        let Workgroup { rows, subgroups } = self.workgroup;
        let more = if output == Output::FixedUp { fixup::WORKGROUP_BYTES } else { 0 };
        subgroups * rows * (8 * self.lanes + 2) * size_of::<f32>() + more
    }

    /// Whether the device has room for a workgroup.
    fn fits(self, limits: &wgpu::Limits) -> bool {
        has_room(limits, self.invocations(), self.workgroup_bytes(Output::FixedUp))
    }

    fn variant(self, types: Types, output: Output) -> Variant {
        let [q, kv, paged] = types.constants();
        let source = match (types.kv == KvFormat::Q8_0, output) {
            (false, Output::Parts) => &DECODE,
            (false, _) => &DECODE_WHOLE,
            (true, Output::Parts) => &DECODE_BLOCKS,
            (true, _) => &DECODE_WHOLE_OF_BLOCKS,
        };
        let [subgroup, subgroups, lanes] =
            [self.subgroup, self.workgroup.subgroups, self.lanes].map(|count| count as u32);
        Variant::new(source, [types.q, types.mask()], [subgroup, subgroups, lanes, q, kv, paged])
            .with_libs(libs(self.workgroup.rows, output))
            .with_workgroup(self.invocations(), self.workgroup_bytes(output))
    }
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for workgroup in Workgroup::ALL {
        for subgroup in SUBGROUPS {
            let lanes =
                LANES.into_iter().filter(|&lanes| lanes <= subgroup && subgroup <= MOST_SLOTS * lanes);
            for tile in lanes.map(|lanes| Tile { workgroup, subgroup, lanes }) {
                for output in [Output::Parts, Output::Whole, Output::FixedUp] {
                    variants.extend(every_types().map(|types| tile.variant(types, output)));
                }
            }
        }
    }
    variants
}

/// Whether the kernel can do it with such workgroups on this device, operands aside, which have to be read 16
/// bytes at a time.
pub(super) fn suits(ctx: &OpContext, desc: &AttentionDesc, workgroup: Workgroup) -> bool {
    Tile::find(workgroup, ctx.gpu().subgroup, desc).is_some_and(|tile| tile.fits(&ctx.gpu().limits))
        && Pieces::fit(desc, workgroup.rows)
}

/// Steps in which such a workgroup takes all keys.
pub(super) fn steps(ctx: &OpContext, desc: &AttentionDesc, workgroup: Workgroup) -> Option<usize> {
    let tile = Tile::find(workgroup, ctx.gpu().subgroup, desc)?;
    Some(desc.seq_kv.div_ceil(KEYS_PER_SLOT * tile.slots()))
}

/// Whether such a workgroup takes all keys in few steps.
pub(super) fn has_few_keys(ctx: &OpContext, desc: &AttentionDesc, workgroup: Workgroup) -> bool {
    Tile::find(workgroup, ctx.gpu().subgroup, desc).is_some_and(|tile| desc.seq_kv <= tile.few_keys())
}

pub(super) fn run(
    problem: Problem<'_>,
    workgroup: Workgroup,
    splits: usize,
    output: Output,
) -> BackendResult<()> {
    let Problem { ctx, op, desc, .. } = problem;
    let Some(tile) = Tile::find(workgroup, ctx.gpu().subgroup, desc) else {
        return Err(BackendError::Unsupported { op, need: "subgroups of 8 or 32".to_owned() });
    };
    let pieces = Pieces::new(desc, workgroup.rows, splits, tile.slots());
    // Where values aren't finite, outputs in one launch take the scores of all keys for each element again, which
    // gets expensive with their number.
    let is_whole = pieces.count == 1 && desc.seq_kv <= tile.few_keys();
    let output = if is_whole { Output::Whole } else { output };
    pieces.run(problem, &tile.variant(types(desc), output), output)
}

#[cfg(test)]
mod tests {
    use backend_api::DType;
    use backend_api::desc::AttentionShape;

    use super::*;
    use crate::device::h200;
    use crate::ops::plans::bounds::assert_room;

    #[test]
    fn workgroups_take_what_their_text_says() {
        let types = every_types().next().unwrap();
        for (workgroup, subgroup) in Workgroup::ALL.into_iter().flat_map(|all| SUBGROUPS.map(|of| (all, of)))
        {
            let tile = Tile { workgroup, subgroup, lanes: 8 };
            assert_room(&tile.variant(types, Output::FixedUp), 0, |limits| tile.fits(limits));
        }
    }

    /// On an NVIDIA H200, f32, the first three take 4.2, 4.6 and 5.7 µs with one row in each workgroup, and 5.6, 5.8 and 8.4
    /// with four; 24 queries over 300 keys take 8.9 µs in wide workgroups and 12.6 in others.
    #[test]
    fn few_rows_over_few_keys_are_fast() {
        let fastest = |batch, heads, seq_q, seq_kv, head_dim| {
            let shape = AttentionShape { batch, heads, seq_q, seq_kv, head_dim };
            let desc = AttentionDesc::new(DType::F32, 0, 0, 0, 0, shape);
            let time = |workgroup: &Workgroup| workgroup.nanoseconds(&desc, h200::COMPUTE_UNITS);
            let all = Workgroup::ALL;
            all.into_iter().min_by(|a, b| time(a).total_cmp(&time(b))).map(|it| it.to_string()).unwrap()
        };
        assert_eq!(fastest(16, 1, 16, 16, 128), "1");
        assert_eq!(fastest(1, 12, 32, 32, 64), "1");
        assert_eq!(fastest(1, 2, 64, 64, 128), "1");
        assert_eq!(fastest(1, 8, 24, 300, 64), "1s16");
        assert_eq!(fastest(8, 32, 16, 16, 128), "2", "13.4 µs, and 15.0 with one row");
        assert_eq!(fastest(8, 8, 20, 20, 64), "2", "6.2 µs, and 7.0 with one row");
        // Sizes that can't be counted.
        assert_eq!(fastest(usize::MAX, 1, usize::MAX, usize::MAX, 64), "1s16");
    }

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
            Tile::find(Workgroup::new(4), subgroup, &desc).map(|tile| tile.lanes)
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
