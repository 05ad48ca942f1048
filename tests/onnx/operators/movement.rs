//! Operators that move numbers.

use backend_api::DType;
use backend_api::desc::{ConcatDesc, PadDesc, RepeatDesc, SliceDesc};

use crate::device::{Outcome, Tensor};
use crate::node::{Node, axis};

pub(super) fn run(node: &Node<'_>) -> Outcome<Option<Vec<Tensor>>> {
    Ok(Some(match node.case.operator.as_str() {
        "Transpose" => vec![transpose(node)?],
        "Concat" => vec![concat(node)?],
        "Slice" => vec![slice(node)?],
        "Pad" => vec![pad(node)?],
        "Expand" => vec![node.device.expand(node.input(0)?, node.output(0)?.1)?],
        "Tile" => vec![tile(node)?],
        "Split" => split(node)?,
        _ => return Ok(None),
    }))
}

fn transpose(node: &Node<'_>) -> Outcome<Tensor> {
    let x = node.input(0)?;
    let rank = x.shape.len();
    let axes = match node.ints("perm") {
        Some(axes) => axes.into_iter().map(|named| axis(named, rank)).collect::<Outcome<_>>()?,
        None => (0..rank).rev().collect::<Vec<usize>>(),
    };
    Ok(node.device.permute(x, &axes)?)
}

fn concat(node: &Node<'_>) -> Outcome<Tensor> {
    let inputs = node.all();
    let (dtype, shape) = node.output(0)?;
    let y = node.device.empty(dtype, shape)?;
    let parts: Vec<_> = inputs.iter().map(|input| input.desc()).collect();
    node.device.backend.concat(&ConcatDesc::new(&parts, y.desc(), node.axis(0, shape.len())?))?;
    Ok(y)
}

/// Steps forward are a slice, steps backward a selection.
fn slice(node: &Node<'_>) -> Outcome<Tensor> {
    let x = node.input(0)?;
    let rank = x.shape.len();
    let (_, shape) = node.output(0)?;
    let (starts, given) = (node.integers(1)?.unwrap_or_default(), node.integers(3)?);
    let axes = given.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = node.integers(4)?.unwrap_or_else(|| vec![1; starts.len()]);
    let (mut from, mut by) = (vec![0; rank], vec![1; rank]);
    let mut backwards = None;
    for ((start, named), step) in starts.into_iter().zip(axes).zip(steps) {
        let axis = axis(named, rank)?;
        let extent = x.shape[axis] as i64;
        let start = if start < 0 { start + extent } else { start };
        if step < 0 {
            let first = start.clamp(0, extent - 1);
            let count = shape[axis] as i64;
            let indices: Vec<f64> = (0..count).map(|i| (first + i * step) as f64).collect();
            let indices = node.device.upload(DType::I32, &[indices.len()], &indices)?;
            let so_far = backwards.as_ref().unwrap_or(x);
            backwards = Some(node.device.select(so_far, axis, &indices)?);
        } else {
            from[axis] = start.clamp(0, extent) as usize;
            by[axis] = step as usize;
        }
    }
    let x = backwards.as_ref().unwrap_or(x);
    let y = node.device.empty(x.dtype, shape)?;
    node.device.backend.slice(&SliceDesc::new(x.desc(), y.desc(), &from).with_steps(&by))?;
    Ok(y)
}

/// A constant around the input, or a selection of it along each axis.
fn pad(node: &Node<'_>) -> Outcome<Tensor> {
    let x = node.input(0)?;
    let rank = x.shape.len();
    let pads = node.integers(1)?.unwrap_or_default();
    let axes = node.integers(3)?.unwrap_or_else(|| (0..rank as i64).collect());
    let (before_all, after_all) = pads.split_at(pads.len() / 2);
    let mode = node.text("mode");
    let mut before = vec![0; rank];
    let mut shape = x.shape.clone();
    let mut selected = x.clone();
    for (named, (&front, &back)) in axes.into_iter().zip(before_all.iter().zip(after_all)) {
        let axis = axis(named, rank)?;
        let extent = x.shape[axis] as i64;
        before[axis] = usize::try_from(front)?;
        shape[axis] = usize::try_from(extent + front + back)?;
        if !matches!(mode, "" | "constant") {
            let indices: Vec<f64> = (-front..extent + back).map(|i| source(mode, i, extent) as f64).collect();
            let indices = node.device.upload(DType::I32, &[indices.len()], &indices)?;
            selected = node.device.select(&selected, axis, &indices)?;
        }
    }
    if !matches!(mode, "" | "constant") {
        return Ok(selected);
    }
    let value = node.numbers(2)?.and_then(|numbers| numbers.first().copied()).unwrap_or(0.0);
    let y = node.device.empty(x.dtype, &shape)?;
    node.device.backend.pad(&PadDesc::new(x.desc(), y.desc(), &before, value))?;
    Ok(y)
}

/// Which of `extent` elements is at the place `i` before, in or behind them.
fn source(mode: &str, i: i64, extent: i64) -> i64 {
    let last = extent - 1;
    match mode {
        "edge" => i.clamp(0, last),
        "wrap" => i.rem_euclid(extent),
        // There and back again.
        _ => last - (last - i.rem_euclid(2 * last.max(1))).abs(),
    }
}

/// One dimension after the other: all at once they may be more loops than an operation takes.
fn tile(node: &Node<'_>) -> Outcome<Tensor> {
    let mut x = node.input(0)?.clone();
    for (axis, &extent) in node.output(0)?.1.iter().enumerate() {
        let mut shape = x.shape.clone();
        shape[axis] = extent;
        let y = node.device.empty(x.dtype, &shape)?;
        node.device.backend.repeat(&RepeatDesc::new(x.desc(), y.desc()))?;
        x = y;
    }
    Ok(x)
}

fn split(node: &Node<'_>) -> Outcome<Vec<Tensor>> {
    let x = node.input(0)?;
    let axis = node.axis(0, x.shape.len())?;
    let mut start = 0;
    let mut parts = Vec::new();
    for i in 0..node.case.outputs.len() {
        let count = node.output(i)?.1[axis];
        parts.push(node.device.narrow(x, axis, start, count)?);
        start += count;
    }
    Ok(parts)
}
