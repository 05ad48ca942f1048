//! Operators that move numbers.

use super::call::{Call, FEW};
use super::shape::{axis, extent, listed, listed_elements, packed_strides, places};
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::host;
use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::numbers::Numbers;
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Transpose", Kinds::Any, transpose).of_views(),
    Operator::new("Concat", Kinds::Any, concat).of_views(),
    Operator::new("Slice", Kinds::Any, slice).of_views(),
    Operator::new("Pad", Kinds::Any, pad).with_check(pads_as_known),
    Operator::new("Expand", Kinds::Any, expand).of_views(),
    Operator::new("Tile", Kinds::Any, tile),
    Operator::new("Split", Kinds::Any, split).of_views(),
    Operator::new("DepthToSpace", Kinds::Any, depth_to_space),
    Operator::new("SpaceToDepth", Kinds::Any, space_to_depth),
    Operator::new("Trilu", Kinds::Any, trilu),
    Operator::new("ReverseSequence", Kinds::Any, reverse_sequence),
];

/// Elements at `offset + Σ index·stride` of those that a tensor has or is a view of, where strides may be
/// negative.
pub(super) fn strided(
    call: &Call<'_>,
    x: &Tensor,
    offset: usize,
    shape: &[usize],
    strides: &[isize],
) -> Result<Tensor> {
    // Few numbers may be repeated until they are many.
    let is_short = || listed_elements(shape).is_ok_and(|count| count <= FEW);
    if is_for_host(call, x) && !x.is_view() && (x.kind == Kind::I64 || is_short()) {
        return host::strided(x, offset as isize, shape, strides);
    }
    let forward: Option<Vec<usize>> = strides.iter().map(|&stride| usize::try_from(stride).ok()).collect();
    if let Some(strides) = forward {
        return call.device().viewed(x, offset, shape.to_vec(), strides);
    }
    pick(call, &x.all_elements(), shape.to_vec(), places(shape, offset as isize, strides))
}

fn signed_strides(x: &Tensor) -> Vec<isize> {
    x.strides().into_iter().map(|stride| stride as isize).collect()
}

/// 64-bit integers, and few numbers that are on the host already.
pub(super) fn is_for_host(call: &Call<'_>, x: &Tensor) -> bool {
    x.kind == Kind::I64 || (x.is_on_host() && call.is_for_host())
}

/// Elements at the given places of a tensor taken as a row.
fn pick(
    call: &Call<'_>,
    x: &Tensor,
    shape: Vec<usize>,
    places: impl Iterator<Item = usize>,
) -> Result<Tensor> {
    if is_for_host(call, x) {
        return host::pick(x, shape, places);
    }
    listed_elements(&shape)?;
    let indices = Tensor::vector(places.map(|place| place as i64).collect());
    call.device().select(&x.reshaped(vec![x.count()])?, 0, &indices)?.reshaped(shape)
}

pub(super) fn permute(call: &Call<'_>, x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let strides = x.strides();
    let at = |of: &[usize], axis: usize| {
        of.get(axis).copied().ok_or_else(|| Error::invalid(format!("there is no axis {axis}")))
    };
    let shape = axes.iter().map(|&axis| at(&x.shape, axis)).collect::<Result<Vec<_>>>()?;
    let strides = axes.iter().map(|&axis| at(&strides, axis).map(|stride| stride as isize));
    strided(call, x, x.offset(), &shape, &strides.collect::<Result<Vec<_>>>()?)
}

/// A packed tensor's elements in memory of their own, on the device.
pub(super) fn copied(call: &Call<'_>, x: &Tensor) -> Result<Tensor> {
    call.device().strided(x, 0, &[x.count()], &[1])?.reshaped(x.shape.clone())
}

fn transpose(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    let axes = match call.node.ints("perm") {
        Some(axes) => axes.iter().map(|&named| axis(named, x.rank())).collect::<Result<_>>()?,
        None => (0..x.rank()).rev().collect::<Vec<usize>>(),
    };
    Ok(vec![permute(call, x, &axes)?])
}

fn concat(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let inputs = call.all();
    let first = *inputs.first().ok_or_else(|| Error::invalid("nothing to concatenate"))?;
    let axis = call.axis(0, first.rank())?;
    if !is_for_host(call, first) {
        return Ok(vec![call.device().concat(&inputs, axis)?]);
    }
    let others = |x: &Tensor| {
        let mut shape = x.shape.clone();
        (axis < shape.len()).then(|| shape.remove(axis)).map(|_| shape)
    };
    if let Some(other) = inputs.iter().find(|x| others(x) != others(first)) {
        return Err(Error::invalid(format!("{:?} beside {:?} along {axis}", other.shape, first.shape)));
    }
    // Row after row of everything before the axis, from each input in turn.
    let mut shape = first.shape.clone();
    shape[axis] = inputs.iter().map(|x| x.shape.get(axis).copied().unwrap_or(0)).sum();
    let [outer, inner] = first.around(axis);
    let mut parts = Vec::with_capacity(inputs.len());
    for x in inputs {
        parts.push((x.numbers()?, x.shape.get(axis).copied().unwrap_or(0) * inner));
    }
    let mut all = if first.kind.is_float() { Numbers::Float(Vec::new()) } else { Numbers::Int(Vec::new()) };
    for i in 0..outer {
        for (numbers, length) in &parts {
            all.extend(&numbers.pick(i * length..(i + 1) * length)?);
        }
    }
    Ok(vec![Tensor::host(first.kind, shape, all)?])
}

/// Before operator set 10 starts, ends and axes are attributes.
fn slice(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    let missing = || Error::invalid("a slice without starts or ends");
    let starts = call.ints_or(1, "starts")?.ok_or_else(missing)?;
    let ends = call.ints_or(2, "ends")?.ok_or_else(missing)?;
    let axes = call.ints_or(3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = call.ints(4)?.unwrap_or_else(|| vec![1; starts.len()]);
    let lengths = [starts.len(), ends.len(), axes.len(), steps.len()];
    if lengths.iter().any(|&length| length != starts.len()) {
        return Err(Error::invalid(format!("lists of {lengths:?} starts, ends, axes and steps")));
    }
    let mut shape = x.shape.clone();
    let mut strides = signed_strides(x);
    let mut offset = x.offset();
    for (((start, end), named), step) in starts.into_iter().zip(ends).zip(axes).zip(steps) {
        let axis = axis(named, x.rank())?;
        let length = x.shape[axis] as i64;
        let counted = |place: i64| if place < 0 { place.saturating_add(length) } else { place };
        let (start, count) = match step {
            0 => return Err(Error::invalid("a slice with a step of 0")),
            1.. => {
                let (start, end) = (counted(start).clamp(0, length), counted(end).clamp(0, length));
                (start, (end - start).max(0).div_euclid(step) + i64::from((end - start).max(0) % step != 0))
            }
            _ if length == 0 => (0, 0),
            // Unlike NumPy's, a start before the first element is the first element; only an end can lie before.
            _ => {
                let (start, end) = (counted(start).clamp(0, length - 1), counted(end).clamp(-1, length - 1));
                let (reach, step) = ((start - end).max(0), step.checked_neg().unwrap_or(i64::MAX));
                (start, reach / step + i64::from(reach % step != 0))
            }
        };
        shape[axis] = extent(count)?;
        // Of a single element, no step is taken, however long.
        let walked = if count > 1 { step as isize } else { 0 };
        if count > 0 {
            offset += extent(start)? * strides[axis].unsigned_abs();
        }
        strides[axis] *= walked;
    }
    if shape.contains(&0) {
        offset = 0;
    }
    Ok(vec![strided(call, x, offset, &shape, &strides)?])
}

/// The value of the padding has to be a number that is known when the node runs, and so it is; what
/// isn't known are modes of later operator sets.
fn pads_as_known(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    match node.text("mode") {
        "" | "constant" if graph.input_kind(node, 0).is_some_and(|kind| kind == Kind::I64) => {
            Err("padding of 64-bit integers".to_owned())
        }
        "" | "constant" | "edge" | "reflect" | "wrap" => Ok(()),
        other => Err(format!("the mode {other:?}")),
    }
}

/// A constant around the input, or its own numbers again. Negative pads cut.
fn pad(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    let pads = call.ints_or(1, "pads")?.ok_or_else(|| Error::invalid("padding without pads"))?;
    let axes = call.ints(3)?.unwrap_or_else(|| (0..x.rank() as i64).collect());
    if pads.len() != 2 * axes.len() {
        return Err(Error::invalid(format!("{} pads for {} axes", pads.len(), axes.len())));
    }
    let (before_all, after_all) = pads.split_at(axes.len());
    let mode = call.node.text("mode");
    let repeats = !matches!(mode, "" | "constant");
    let mut before = vec![0; x.rank()];
    let mut y = x.clone();
    let mut shape = x.shape.clone();
    for (named, (&front, &back)) in axes.into_iter().zip(before_all.iter().zip(after_all)) {
        let axis = axis(named, x.rank())?;
        let length = x.shape[axis] as i64;
        for pad in [front, back] {
            listed(pad.saturating_abs())?;
        }
        // What is cut isn't there to be repeated.
        let start = (-front).max(0);
        let end = (length + back.min(0)).max(start);
        if repeats {
            let places = -front.max(0)..end - start + back.max(0);
            let places = places.map(|i| Some(start + source(mode, i, end - start)?));
            y = along(
                call,
                &y,
                axis,
                places.collect::<Option<Vec<_>>>().ok_or_else(|| Error::invalid("nothing to pad with"))?,
            )?;
            continue;
        }
        if front < 0 || back < 0 {
            y = along(call, &y, axis, (start..end).collect())?;
        }
        shape[axis] = extent((length + front + back).max(0))?;
        // What is cut behind may be more than the input has: then it is of the padding before it.
        before[axis] = extent(front.max(0))?.min(shape[axis]);
    }
    if repeats {
        return Ok(vec![y]);
    }
    let value = call.number(2)?.unwrap_or_else(|| call.node.float("value", 0.0));
    Ok(vec![call.device().pad(&y, &shape, &before, value)?])
}

/// The slices at `places` along an axis.
pub(super) fn along(call: &Call<'_>, x: &Tensor, axis: usize, places: Vec<i64>) -> Result<Tensor> {
    if !is_for_host(call, x) {
        return call.device().select(x, axis, &Tensor::vector(places));
    }
    let [outer, inner] = x.around(axis);
    let rows = x.shape.get(axis).copied().unwrap_or(1);
    let mut shape = x.shape.clone();
    if let Some(extent) = shape.get_mut(axis) {
        *extent = places.len();
    }
    let row = |&place: &i64| usize::try_from(place).unwrap_or(usize::MAX / 2).min(rows);
    let at = |i: usize| {
        places.iter().map(row).flat_map(move |row| {
            let start = if row < rows { (i * rows + row) * inner } else { usize::MAX / 2 };
            start..start + inner
        })
    };
    host::pick(x, shape, (0..outer).flat_map(at))
}

/// Which of `length` elements is at the place `i` before, in or behind them.
fn source(mode: &str, i: i64, length: i64) -> Option<i64> {
    let last = length.checked_sub(1).filter(|&last| last >= 0)?;
    Some(match mode {
        "edge" => i.clamp(0, last),
        "wrap" => i.rem_euclid(length),
        _ if last == 0 => 0,
        // There and back again.
        _ => last - (last - i.rem_euclid(2 * last)).abs(),
    })
}

fn expand(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    let wanted = call.ints(1)?.ok_or_else(|| Error::invalid("no shape to expand to"))?;
    let wanted = wanted.into_iter().map(extent).collect::<Result<Vec<_>>>()?;
    let shape = super::shape::broadcast(&x.shape, &wanted)?;
    let strides = super::device::expanded_strides(&x.shape, &x.strides(), &shape)?;
    let strides: Vec<isize> = strides.into_iter().map(|stride| stride as isize).collect();
    Ok(vec![strided(call, x, x.offset(), &shape, &strides)?])
}

fn tile(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let mut y = call.input(0)?.clone();
    let times = call.ints(1)?.ok_or_else(|| Error::invalid("no number of repetitions"))?;
    if times.len() != y.rank() || times.iter().any(|&times| times < 0) {
        return Err(Error::invalid(format!("{:?} repeated {times:?} times", y.shape)));
    }
    for (axis, &times) in times.iter().enumerate().filter(|&(_, &times)| times != 1) {
        let length = y.shape[axis] as i64;
        listed(times.saturating_mul(length))?;
        y = along(call, &y, axis, (0..times).flat_map(|_| 0..length).collect())?;
    }
    Ok(vec![y])
}

/// Parts of the given lengths, else of equal ones, of which the last may be shorter.
fn split(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    let axis = call.axis(0, x.rank())?;
    let length = x.shape[axis];
    let parts = call.node.outputs.len().max(1);
    let lengths = match call.ints_or(1, "split")? {
        Some(lengths) => lengths.into_iter().map(extent).collect::<Result<Vec<_>>>()?,
        None => {
            let each = length.div_ceil(parts);
            (0..parts).map(|i| each.min(length.saturating_sub(i * each))).collect()
        }
    };
    if lengths.len() != parts || lengths.iter().sum::<usize>() != length {
        return Err(Error::invalid(format!("{length} elements can't be split into {lengths:?}")));
    }
    let strides = signed_strides(x);
    let mut start = 0;
    let mut shape = x.shape.clone();
    let part = |length| {
        shape[axis] = length;
        let offset = if shape.contains(&0) { 0 } else { x.offset() + start * strides[axis].unsigned_abs() };
        start += length;
        strided(call, x, offset, &shape, &strides)
    };
    lengths.into_iter().map(part).collect()
}

/// Batch, channels, height and width, and the side of a block.
fn blocks(call: &Call<'_>) -> Result<([usize; 4], usize)> {
    let shape = call.input(0)?.shape.as_slice();
    let block = extent(call.node.int("blocksize", 1))?.max(1);
    let shape = shape.try_into().map_err(|_| Error::invalid("an image has four dimensions"))?;
    Ok((shape, block))
}

fn depth_to_space(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let ([n, c, h, w], s) = blocks(call)?;
    let depth = s.checked_mul(s).filter(|&area| c.is_multiple_of(area)).map(|area| c / area);
    let depth = depth.ok_or_else(|| Error::invalid(format!("{c} channels in blocks of {s} × {s}")))?;
    let (shape, axes) = match call.node.text("mode") {
        "CRD" => (vec![n, depth, s, s, h, w], [0, 1, 4, 2, 5, 3]),
        _ => (vec![n, s, s, depth, h, w], [0, 3, 4, 1, 5, 2]),
    };
    let y = permute(call, &call.input(0)?.reshaped(shape)?, &axes)?;
    Ok(vec![call.device().reshape(&y, vec![n, depth, h * s, w * s])?])
}

fn space_to_depth(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let ([n, c, h, w], s) = blocks(call)?;
    let x = call.input(0)?.reshaped(vec![n, c, h / s, s, w / s, s])?;
    let axes = if call.node.text("mode") == "CRD" { [0, 1, 3, 5, 2, 4] } else { [0, 3, 5, 1, 2, 4] };
    let y = permute(call, &x, &axes)?;
    Ok(vec![call.device().reshape(&y, vec![n, c * s * s, h / s, w / s])?])
}

/// Zeros above or below a diagonal.
fn trilu(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x) = (call.device(), call.input(0)?);
    let &[.., rows, columns] = x.shape.as_slice() else { return Err(Error::invalid("no matrix")) };
    let diagonal = call.ints(1)?.and_then(|k| k.first().copied()).unwrap_or(0);
    let upper = call.node.int("upper", 1) == 1;
    listed_elements(&[rows, columns])?;
    let kept = (0..rows as i64).flat_map(|i| {
        (0..columns as i64).map(move |j| {
            let ahead = (j - i).cmp(&diagonal);
            i64::from(if upper { ahead.is_ge() } else { ahead.is_le() })
        })
    });
    let kept = Tensor::host(Kind::Bool, vec![rows, columns], Numbers::Int(kept.collect()))?;
    if x.kind == Kind::I64 {
        let zero = Tensor::host(Kind::I64, vec![], Numbers::Int(vec![0]))?;
        return Ok(vec![host::choose(&kept, x, &zero)?]);
    }
    Ok(vec![d.choose(&kept, x, 0.0)?])
}

/// The first elements of each sequence of a batch in reverse order.
fn reverse_sequence(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    let lengths = call.ints(1)?.unwrap_or_default();
    let time = axis(call.node.int("time_axis", 0), x.rank())?;
    let batch = axis(call.node.int("batch_axis", 1), x.rank())?;
    let is_within = |&length: &i64| usize::try_from(length).is_ok_and(|length| length <= x.shape[time]);
    if lengths.len() != x.shape[batch] || !lengths.iter().all(is_within) {
        return Err(Error::invalid(format!("{:?} with sequences of lengths {lengths:?}", x.shape)));
    }
    let strides = packed_strides(&x.shape);
    let reversed = (0..x.count()).map(|i| {
        let (t, b) = (i / strides[time] % x.shape[time], i / strides[batch] % x.shape[batch]);
        let length = lengths[b] as usize;
        if t < length { i - t * strides[time] + (length - 1 - t) * strides[time] } else { i }
    });
    Ok(vec![pick(call, x, x.shape.clone(), reversed)?])
}
