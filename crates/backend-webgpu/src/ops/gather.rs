//! Rows and elements of a table by index.

use backend_api::desc::GatherDesc;
use backend_api::{BackendResult, DType};

use super::shared::long_work::{Divisible, division, halves_of, in_parts};
use crate::device::DeviceProfile;
use crate::kernels::{Function, KernelSource, Variant, constants, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim, invocation_grid};
use crate::recorder::Window;

constants! { struct Constants { vec_width: u32, per_element: bool } }

static GATHER: KernelSource = kernel!(
    "tokens/gather", libs: [INVOCATION_OUTPUTS],
    types: ["T"], constants: Constants, params: Params,
    reads: ["table: TN", "indices: u32"], writes: ["output: TN"],
);

params! {
    struct Params {
        // Rows of each table that are bound, the first of them, and the rows of a whole table.
        rows: u32,
        first: u32,
        all_rows: u32,
        columns: u32,
        count: u32,
        total: u32,
        table: u32,
        indices: u32,
        output: u32,
    }
}

pub(super) fn variants() -> Vec<Variant> {
    let kinds = [(1, false), (1, true), (4, false)];
    let of = |dtype| kinds.map(|(vec_width, per_element)| variant(dtype, vec_width, per_element));
    [DType::U32, DType::F16].map(of).concat()
}

fn variant(dtype: DType, vec_width: u32, per_element: bool) -> Variant {
    Variant::new(&GATHER, [dtype], Constants { vec_width, per_element }).with_function(Function::Move)
}

/// `output[o, i, c] = table[o, index, c]`.
pub(crate) fn gather(ctx: &OpContext, op: &'static str, desc: &GatherDesc) -> BackendResult<()> {
    let [table, indices, output] = ctx.resolve(op, &desc.operands(op)?)?;
    let (Some(indices), Some(output)) = (indices, output) else { return Ok(()) };
    gather_slices(ctx, op, desc, [table.as_ref(), Some(&indices)], &output)
}

/// A lookup in memory that was checked: table and indices, and the output.
pub(super) fn gather_slices(
    ctx: &OpContext,
    op: &'static str,
    desc: &GatherDesc,
    [table, indices]: [Option<&DeviceSlice>; 2],
    output: &DeviceSlice,
) -> BackendResult<()> {
    ctx.require_dtype(op, desc.dtype)?;
    // Words are moved as they are, whatever they mean.
    let dtype = if desc.dtype == DType::F16 { DType::F16 } else { DType::U32 };
    let output = ctx.output(output, dtype);
    let table = ctx.optional_input(op, table, dtype, &output)?;
    let indices = ctx.optional_input(op, indices, DType::U32, &output)?;
    let part = Part { desc: *desc, first: 0, all_rows: desc.rows, table, indices, output };
    in_parts(ctx, op, part, |part| part.launch(ctx, op, dtype))
}

/// Some tables of a lookup, or some of the indices or rows of one, with the windows of their first elements.
#[derive(Clone, Debug)]
struct Part {
    desc: GatherDesc,
    /// The first of the rows, and how many the whole table has.
    first: usize,
    all_rows: usize,
    table: Window,
    indices: Window,
    output: Window,
}

impl Part {
    /// Elements of table, indices and output, whose products were checked with the operands.
    fn elements(&self) -> [usize; 3] {
        let GatherDesc { outer, rows, columns, count, per_element, .. } = self.desc;
        let found = outer * count * columns;
        [outer * rows * columns, if per_element { found } else { count }, found]
    }

    /// The elements by which table, indices and output pass what can be bound, in bytes.
    fn excesses(&self) -> [u64; 3] {
        let [table, indices, output] = self.elements();
        [self.table.excess(table), self.indices.excess(indices), self.output.excess(output)]
    }

    fn tables(&self, first: usize, outer: usize) -> Self {
        let GatherDesc { rows, columns, count, per_element, .. } = self.desc;
        let found = first * count * columns;
        let mut desc = self.desc;
        desc.outer = outer;
        Self {
            desc,
            table: self.table.advanced(first * rows * columns),
            indices: self.indices.advanced(if per_element { found } else { 0 }),
            output: self.output.advanced(found),
            ..*self
        }
    }

    /// Some of the indices of a single table.
    fn indices(&self, first: usize, count: usize) -> Self {
        let GatherDesc { columns, per_element, .. } = self.desc;
        let mut desc = self.desc;
        desc.count = count;
        Self {
            desc,
            table: self.table.clone(),
            indices: self.indices.advanced(if per_element { first * columns } else { first }),
            output: self.output.advanced(first * columns),
            ..*self
        }
    }

    /// Some of the rows of a single table.
    fn rows(&self, first: usize, rows: usize) -> Self {
        let mut part = self.clone();
        part.desc.rows = rows;
        part.first += first;
        part.table = self.table.advanced(first * self.desc.columns);
        part
    }

    fn launch(&self, ctx: &OpContext, op: &'static str, dtype: DType) -> BackendResult<()> {
        let GatherDesc { rows, columns, count, per_element, .. } = self.desc;
        let [all, chosen, found] = self.elements();
        let (table, output) = (self.table.truncated(all), self.output.truncated(found));
        let indices = self.indices.truncated(chosen);
        // Rows are made of whole vectors that lie where vectors may.
        let aligned = [&table, &output].iter().all(|window| window.offset.is_multiple_of(4));
        let vec_width = if !per_element && columns.is_multiple_of(4) && aligned { 4 } else { 1 };
        let elements = found / vec_width;
        let params = Params {
            rows: dim(op, "rows", rows)?,
            first: dim(op, "rows", self.first)?,
            all_rows: dim(op, "rows", self.all_rows)?,
            columns: dim(op, "columns", columns / vec_width)?,
            count: dim(op, "count", count)?,
            total: dim(op, "output", elements)?,
            table: table.offset / vec_width as u32,
            indices: indices.offset,
            output: output.offset / vec_width as u32,
        };
        let grid = invocation_grid(op, elements)?;
        let variant = variant(dtype, vec_width as u32, per_element);
        ctx.launch(op, &variant, &[&table, &indices], &output, &params, grid)
    }
}

impl Divisible for Part {
    fn seconds(&self, profile: &DeviceProfile) -> f64 {
        let [_, _, found] = self.elements();
        (2 * found * self.desc.dtype.size()) as f64 / profile.bandwidth
    }

    fn halves(&self) -> Option<[Self; 2]> {
        let GatherDesc { outer, count, .. } = self.desc;
        halves_of(outer, |first, outer| self.tables(first, outer))
            .or_else(|| halves_of(count, |first, count| self.indices(first, count)))
    }

    fn excess(&self) -> u64 {
        self.excesses().iter().sum()
    }

    fn smaller_halves(&self) -> Option<[Self; 2]> {
        let GatherDesc { outer, rows, .. } = self.desc;
        let [of_table, _, _] = self.excesses();
        let between = || division(rows, &[(&self.table, self.desc.columns)]);
        match (outer == 1 && of_table > 0).then(between).flatten() {
            Some(first) => Some([self.rows(0, first), self.rows(first, rows - first)]),
            None => self.halves(),
        }
    }
}
