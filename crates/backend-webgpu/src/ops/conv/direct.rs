//! Convolutions with few channels or filters in a group, without workgroup memory.

use std::iter;

use backend_api::desc::ImageLayout;
use backend_api::support::{ConvGather, checked_product};
use backend_api::{Activation, BackendResult, DType, DeviceKind};

use super::params::Params;
use super::{Job, repack_filter, split};
use crate::kernels::{KernelSource, MAX_CONSTANTS, Target, Variant, kernel};
use crate::ops::matmul::activation_code;
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::ops::shared::text::lines;

static DIRECT: KernelSource = KernelSource {
    unrolled: Some(make),
    ..kernel!(
        "conv/direct",
        libs: [GRID, SPECIAL, UNARY, ACTIVATE, CONV],
        types: ["T"],
        constants: ["ROWS", "SIDE", "ACTIVATION"],
        reads: 3,
        writes: 1,
        params: Params,
    )
};

const WORKGROUP: usize = 128;

/// Sides of the filters that have a kernel of their own, 0 for any, and the rows of an invocation.
const KINDS: [[u32; 2]; 3] = [[4, 0], [8, 3], [8, 5]];

/// The function `make`, which makes the results of an invocation.
fn make(&[rows, side, ..]: &[u32; MAX_CONSTANTS], _: Target) -> String {
    let sums = lines((0..rows).map(|row| format!("var sum_{row} = 0.0;")));
    let results = lines((0..rows).map(|row| format!("write_out(place, {row}u, sum_{row});")));
    let products = if side == 0 { products_of_any(rows) } else { products_of_a_square(rows, side) };
    format!("fn make(place: Place, start: u32) {{\n{sums}{products}{results}}}\n")
}

/// Goes through the source line by line: each is read for all rows of results that meet it.
fn products_of_a_square(rows: u32, side: u32) -> String {
    let places = move || (0..side).flat_map(move |r| (0..side).map(move |s| (r, s)));
    let weights = lines(places().map(|(r, s)| format!("let w_{r}_{s} = weight(place, {r}u, {s}u);")));
    let read = |(line, s)| format!("let v_{line}_{s} = at_column(start, y + {line}, x, {s}u);");
    let add = move |(line, s): (u32, u32)| {
        let met = (0..rows).filter(move |&row| (row..row + side).contains(&line));
        met.map(move |row| format!("sum_{row} += v_{line}_{s} * w_{}_{s};", line - row))
    };
    let cells = (0..rows + side - 1).flat_map(|line| (0..side).map(move |s| (line, s)));
    let products = lines(cells.flat_map(|cell| iter::once(read(cell)).chain(add(cell))));
    format!("let y = first_row(place);\nlet x = first_column(place);\n{weights}{products}")
}

/// Goes through the filter tap by tap.
fn products_of_any(rows: u32) -> String {
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

fn variant(dtype: DType, [rows, side]: [u32; 2], activation: Activation) -> Variant {
    Variant::new(&DIRECT, [dtype], [rows, side, activation_code(activation)])
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        for kind in KINDS {
            variants.extend(Activation::ALL.iter().map(|&activation| variant(dtype, kind, activation)));
        }
    }
    variants
}

/// Nanoseconds that an invocation waits for a tap of its rows: 0.16 to 0.33 µs on an NVIDIA H200.
const TAP: usize = 220;

/// Products that the invocations of a compute unit make in a nanosecond.
const RATE: usize = 20;

/// Whether it is likely to be faster than tiles, which are estimated to take `tiled` nanoseconds: where these would
/// be mostly empty, unless an invocation's sums are long.
pub(super) fn is_better(ctx: &OpContext, gather: &ConvGather, tiled: usize) -> bool {
    let is_few = gather.filters <= 4 || (gather.filters <= 8 && gather.channels <= 4);
    // There, nothing waits for memory while others compute, and each step of a tile is paid for.
    if !is_few || ctx.gpu().info.kind == DeviceKind::SoftwareAdapter {
        return is_few;
    }
    let taps = gather.taps();
    let products = split::results(gather).saturating_mul(taps);
    taps.saturating_mul(TAP).saturating_add(products / (RATE * ctx.gpu().profile.compute_units)) <= tiled
}

/// The kernel for this filter.
fn kind(gather: &ConvGather) -> [u32; 2] {
    let [vertical, horizontal] = gather.axes;
    let single = gather.channels == 1
        && (vertical.stride, vertical.dilation) == (1, 1)
        && (!horizontal.transposed || horizontal.stride == 1);
    let side = |kind: &[u32; 2]| gather.filter == [kind[1] as usize; 2];
    KINDS.into_iter().find(|kind| single && side(kind)).unwrap_or(KINDS[0])
}

pub(super) fn launch(ctx: &OpContext, op: &'static str, job: &Job) -> BackendResult<()> {
    let &ConvGather { batch, groups, filters, result: [height, width], layout, .. } = &job.gather;
    let job = &repack_filter::as_multiplied(ctx, op, job, layout == ImageLayout::Nhwc)?;
    let kind = kind(&job.gather);
    let bands = height.div_ceil(kind[0] as usize);
    let invocations = checked_product(op, "invocations", &[batch, groups, filters, bands, width])?;
    let params = Params { tiles: dim(op, "invocations", invocations)?, ..Params::new(op, job)? };
    let grid = linear_grid(op, invocations.div_ceil(WORKGROUP))?;
    let variant = variant(job.dtype, kind, job.activation);
    ctx.launch(op, &variant, &[&job.input, &job.filter, &job.bias], &job.output, &params, grid)
}
