//! Rows of a quantised matrix as numbers, by index or all of them.

use backend_api::desc::QuantGatherDesc;
use backend_api::quant::{QuantFormat, QuantLayout};
use backend_api::support::checked_product;
use backend_api::{BackendResult, DType};

use super::formats::{format_libs, kinds};
use super::planes::{PlaneParams, Planes, Stored, require_types};
use crate::kernels::{KernelSource, Variant, constants, kernel, params};
use crate::ops::op_context::{OpContext, dim, invocation_grid};
use crate::ops::shared::long_work::{Run, in_parts};
use crate::ops::shared::vec_width::VecWidth;
use crate::recorder::Window;

constants! { struct Constants { indexed: bool } }

static GATHER: KernelSource = kernel!(
    "quant/gather", libs: [INVOCATION_OUTPUTS, QUANT_PLANES, QUANT_NIBBLES],
    types: ["T"], constants: Constants, params: Params,
    reads: ["quants", "high", "scales", "extra", "indices: u32"], writes: ["output: OutputVector"],
);

params! {
    struct Params {
        // Rows of the table that are bound, the first of them, and those of the whole table.
        rows: u32,
        first: u32,
        rows_of_all: u32,
        columns: u32,
        // Words in a row, the last of which may be cut.
        words: u32,
        // Words of all rows of the output.
        total: u32,
        planes: PlaneParams,
        indices: u32,
        output: u32,
        ld: u32,
    }
}

pub(super) fn variants() -> Vec<Variant> {
    let of = |format| {
        [DType::F32, DType::F16].map(|dtype| {
            let writers =
                [false, true].map(|vectors| [false, true].map(|by| variant(format, dtype, by, vectors)));
            writers.concat()
        })
    };
    kinds().flat_map(of).flatten().collect()
}

fn variant(format: QuantFormat, dtype: DType, indexed: bool, vectors: bool) -> Variant {
    Variant::new(&GATHER, [dtype], Constants { indexed }).with_libs(format_libs(format, vectors))
}

/// `output[i, c] = table[indices[i], c]`.
pub(crate) fn quant_gather(ctx: &OpContext, op: &'static str, desc: &QuantGatherDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let layout = desc.table.layout(op)?;
    let [table, indices, output] = ctx.resolve(op, &operands)?;
    let (Some(indices), Some(output)) = (indices, output) else { return Ok(()) };
    require_types(ctx, op, desc.table.format, [desc.dtype])?;
    let columns = layout.columns;
    let row = columns * desc.dtype.size();
    let run = Run::of_bytes(desc.count, 2.0 * row as f64);
    let run = run.over(ctx, &output, row).over(ctx, &indices, DType::U32.size());
    let output = ctx.output(&output, desc.dtype);
    let indices = ctx.input(op, &indices, DType::U32, &output)?;
    let stored = Stored { layout: &layout, slice: table.as_ref() };
    in_parts(ctx, op, run, |run| {
        let part = Part {
            layout: &layout,
            dtype: desc.dtype,
            count: run.count(),
            indices: Some(&indices.advanced(run.first).truncated(run.count())),
            output: &output.advanced(run.first * columns).truncated(run.count() * columns),
            ld: columns,
        };
        if layout.rows == 0 {
            return part.launch(ctx, op, &Planes::new(ctx, op, stored, (0, 0), &output)?, (0, 0));
        }
        // Of a table that can't be bound as a whole, each launch knows some rows.
        stored.bindable(ctx, 0, (0, layout.rows)).try_for_each(|rows| {
            let planes = Planes::new(ctx, op, stored, rows, &output)?;
            part.launch(ctx, op, &planes, rows)
        })
    })
}

/// Rows of the output that are made at once.
pub(super) struct Part<'a> {
    pub(super) layout: &'a QuantLayout,
    pub(super) dtype: DType,
    pub(super) count: usize,
    pub(super) indices: Option<&'a Window>,
    pub(super) output: &'a Window,
    pub(super) ld: usize,
}

impl Part<'_> {
    /// Writes the rows of the output that come from the rows `first..end` of the matrix, and with `first` = 0 the
    /// rows that come from none.
    pub(super) fn launch(
        &self,
        ctx: &OpContext,
        op: &'static str,
        planes: &Planes,
        (first, end): (usize, usize),
    ) -> BackendResult<()> {
        let QuantLayout { format, rows, columns, .. } = *self.layout;
        let words = columns.div_ceil(8);
        let elements = checked_product(op, "output", &[self.count, words])?;
        let null = ctx.null();
        let indices = self.indices.unwrap_or(&null);
        let params = Params {
            rows: dim(op, "rows", end - first)?,
            first: dim(op, "rows", first)?,
            rows_of_all: dim(op, "rows", rows)?,
            columns: dim(op, "columns", columns)?,
            words: dim(op, "columns", words)?,
            total: dim(op, "output", elements)?,
            planes: planes.params(),
            indices: indices.offset,
            output: self.output.offset,
            ld: dim(op, "ld of the output", self.ld)?,
        };
        let grid = invocation_grid(op, elements)?;
        let [quants, high, scales, extra] = planes.windows();
        let vectors = VecWidth::four_if_fitting(&[self.output], &[self.ld, columns]) == VecWidth::Four;
        let variant = variant(format, self.dtype, self.indices.is_some(), vectors);
        ctx.launch(op, &variant, &[quants, high, scales, extra, indices], self.output, &params, grid)
    }
}
