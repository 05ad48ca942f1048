//! Softmax along an axis, and its logarithm.

use backend_api::BackendResult;
use backend_api::desc::SoftmaxDesc;
use bytemuck::cast_slice_mut;

use crate::access::Call;
use crate::element::{Element, with_float};
use crate::math::{exp, exponentials, largest, maximum, scale};
use crate::parallel::Cores;
use crate::room::{NoRoom, copied, filled};

/// Numbers in the share of one thread.
const GRAIN: usize = 1 << 14;

/// Columns that are walked together.
const COLUMNS: usize = 256;

/// `output = exp(x − max) / Σ exp(x − max)`.
pub(crate) fn softmax(call: Call<'_>, desc: &SoftmaxDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    call.try_access(&operands, |[input, _], output| {
        let numbers = desc.outer * desc.length * desc.inner;
        Cores::try_run(numbers.saturating_mul(4), |cores| {
            with_float!(desc.dtype, T => {
                let output = cast_slice_mut::<u8, T>(output);
                if desc.inner == 1 {
                    rows(cores, desc, input.separate(), output);
                    Ok(())
                } else {
                    columns(cores, desc, input.separate(), output)
                }
            })
        })
    })
}

/// Without an `input`, it is the output.
fn rows<T: Element>(cores: Cores, desc: &SoftmaxDesc, input: Option<&[T]>, output: &mut [T]) {
    let length = desc.length;
    cores.chunks(output, length, GRAIN, &|first, chunk: &mut [T]| {
        let mut x = vec![0.0; length];
        for (i, row) in chunk.chunks_exact_mut(length).enumerate() {
            match input {
                Some(input) => T::load(&input[first + i * length..][..length], &mut x),
                None => T::load(row, &mut x),
            }
            let shift = largest(&x);
            let mut shifted = if desc.log { x.clone() } else { Vec::new() };
            let sum = exponentials(&mut x, shift);
            if desc.log {
                logarithms(&mut shifted, shift, sum);
                T::store(&shifted, row);
            } else {
                scale(&mut x, 1.0 / sum);
                T::store(&x, row);
            }
        }
    });
}

/// `x = x − shift − ln sum` for each number.
fn logarithms(x: &mut [f32], shift: f32, sum: f64) {
    let log = sum.ln();
    for x in x {
        *x = logarithm(*x, shift, log);
    }
}

/// NaN also for a slice of nothing but −∞.
fn logarithm(x: f32, shift: f32, log: f64) -> f32 {
    let shift = if shift == f32::NEG_INFINITY { f32::NAN } else { shift };
    (f64::from(x) - f64::from(shift) - log) as f32
}

/// What is subtracted in one column, and the sum of its exponentials.
#[derive(Clone, Copy)]
struct Column {
    shift: f32,
    sum: f64,
}

/// First every column's maximum and sum, each core with columns of its own, then every line of the output.
fn columns<T: Element>(
    cores: Cores,
    desc: &SoftmaxDesc,
    input: Option<&[T]>,
    output: &mut [T],
) -> Result<(), NoRoom> {
    let SoftmaxDesc { outer, length, inner, .. } = *desc;
    let copy;
    let x = match input {
        Some(input) => T::widen(cores, input),
        None => {
            copy = copied(output)?;
            T::widen(cores, &copy)
        }
    }?;
    let mut stats = filled(Column { shift: f32::NEG_INFINITY, sum: 0.0 }, outer * inner)?;
    let grain = (GRAIN / length).max(COLUMNS);
    cores.chunks(&mut stats, 1, grain, &|first, chunk: &mut [Column]| {
        let mut done = 0;
        while done < chunk.len() {
            let (slab, column) = ((first + done) / inner, (first + done) % inner);
            let width = COLUMNS.min(inner - column).min(chunk.len() - done);
            let start = slab * length * inner + column;
            measure(&x[start..], inner, length, &mut chunk[done..done + width]);
            done += width;
        }
    });
    cores.chunks(output, inner, GRAIN, &|first, chunk: &mut [T]| {
        let mut y = vec![0.0; inner];
        for (i, row) in chunk.chunks_exact_mut(inner).enumerate() {
            let line = first / inner + i;
            let stats = &stats[line / length * inner..][..inner];
            let x = &x[line * inner..][..inner];
            for ((y, &x), column) in y.iter_mut().zip(x).zip(stats) {
                *y = if desc.log {
                    logarithm(x, column.shift, column.sum.ln())
                } else {
                    (f64::from(exp(x - column.shift)) / column.sum) as f32
                };
            }
            T::store(&y, row);
        }
    });
    Ok(())
}

fn measure(x: &[f32], inner: usize, length: usize, columns: &mut [Column]) {
    let line = |i: usize| &x[i * inner..][..columns.len()];
    let lines: Vec<&[f32]> = (0..length).map(line).collect();
    for line in &lines {
        for (column, &x) in columns.iter_mut().zip(*line) {
            column.shift = maximum(column.shift, x);
        }
    }
    for line in &lines {
        for (column, &x) in columns.iter_mut().zip(*line) {
            column.sum += f64::from(exp(x - column.shift));
        }
    }
}
