//! Integers, truth values and short lists, computed on the host: exact in 64 bits, where the device has 32. A
//! result that broadcasting makes longer than a list on the host may be is an error.

use std::cmp::Ordering;

use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::numbers::Numbers;
use crate::ops::shape::{broadcast, listed_elements, packed_strides, places};
use crate::tensor::Tensor;

/// A function of two numbers, by the kind of numbers.
pub(crate) struct Pairwise {
    /// Of integers; `None` where it has no result, such as a quotient by 0.
    pub(crate) int: fn(i64, i64) -> Option<i64>,
    /// Of floating-point numbers.
    pub(crate) float: fn(f64, f64) -> f64,
}

/// `op(a, b)` with broadcasting, of `kind`.
pub(crate) fn binary(op: &Pairwise, a: &Tensor, b: &Tensor, kind: Kind) -> Result<Tensor> {
    let shape = broadcast(&a.shape, &b.shape)?;
    listed_elements(&shape)?;
    let (at_a, at_b) = (expanded(a, &shape), expanded(b, &shape));
    let (x, y) = (a.numbers()?, b.numbers()?);
    let numbers = match (x, y) {
        (Numbers::Int(x), Numbers::Int(y)) => {
            let number = |(i, j): (usize, usize)| (op.int)(*x.get(i)?, *y.get(j)?);
            let numbers: Option<Vec<i64>> = at_a.zip(at_b).map(number).collect();
            Numbers::Int(
                numbers.ok_or_else(|| Error::invalid("a quotient by 0, or a power without a whole part"))?,
            )
        }
        _ => {
            let (x, y) = (x.floats(), y.floats());
            let number = |(i, j): (usize, usize)| Some((op.float)(*x.get(i)?, *y.get(j)?));
            let numbers: Option<Vec<f64>> = at_a.zip(at_b).map(number).collect();
            Numbers::Float(numbers.ok_or_else(|| Error::invalid("the shapes don't fit"))?)
        }
    };
    Tensor::host(kind, shape, numbers.convert(kind))
}

/// 1 where the relation holds, else 0, as beside NaN.
pub(crate) fn compare(holds: fn(Ordering) -> bool, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let shape = broadcast(&a.shape, &b.shape)?;
    listed_elements(&shape)?;
    let (at_a, at_b) = (expanded(a, &shape), expanded(b, &shape));
    let numbers: Option<Vec<i64>> = match (a.numbers()?, b.numbers()?) {
        (Numbers::Int(x), Numbers::Int(y)) => {
            at_a.zip(at_b).map(|(i, j)| Some(i64::from(holds(x.get(i)?.cmp(y.get(j)?))))).collect()
        }
        (x, y) => {
            let (x, y) = (x.floats(), y.floats());
            let holds = |(i, j): (usize, usize)| {
                let order = x.get(i)?.partial_cmp(y.get(j)?);
                Some(i64::from(order.is_some_and(holds)))
            };
            at_a.zip(at_b).map(holds).collect()
        }
    };
    let numbers = numbers.ok_or_else(|| Error::invalid("the shapes don't fit"))?;
    Tensor::host(Kind::Bool, shape, Numbers::Int(numbers))
}

/// `a` where the condition holds, else `b`.
pub(crate) fn choose(condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let shape = broadcast(&condition.shape, &broadcast(&a.shape, &b.shape)?)?;
    listed_elements(&shape)?;
    let kind = a.kind;
    let (a, b) = (picked(a, &shape)?, picked(b, &shape)?);
    let condition = picked(condition, &shape)?.ints();
    let numbers = match (a, b) {
        (Numbers::Int(a), Numbers::Int(b)) => Numbers::Int(select(&condition, &a, &b)),
        (a, b) => Numbers::Float(select(&condition, &a.floats(), &b.floats())),
    };
    Tensor::host(kind, shape, numbers)
}

fn select<T: Copy>(condition: &[i64], a: &[T], b: &[T]) -> Vec<T> {
    let both = a.iter().zip(b);
    condition.iter().zip(both).map(|(&holds, (&a, &b))| if holds != 0 { a } else { b }).collect()
}

/// A function of each number.
pub(crate) fn map(x: &Tensor, int: fn(i64) -> i64, float: impl Fn(f64) -> f64) -> Result<Tensor> {
    let numbers = match x.numbers()? {
        Numbers::Int(numbers) => Numbers::Int(numbers.iter().map(|&x| int(x)).collect()),
        Numbers::Float(numbers) => Numbers::Float(numbers.iter().map(|&x| float(x)).collect()),
    };
    Tensor::host(x.kind, x.shape.clone(), numbers.convert(x.kind))
}

/// The numbers at `offset + Σ index·stride`.
pub(crate) fn strided(x: &Tensor, offset: isize, shape: &[usize], strides: &[isize]) -> Result<Tensor> {
    listed_elements(shape)?;
    let numbers = x.numbers()?.pick(places(shape, offset, strides))?;
    Tensor::host(x.kind, shape.to_vec(), numbers)
}

/// The numbers at the given places.
pub(crate) fn pick(x: &Tensor, shape: Vec<usize>, places: impl Iterator<Item = usize>) -> Result<Tensor> {
    listed_elements(&shape)?;
    Tensor::host(x.kind, shape, x.numbers()?.pick(places)?)
}

/// Groups of numbers that a reduction over `axes` takes together, in row-major order of what stays.
pub(crate) fn groups(shape: &[usize], axes: &[usize]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let strides: Vec<isize> = packed_strides(shape).into_iter().map(|stride| stride as isize).collect();
    let part = |reduced: bool| -> (Vec<usize>, Vec<isize>) {
        let dims = shape.iter().zip(&strides).enumerate();
        dims.filter(|(k, _)| axes.contains(k) == reduced)
            .map(|(_, (&extent, &stride))| (extent, stride))
            .unzip()
    };
    let ((kept, kept_strides), (reduced, reduced_strides)) = (part(false), part(true));
    let group = |start: usize| places(&reduced, start as isize, &reduced_strides).collect();
    let groups = places(&kept, 0, &kept_strides).map(group).collect();
    let ones = shape.iter().enumerate().map(|(k, &extent)| if axes.contains(&k) { 1 } else { extent });
    (ones.collect(), groups)
}

/// The places of a tensor's numbers where it is broadcast to `shape`.
fn expanded(x: &Tensor, shape: &[usize]) -> impl Iterator<Item = usize> + use<> {
    let missing = shape.len() - x.rank();
    let packed = packed_strides(&x.shape);
    let strides = (0..shape.len()).map(|k| match k.checked_sub(missing) {
        Some(k) if x.shape[k] != 1 => packed[k] as isize,
        _ => 0,
    });
    places(shape, 0, &strides.collect::<Vec<_>>())
}

fn picked(x: &Tensor, shape: &[usize]) -> Result<Numbers> {
    x.numbers()?.pick(expanded(x, shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_broadcast() {
        let sum = Pairwise { int: i64::checked_add, float: |a, b| a + b };
        let column = Tensor::vector(vec![10, 20]).reshaped(vec![2, 1]).unwrap();
        let y = binary(&sum, &column, &Tensor::vector(vec![1, 2, 3]), Kind::I64).unwrap();
        assert_eq!((y.shape.as_slice(), y.ints().unwrap()), (&[2, 3][..], vec![11, 12, 13, 21, 22, 23]));
    }

    #[test]
    fn a_reduction_takes_rows_or_columns() {
        let (shape, rows) = groups(&[2, 3], &[1]);
        assert_eq!((shape, rows), (vec![2, 1], vec![vec![0, 1, 2], vec![3, 4, 5]]));
        let (shape, columns) = groups(&[2, 3], &[0]);
        assert_eq!((shape, columns), (vec![1, 3], vec![vec![0, 3], vec![1, 4], vec![2, 5]]));
        assert_eq!(groups(&[2, 0], &[1]).1, vec![Vec::<usize>::new(), Vec::new()]);
    }
}
