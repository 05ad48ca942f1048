//! Operators that read and write by index.

use backend_api::desc::{GatherDesc, IndexShape, ScatterDesc};
use backend_api::{BackendResult, BinaryOp, CompareOp, DType, ScatterOp};

use crate::device::{Device, Outcome, Tensor};
use crate::node::Node;

pub(super) fn run(node: &Node<'_>) -> Outcome<Option<Vec<Tensor>>> {
    let output = match node.case.operator.as_str() {
        "Gather" => {
            let x = node.input(0)?;
            let axis = node.axis(0, x.shape.len())?;
            node.device.select(x, axis, &counted(node.device, node.input(1)?, x.shape[axis])?)?
        }
        "GatherElements" => gather_elements(node)?,
        "Scatter" | "ScatterElements" => scatter_elements(node)?,
        "GatherND" => gather_tuples(node)?,
        "ScatterND" => scatter_tuples(node)?,
        _ => return Ok(None),
    };
    Ok(Some(vec![output]))
}

/// Indices of which those below zero are counted from the end.
fn counted(device: &Device<'_>, indices: &Tensor, extent: usize) -> BackendResult<Tensor> {
    let below = device.compare(CompareOp::Lt, indices, 0.0)?;
    device.choose(&below, &device.binary(BinaryOp::Add, indices, extent as f64)?, indices)
}

/// Outer, rows and columns of a table around an axis, if the indices have the same extents but for the axis.
fn table(x: &Tensor, indices: &Tensor, axis: usize) -> Outcome<[usize; 3]> {
    let [outer, columns] = x.around(axis);
    if [outer, columns] == indices.around(axis) {
        Ok([outer, x.shape[axis], columns])
    } else {
        Err("the indices leave out a part of the table".into())
    }
}

fn gather_elements(node: &Node<'_>) -> Outcome<Tensor> {
    let (device, x) = (node.device, node.input(0)?);
    let axis = node.axis(0, x.shape.len())?;
    let indices = counted(device, node.input(1)?, x.shape[axis])?;
    let [outer, rows, columns] = table(x, &indices, axis)?;
    let y = device.empty(x.dtype, &indices.shape)?;
    let shape = IndexShape { rows, columns, count: indices.shape[axis] };
    let desc = GatherDesc::new(x.dtype, x.ptr, indices.ptr, y.ptr, shape);
    device.backend.gather(&desc.with_outer(outer).with_per_element())?;
    Ok(y)
}

fn scatter_elements(node: &Node<'_>) -> Outcome<Tensor> {
    let (device, x, source) = (node.device, node.input(0)?, node.input(2)?);
    let axis = node.axis(0, x.shape.len())?;
    let indices = counted(device, node.input(1)?, x.shape[axis])?;
    let [outer, rows, columns] = table(x, &indices, axis)?;
    let y = device.convert(x, x.dtype)?;
    let shape = IndexShape { rows, columns, count: indices.shape[axis] };
    let desc = ScatterDesc::new(combining(node)?, x.dtype, y.ptr, indices.ptr, source.ptr, shape);
    device.backend.scatter(&desc.with_outer(outer).with_per_element())?;
    Ok(y)
}

fn combining(node: &Node<'_>) -> Outcome<ScatterOp> {
    Ok(match node.text("reduction") {
        "" | "none" => ScatterOp::Assign,
        "add" => ScatterOp::Add,
        "max" => ScatterOp::Max,
        "min" => ScatterOp::Min,
        "mul" => ScatterOp::Mul,
        other => return Err(format!("no scatter combines by {other}").into()),
    })
}

/// What tuples of indices name: rows of the table, and how many numbers each has.
struct Rows {
    indices: Tensor,
    rows: usize,
    columns: usize,
}

/// Tuples of indices as one index each. Those of a batch are preceded by its number.
fn tuples(device: &Device<'_>, x: &Tensor, indices: &Tensor, batch_dims: usize) -> Outcome<Rows> {
    let last = indices.shape.len() - 1;
    let length = indices.shape[last];
    let named = &x.shape[batch_dims..batch_dims + length];
    let columns: usize = x.shape[batch_dims + length..].iter().product();
    let mut stride: usize = named.iter().product();
    // The batch's part: its number times its rows, for each of its tuples.
    let batches: usize = x.shape[..batch_dims].iter().product();
    let count = indices.count() / length.max(1);
    let each = count / batches.max(1);
    let starts: Vec<f64> = (0..count).map(|i| (i / each.max(1) * stride) as f64).collect();
    let mut flat = device.upload(DType::I32, &[count], &starts)?;
    for (k, &extent) in named.iter().enumerate() {
        stride /= extent.max(1);
        let part = device.narrow(indices, last, k, 1)?.reshaped(&[count]);
        let part = counted(device, &part, extent)?;
        flat = device.binary(BinaryOp::Add, &flat, &device.binary(BinaryOp::Mul, &part, stride as f64)?)?;
    }
    let rows = x.shape[..batch_dims + length].iter().product();
    Ok(Rows { indices: flat, rows, columns })
}

fn gather_tuples(node: &Node<'_>) -> Outcome<Tensor> {
    let (device, x) = (node.device, node.input(0)?);
    let batch_dims = node.int("batch_dims", 0) as usize;
    let Rows { indices, rows, columns } = tuples(device, x, node.input(1)?, batch_dims)?;
    Ok(device.select(&x.reshaped(&[rows, columns]), 0, &indices)?.reshaped(node.output(0)?.1))
}

fn scatter_tuples(node: &Node<'_>) -> Outcome<Tensor> {
    let (device, x, source) = (node.device, node.input(0)?, node.input(2)?);
    let Rows { indices, rows, columns } = tuples(device, x, node.input(1)?, 0)?;
    let y = device.convert(x, x.dtype)?;
    let shape = IndexShape { rows, columns, count: indices.count() };
    let desc = ScatterDesc::new(combining(node)?, x.dtype, y.ptr, indices.ptr, source.ptr, shape);
    device.backend.scatter(&desc)?;
    Ok(y)
}
