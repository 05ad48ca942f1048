//! Rows and elements into a table by index.

use backend_api::desc::ScatterDesc;
use backend_api::{BackendError, BackendResult, DType, ScatterOp};

use super::shared::iterations;
use super::shared::long_work::{Divisible, Run, halves_of, in_parts, middle, require_end};
use crate::device::DeviceProfile;
use crate::kernels::libs::CONVERT_F16;
use crate::kernels::{Function, KernelSource, Lib, Variant, constants, kernel, params};
use crate::ops::op_context::{OpContext, dim, invocation_grid};
use crate::recorder::Window;

/// A kernel that combines what arrives at an element with what is there.
macro_rules! combining {
    ($name:literal) => {
        kernel!(
            $name, libs: [GRID, SPECIAL],
            types: ["T", "S"], constants: [], params: Params,
            reads: ["indices: u32", "source: S"], writes: ["table: T"],
        )
    };
}

static SCATTER: KernelSource = combining!("tokens/scatter");
static SCATTER_ROWS: KernelSource = combining!("tokens/scatter_rows");
static SCATTER_FEW: KernelSource = combining!("tokens/scatter_few");

constants! { struct AssignConstants { per_element: bool } }

static SCATTER_ASSIGN: KernelSource = kernel!(
    "tokens/scatter_assign", libs: [GRID, INDEXED_ROW],
    types: ["T", "S"], constants: AssignConstants, params: Params,
    reads: ["indices: u32", "source: S"], writes: ["table: T"],
);

params! {
    struct Params {
        // Rows of each table that are bound, and the first of them.
        rows: u32,
        low: u32,
        columns: u32,
        count: u32,
        // The last but one element of this launch, and the first.
        elements: u32,
        first: u32,
        indices: u32,
        source: u32,
        table: u32,
    }
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    let converting = [[DType::F16, DType::F32], [DType::F32, DType::F16]];
    for source in [&SCATTER, &SCATTER_ROWS] {
        for &op in ScatterOp::ALL {
            variants.extend(DType::ALL.map(|dtype| variant(source, op, [dtype; 2])));
        }
        variants.extend(converting.map(|types| variant(source, ScatterOp::Assign, types)));
    }
    for &op in ScatterOp::ALL.iter().filter(|&&op| op != ScatterOp::Assign) {
        variants.extend(DType::ALL.map(|dtype| variant(&SCATTER_FEW, op, [dtype; 2])));
    }
    let types = DType::ALL.into_iter().map(|dtype| [dtype; 2]).chain(converting);
    variants
        .extend(types.flat_map(|types| [false, true].map(|per_element| assign_variant(types, per_element))));
    variants
}

/// Of the types of table and source.
fn variant(source: &'static KernelSource, op: ScatterOp, types: [DType; 2]) -> Variant {
    Variant::new(source, types, []).with_function(Function::Combine(op)).with_libs(conversions(types))
}

fn assign_variant(types: [DType; 2], per_element: bool) -> Variant {
    Variant::new(&SCATTER_ASSIGN, types, AssignConstants { per_element })
        .with_function(Function::Combine(ScatterOp::Assign))
        .with_libs(conversions(types))
}

const fn conversions(types: [DType; 2]) -> &'static [Lib] {
    match types {
        [DType::F16, DType::F32] => &[CONVERT_F16],
        _ => &[],
    }
}

/// `table[o, index, c] = op(table[o, index, c], source[o, i, c])` in the order of i.
pub(crate) fn scatter(ctx: &OpContext, op: &'static str, desc: &ScatterDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [Some(table), Some(indices), Some(source)] = ctx.resolve(op, &operands)? else { return Ok(()) };
    let dtype = desc.dtype;
    ctx.require_dtype(op, dtype)?;
    ctx.require_dtype(op, desc.source_dtype)?;
    let table = ctx.output(&table, dtype);
    let indices = ctx.input(op, &indices, DType::U32, &table)?;
    let source = ctx.input(op, &source, desc.source_dtype, &table)?;
    // With one table of one column, there is an index for each row either way.
    let by_element = desc.per_element && desc.outer * desc.columns > 1;
    let by_source = is_by_source(desc, by_element);
    // The product was checked with the operands.
    let elements = desc.outer * if by_source { desc.count } else { desc.rows } * desc.columns;
    let all =
        Part { desc: *desc, by_source, by_element, low: 0, first: 0, end: elements, indices, source, table };
    if by_source && desc.op == ScatterOp::Assign {
        return all.run(ctx, op);
    }
    // What arrives is taken in its order, so a long search may stop and go on where sums aren't rounded
    // meanwhile.
    let most = most_indices(ctx, op, &all)?;
    if desc.count <= most {
        return all.run(ctx, op);
    }
    require_end(ctx, op, &Run::of_bytes(elements, all.bytes()).with_iterations(most as f64))?;
    for table in 0..desc.outer {
        let table = all.tables(table, 1);
        for first in (0..desc.count).step_by(most) {
            table.indices(first, most.min(desc.count - first)).run(ctx, op)?;
        }
    }
    Ok(())
}

/// Bytes of memory that it takes as long to read as an element takes to look at an index of its own, or at
/// one that a workgroup's elements share.
const INDEX: f64 = 4.0;
pub(super) const SHARED_INDEX: f64 = 4.0 / 32.0;

/// Whether invocations work on elements of the source, and look for others that go to the same place. Those that work on
/// elements of the table go through all of the indices for each of them.
fn is_by_source(desc: &ScatterDesc, by_element: bool) -> bool {
    let ScatterDesc { op, rows, columns, count, .. } = *desc;
    if op == ScatterOp::Assign {
        let few = if by_element { 0 } else { (rows / 2).min(MAX_FEW) };
        return count <= few.max(few_rows(rows));
    }
    let at_once = count.min(MAX_COMBINED);
    !by_element && columns >= COMBINED_COLUMNS && at_once <= rows / 2 && (at_once == count || !rounds(desc))
}

/// How many rows are few enough, beside those of a table, for each of their elements to go through the indices by itself
/// in search of a later one that takes its place.
fn few_rows(rows: usize) -> usize {
    (rows / 16).clamp(32, 4096)
}

/// The most rows whose elements share that search, all of whose indices are bound.
const MAX_FEW: usize = 1 << 13;

/// The most indices of a launch of `tokens/scatter_few`, and the fewest columns of its rows.
const MAX_COMBINED: usize = 4096;
const COMBINED_COLUMNS: usize = 64;

/// Whether partial results are rounded, so that all that arrives has to be combined in one launch.
fn rounds(desc: &ScatterDesc) -> bool {
    desc.dtype == DType::F16 && matches!(desc.op, ScatterOp::Add | ScatterOp::Mul)
}

/// Indices that an invocation goes through in one launch.
const MAX_COUNT: usize = 1 << 24;

/// Indices that `tokens/scatter_rows` takes at a time, and the most iterations of a kernel for so many.
const TILE: usize = 1024;
const ITERATIONS: usize = TILE + 64;

/// The most indices of a launch, which can be bound with the elements that they bring. Sums and products of f16
/// have to be made in one, as each rounds them.
///
/// # Errors
/// [`Limit`](BackendError::Limit) for those that are too long for the device's loops.
fn most_indices(ctx: &OpContext, op: &'static str, all: &Part) -> BackendResult<usize> {
    let desc = &all.desc;
    let rounds = rounds(desc);
    let index = if all.by_element { desc.columns } else { 1 };
    let bindable = all.indices.most_items(index).min(all.source.most_items(desc.columns)).max(1);
    let most = match (rounds, all.by_source) {
        (true, _) => desc.count,
        (false, true) => MAX_COMBINED.min(bindable),
        (false, false) => MAX_COUNT.min(bindable),
    };
    let wanted = desc.count.div_ceil(TILE).saturating_mul(ITERATIONS);
    match iterations::exceeded(ctx, wanted).map(|iterations| iterations / ITERATIONS * TILE) {
        Some(max) if rounds => {
            let (what, requested) = ("indices of sums of f16", desc.count);
            Err(BackendError::Limit { op, what, requested, max })
        }
        limit => Ok(limit.unwrap_or(most).min(most)),
    }
}

/// Some of a call's tables, or of the indices, rows or elements of one, with the windows of their first elements.
#[derive(Clone, Debug)]
struct Part {
    desc: ScatterDesc,
    /// Whether elements of the source find their places in the table, and none of the table looks for them.
    by_source: bool,
    /// Whether each element has an index.
    by_element: bool,
    /// The first of the rows.
    low: usize,
    /// Of the elements of the source or of the table, those that look for their place or for what arrives there.
    first: usize,
    end: usize,
    indices: Window,
    source: Window,
    table: Window,
}

impl Part {
    /// Bytes of memory that take as long to read as an element of what is searched by.
    fn bytes(&self) -> f64 {
        let each = if self.by_element { INDEX } else { SHARED_INDEX };
        self.desc.count as f64 * each
    }

    fn tables(&self, first: usize, outer: usize) -> Self {
        let ScatterDesc { rows, columns, count, .. } = self.desc;
        let arriving = first * count * columns;
        let mut desc = self.desc;
        desc.outer = outer;
        Self {
            desc,
            first: 0,
            end: outer * if self.by_source { count } else { rows } * columns,
            indices: self.indices.advanced(if self.by_element { arriving } else { 0 }),
            source: self.source.advanced(arriving),
            table: self.table.advanced(first * rows * columns),
            ..*self
        }
    }

    /// Some of the indices of a single table.
    fn indices(&self, first: usize, count: usize) -> Self {
        let columns = self.desc.columns;
        let mut desc = self.desc;
        desc.count = count;
        Self {
            desc,
            end: if self.by_source { count * columns } else { self.end },
            indices: self.indices.advanced(first * if self.by_element { columns } else { 1 }),
            source: self.source.advanced(first * columns),
            ..self.clone()
        }
    }

    /// Some of the rows of a single table that elements of the source find their places in.
    fn rows(&self, first: usize, rows: usize) -> Self {
        let mut part = self.clone();
        part.desc.rows = rows;
        part.low += first;
        part.table = self.table.advanced(first * self.desc.columns);
        part
    }

    /// Some of the elements that are searched by.
    fn searched(&self, first: usize, end: usize) -> Self {
        Self { first, end, ..self.clone() }
    }

    /// The first of the elements of indices, source and table that a launch accesses, and how many it does.
    fn accessed(&self) -> [(usize, usize); 3] {
        let ScatterDesc { outer, rows, columns, count, .. } = self.desc;
        let arriving = outer * count * columns;
        let indices = (0, if self.by_element { arriving } else { count });
        let searched = (self.first, self.end - self.first);
        let table = (0, outer * rows * columns);
        match (self.by_source, self.desc.op) {
            (true, ScatterOp::Assign) => [indices, searched, table],
            // An element takes up what arrives at its place after it.
            (true, _) => [indices, (0, arriving), table],
            (false, _) => [indices, (0, arriving), searched],
        }
    }

    /// The bytes by which indices, source and table pass what can be bound.
    fn excesses(&self) -> [u64; 3] {
        let excess = |window: &Window, (first, elements)| window.advanced(first).excess(elements);
        let [indices, source, table] = self.accessed();
        [excess(&self.indices, indices), excess(&self.source, source), excess(&self.table, table)]
    }

    fn run(self, ctx: &OpContext, op: &'static str) -> BackendResult<()> {
        in_parts(ctx, op, self, |part| part.launch(ctx, op))
    }

    fn launch(&self, ctx: &OpContext, op: &'static str) -> BackendResult<()> {
        let ScatterDesc { rows, columns, count, dtype, source_dtype, .. } = self.desc;
        let bound = |window: &Window, (first, elements)| -> BackendResult<_> {
            let window = window.advanced(first).truncated(elements);
            // Kernels count from the first element of all, so the offset of that one may lie before the window,
            // and wraps.
            let offset = window.offset.wrapping_sub(dim(op, "elements", first)?);
            Ok((window, offset))
        };
        let [indices, source, table] = self.accessed();
        let (indices, source, table) =
            (bound(&self.indices, indices)?, bound(&self.source, source)?, bound(&self.table, table)?);
        let params = Params {
            rows: dim(op, "rows", rows)?,
            low: dim(op, "rows", self.low)?,
            columns: dim(op, "columns", columns)?,
            count: dim(op, "count", count)?,
            elements: dim(op, "elements", self.end)?,
            first: dim(op, "elements", self.first)?,
            indices: indices.1,
            source: source.1,
            table: table.1,
        };
        let grid = invocation_grid(op, self.end - self.first)?;
        let types = [dtype, source_dtype];
        let op_of = self.desc.op;
        let variant = match (self.by_source, self.by_element) {
            (true, by_element) if op_of == ScatterOp::Assign => assign_variant(types, by_element),
            (true, _) => variant(&SCATTER_FEW, op_of, types),
            (false, true) => variant(&SCATTER, op_of, types),
            (false, false) => variant(&SCATTER_ROWS, op_of, types),
        };
        ctx.launch(op, &variant, &[&indices.0, &source.0], &table.0, &params, grid)
    }
}

impl Divisible for Part {
    fn seconds(&self, profile: &DeviceProfile) -> f64 {
        (self.end - self.first) as f64 * self.bytes() / profile.bandwidth
    }

    fn undivided_seconds(&self, profile: &DeviceProfile) -> f64 {
        self.desc.count as f64 / profile.iterations
    }

    fn halves(&self) -> Option<[Self; 2]> {
        let at = self.first + middle(self.end - self.first)?;
        Some([self.searched(self.first, at), self.searched(at, self.end)])
    }

    fn excess(&self) -> u64 {
        self.excesses().iter().sum()
    }

    /// By tables, then by rows of the table for the source, or by what is searched by.
    fn smaller_halves(&self) -> Option<[Self; 2]> {
        let ScatterDesc { outer, rows, .. } = self.desc;
        let [_, _, of_table] = self.excesses();
        let by_rows = self.by_source && of_table > 0;
        let rows = || halves_of(rows, |first, rows| self.rows(first, rows));
        halves_of(outer, |first, outer| self.tables(first, outer))
            .or_else(|| by_rows.then(rows).flatten())
            .or_else(|| self.halves())
    }
}
