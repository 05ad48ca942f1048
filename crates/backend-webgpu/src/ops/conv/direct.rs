//! Convolutions with few channels or filters in a group, without workgroup memory.

use std::iter;

use backend_api::desc::ImageLayout;
use backend_api::support::{ConvGather, checked_product};
use backend_api::{Activation, BackendResult, DType, DeviceKind};

use super::job::launch_unshared;
use super::params::Params;
use super::{Job, repack_filter, split};
use crate::device::h200;
use crate::kernels::{Constant as _, KernelSource, Target, Values, Variant, constants, kernel};
use crate::ops::op_context::{OpContext, dim};
use crate::ops::shared::text::lines;

constants! { struct Constants { rows: usize, side: usize, step: usize, activation: Activation } }

pub(super) static DIRECT: KernelSource = KernelSource {
    unrolled: Some(make),
    ..kernel!(
        "conv/direct", libs: [GRID, ACTIVATE, CONV],
        types: ["T"], constants: Constants, params: Params,
        reads: ["input: T", "filter_values: T", "bias: T"], writes: ["output: T"],
    )
};

/// Invocations that share nothing, of which so many occupy a compute unit.
pub(super) const ENOUGH: usize = 512;

/// Rows of an invocation, and the filters that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    rows: usize,
    /// Of square filters, 0 for any.
    side: usize,
    /// From a row of results to the next in the source.
    step: usize,
}

impl Kind {
    const ANY: Self = Self { rows: 4, side: 0, step: 1 };

    /// The kinds for square filters, by their side and step. Of two for the same filters, the one with more rows comes first.
    fn squares() -> impl DoubleEndedIterator<Item = Self> + Clone {
        let by_filters: [(usize, usize, &[usize]); 7] = [
            (1, 1, &[8]),
            (3, 1, &[8, 2]),
            (5, 1, &[8, 2]),
            (7, 1, &[8]),
            (3, 2, &[4, 1]),
            (5, 2, &[4]),
            (7, 2, &[4]),
        ];
        let all = |(side, step, rows): (usize, usize, &'static [usize])| {
            rows.iter().map(move |&rows| Self { rows, side, step })
        };
        by_filters.into_iter().flat_map(all)
    }

    /// The kind for a convolution: of those for its filters the first that occupies the device, or the last.
    fn of(gather: &ConvGather, compute_units: usize) -> Self {
        let [vertical, horizontal] = gather.axes;
        let single = gather.channels == 1
            && vertical.dilation == 1
            && [vertical, horizontal].iter().all(|axis| !axis.transposed || axis.stride == 1);
        let is_its = |kind: &Self| gather.filter == [kind.side; 2] && vertical.stride == kind.step;
        let mut its = Self::squares().filter(|kind| single && is_its(kind));
        let enough = ENOUGH.saturating_mul(compute_units);
        let occupies = |kind: &Self| kind.invocations(gather) >= enough;
        its.clone().find(occupies).or_else(|| its.next_back()).unwrap_or(Self::ANY)
    }

    fn invocations(self, gather: &ConvGather) -> usize {
        let [height, width] = gather.result;
        [gather.groups, gather.filters, height.div_ceil(self.rows), width]
            .into_iter()
            .fold(gather.batch, usize::saturating_mul)
    }

    fn variant(self, dtype: DType, activation: Activation) -> Variant {
        let Self { rows, side, step } = self;
        Variant::new(&DIRECT, [dtype], Constants { rows, side, step, activation })
    }
}

/// The function `make`, which makes the results of an invocation.
fn make(values: &Values, _: Target) -> String {
    let Constants { rows, side, step, .. } = Constants::of(values);
    let sums = lines((0..rows).map(|row| format!("var sum_{row} = 0.0;")));
    let results = lines((0..rows).map(|row| format!("write_out(place, {row}u, sum_{row});")));
    let products = if side == 0 { products_of_any(rows) } else { products_of_a_square(rows, side, step) };
    format!("fn make(place: Place, start: u32) {{\n{sums}{products}{results}}}\n")
}

/// Goes through the source line by line: each is read for all rows of results that meet it.
fn products_of_a_square(rows: usize, side: usize, step: usize) -> String {
    let places = move || (0..side).flat_map(move |r| (0..side).map(move |s| (r, s)));
    let weights = lines(places().map(|(r, s)| format!("let w_{r}_{s} = weight(place, {r}u, {s}u);")));
    let read = |(line, s)| format!("let v_{line}_{s} = at_column(start, y + {line}, x, {s}u);");
    let add = move |(line, s): (usize, usize)| {
        let met = (0..rows).filter(move |&row| (row * step..row * step + side).contains(&line));
        met.map(move |row| format!("sum_{row} += v_{line}_{s} * w_{}_{s};", line - row * step))
    };
    let cells = (0..(rows - 1) * step + side).flat_map(|line| (0..side).map(move |s| (line, s)));
    let products = lines(cells.flat_map(|cell| iter::once(read(cell)).chain(add(cell))));
    format!("let y = first_row(place);\nlet x = first_column(place);\n{weights}{products}")
}

/// Goes through the filter tap by tap.
fn products_of_any(rows: usize) -> String {
    let add = |row| {
        let y = format!("source_row(place.y + {row}u, r)");
        format!("sum_{row} += along_channels(place, start, {y}, x, r * params.filter_width + s);")
    };
    let products = lines((0..rows).map(add));
    // Without channels, filters have any extents.
    format!(
        "for (var s = 0u; s < params.filter_width && params.channels > 0u; s++) {{
let x = source_column(place.x, s);
if x >= params.width {{
continue;
}}
for (var r = 0u; r < params.filter_height; r++) {{
{products}}}
}}
"
    )
}

pub(super) fn variants() -> Vec<Variant> {
    let types = [DType::F32, DType::F16].into_iter();
    let both =
        types.flat_map(|dtype| iter::once(Kind::ANY).chain(Kind::squares()).map(move |kind| (kind, dtype)));
    both.flat_map(|(kind, dtype)| Activation::ALL.iter().map(move |&a| kind.variant(dtype, a))).collect()
}

/// Nanoseconds that an invocation waits for a tap of its rows: 0.16 to 0.33 µs on an NVIDIA H200.
const TAP: usize = 220;

/// Nanoseconds more for filters of any kind.
const ANY_LAUNCH: usize = 1500;

/// Taps of a sum that is short.
const SHORT: usize = 9;

/// Products that the invocations of a compute unit make in a nanosecond, and those for filters of any kind.
const RATE: usize = 20;
const ANY_RATE: usize = 8;

/// Nanoseconds of a convolution for which it may be the fastest kernel: tiles would be mostly empty, or sums are
/// short.
pub(super) fn time(ctx: &OpContext, gather: &ConvGather) -> Option<usize> {
    let taps = gather.taps();
    let is_few = gather.filters <= 4 || (gather.filters <= 8 && gather.channels <= 4);
    // There, nothing waits for memory while others compute, and each step of a tile is paid for.
    if ctx.gpu().info.kind == DeviceKind::SoftwareAdapter {
        return is_few.then_some(0);
    }
    let compute_units = ctx.profile().compute_units;
    let is_any = Kind::of(gather, compute_units) == Kind::ANY;
    let (starts, rate) = if is_any { (h200::LAUNCH + ANY_LAUNCH, ANY_RATE) } else { (h200::LAUNCH, RATE) };
    let products = split::results(gather).saturating_mul(taps);
    let time =
        starts.saturating_add(taps.saturating_mul(TAP)).saturating_add(products / (rate * compute_units));
    (is_few || taps <= SHORT).then_some(time)
}

/// Invocations on a compute unit that are worth a copy of the filters.
const MANY: usize = 4096;

/// The filters of one channel each with all those of a tap adjacent, as neighbours read them that have
/// neighbouring channels.
fn taps_apart(ctx: &OpContext, op: &'static str, job: &Job) -> BackendResult<Job> {
    let mut gather = job.gather;
    // To the copy, they are one filter of so many channels.
    (gather.channels, gather.filters, gather.groups) = (gather.groups * gather.filters, 1, 1);
    gather.layout = ImageLayout::Nchw;
    let filter = repack_filter::copy(ctx, op, &Job { gather, ..job.clone() }, gather.channels, true)?;
    Ok(Job { filter, ..job.clone() })
}

pub(super) fn launch(ctx: &OpContext, op: &'static str, job: &Job) -> BackendResult<()> {
    let &ConvGather { batch, groups, filters, result: [height, width], layout, .. } = &job.gather;
    let compute_units = ctx.profile().compute_units;
    let mut job = repack_filter::as_multiplied(ctx, op, job, layout == ImageLayout::Nhwc)?;
    let kind = Kind::of(&job.gather, compute_units);
    let bands = height.div_ceil(kind.rows);
    let invocations = checked_product(op, "invocations", &[batch, groups, filters, bands, width])?;
    let all = checked_product(op, "filters", &[groups, filters])?;
    let mut steps = [kind.side * kind.side, 1];
    if layout == ImageLayout::Nhwc && kind.side > 1 && invocations >= MANY.saturating_mul(compute_units) {
        job = taps_apart(ctx, op, &job)?;
        steps = [1, all];
    }
    let params = Params {
        tiles_m: dim(op, "filter", steps[0])?,
        tiles_n: dim(op, "filters", steps[1])?,
        tiles: dim(op, "invocations", invocations)?,
        ..Params::new(op, &job)?
    };
    launch_unshared(ctx, op, &job, &kind.variant(job.dtype, job.activation), &params, invocations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::compose;

    #[test]
    fn every_row_meets_each_tap_of_a_square_once() {
        for kind in Kind::squares() {
            let Kind { rows, side, step } = kind;
            let target = Target { immediates: true, unroll: true };
            let text = compose(&kind.variant(DType::F32, Activation::Identity), target);
            let mut found: Vec<&str> =
                text.lines().map(str::trim).filter(|line| line.contains(" += v_")).collect();
            let taps = || (0..side).flat_map(|r| (0..side).map(move |s| (r, s)));
            let of_row =
                |row| taps().map(move |(r, s)| format!("sum_{row} += v_{}_{s} * w_{r}_{s};", row * step + r));
            let mut wanted: Vec<String> = (0..rows).flat_map(of_row).collect();
            found.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(found, wanted, "{rows} rows, {side} taps, {step}");
        }
    }
}
