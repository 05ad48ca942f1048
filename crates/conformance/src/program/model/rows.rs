//! Reductions, products, and operations with indices.

use backend_api::desc::{CumSumDesc, GatherDesc, MatmulDesc, ReduceDesc, ScatterDesc};
use backend_api::{BackendResult, DType, ReduceOp, ScatterOp};

use super::element::{EXACT, Element, range};
use super::memory::Memory;

/// A sum whose every partial sum is exact, in whatever order; for integers modulo 2³².
fn sum(dtype: DType, numbers: impl Iterator<Item = Option<i64>>) -> Option<i64> {
    let (mut total, mut magnitude) = (0i64, 0i64);
    for number in numbers {
        let number = number?;
        (total, magnitude) = (total.wrapping_add(number), magnitude.saturating_add(number.abs()));
    }
    (!dtype.is_float() || magnitude <= EXACT).then_some(total)
}

fn product(dtype: DType, numbers: &[i64]) -> Option<i64> {
    let magnitude = numbers.iter().fold(1i64, |product, x| product.saturating_mul(x.abs().max(1)));
    let exact = !dtype.is_float() || magnitude <= EXACT;
    exact.then(|| numbers.iter().fold(1i64, |product, &x| product.wrapping_mul(x)))
}

/// The first index of the largest number.
fn first_of(numbers: &[i64], better: impl Fn(i64, i64) -> bool) -> i64 {
    let mut best: Option<usize> = None;
    for (i, &number) in numbers.iter().enumerate() {
        if best.is_none_or(|best| better(number, numbers[best])) {
            best = Some(i);
        }
    }
    best.map_or(-1, |i| i as i64)
}

fn reduced(op: ReduceOp, dtype: DType, numbers: &[Option<i64>]) -> Option<i64> {
    if op == ReduceOp::Sum {
        return sum(dtype, numbers.iter().copied());
    }
    let numbers: Vec<i64> = numbers.iter().copied().collect::<Option<_>>()?;
    // Over nothing, the extremes of floats are infinite.
    let extreme = |found: Option<i64>, otherwise: i64| found.or((!dtype.is_float()).then_some(otherwise));
    match op {
        ReduceOp::Prod => product(dtype, &numbers),
        ReduceOp::Max => extreme(numbers.iter().copied().max(), range(dtype).0),
        ReduceOp::Min => extreme(numbers.iter().copied().min(), range(dtype).1),
        ReduceOp::Any => Some(i64::from(numbers.iter().any(|&x| x != 0))),
        ReduceOp::All => Some(i64::from(numbers.iter().all(|&x| x != 0))),
        ReduceOp::ArgMax => Some(first_of(&numbers, |a, b| a > b)),
        ReduceOp::ArgMin => Some(first_of(&numbers, |a, b| a < b)),
        _ => None,
    }
}

/// Over one axis of a packed tensor, which is how programs reduce.
pub(super) fn reduce(memory: &mut Memory, desc: &ReduceDesc<'_>) -> BackendResult<()> {
    memory.check("reduce_ext", &desc.operands("reduce_ext")?.0)?;
    let (shape, axis, dtype) = (desc.input.shape, desc.axes[0], desc.input.dtype);
    let inner: usize = shape[axis + 1..].iter().product();
    let (outer, length): (usize, usize) = (shape[..axis].iter().product(), shape[axis]);
    for i in 0..outer * inner {
        let first = i / inner * length * inner + i % inner;
        let number = |k| memory.get(desc.input.ptr, dtype, first + k * inner).number(dtype);
        let numbers: Vec<Option<i64>> = (0..length).map(number).collect();
        let result = Element::of(desc.output_dtype, reduced(desc.op, dtype, &numbers));
        memory.set(desc.output, desc.output_dtype, i, result);
    }
    Ok(())
}

pub(super) fn cumsum(memory: &mut Memory, desc: &CumSumDesc) -> BackendResult<()> {
    memory.check("cumsum", &desc.operands("cumsum")?)?;
    let &CumSumDesc { dtype, outer, length, inner, exclusive, reverse, .. } = desc;
    for i in 0..outer * inner {
        let first = i / inner * length * inner + i % inner;
        let place = |k: usize| first + if reverse { length - 1 - k } else { k } * inner;
        let numbers: Vec<Option<i64>> =
            (0..length).map(|k| memory.get(desc.input, dtype, place(k)).number(dtype)).collect();
        for k in 0..length {
            // A scan may add what is not yet part of a place's sum and leave it out again: all of it has to
            // be exact.
            let part = &numbers[..if exclusive { k } else { k + 1 }];
            let exact = sum(dtype, numbers.iter().copied()).and_then(|_| sum(dtype, part.iter().copied()));
            memory.set(desc.output, dtype, place(k), Element::of(dtype, exact));
        }
    }
    Ok(())
}

/// One packed product without bias, which is how programs multiply.
pub(super) fn matmul(memory: &mut Memory, desc: &MatmulDesc) -> BackendResult<()> {
    memory.check("matmul", &desc.operands("matmul")?)?;
    let &MatmulDesc { m, n, k, a, b, c, .. } = desc;
    let beta = desc.beta as i64;
    let at = |transposed: bool, row: usize, column: usize, ld: usize| {
        if transposed { column * ld + row } else { row * ld + column }
    };
    let mut results = Vec::with_capacity(m * n);
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let terms = (0..k).map(|p| {
            let left = memory.get(a.ptr, a.dtype, at(desc.trans_a.is_transposed(), i, p, a.ld));
            let right = memory.get(b.ptr, b.dtype, at(desc.trans_b.is_transposed(), p, j, b.ld));
            left.number(a.dtype)?.checked_mul(right.number(b.dtype)?)
        });
        let before = (beta != 0).then(|| {
            let before = memory.get(c.ptr, c.dtype, i * c.ld + j).number(c.dtype)?;
            before.checked_mul(beta)
        });
        results.push((i * c.ld + j, Element::of(c.dtype, sum(DType::F32, terms.chain(before)))));
    }
    for (place, element) in results {
        memory.set(c.ptr, c.dtype, place, element);
    }
    Ok(())
}

pub(super) fn gather(memory: &mut Memory, desc: &GatherDesc) -> BackendResult<()> {
    memory.check("gather", &desc.operands("gather")?)?;
    let &GatherDesc { dtype, rows, columns, count, .. } = desc;
    for (i, column) in (0..count).flat_map(|i| (0..columns).map(move |column| (i, column))) {
        let element = match memory.get(desc.indices, DType::U32, i).number(DType::U32) {
            None => Element::UNKNOWN,
            Some(row) if (row as usize) < rows => {
                memory.get(desc.table, dtype, row as usize * columns + column)
            }
            Some(_) => Element { bits: 0, known: !0 },
        };
        memory.set(desc.output, dtype, i * columns + column, element);
    }
    Ok(())
}

pub(super) fn scatter(memory: &mut Memory, desc: &ScatterDesc) -> BackendResult<()> {
    memory.check("scatter", &desc.operands("scatter")?)?;
    let &ScatterDesc { dtype, source_dtype, rows, columns, count, .. } = desc;
    let indices: Option<Vec<i64>> =
        (0..count).map(|i| memory.get(desc.indices, DType::U32, i).number(DType::U32)).collect();
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        let place = row * columns + column;
        let Some(indices) = &indices else {
            memory.set(desc.table, dtype, place, Element::UNKNOWN);
            continue;
        };
        let named = indices.iter().enumerate().filter(|&(_, &index)| index == row as i64);
        let arriving: Vec<Element> =
            named.map(|(i, _)| memory.get(desc.source, source_dtype, i * columns + column)).collect();
        let (Some(&last), before) = (arriving.last(), memory.get(desc.table, dtype, place)) else { continue };
        let mut numbers = std::iter::once(before).chain(arriving).map(|element| element.number(dtype));
        let combined = match desc.op {
            ScatterOp::Assign if source_dtype == dtype => last,
            ScatterOp::Assign => Element::of(dtype, last.number(source_dtype)),
            ScatterOp::Add => Element::of(dtype, sum(dtype, numbers)),
            ScatterOp::Mul => {
                let all: Option<Vec<i64>> = numbers.collect();
                Element::of(dtype, all.and_then(|all| product(dtype, &all)))
            }
            op => {
                let all: Option<Vec<i64>> = numbers.by_ref().collect();
                let extreme = |all: Vec<i64>| match op {
                    ScatterOp::Max => all.into_iter().max(),
                    ScatterOp::Min => all.into_iter().min(),
                    _ => None,
                };
                Element::of(dtype, all.and_then(extreme))
            }
        };
        memory.set(desc.table, dtype, place, combined);
    }
    Ok(())
}
