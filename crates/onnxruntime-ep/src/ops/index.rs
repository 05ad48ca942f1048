//! Operators that read and write by index.

use backend_api::desc::{GatherDesc, IndexShape, ScatterDesc};
use backend_api::{BinaryOp, CompareOp, ScatterOp};

use super::call::Call;
use super::movement::{along, copied, is_for_host};
use super::shape::listed_elements;
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::host;
use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::numbers::Numbers;
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Gather", Kinds::Any, gather).of_views(),
    Operator::new("Indices", Kinds::Any, indices).of_own().of_views(),
    Operator::new("GatherElements", Kinds::Any, gather_elements).with_check(whole_tables),
    Operator::new("GatherND", Kinds::Any, gather_tuples).with_check(narrow),
    Operator::new("Scatter", Kinds::Any, scatter_elements).with_check(whole_tables),
    Operator::new("ScatterElements", Kinds::Any, scatter_elements).with_check(whole_tables),
    Operator::new("ScatterND", Kinds::Any, scatter_tuples).with_check(combines),
    Operator::new("Compress", Kinds::Any, compress),
    Operator::new("OneHot", Kinds::Number, one_hot),
];

/// Elements that the device stores whole.
fn narrow(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    if graph.input_kind(node, 0) == Some(Kind::I64) {
        return Err("a table of 64-bit integers".to_owned());
    }
    Ok(())
}

/// An index for each element of a table, whose other dimensions are as long as the table's.
fn whole_tables(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    combines(graph, node)?;
    let shape = |i| graph.input_type(node, i).and_then(|known| known.shape.as_ref());
    let (Some(table), Some(indices)) = (shape(0), shape(1)) else {
        return Err("the shape of the table or of the indices isn't known".to_owned());
    };
    let axis = super::shape::axis(node.int("axis", 0), table.len()).map_err(|error| error.to_string())?;
    let fits =
        |k: usize| k == axis || (table.get(k) == indices.get(k) && table.get(k).is_some_and(Option::is_some));
    if table.len() == indices.len() && (0..table.len()).all(fits) {
        Ok(())
    } else {
        Err("the indices leave out a part of the table".to_owned())
    }
}

fn combines(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    narrow(graph, node)?;
    scatter_op(node).map(|_| ()).map_err(|error| error.to_string())
}

fn scatter_op(node: &Node) -> Result<ScatterOp> {
    Ok(match node.text("reduction") {
        "" | "none" => ScatterOp::Assign,
        "add" => ScatterOp::Add,
        "mul" => ScatterOp::Mul,
        "max" => ScatterOp::Max,
        "min" => ScatterOp::Min,
        other => return Err(Error::invalid(format!("a scatter that combines by {other:?}"))),
    })
}

/// Indices of which those below zero are counted from the end. Those on the host are checked.
fn counted(call: &Call<'_>, indices: &Tensor, extent: usize) -> Result<Tensor> {
    let d = call.device();
    if !indices.is_on_host() {
        let below = d.compare(CompareOp::Lt, indices, 0.0)?;
        return d.choose(&below, &d.binary(BinaryOp::Add, indices, extent as f64)?, indices);
    }
    let length = extent as i64;
    let numbers = indices.ints()?;
    if let Some(wrong) = numbers.iter().find(|&&index| index < -length || index >= length) {
        return Err(Error::invalid(format!("index {wrong} of {extent} elements")));
    }
    if numbers.iter().all(|&index| index >= 0) {
        return Ok(indices.clone());
    }
    let numbers = numbers.into_iter().map(|index| if index < 0 { index + length } else { index });
    Tensor::host(Kind::I64, indices.shape.clone(), Numbers::Int(numbers.collect()))
}

/// Indices into an axis of a table, counted from its start.
fn indices(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (indices, table) = (call.input(0)?, call.input(1)?);
    let axis = call.axis(0, table.rank())?;
    if call.node.int("from_start", 0) == 1 {
        if !indices.is_on_host() {
            return Ok(vec![indices.clone()]);
        }
        if let Some(wrong) = indices.ints()?.iter().find(|&&index| index < 0) {
            return Err(Error::invalid(format!("position {wrong}")));
        }
    }
    Ok(vec![counted(call, indices, table.shape[axis])?])
}

fn gather(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (x, indices) = (call.input(0)?, call.input(1)?);
    let axis = call.axis(0, x.rank())?;
    let is_checked = call.node.int("checked", 0) == 1;
    let indices = if is_checked { indices.clone() } else { counted(call, indices, x.shape[axis])? };
    if is_for_host(call, x) {
        let mut shape = x.shape.clone();
        shape.splice(axis..=axis, indices.shape.iter().copied());
        return Ok(vec![along(call, x, axis, indices.ints()?)?.reshaped(shape)?]);
    }
    let d = call.device();
    // One slice is a view. Which one, a captured run must not depend on, so it has to be a constant.
    if let Some(row) = if is_checked { None } else { single(&indices)? } {
        let (mut shape, mut strides) = (x.shape.clone(), x.strides());
        let offset = x.offset() + row * strides.remove(axis);
        shape.remove(axis);
        let slice = d.viewed(x, if x.count() == 0 { 0 } else { offset }, shape, strides)?;
        let mut shape = x.shape.clone();
        shape.splice(axis..=axis, indices.shape.iter().copied());
        return Ok(vec![d.reshape(&slice, shape)?]);
    }
    Ok(vec![d.select(&d.packed(x)?, axis, &d.packed(&indices)?)?])
}

/// The only index of a list on the host.
fn single(indices: &Tensor) -> Result<Option<usize>> {
    if !indices.is_on_host() || indices.count() != 1 {
        return Ok(None);
    }
    Ok(indices.ints()?.first().and_then(|&index| usize::try_from(index).ok()))
}

fn gather_elements(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x) = (call.device(), call.input(0)?);
    let axis = call.axis(0, x.rank())?;
    let indices = counted(call, call.input(1)?, x.shape[axis])?;
    let [outer, columns] = x.around(axis);
    let y = d.empty(x.kind, &indices.shape)?;
    let shape = IndexShape { rows: x.shape[axis], columns, count: indices.shape[axis] };
    let desc = GatherDesc::new(x.kind.dtype(), d.ptr(x)?, d.ptr(&indices)?, d.ptr(&y)?, shape);
    call.backend.gather(&desc.with_outer(outer).with_per_element())?;
    Ok(vec![y])
}

/// Updates of the shape that table and indices ask for.
fn require_updates(updates: &Tensor, shape: &[usize]) -> Result<()> {
    if updates.shape == shape {
        return Ok(());
    }
    Err(Error::invalid(format!("updates {:?} where {shape:?} are written", updates.shape)))
}

fn scatter_elements(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x, source) = (call.device(), call.input(0)?, call.input(2)?);
    let axis = call.axis(0, x.rank())?;
    let indices = counted(call, call.input(1)?, x.shape[axis])?;
    require_updates(source, &indices.shape)?;
    let [outer, columns] = x.around(axis);
    // The scatter changes it in place.
    let y = copied(call, x)?;
    let shape = IndexShape { rows: x.shape[axis], columns, count: indices.shape[axis] };
    let op = scatter_op(call.node)?;
    let desc = ScatterDesc::new(op, x.kind.dtype(), d.ptr(&y)?, d.ptr(&indices)?, d.ptr(source)?, shape);
    call.backend.scatter(&desc.with_outer(outer).with_per_element())?;
    Ok(vec![y])
}

/// What tuples of indices name: rows of the table, and how many numbers each has.
struct Rows {
    indices: Tensor,
    rows: usize,
    columns: usize,
    /// The shape of all that is named, read or written.
    shape: Vec<usize>,
}

/// Tuples of indices as one index each. Those of a batch are preceded by its number.
fn tuples(x: &Tensor, indices: &Tensor, batch_dims: usize) -> Result<Rows> {
    let wrong = || Error::invalid(format!("indices {:?} into {:?}", indices.shape, x.shape));
    let (&length, outer) = indices.shape.split_last().ok_or_else(wrong)?;
    let named =
        batch_dims.checked_add(length).and_then(|end| x.shape.get(batch_dims..end)).ok_or_else(wrong)?;
    if indices.shape.get(..batch_dims) != x.shape.get(..batch_dims) || indices.rank() <= batch_dims {
        return Err(wrong());
    }
    let inner = x.shape.iter().skip(batch_dims + length);
    let columns: usize = inner.clone().product();
    let batches: usize = x.shape.iter().take(batch_dims).product();
    let count = outer.iter().product::<usize>();
    let each = (count / batches.max(1)).max(1);
    let whole: usize = named.iter().product();
    let numbers = indices.ints()?;
    let mut flat = Vec::with_capacity(count);
    for i in 0..count {
        let mut row = 0;
        for (&index, &extent) in numbers.iter().skip(i * length).zip(named) {
            let index = if index < 0 { index + extent as i64 } else { index };
            let index = usize::try_from(index).ok().filter(|&index| index < extent).ok_or_else(wrong)?;
            row = row * extent + index;
        }
        flat.push((i / each * whole + row) as i64);
    }
    let shape = outer.iter().chain(inner).copied().collect();
    Ok(Rows { indices: Tensor::vector(flat), rows: batches * whole, columns, shape })
}

fn gather_tuples(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    let batch_dims = super::shape::extent(call.node.int("batch_dims", 0))?;
    let Rows { indices, rows, columns, shape } = tuples(x, call.input(1)?, batch_dims)?;
    let y = call.device().select(&x.reshaped(vec![rows, columns])?, 0, &indices)?;
    Ok(vec![y.reshaped(shape)?])
}

fn scatter_tuples(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x, source) = (call.device(), call.input(0)?, call.input(2)?);
    let Rows { indices, rows, columns, shape } = tuples(x, call.input(1)?, 0)?;
    require_updates(source, &shape)?;
    // The scatter changes it in place.
    let y = copied(call, x)?;
    let shape = IndexShape { rows, columns, count: indices.count() };
    let op = scatter_op(call.node)?;
    let desc = ScatterDesc::new(op, x.kind.dtype(), d.ptr(&y)?, d.ptr(&indices)?, d.ptr(source)?, shape);
    call.backend.scatter(&desc)?;
    Ok(vec![y])
}

/// The slices for which a condition holds, without an axis those of the tensor as a vector.
fn compress(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    let is_flat = !call.node.attributes.contains_key("axis");
    let x = &if is_flat { x.reshaped(vec![x.count()])? } else { x.clone() };
    let axis = call.axis(0, x.rank())?;
    let condition = call.ints(1)?.unwrap_or_default();
    let chosen = condition.iter().zip(0..x.shape[axis] as i64).filter(|&(&holds, _)| holds != 0);
    Ok(vec![along(call, x, axis, chosen.map(|(_, place)| place).collect())?])
}

/// The second of two values at the place of an index, the first elsewhere. The places are a dimension of
/// their own.
fn one_hot(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (indices, values) = (call.input(0)?, call.input(2)?);
    let depth = call.number(1)?.ok_or_else(|| Error::invalid("no depth"))?;
    let depth = super::shape::extent(depth as i64)?;
    let axis = super::shape::axis(call.node.int("axis", -1), indices.rank() + 1)?;
    let length = depth as i64;
    let counted = indices.ints()?.into_iter().map(|index| if index < 0 { index + length } else { index });
    let inner: usize = indices.shape.iter().skip(axis).product();
    let counted: Vec<i64> = counted.collect();
    let mut shape = indices.shape.clone();
    shape.insert(axis, depth);
    let hot = (0..listed_elements(&shape)?).map(|i| {
        let (outer, place, column) = (i / inner / depth, i / inner % depth, i % inner);
        i64::from(counted.get(outer * inner + column) == Some(&(place as i64)))
    });
    let hot = Tensor::host(Kind::Bool, shape, Numbers::Int(hot.collect()))?;
    let value = |i: usize| Tensor::host(values.kind, vec![], values.numbers()?.pick(std::iter::once(i))?);
    Ok(vec![host::choose(&hot, &value(1)?, &value(0)?)?])
}
