//! Convolutions of few tiles with long sums: several workgroups make slices of each sum, and conv/combine adds
//! them.

use backend_api::desc::ImageLayout;
use backend_api::support::{ConvGather, checked_product};
use backend_api::{Activation, BackendError, BackendResult, DType};

use super::Job;
use super::params::Params;
use crate::device::h200;
use crate::kernels::{KernelSource, Variant, constants, kernel, params};
use crate::ops::op_context::{OpContext, dim, invocation_grid};
use crate::recorder::Window;

constants! { struct Constants { activation: Activation } }

static COMBINE: KernelSource = kernel!(
    "conv/combine", libs: [INVOCATION_OUTPUTS, ACTIVATE],
    types: ["T"], constants: Constants, params: CombineParams,
    reads: ["partial: f32", "bias: T"], writes: ["output: T"],
);

params! {
    struct CombineParams {
        // Results, which are also the distance from one slice to the next.
        total: u32,
        slices: u32,
        // Neighbouring results of one filter, and filters of all groups.
        pixels: u32,
        filters: u32,
        biased: u32,
        bias_offset: u32,
        output_offset: u32,
    }
}

/// The fewest taps in a slice that is worth its launch.
const MIN_TAPS: usize = 256;

/// Numbers of slices that are planned for.
const COUNTS: [usize; 6] = [1, 2, 4, 8, 16, 32];

fn variant(dtype: DType, activation: Activation) -> Variant {
    Variant::new(&COMBINE, [dtype], Constants { activation })
}

pub(super) fn variants() -> Vec<Variant> {
    let of = |dtype| Activation::ALL.iter().map(move |&activation| variant(dtype, activation));
    [DType::F32, DType::F16].into_iter().flat_map(of).collect()
}

/// The tile and the number of slices of each sum that are estimated to take the least time, and their
/// nanoseconds. `time` estimates those of a tile for so many taps and so many groups.
pub(super) fn cheapest<T: Copy>(
    ctx: &OpContext,
    gather: &ConvGather,
    tiles: impl Iterator<Item = T>,
    time: impl Fn(T, usize, usize) -> usize,
) -> Option<((T, usize), usize)> {
    let (taps, results) = (gather.taps(), results(gather));
    let compute_units = ctx.profile().compute_units;
    let counts = COUNTS.into_iter().filter(|&count| count == 1 || taps / count >= MIN_TAPS);
    let counts: Vec<usize> = counts.filter(|&count| has_room(ctx, gather, count)).collect();
    let choices = tiles.flat_map(|tile| counts.iter().map(move |count| (tile, count)));
    let times = choices.map(|(tile, &count)| {
        // A launch, and the time of reading the slices.
        let combining = match count {
            1 => 0,
            _ => h200::partial_sums(results.saturating_mul(count), 250, compute_units)
                .saturating_add(h200::COMBINING_LAUNCH),
        };
        let sums = time(tile, taps / count, gather.groups.saturating_mul(count));
        ((tile, count), sums.saturating_add(combining))
    });
    times.min_by_key(|&(_, time)| time)
}

pub(super) fn results(
    &ConvGather { batch, groups, filters, result: [height, width], .. }: &ConvGather,
) -> usize {
    [groups, filters, height, width].into_iter().fold(batch, usize::saturating_mul)
}

/// Whether so many slices of the sums can be bound at once.
pub(super) fn has_room(ctx: &OpContext, gather: &ConvGather, count: usize) -> bool {
    let bytes = results(gather).saturating_mul(count).saturating_mul(DType::F32.size());
    count == 1 || bytes as u64 <= ctx.device.limits.max_bytes
}

/// Where a kernel writes its sums.
pub(super) enum Target<'a> {
    /// To the output, finished.
    Output(&'a Job),
    /// Slices of them one after another, to be added.
    Slices { job: &'a Job, window: Window, length: usize, count: usize },
}

impl<'a> Target<'a> {
    /// The target of sums which are made in `count` slices, or fewer, whose lengths are multiples of `step` taps.
    pub(super) fn new(
        ctx: &OpContext,
        op: &'static str,
        job: &'a Job,
        count: usize,
        step: usize,
    ) -> BackendResult<Self> {
        let taps = job.gather.taps();
        let length = taps.div_ceil(count).next_multiple_of(step).max(step);
        let count = taps.div_ceil(length);
        if count <= 1 {
            return Ok(Self::Output(job));
        }
        let elements = checked_product(op, "scratch", &[results(&job.gather), count])?;
        let bytes = checked_product(op, "scratch", &[elements, DType::F32.size()])?;
        let scratch = match ctx.scratch(op, bytes.next_multiple_of(16)) {
            // Slower, but possible.
            Err(BackendError::OutOfMemory { .. }) => return Ok(Self::Output(job)),
            scratch => scratch?,
        };
        let window = ctx.output(&scratch, DType::F32);
        Ok(Self::Slices { job, window, length, count })
    }

    pub(super) fn window(&self) -> &Window {
        match self {
            Self::Output(job) => &job.output,
            Self::Slices { window, .. } => window,
        }
    }

    pub(super) fn dtype(&self) -> DType {
        match self {
            Self::Output(job) => job.dtype,
            Self::Slices { .. } => DType::F32,
        }
    }

    /// What becomes of a sum in the kernel.
    pub(super) fn activation(&self) -> Activation {
        match self {
            Self::Output(job) => job.activation,
            Self::Slices { .. } => Activation::Identity,
        }
    }

    /// Slices of each sum.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Output(_) => 1,
            Self::Slices { count, .. } => *count,
        }
    }

    /// The parameters of a kernel that writes here.
    pub(super) fn params(&self, op: &'static str, params: Params) -> BackendResult<Params> {
        let Self::Slices { window, length, .. } = self else { return Ok(params) };
        Ok(Params { biased: 0, slice: dim(op, "filter", *length)?, output_offset: window.offset, ..params })
    }

    /// Adds the slices, if there are some, and finishes the sums.
    pub(super) fn finish(&self, ctx: &OpContext, op: &'static str) -> BackendResult<()> {
        let Self::Slices { job, window, count, .. } = self else { return Ok(()) };
        combine(ctx, op, job, window, *count)
    }
}

/// `output = activation(Σ slices + bias)`, of slices of the sums that lie one after another, in f32.
pub(super) fn combine(
    ctx: &OpContext,
    op: &'static str,
    job: &Job,
    slices: &Window,
    count: usize,
) -> BackendResult<()> {
    let total = results(&job.gather);
    let interleaved = job.gather.layout == ImageLayout::Nhwc;
    let filters = checked_product(op, "filters", &[job.gather.groups, job.gather.filters])?;
    let params = CombineParams {
        total: dim(op, "scratch", total)?,
        slices: dim(op, "scratch", count)?,
        pixels: if interleaved { 1 } else { dim(op, "pixels", job.gather.pixels())? },
        filters: dim(op, "filters", filters)?,
        biased: u32::from(job.biased),
        bias_offset: job.bias.offset,
        output_offset: job.output.offset,
    };
    let grid = invocation_grid(op, total)?;
    let variant = variant(job.dtype, job.activation);
    ctx.launch(op, &variant, &[slices, &job.bias], &job.output, &params, grid)
}
