//! quant/dequantize: all rows of a quantised matrix as numbers, by vectors of f16; others, and those whose scales aren't
//! within f16's range, are made by quant/gather.

use backend_api::desc::DequantizeDesc;
use backend_api::quant::{QuantFormat, QuantLayout};
use backend_api::support::checked_product;
use backend_api::{BackendResult, DType};

use super::formats::{fits_half, has_half_scales, kinds, weight_libs};
use super::gather::Part;
use super::planes::{PlaneParams, Planes, Stored, require_types};
use crate::kernels::{KernelSource, Variant, constants, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim, invocation_grid};
use crate::ops::shared::long_work::{Run, in_parts};
use crate::ops::shared::vec_width::VecWidth;

constants! { struct Constants { half_scales: bool } }

static DEQUANTIZE: KernelSource = kernel!(
    "quant/dequantize", libs: [INVOCATION_OUTPUTS, QUANT_PLANES],
    types: ["T"], constants: Constants, params: Params,
    reads: ["quants", "high", "scales", "extra"], writes: ["output: vec4<u32>"],
);

params! {
    struct Params {
        columns: u32,
        // The words j of all units of a row, and of all rows.
        words: u32,
        total: u32,
        planes: PlaneParams,
        output: u32,
        ld: u32,
    }
}

/// The most bytes that a launch writes: of 6 GiB on an H200, launches of 2 GiB each take 5.9 ms together, of 1 GiB 4.8 and
/// of 512 MiB 4.4.
const MAX_WRITTEN: usize = 512 << 20;

pub(super) fn variants() -> Vec<Variant> {
    kinds().filter(|&format| fits_half(format)).map(variant).collect()
}

fn variant(format: QuantFormat) -> Variant {
    Variant::new(&DEQUANTIZE, [DType::F16], Constants { half_scales: has_half_scales(format) })
        .with_libs(weight_libs(format))
}

/// `output = input`.
pub(crate) fn dequantize(ctx: &OpContext, op: &'static str, desc: &DequantizeDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let layout = desc.input.layout(op)?;
    let [input, output] = ctx.resolve(op, &operands)?;
    let Some(output) = output else { return Ok(()) };
    let dtype = desc.output.dtype;
    require_types(ctx, op, desc.input.format, [dtype])?;
    let ld = desc.output.ld;
    let stored = Stored { layout: &layout, slice: input.as_ref() };
    write_rows(ctx, op, stored, (0, layout.rows), (dtype, &output, ld))
}

/// The rows `first..end` of a matrix as packed numbers.
pub(super) fn dequantize_rows(
    ctx: &OpContext,
    op: &'static str,
    stored: Stored<'_>,
    rows: (usize, usize),
    (dtype, output): (DType, &DeviceSlice),
) -> BackendResult<()> {
    write_rows(ctx, op, stored, rows, (dtype, output, stored.layout.columns))
}

fn write_rows(
    ctx: &OpContext,
    op: &'static str,
    stored: Stored<'_>,
    (start, end): (usize, usize),
    (dtype, output, ld): (DType, &DeviceSlice, usize),
) -> BackendResult<()> {
    let layout = stored.layout;
    // Of a single row, the leading dimension leads nowhere and may be any number.
    let ld = if end - start > 1 { ld } else { 0 };
    // Within the output's bytes, so the products don't overflow.
    let [step, row] = [ld, layout.columns].map(|elements| elements * dtype.size());
    let most = (MAX_WRITTEN / step.max(1)).max(1);
    let launches = |(first, end): (usize, usize)| {
        (first..end).step_by(most).map(move |at| (at, end.min(at.saturating_add(most))))
    };
    in_parts(ctx, op, Run::of_bytes(end - start, 2.0 * row as f64), |run| {
        stored.bindable(ctx, step, (start + run.first, start + run.end)).flat_map(launches).try_for_each(
            |(first, end)| {
                let part = DeviceSlice {
                    block: output.block.clone(),
                    offset: output.offset + (first - start) * step,
                    len: (end - first - 1) * step + row,
                };
                let output = ctx.output(&part, dtype);
                let planes = Planes::new(ctx, op, stored, (first, end), &output)?;
                let (count, output) = (end - first, &output);
                let part = Part { layout, dtype, count, indices: None, output, ld };
                if dtype == DType::F16
                    && fits_half(layout.format)
                    && VecWidth::fitting(dtype, &[output], &[ld, layout.columns]) == VecWidth::Eight
                {
                    return launch(ctx, op, &planes, &part);
                }
                part.launch(ctx, op, &planes, (first, end))
            },
        )
    })
}

/// Writes vectors of eight numbers.
fn launch(ctx: &OpContext, op: &'static str, planes: &Planes, part: &Part<'_>) -> BackendResult<()> {
    let QuantLayout { format, units, columns, .. } = *part.layout;
    let words = checked_product(op, "columns", &[4, units])?;
    let elements = checked_product(op, "output", &[part.count, words])?;
    let params = Params {
        columns: dim(op, "columns", columns)?,
        words: dim(op, "columns", words)?,
        total: dim(op, "output", elements)?,
        planes: planes.params(),
        output: part.output.offset,
        ld: dim(op, "ld of the output", part.ld)?,
    };
    let grid = invocation_grid(op, elements)?;
    ctx.launch(op, &variant(format), &planes.windows(), part.output, &params, grid)
}
