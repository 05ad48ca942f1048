//! Rows and elements of a table by index, and into it.

use backend_api::desc::{GatherDesc, ScatterDesc};
use backend_api::{BackendResult, DType, ScatterOp};
use bytemuck::{Pod, cast_slice_mut};
use half::f16;

use crate::access::{Call, Input};
use crate::math::{maximum, minimum};
use crate::parallel::Cores;
use crate::room::{NoRoom, filled};

/// Elements in the share of one thread.
const GRAIN: usize = 1 << 14;

/// `output[o, i, c] = table[o, index, c]`, zeros for an index outside the table.
pub(crate) fn gather(call: Call<'_>, desc: &GatherDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    call.access(&operands, |[table, indices, _], output| match desc.dtype {
        DType::F16 => gather_of::<u16>(desc, table, indices, output),
        _ => gather_of::<u32>(desc, table, indices, output),
    })
}

/// A negative index is a large one.
pub(super) fn inside(index: u32, rows: usize) -> Option<usize> {
    usize::try_from(index).ok().filter(|&index| index < rows)
}

fn gather_of<T: Pod + Send + Sync>(
    desc: &GatherDesc,
    table: Input<'_>,
    indices: Input<'_>,
    output: &mut [u8],
) {
    let &GatherDesc { rows, columns, count, per_element, .. } = desc;
    let (table, indices): (&[T], &[u32]) = (table.elements(), indices.elements());
    let output: &mut [T] = cast_slice_mut(output);
    Cores::run(output.len(), |cores| {
        // The output isn't empty here, so neither are its rows.
        cores.chunks(output, columns, GRAIN, &|first, chunk: &mut [T]| {
            for (r, row) in chunk.chunks_exact_mut(columns).enumerate() {
                let number = first / columns + r;
                let (o, i) = (number / count, number % count);
                if per_element {
                    for (c, y) in row.iter_mut().enumerate() {
                        let index = inside(indices[number * columns + c], rows);
                        *y = index.map_or(T::zeroed(), |index| table[(o * rows + index) * columns + c]);
                    }
                    continue;
                }
                match inside(indices[i], rows) {
                    Some(index) => row.copy_from_slice(&table[(o * rows + index) * columns..][..columns]),
                    None => row.fill(T::zeroed()),
                }
            }
        });
    });
}

/// What a scatter does with two integers of a type.
macro_rules! integer {
    ($type:ty, $op:expr) => {{
        let function: fn($type, $type) -> $type = match $op {
            ScatterOp::Add => <$type>::wrapping_add,
            ScatterOp::Mul => <$type>::wrapping_mul,
            ScatterOp::Max => |a, b| a.max(b),
            ScatterOp::Min => |a, b| a.min(b),
            _ => |_, b| b,
        };
        function
    }};
}

/// `table[o, index, c] = op(table[o, index, c], source[o, i, c])` in the order of i.
pub(crate) fn scatter(call: Call<'_>, desc: &ScatterDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    call.try_access(&operands, |[_, indices, source], table| {
        let scatter = Scatter { desc, indices, source };
        match (desc.dtype, desc.source_dtype) {
            (DType::I32, _) => scatter.run(table, |x| x, |x| x, |x| x, integer!(i32, desc.op)),
            (DType::U32, _) => scatter.run(table, |x| x, |x| x, |x| x, integer!(u32, desc.op)),
            (DType::F16, DType::F32) => scatter.run(table, f16::to_f32, |x: f32| x, f16::from_f32, |_, b| b),
            (DType::F32, DType::F16) => scatter.run(table, |x: f32| x, f16::to_f32, |x| x, |_, b| b),
            // Moved bit by bit: a conversion may change a NaN.
            (DType::F16, _) if desc.op == ScatterOp::Assign => {
                scatter.run(table, |x: u16| x, |x: u16| x, |x| x, |_, b| b)
            }
            (DType::F16, _) => scatter.run(table, f16::to_f32, f16::to_f32, f16::from_f32, float(desc.op)),
            _ => scatter.run(table, |x: f32| x, |x: f32| x, |x| x, float(desc.op)),
        }
    })
}

fn float(op: ScatterOp) -> fn(f32, f32) -> f32 {
    match op {
        ScatterOp::Add => |a, b| a + b,
        ScatterOp::Mul => |a, b| a * b,
        ScatterOp::Max => maximum,
        ScatterOp::Min => minimum,
        _ => |_, b| b,
    }
}

/// A call with what it reads.
struct Scatter<'a> {
    desc: &'a ScatterDesc,
    indices: Input<'a>,
    source: Input<'a>,
}

impl Scatter<'_> {
    /// Combines elements of the table, of type `T`, with arriving ones, of type `S`, in the type `C`, and
    /// rounds at the end.
    fn run<T: Pod, S: Pod, C: Copy>(
        &self,
        table: &mut [u8],
        widen: impl Fn(T) -> C,
        arrive: impl Fn(S) -> C,
        narrow: impl Fn(C) -> T,
        function: impl Fn(C, C) -> C,
    ) -> Result<(), NoRoom> {
        let &ScatterDesc { outer, rows, columns, count, per_element, .. } = self.desc;
        let (indices, source): (&[u32], &[S]) = (self.indices.elements(), self.source.elements());
        let table: &mut [T] = cast_slice_mut(table);
        let mut sums: Vec<Option<C>> = filled(None, if source.is_empty() { 0 } else { table.len() })?;
        for number in 0..if source.is_empty() { 0 } else { outer * count } {
            let (o, i) = (number / count, number % count);
            for c in 0..columns {
                let from = number * columns + c;
                if let Some(index) = inside(indices[if per_element { from } else { i }], rows) {
                    let at = (o * rows + index) * columns + c;
                    let before = sums[at].unwrap_or_else(|| widen(table[at]));
                    sums[at] = Some(function(before, arrive(source[from])));
                }
            }
        }
        for (y, sum) in table.iter_mut().zip(sums) {
            if let Some(sum) = sum {
                *y = narrow(sum);
            }
        }
        Ok(())
    }
}
