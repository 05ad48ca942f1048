//! Rows and elements of a table by index, and into it.

use backend_api::desc::{GatherDesc, ScatterDesc};
use backend_api::{BackendResult, DType, ScatterOp};
use bytemuck::{Pod, cast_slice_mut};
use half::f16;

use crate::access::Input;
use crate::math::{maximum, minimum};
use crate::memory::Memory;
use crate::parallel::Cores;

/// Elements in the share of one thread.
const GRAIN: usize = 1 << 14;

/// `output[o, i, c] = table[o, index, c]`, zeros for an index outside the table.
pub(crate) fn gather(memory: &Memory, op: &'static str, desc: &GatherDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    memory.access(op, &operands, |[table, indices, _], output| match desc.dtype {
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

/// `table[o, index, c] = op(table[o, index, c], source[o, i, c])` in the order of i.
pub(crate) fn scatter(memory: &Memory, op: &'static str, desc: &ScatterDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    memory.access(op, &operands, |[_, indices, source], table| match desc.dtype {
        DType::I32 => {
            let function: fn(i32, i32) -> i32 = match desc.op {
                ScatterOp::Add => i32::wrapping_add,
                ScatterOp::Max => |a, b| a.max(b),
                ScatterOp::Min => |a, b| a.min(b),
                _ => |_, b| b,
            };
            scatter_of(desc, indices, source, table, |x| x, |x| x, function);
        }
        DType::U32 => {
            let function: fn(u32, u32) -> u32 = match desc.op {
                ScatterOp::Add => u32::wrapping_add,
                ScatterOp::Max => |a, b| a.max(b),
                ScatterOp::Min => |a, b| a.min(b),
                _ => |_, b| b,
            };
            scatter_of(desc, indices, source, table, |x| x, |x| x, function);
        }
        // Moved bit by bit: a conversion may change a NaN.
        DType::F16 if desc.op == ScatterOp::Assign => {
            scatter_of(desc, indices, source, table, |x: u16| x, |x| x, |_, b| b);
        }
        DType::F16 => scatter_of(desc, indices, source, table, f16::to_f32, f16::from_f32, float(desc.op)),
        _ => scatter_of(desc, indices, source, table, |x: f32| x, |x| x, float(desc.op)),
    })
}

fn float(op: ScatterOp) -> fn(f32, f32) -> f32 {
    match op {
        ScatterOp::Add => |a, b| a + b,
        ScatterOp::Max => maximum,
        ScatterOp::Min => minimum,
        _ => |_, b| b,
    }
}

/// Combines in the type `C`, and rounds to `T` at the end.
fn scatter_of<T: Pod, C: Copy>(
    desc: &ScatterDesc,
    indices: Input<'_>,
    source: Input<'_>,
    table: &mut [u8],
    widen: impl Fn(T) -> C,
    narrow: impl Fn(C) -> T,
    function: impl Fn(C, C) -> C,
) {
    let &ScatterDesc { outer, rows, columns, count, per_element, .. } = desc;
    let (indices, source): (&[u32], &[T]) = (indices.elements(), source.elements());
    let table: &mut [T] = cast_slice_mut(table);
    let mut sums: Vec<Option<C>> = vec![None; if source.is_empty() { 0 } else { table.len() }];
    for number in 0..if source.is_empty() { 0 } else { outer * count } {
        let (o, i) = (number / count, number % count);
        for c in 0..columns {
            let from = number * columns + c;
            if let Some(index) = inside(indices[if per_element { from } else { i }], rows) {
                let at = (o * rows + index) * columns + c;
                let before = sums[at].unwrap_or_else(|| widen(table[at]));
                sums[at] = Some(function(before, widen(source[from])));
            }
        }
    }
    for (y, sum) in table.iter_mut().zip(sums) {
        if let Some(sum) = sum {
            *y = narrow(sum);
        }
    }
}
