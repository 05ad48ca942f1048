//! Convolutions of f16 on tensor cores.

use std::fmt;

use backend_api::desc::{ConvShape, ImageLayout, ImageShape, Window as FilterWindow};
use backend_api::support::ConvGather;
use backend_api::{Activation, BackendResult, DType};

use super::nchw_to_nhwc::EIGHT;
use super::params::{Params, inverse, is_regular};
use super::self_test::check_numbers;
use super::{Job, fold, nchw_to_nhwc, repack_filter, split};
use crate::kernels::{KernelSource, Variant, constants, kernel, native};
use crate::ops::matmul::unrolled_multiply;
use crate::ops::op_context::{OpContext, linear_grid};
use crate::ops::shared::cooperative_tile::{CooperativeConstants, CooperativeTile};
use crate::ops::shared::self_test::OP;
use crate::ops::shared::tile::tiles;
use crate::recorder::Window;

constants! { struct Constants { tile: CooperativeConstants, planes: bool } }

pub(super) static COOPERATIVE: KernelSource = KernelSource {
    unrolled: native(unrolled_multiply),
    cooperative: true,
    ..kernel!(
        native "conv/cooperative", libs: [WORKGROUP_TILES, QUOTIENT, ACTIVATE, CONV, INPUT_ORIGIN, FRAGMENTS],
        types: ["T", "TC"], constants: Constants, params: Params,
        reads: ["a: vec4<u32>", "b: vec4<u32>", "bias: T"], writes: ["output: TC", "output4: vec4<TC>"],
    )
};

/// A tile, and whether the source's channels are adjacent to the kernel or planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SourceTile {
    tile: CooperativeTile,
    planes: bool,
}

impl SourceTile {
    /// Every tile: those of adjacent channels, largest first, and that of planes.
    pub(super) const ALL: [Self; 8] = [
        Self::adjacent([128, 128, 32], [2, 2], 660, 980),
        Self::adjacent([64, 192, 32], [2, 2], 620, 1060),
        Self::adjacent([128, 96, 64], [4, 2], 830, 1660),
        Self::adjacent([64, 96, 64], [2, 2], 625, 1280),
        Self::adjacent([64, 64, 64], [2, 2], 530, 850),
        Self::adjacent([64, 64, 32], [2, 2], 281, 430),
        Self::adjacent([32, 64, 64], [2, 2], 380, 670),
        Self::PLANES,
    ];

    const PLANES: Self =
        Self { tile: CooperativeTile::divided([64, 192, 32], [2, 3], 400, 500), planes: true };

    const fn adjacent(sizes: [usize; 3], parts: [usize; 2], alone: usize, paired: usize) -> Self {
        Self { tile: CooperativeTile::divided(sizes, parts, alone, paired), planes: false }
    }

    /// The kernel for results of a layout and a type: f32 for slices of sums.
    fn variant(self, (layout, dtype): (ImageLayout, DType), activation: Activation) -> Variant {
        let tile = self.tile.constants([false, !self.planes], activation);
        let constants = Constants { tile, planes: layout != ImageLayout::Nhwc };
        Variant::new(&COOPERATIVE, [DType::F16, dtype], constants).with_rolled_loops()
    }

    /// Whether it can make a convolution, and is right on the device.
    pub(super) fn is_possible(self, ctx: &OpContext, job: &Job, slices: usize) -> bool {
        is_possible(ctx, job) && (!self.planes || reads_planes(job)) && self.is_verified(ctx, slices)
    }

    /// Whether it fits the device and is right there, with sums in so many slices.
    pub(super) fn is_verified(self, ctx: &OpContext, slices: usize) -> bool {
        let layout = if self.planes { ImageLayout::Nchw } else { ImageLayout::Nhwc };
        let is_right = |dtype| {
            let variant = self.variant((layout, dtype), Activation::Identity);
            ctx.is_right(&variant, move |ctx| self.check(ctx, layout, dtype))
        };
        self.tile.fits(&ctx.gpu().limits) && is_right(DType::F16) && (slices == 1 || is_right(DType::F32))
    }

    /// Makes a convolution, its sums in at most so many slices.
    pub(super) fn launch(
        self,
        ctx: &OpContext,
        op: &'static str,
        job: &Job,
        slices: usize,
    ) -> BackendResult<()> {
        let padded = match fold::fold(ctx, op, job)? {
            Some(folded) => folded,
            None if self.planes => Job { filter: aligned_filter(ctx, op, job)?, ..job.clone() },
            None => padded(ctx, op, job, EIGHT)?,
        };
        // The results keep their layout.
        let layout = job.gather.layout;
        let mut finished = padded.clone();
        finished.gather.layout = layout;
        let target = split::Target::new(ctx, op, &finished, slices, self.tile.k)?;
        let params = self.params(op, &padded, &target)?;
        let Job { input, filter, bias, .. } = &padded;
        let variant = self.variant((layout, target.dtype()), target.activation());
        let grid = linear_grid(op, params.tiles as usize)?;
        let output = target.window();
        ctx.launch(op, &variant, &[filter, input, bias, output], output, &params, grid)?;
        target.finish(ctx, op)
    }

    fn params(self, op: &'static str, job: &Job, target: &split::Target<'_>) -> BackendResult<Params> {
        let Self { tile, .. } = self;
        let mut params = target.params(op, Params::new(op, job)?)?;
        let sizes = [job.gather.filters, params.output.rows as usize];
        let results = [job.gather.groups, target.count()];
        params.quotients.per_outer = inverse(job.gather.channels / EIGHT);
        [params.tiles_m, params.tiles_n, params.tiles] = tiles(op, sizes, [tile.m, tile.n], results)?;
        Ok(params)
    }

    /// Convolves images of more than a tile and more than two steps, none of them whole.
    fn check(self, ctx: &OpContext, layout: ImageLayout, dtype: DType) -> BackendResult<()> {
        let tile = self.tile;
        let channels = if self.planes { 2 * tile.k + EIGHT } else { 3 * EIGHT };
        let filters = tile.m + 24;
        let window = if self.planes {
            FilterWindow::new([1, 1])
        } else {
            FilterWindow::new([3, 3]).with_padding([1, 1])
        };
        // Of planes, a multiple of eight pixels.
        let side = if self.planes { [8, tile.n / 16 + 1] } else { [9, tile.n / 16 + 3] };
        let shape = ConvShape::new(
            ImageShape { batch: 2, channels, height: side[0], width: side[1] },
            filters,
            window,
        )
        .with_layout(layout);
        let places = window.size[0] * window.size[1];
        let weight_at =
            |filter: usize, place: usize, channel: usize| (filter * places + place) * channels + channel;
        check_numbers(ctx, (&shape, [layout; 2], dtype), weight_at, |test, job| {
            let params = self.params(OP, job, &split::Target::Output(job))?;
            let windows = [&job.filter, &job.input, &job.bias, &job.output, &job.output];
            let grid = linear_grid(OP, params.tiles as usize)?;
            test.launch(&self.variant((layout, dtype), Activation::Identity), &windows, &params, grid)
        })
    }
}

/// Such as `64x96x64` and `planes/64x192x32`.
impl fmt::Display for SourceTile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.planes { "planes/" } else { "" }, self.tile)
    }
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for tile in SourceTile::ALL {
        // Planes are made of planes.
        let layouts =
            [ImageLayout::Nchw, ImageLayout::Nhwc].into_iter().take(if tile.planes { 1 } else { 2 });
        for layout in layouts {
            let of = |&activation| tile.variant((layout, DType::F16), activation);
            variants.extend(Activation::ALL.iter().map(of));
            variants.push(tile.variant((layout, DType::F32), Activation::Identity));
        }
    }
    variants
}

/// The convolution with a multiple of `multiple` adjacent channels, and filters likewise: of copies where that
/// isn't how they lie, or not at whole vectors.
pub(super) fn padded(ctx: &OpContext, op: &'static str, job: &Job, multiple: usize) -> BackendResult<Job> {
    let channels = job.gather.channels.next_multiple_of(multiple);
    let (input, repacked) = if is_copied(job, multiple) {
        nchw_to_nhwc::copy(ctx, op, job, channels)?
    } else {
        (job.input.clone(), None)
    };
    let filter = match repacked {
        Some(filter) => filter,
        None if is_whole(job, multiple) => aligned_filter(ctx, op, job)?,
        None => repack_filter::copy(ctx, op, job, channels, true)?,
    };
    let mut gather = job.gather;
    gather.channels = channels;
    gather.layout = ImageLayout::Nhwc;
    Ok(Job { gather, input, filter, ..job.clone() })
}

/// Whether the source's channels are adjacent, and a multiple of `multiple`.
fn is_whole(job: &Job, multiple: usize) -> bool {
    job.gather.layout == ImageLayout::Nhwc && job.gather.channels.is_multiple_of(multiple)
}

/// Whether the source is copied for its channels to be adjacent, a multiple of `multiple`, at whole vectors.
fn is_copied(job: &Job, multiple: usize) -> bool {
    !is_whole(job, multiple) || unaligned(&job.input)
}

/// Filters whose channels are adjacent, at whole vectors, with the output's outermost: a copy of others.
fn aligned_filter(ctx: &OpContext, op: &'static str, job: &Job) -> BackendResult<Window> {
    if job.transposed || unaligned(&job.filter) {
        return repack_filter::copy(ctx, op, job, job.gather.channels, true);
    }
    Ok(job.filter.clone())
}

fn unaligned(window: &Window) -> bool {
    !window.offset.is_multiple_of(EIGHT as u32)
}

/// Whether tensor cores can make a convolution.
fn is_possible(ctx: &OpContext, job: &Job) -> bool {
    let regular = is_regular(&job.gather) && job.gather.taps() > 0;
    job.dtype == DType::F16 && ctx.gpu().cooperative_matrices && regular
}

/// Whether the source can be read eight pixels at a time.
fn reads_planes(job: &Job) -> bool {
    let gather = &job.gather;
    let sizes = [gather.channels, gather.pixels(), job.input.offset as usize];
    let planes = job.is_pointwise() && gather.layout != ImageLayout::Nhwc;
    planes && sizes.iter().all(|size| size.is_multiple_of(EIGHT))
}

/// Multiplications that are worth tensor cores, and those that are worth copies of the source and the filters.
const ENOUGH: usize = 1 << 18;
const ENOUGH_FOR_COPIES: usize = 1 << 20;

/// The tile for a convolution and the slices of each sum, and their nanoseconds, if tensor cores can make it
/// and it is worth it.
pub(super) fn fastest(ctx: &OpContext, job: &Job) -> Option<((SourceTile, usize), usize)> {
    // No browser offers tensor cores.
    if cfg!(target_family = "wasm") {
        return None;
    }
    let &ConvGather { batch, groups, filters, channels, .. } = &job.gather;
    let compute_units = ctx.profile().compute_units;
    let rows = batch.saturating_mul(job.gather.pixels());
    let work = rows.saturating_mul(filters).saturating_mul(job.gather.taps());
    // Tensor cores would spend most of their time on zeros, or the copies would take longer.
    let enough = if is_copied(job, EIGHT) { ENOUGH_FOR_COPIES } else { ENOUGH };
    if !is_possible(ctx, job) || filters < 8 || channels < 2 || work < enough {
        return None;
    }
    if job.is_pointwise() && groups == 1 {
        let planes = SourceTile::PLANES;
        let fills = 2 * filters > planes.tile.m && 4 * planes.tile.count(filters, rows) >= 3 * compute_units;
        let possible = fills && planes.is_possible(ctx, job, 1);
        return possible.then_some(((planes, 1), 0));
    }
    let padded = fold::gather(job).unwrap_or_else(|| {
        let mut padded = job.gather;
        padded.channels = channels.next_multiple_of(EIGHT);
        padded
    });
    let time = |of: SourceTile, taps, groups| of.tile.time([filters, rows, taps, groups], compute_units);
    let limits = &ctx.gpu().limits;
    let tiles = SourceTile::ALL.into_iter().filter(|tile| !tile.planes && tile.tile.fits(limits));
    split::cheapest(ctx, &padded, tiles, time).filter(|&((tile, slices), _)| tile.is_verified(ctx, slices))
}
