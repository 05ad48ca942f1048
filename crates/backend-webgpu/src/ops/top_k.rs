//! The largest or smallest numbers of rows, and sorting.
//!
//! Numbers of short rows are counted into their places, and their softmax is taken in that launch. Others are sorted by
//! chunks of 1024. Where few numbers of a chunk are kept, what is kept of all chunks is sorted by chunks again, until there
//! is one; else the sorted runs are merged two by two.

use backend_api::desc::{GatherDesc, IndexShape, SoftmaxDesc, SoftmaxOver, TopKDesc};
use backend_api::{BackendResult, DType};

use super::gather::gather_slices;
use super::router;
use super::shared::long_work::{Run, in_parts};
use super::shared::row_top_k::{MOST, place_of_largest, softmax_constant};
use super::softmax::softmax_slices;
use crate::kernels::libs::{
    SORT_FROM_ENTRIES, SORT_FROM_F16, SORT_FROM_F32, SORT_FROM_F32_BITS, SORT_FROM_I32, SORT_FROM_U32,
};
use crate::kernels::{KernelSource, Lib, Variant, constants, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim, dims, invocation_grid, linear_grid};
use crate::recorder::Window;

constants! { struct Constants { indices: bool } }
constants! { struct ShortConstants { softmax: u32 } }

static TOP_K: KernelSource = kernel!(
    "reduce/top_k", libs: [GRID, ROW_TOP_K],
    types: ["X"], constants: ShortConstants, params: ShortParams,
    reads: ["x: X"], writes: ["values: X", "indices: u32"],
);

params! {
    struct ShortParams {
        rows: u32,
        columns: u32,
        k: u32,
        // All ones to find the largest, else 0.
        flip: u32,
        // The place of the number whose exponential is 1.
        largest: u32,
        // Bit 0: the indices are written, 1: the values.
        writes: u32,
        x: u32,
        values: u32,
        indices: u32,
    }
}

static SORT_CHUNKS: KernelSource = kernel!(
    "reduce/sort_chunks", libs: [GRID, SORT_ENTRIES],
    types: ["X"], constants: Constants, params: SortParams, reads: ["x: X"], writes: ["y: u32"],
);

params! {
    struct SortParams {
        rows: u32,
        // Numbers or entries in a row of x, and workgroups for it.
        columns: u32,
        chunks: u32,
        // Entries of a chunk that are kept, and of a row.
        kept: u32,
        row_kept: u32,
        // All ones to find the largest, else 0.
        flip: u32,
        // A power of two: entries that are sorted.
        size: u32,
        x: u32,
        y: u32,
    }
}

static MERGE_RUNS: KernelSource = kernel!(
    "reduce/merge_runs", libs: [INVOCATION_OUTPUTS, SORT_ENTRIES],
    types: [], constants: Constants, params: MergeParams, reads: ["x: u32"], writes: ["y: u32"],
);

params! {
    struct MergeParams {
        // Entries of the result.
        total: u32,
        // Entries in a row of x, and of each run but the last.
        columns: u32,
        run: u32,
        // Entries of a merged run, and in a row of the result.
        merged: u32,
        row_kept: u32,
        x: u32,
        y: u32,
    }
}

/// Entries that a workgroup sorts.
const CHUNK: usize = 1024;
/// Entries kept of a chunk up to which sorting what is kept beats merging.
const FEW: usize = CHUNK / 2;
/// Bytes of an entry.
const ENTRY: usize = 8;
/// Entries of the rows that are sorted at a time, which bounds the scratch memory.
const MAX_ENTRIES: usize = 1 << 23;

/// What is sorted: numbers of a type, or entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Numbers(DType),
    Entries,
}

pub(super) fn variants() -> Vec<Variant> {
    let sources = DType::ALL.map(Source::Numbers).into_iter().chain([Source::Entries]);
    let sorts = sources.flat_map(|source| [false, true].map(|indices| sort_variant(source, indices)));
    let softmax = [None, Some(SoftmaxOver::Found), Some(SoftmaxOver::Row)];
    let short = DType::ALL.into_iter().flat_map(|dtype| {
        let softmax = if dtype.is_float() { &softmax[..] } else { &softmax[..1] };
        softmax.iter().map(move |&softmax| short_variant(dtype, softmax))
    });
    sorts.chain([false, true].map(merge_variant)).chain(short).collect()
}

/// What reads numbers of a type.
const fn number_libs(dtype: DType) -> &'static [Lib] {
    match dtype {
        DType::F16 => &[SORT_FROM_F16],
        DType::I32 => &[SORT_FROM_I32],
        DType::U32 => &[SORT_FROM_U32],
        _ => &[SORT_FROM_F32],
    }
}

fn short_variant(dtype: DType, softmax: Option<SoftmaxOver>) -> Variant {
    let constants = ShortConstants { softmax: softmax_constant(softmax) };
    if dtype == DType::F32 && softmax.is_none() {
        // Values keep their bits.
        return Variant::new(&TOP_K, [DType::U32], constants).with_libs(&[SORT_FROM_F32_BITS]);
    }
    Variant::new(&TOP_K, [dtype], constants).with_libs(number_libs(dtype))
}

fn sort_variant(source: Source, indices: bool) -> Variant {
    let (dtype, libs): (DType, &'static [Lib]) = match source {
        Source::Numbers(dtype) => (dtype, number_libs(dtype)),
        Source::Entries => (DType::U32, &[SORT_FROM_ENTRIES]),
    };
    Variant::new(&SORT_CHUNKS, [dtype], Constants { indices }).with_libs(libs)
}

fn merge_variant(indices: bool) -> Variant {
    Variant::new(&MERGE_RUNS, [], Constants { indices })
}

/// The `k` largest or smallest numbers of each row, in order.
pub(crate) fn top_k(ctx: &OpContext, op: &'static str, desc: &TopKDesc) -> BackendResult<()> {
    let [Some(input), Some(indices), values] = ctx.resolve(op, &desc.operands(op)?)? else { return Ok(()) };
    let &TopKDesc { dtype, rows, columns, k, .. } = desc;
    ctx.require_dtype(op, dtype)?;
    if router::find_with_product(ctx, op, desc, [&input, &indices], values.as_ref())? {
        return Ok(());
    }
    let to = ctx.output(&indices, DType::I32);
    if columns <= MOST {
        let is_shared = values.as_ref().is_some_and(|values| ctx.output(values, dtype).shares_buffer(&to));
        // Browsers refuse to bind a buffer twice that is written.
        if is_shared {
            short(ctx, op, desc, &input, [Some(&indices), None])?;
            return short(ctx, op, desc, &input, [None, values.as_ref()]);
        }
        return short(ctx, op, desc, &input, [Some(&indices), values.as_ref()]);
    }
    let from = ctx.input(op, &input, dtype, &to)?;
    let softmax = |operands: [&DeviceSlice; 2], columns| {
        softmax_slices(ctx, op, &SoftmaxDesc::rows(dtype, 0, 0, rows, columns), operands)
    };
    let of_row = match desc.softmax {
        Some(SoftmaxOver::Row) if values.is_some() => {
            let probabilities = ctx.scratch(op, input.len)?;
            softmax([&input, &probabilities], columns)?;
            Some(probabilities)
        }
        _ => None,
    };
    in_parts(ctx, op, Run::of_bytes(rows, row_bytes(columns, k)), |run| {
        let most = rows_at_a_time(ctx, columns);
        (run.first..run.end).step_by(most).try_for_each(|first| {
            let _part = ctx.begin_part();
            let rows = most.min(run.end - first);
            let sort = Sort { ctx, op, rows, k, largest: desc.largest };
            let part = |window: &Window, row: usize| window.advanced(first * row).truncated(rows * row);
            sort.run(&part(&from, columns), dtype, columns, &part(&to, k))
        })
    })?;
    let Some(values) = values else { return Ok(()) };
    // An index for each element of tables of one column.
    let shape = IndexShape { rows: columns, columns: 1, count: k };
    let gather = GatherDesc::new(dtype, 0, 0, 0, shape).with_outer(rows).with_per_element();
    gather_slices(ctx, op, &gather, [Some(of_row.as_ref().unwrap_or(&input)), Some(&indices)], &values)?;
    if desc.softmax.is_some() && of_row.is_none() { softmax([&values; 2], k) } else { Ok(()) }
}

/// The indices or the values of rows of which a workgroup has one, or both, which lie in different buffers.
fn short(
    ctx: &OpContext,
    op: &'static str,
    desc: &TopKDesc,
    input: &DeviceSlice,
    [indices, values]: [Option<&DeviceSlice>; 2],
) -> BackendResult<()> {
    let &TopKDesc { dtype, rows, columns, k, largest, softmax, .. } = desc;
    // Each number is compared with all of its row.
    let mut run = Run::of_bytes(rows, row_bytes(columns, k) + (columns * columns) as f64);
    run = run.over(ctx, input, columns * dtype.size());
    for (output, size) in [(indices, DType::I32.size()), (values, dtype.size())] {
        if let Some(output) = output {
            run = run.over(ctx, output, k * size);
        }
    }
    let indices = indices.map(|indices| ctx.output(indices, DType::I32));
    let values = values.map(|values| ctx.output(values, dtype));
    let variant = short_variant(dtype, softmax.filter(|_| values.is_some()));
    let mut from = ctx.output(input, dtype);
    for output in [&indices, &values].into_iter().flatten() {
        if from.shares_buffer(output) {
            from = ctx.input(op, input, dtype, output)?;
        }
    }
    let writes = u32::from(indices.is_some()) | u32::from(values.is_some()) << 1;
    in_parts(ctx, op, run, |run| {
        let count = run.count();
        let part = |window: &Window, row: usize| window.advanced(run.first * row).truncated(count * row);
        let output =
            |window: &Option<Window>| window.as_ref().map_or_else(|| ctx.sink(), |window| part(window, k));
        let (from, indices, values) = (part(&from, columns), output(&indices), output(&values));
        let params = ShortParams {
            rows: dim(op, "rows", count)?,
            columns: dim(op, "columns", columns)?,
            k: dim(op, "k", k)?,
            flip: if largest { u32::MAX } else { 0 },
            largest: dim(op, "k", place_of_largest(desc))?,
            writes,
            x: from.offset,
            values: values.offset,
            indices: indices.offset,
        };
        ctx.launch(op, &variant, &[&from, &values], &indices, &params, linear_grid(op, count)?)
    })
}

/// Rows of so many numbers whose entries can be bound, and aren't too many.
pub(super) fn rows_at_a_time(ctx: &OpContext, columns: usize) -> usize {
    // Bindings have at most 2 GiB.
    let entries = MAX_ENTRIES.min(ctx.device.limits.max_bytes as usize / ENTRY);
    (entries / columns).max(1)
}

/// Bytes that are read and written to find `k` of a row, at most.
pub(super) fn row_bytes(columns: usize, k: usize) -> f64 {
    let merges = if k <= FEW { 0.0 } else { (columns as f64 / CHUNK as f64).max(1.0).log2().ceil() };
    (columns * ENTRY) as f64 * (4.0 + 2.0 * merges)
}

/// Memory for entries, of which one is read while the other is written.
type Places = [Option<DeviceSlice>; 2];

/// What a launch keeps: so many entries of each chunk or pair of runs, and of a row, or only their indices.
#[derive(Clone, Copy)]
struct Kept<'a> {
    each: usize,
    row: usize,
    to: &'a Window,
    indices: bool,
}

/// Rows that are sorted together.
pub(super) struct Sort<'a> {
    pub(super) ctx: &'a OpContext,
    pub(super) op: &'static str,
    pub(super) rows: usize,
    pub(super) k: usize,
    pub(super) largest: bool,
}

impl Sort<'_> {
    /// Writes the indices of rows of so many numbers.
    pub(super) fn run(
        &self,
        input: &Window,
        dtype: DType,
        columns: usize,
        indices: &Window,
    ) -> BackendResult<()> {
        let (mut from, mut source, mut columns) = (input.clone(), Source::Numbers(dtype), columns);
        let mut places = Places::default();
        // By chunks, until what is kept is one run, or too much for a chunk.
        loop {
            let chunks = columns.div_ceil(CHUNK);
            let kept = self.k.min(CHUNK);
            if chunks == 1 {
                return self.sort(
                    &from,
                    source,
                    columns,
                    Kept { each: kept, row: kept, to: indices, indices: true },
                );
            }
            // All that the chunks before the last keep, and what the last one has.
            let row_kept = (chunks - 1) * kept + kept.min(columns - (chunks - 1) * CHUNK);
            let to = self.entries(row_kept, &mut places)?;
            self.sort(&from, source, columns, Kept { each: kept, row: row_kept, to: &to, indices: false })?;
            (from, source, columns) = (to, Source::Entries, row_kept);
            if kept > FEW {
                break;
            }
        }
        let mut run = self.k.min(CHUNK);
        while run < columns {
            let merged = (2 * run).min(self.k);
            let pairs = columns.div_ceil(2 * run);
            let row_kept = (pairs - 1) * merged + merged.min(columns - (pairs - 1) * 2 * run);
            if pairs == 1 {
                return self.merge(
                    &from,
                    columns,
                    run,
                    Kept { each: merged, row: row_kept, to: indices, indices: true },
                );
            }
            let to = self.entries(row_kept, &mut places)?;
            self.merge(&from, columns, run, Kept { each: merged, row: row_kept, to: &to, indices: false })?;
            (from, run, columns) = (to, merged, row_kept);
        }
        Ok(())
    }

    /// Where entries go, of so many a row: not where the last ones went.
    fn entries(&self, row: usize, places: &mut Places) -> BackendResult<Window> {
        let bytes = self.rows * row * ENTRY;
        places.swap(0, 1);
        let slice = match &places[0] {
            Some(slice) if slice.len >= bytes => slice.clone(),
            _ => places[0].insert(self.ctx.scratch(self.op, bytes)?).clone(),
        };
        Ok(self.ctx.output(&DeviceSlice { len: bytes, ..slice }, DType::U32))
    }

    /// Sorts chunks, of each of which some is kept.
    fn sort(&self, from: &Window, source: Source, columns: usize, kept: Kept<'_>) -> BackendResult<()> {
        let Self { ctx, op, rows, largest, .. } = *self;
        let Kept { each, row, to, indices } = kept;
        let (chunks, size) = (columns.div_ceil(CHUNK), columns.min(CHUNK).next_power_of_two());
        let grid = linear_grid(op, rows * chunks)?;
        let [columns, chunks, size] = dims(op, "columns", [columns, chunks, size])?;
        let [kept, row_kept] = dims(op, "k", [each, row])?;
        let params = SortParams {
            rows: dim(op, "rows", rows)?,
            columns,
            chunks,
            kept,
            row_kept,
            flip: if largest { u32::MAX } else { 0 },
            size,
            x: from.offset,
            y: to.offset,
        };
        ctx.launch(op, &sort_variant(source, indices), &[from], to, &params, grid)
    }

    /// Merges runs of `run` entries two by two, of each of which pairs some is kept.
    fn merge(&self, from: &Window, columns: usize, run: usize, kept: Kept<'_>) -> BackendResult<()> {
        let Self { ctx, op, rows, .. } = *self;
        let Kept { each, row, to, indices } = kept;
        let total = rows * row;
        let [columns, run] = dims(op, "columns", [columns, run])?;
        let [merged, row_kept] = dims(op, "k", [each, row])?;
        let params = MergeParams {
            total: dim(op, "entries", total)?,
            columns,
            run,
            merged,
            row_kept,
            x: from.offset,
            y: to.offset,
        };
        let grid = invocation_grid(op, total)?;
        ctx.launch(op, &merge_variant(indices), &[from], to, &params, grid)
    }
}
