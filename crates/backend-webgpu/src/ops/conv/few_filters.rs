//! Convolutions with few filters in a group, whose source is read once for all of them.

use std::fmt;

use backend_api::desc::ImageLayout;
use backend_api::support::{ConvGather, checked_product};
use backend_api::{Activation, BackendResult, DType, DeviceKind};

use super::params::{Params, inverse, is_regular};
use super::{Job, repack_filter, split};
use crate::device::h200;
use crate::kernels::{Constant as _, KernelSource, Target, Values, Variant, constants, kernel};
use crate::ops::has_room;
use crate::ops::op_context::{OpContext, linear_grid};
use crate::ops::shared::text::{lines, pairs};
use crate::ops::shared::tile::tiles;

constants! {
    struct Constants { filters: usize, pixels: usize, parts: usize, vectors: bool, activation: Activation }
}

pub(super) static FEW_FILTERS: KernelSource = KernelSource {
    unrolled: Some(multiply),
    ..kernel!(
        "conv/few_filters", libs: [WORKGROUP_TILES, QUOTIENT, ACTIVATE, CONV, INPUT_ORIGIN],
        types: ["T", "TC"], constants: Constants, params: Params,
        reads: ["input: T", "input4: vec4<T>", "filter_values: T", "bias: T"], writes: ["output: TC"],
    )
};

const WORKGROUP: usize = 128;

/// Vectors of four numbers of f32 in workgroup memory.
const ROOM: usize = 1024;

/// Channels, and filters, of a vector.
const FOUR: usize = 4;

/// What a workgroup makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    filters: usize,
    /// Pixels of an invocation.
    pixels: usize,
    /// Invocations that share a sum.
    parts: usize,
}

impl Block {
    /// Every block.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let shares = [(4, 1), (1, 1), (2, 4), (1, 16)];
        [8, 4]
            .into_iter()
            .flat_map(move |filters| shares.map(|(pixels, parts)| Self { filters, pixels, parts }))
    }

    fn variant(self, types: [DType; 2], vectors: bool, activation: Activation) -> Variant {
        let Self { filters, pixels, parts } = self;
        Variant::new(&FEW_FILTERS, types, Constants { filters, pixels, parts, vectors, activation })
    }

    /// Pixels of a workgroup.
    fn rows(self) -> usize {
        WORKGROUP / self.parts * self.pixels
    }

    fn fits(limits: &wgpu::Limits) -> bool {
        has_room(limits, WORKGROUP, ROOM * FOUR * DType::F32.size())
    }

    /// Whether it can make a convolution.
    pub(super) fn is_possible(self, ctx: &OpContext, gather: &ConvGather) -> bool {
        let places = gather.filter[0].saturating_mul(gather.filter[1]);
        is_regular(gather)
            && gather.taps() > 0
            && gather.source.iter().all(|&extent| extent > 0)
            // Four channels of each place are staged at once.
            && places.saturating_mul(self.filters) <= ROOM
            && Self::fits(&ctx.gpu().limits)
    }

    /// Nanoseconds of a convolution of so many taps and groups: what a workgroup waits for, or what all of a compute
    /// unit compute. The numbers were fitted to measurements on an NVIDIA H200.
    fn time(self, gather: &ConvGather, taps: usize, groups: usize, compute_units: usize) -> usize {
        let rows = gather.batch.saturating_mul(gather.pixels());
        let tiles = rows.div_ceil(self.rows()).saturating_mul(gather.filters.div_ceil(self.filters));
        let tiles = tiles.saturating_mul(groups);
        let places = gather.filter[0].saturating_mul(gather.filter[1]).max(1);
        let units = (taps / places).div_ceil(FOUR).saturating_mul(places);
        let (steps, stages) = (units.div_ceil(self.parts), (FOUR * units).div_ceil(WORKGROUP));
        // The first units are in no cache.
        let waits = steps
            .saturating_mul((25 + 30 * self.pixels) * (12 + self.filters) / 8)
            .saturating_add(50 * steps.min(16))
            .saturating_add(stages.saturating_mul(300));
        // Few lanes read short pieces of rows.
        let short = if self.parts > 4 { 80 } else { 0 };
        let computes = steps
            .saturating_mul(20 + self.pixels * (15 + 9 * self.filters) + short)
            .saturating_add(stages.saturating_mul(150))
            .saturating_add(250);
        STARTS.saturating_add(waits.max(computes.saturating_mul(tiles.div_ceil(compute_units))))
    }
}

/// Such as `8x512`: filters and pixels of a workgroup.
impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.filters, self.rows())
    }
}

/// Nanoseconds of a launch, and of staging and writing once.
const STARTS: usize = h200::LAUNCH + 1000;

/// The most filters for which it may be the fastest.
const MOST_FILTERS: usize = 64;

/// The function `multiply`: the sums of an invocation, over all channels of the tile, to workgroup memory.
fn multiply(values: &Values, _: Target) -> String {
    let Constants { filters, pixels, .. } = Constants::of(values);
    let vec4s = filters / FOUR;
    let all = || pairs([pixels, vec4s]);
    let pixel = |line: &dyn Fn(usize) -> String| lines((0..pixels).map(line));
    let origins = pixel(&|i| format!("let origin_{i} = origin_of(tile, lane, {i}u);"));
    let sums = lines(all().map(|(i, j)| format!("var sum_{i}_{j} = vec4<f32>();")));
    let read = pixel(&|i| format!("let v_{i} = under(tile, origin_{i}, unit, tap, channel, left);"));
    let products = |channel: usize| {
        let weights =
            (0..vec4s).map(move |j| format!("let w_{channel}_{j} = sh[at + {}u];", channel * vec4s + j));
        let element = ["x", "y", "z", "w"][channel % FOUR];
        let add = all().map(move |(i, j)| format!("sum_{i}_{j} += v_{i}.{element} * w_{channel}_{j};"));
        lines(weights.chain(add))
    };
    let products: String = (0..FOUR).map(products).collect();
    let keep =
        lines(all().map(|(i, j)| {
            format!("sh[((part * PIXELS + {i}u) * VEC4S + {j}u) * LANES + lane] = sum_{i}_{j};")
        }));
    format!(
        "
fn multiply(tile: Tile, index: u32) {{
let lane = index % LANES;
let part = index / LANES;
{origins}{sums}let step = unit_at(PARTS);
let most = ROOM / (FILTERS * places()) * 4u;
for (var first = tile.first_channel; first < tile.end_channel; first += most) {{
let count = min(tile.end_channel - first, most);
workgroupBarrier();
stage(tile, index, first, count);
workgroupBarrier();
let units = (count + 3u) / 4u * places();
var unit = unit_at(part);
for (var number = part; number < units; number += PARTS) {{
let tap = tap_offset(unit);
let channel = first + unit.four * 4u;
let left = count - unit.four * 4u;
let at = number * FILTERS;
{read}{products}unit = unit_after(unit, step);
}}
}}
workgroupBarrier();
{keep}workgroupBarrier();
}}
"
    )
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for (block, vectors) in Block::all().flat_map(|block| [(block, false), (block, true)]) {
        for dtype in [DType::F32, DType::F16] {
            let of = |&activation| block.variant([dtype; 2], vectors, activation);
            variants.extend(Activation::ALL.iter().map(of));
            if dtype == DType::F16 {
                // Sums in slices.
                variants.push(block.variant([dtype, DType::F32], vectors, Activation::Identity));
            }
        }
    }
    variants
}

/// The block that is estimated to be the fastest and the slices of each sum, and their nanoseconds.
pub(super) fn fastest(ctx: &OpContext, gather: &ConvGather) -> Option<((Block, usize), usize)> {
    // On the CPU, nothing waits for memory while others compute. Groups have few channels each.
    let is_few = gather.groups == 1 && gather.filters <= MOST_FILTERS;
    if !is_few || ctx.gpu().info.kind == DeviceKind::SoftwareAdapter {
        return None;
    }
    let possible = Block::all().filter(|block| block.is_possible(ctx, gather));
    let compute_units = ctx.profile().compute_units;
    let time = |block: Block, taps, groups| block.time(gather, taps, groups, compute_units);
    split::cheapest(ctx, gather, possible, time)
}

/// Makes a convolution for which the block [is possible](Block::is_possible), its sums in at most so many slices.
pub(super) fn launch(
    ctx: &OpContext,
    op: &'static str,
    job: &Job,
    (block, slices): (Block, usize),
) -> BackendResult<()> {
    let interleaved = job.gather.layout == ImageLayout::Nhwc;
    let job = &repack_filter::as_multiplied(ctx, op, job, interleaved)?;
    let &ConvGather { groups, channels, filters, filter, .. } = &job.gather;
    let places = checked_product(op, "filter", &filter)?;
    // Slices are of whole vec4s of channels.
    let target = split::Target::new(ctx, op, job, slices, FOUR * places)?;
    let mut params = target.params(op, Params::new(op, job)?)?;
    let (sizes, tile) = ([params.output.rows as usize, filters], [block.rows(), block.filters]);
    [params.tiles_m, params.tiles_n, params.tiles] = tiles(op, sizes, tile, [groups, target.count()])?;
    params.quotients.per_outer = inverse(places);
    let vectors =
        interleaved && [channels, job.input.offset as usize].iter().all(|size| size.is_multiple_of(FOUR));
    let variant = block.variant([job.dtype, target.dtype()], vectors, target.activation());
    let reads = [&job.input, &job.input, &job.filter, &job.bias];
    ctx.launch(op, &variant, &reads, target.window(), &params, linear_grid(op, params.tiles as usize)?)?;
    target.finish(ctx, op)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::compose;
    use crate::ops::plans::bounds::assert_room;

    #[test]
    fn workgroups_take_what_their_text_says() {
        for (block, vectors) in Block::all().flat_map(|block| [(block, false), (block, true)]) {
            let variant = block.variant([DType::F32; 2], vectors, Activation::Identity);
            assert_room(&variant, 0, Block::fits);
        }
    }

    #[test]
    fn every_pixel_meets_every_filter_in_four_channels() {
        for block in Block::all() {
            let Block { filters, pixels, .. } = block;
            let target = Target { immediates: true, unroll: true };
            let text = compose(&block.variant([DType::F32; 2], false, Activation::Identity), target);
            let count = |line: String| text.lines().filter(|other| other.trim() == line).count();
            let vec4s = filters / 4;
            for (i, j) in pairs([pixels, vec4s]) {
                for (channel, element) in ["x", "y", "z", "w"].into_iter().enumerate() {
                    assert_eq!(
                        count(format!("sum_{i}_{j} += v_{i}.{element} * w_{channel}_{j};")),
                        1,
                        "{block}"
                    );
                    // A channel's filters are adjacent.
                    let weight = format!("let w_{channel}_{j} = sh[at + {}u];", channel * vec4s + j);
                    assert_eq!(count(weight), 1, "{block}");
                }
            }
            assert_eq!(text.matches(" += v_").count(), 4 * pixels * vec4s, "{block}");
        }
    }
}
