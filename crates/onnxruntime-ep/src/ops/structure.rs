//! Shapes: operators that read them, change them, or make tensors of them.

use super::call::{Call, rounded};
use super::shape::{axes, axis, extent, listed};
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::model::{Attribute, Graph, Node};
use crate::numbers::Numbers;
use crate::tensor::{Tensor, elements};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Identity", Kinds::Any, identity).of_views(),
    Operator::new("Dropout", Kinds::Float, dropout).with_check(is_inference),
    Operator::new("Reshape", Kinds::Any, reshape).of_views(),
    Operator::new("Squeeze", Kinds::Any, squeeze).of_views(),
    Operator::new("Unsqueeze", Kinds::Any, unsqueeze).of_views(),
    Operator::new("Flatten", Kinds::Any, flatten).of_views(),
    Operator::new("Shape", Kinds::Any, shape).of_views(),
    Operator::new("Size", Kinds::Any, size).of_views(),
    Operator::new("ConstantOfShape", Kinds::Any, constant_of_shape).with_check(fills_with_known),
    Operator::new("Range", Kinds::Number, range),
    Operator::new("EyeLike", Kinds::Any, eye_like).with_check(eye_of_known),
];

fn identity(call: &Call<'_>) -> Result<Vec<Tensor>> {
    Ok(vec![call.input(0)?.clone()])
}

/// Without training. Before operator set 10 the mask had the input's element type.
fn is_inference(_graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    if node.input(2).is_none() && (node.since >= 10 || !node.has_output(1)) {
        Ok(())
    } else {
        Err("training".to_owned())
    }
}

/// The input, of which the mask keeps everything.
fn dropout(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    let mut outputs = vec![x.clone()];
    if call.node.has_output(1) {
        let kept = Tensor::host(Kind::Bool, vec![1], Numbers::Int(vec![1]))?;
        let ones =
            if x.rank() == 0 { kept.reshaped(vec![])? } else { call.device().expand(&kept, &x.shape)? };
        outputs.push(ones);
    }
    Ok(outputs)
}

/// 0 keeps an extent and −1 takes what is left, unless `allowzero` says that 0 is none.
fn reshape(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    let wanted = call.ints_or(1, "shape")?.ok_or_else(|| Error::invalid("no shape"))?;
    let keeps = call.node.int("allowzero", 0) == 0;
    let mut open = None;
    let mut shape = Vec::with_capacity(wanted.len());
    for (k, &number) in wanted.iter().enumerate() {
        shape.push(match number {
            -1 if open.is_none() => {
                open = Some(k);
                1
            }
            -1 => return Err(Error::invalid(format!("{wanted:?} leaves more than one dimension open"))),
            0 if keeps => *x.shape.get(k).ok_or_else(|| Error::invalid("no extent to keep"))?,
            number => extent(number)?,
        });
    }
    // The open extent is still 1.
    let known = elements(&shape)?;
    if let Some(extent) = open.and_then(|k| shape.get_mut(k)) {
        *extent = x.count().checked_div(known).unwrap_or(0);
    }
    if open.is_some() && elements(&shape)? != x.count() {
        return Err(Error::invalid(format!("{:?} can't be reshaped to {wanted:?}", x.shape)));
    }
    Ok(vec![call.device().reshape(x, shape)?])
}

fn squeeze(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    let dropped = match call.ints_or(1, "axes")? {
        Some(named) if !named.is_empty() => axes(&named, x.rank())?,
        // ONNX Runtime takes an empty list for none.
        _ => (0..x.rank()).filter(|&k| x.shape[k] == 1).collect(),
    };
    if let Some(&k) = dropped.iter().find(|&&k| x.shape[k] != 1) {
        return Err(Error::invalid(format!("axis {k} of {:?} isn't 1", x.shape)));
    }
    let kept = x.shape.iter().enumerate().filter(|(k, _)| !dropped.contains(k)).map(|(_, &extent)| extent);
    Ok(vec![call.device().reshape(x, kept.collect())?])
}

fn unsqueeze(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    let named = call.ints_or(1, "axes")?.ok_or_else(|| Error::invalid("no axes"))?;
    let added = axes(&named, x.rank() + named.len())?;
    let mut extents = x.shape.iter().copied();
    let rank = x.rank() + added.len();
    let shape = (0..rank).map(|k| if added.contains(&k) { 1 } else { extents.next().unwrap_or(1) });
    Ok(vec![call.device().reshape(x, shape.collect())?])
}

fn flatten(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    let named = call.node.int("axis", 1);
    let axis = if named == x.rank() as i64 { x.rank() } else { axis(named, x.rank())? };
    let (outer, inner) = x.shape.split_at(axis);
    Ok(vec![call.device().reshape(x, vec![outer.iter().product(), inner.iter().product()])?])
}

fn shape(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    let rank = x.rank() as i64;
    let counted = |place: i64| if place < 0 { place + rank } else { place }.clamp(0, rank) as usize;
    let (start, end) = (counted(call.node.int("start", 0)), counted(call.node.int("end", rank)));
    let extents = x.shape.get(start..end.max(start)).unwrap_or_default();
    Ok(vec![Tensor::vector(extents.iter().map(|&extent| extent as i64).collect())])
}

fn size(call: &Call<'_>) -> Result<Vec<Tensor>> {
    Ok(vec![Tensor::vector(vec![call.input(0)?.count() as i64]).reshaped(vec![])?])
}

fn fills_with_known(_graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    match node.attributes.get("value") {
        None | Some(Attribute::Tensor(_)) => Ok(()),
        _ => Err("the element type of the value isn't supported".to_owned()),
    }
}

/// A number, 0 of f32 by default, in a shape.
fn constant_of_shape(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let wanted = call.ints(0)?.ok_or_else(|| Error::invalid("no shape"))?;
    let shape = wanted.into_iter().map(extent).collect::<Result<Vec<_>>>()?;
    let (kind, value) = match call.node.attributes.get("value") {
        Some(Attribute::Tensor(value)) => (value.kind, value.numbers()?.clone()),
        _ => (Kind::F32, Numbers::Float(vec![0.0])),
    };
    let count = listed(i64::try_from(elements(&shape)?).unwrap_or(i64::MAX))?;
    Ok(vec![Tensor::host(kind, shape, value.pick((0..count).map(|_| 0))?)?])
}

fn range(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let start = call.input(0)?;
    let ends = [start.numbers()?, call.input(1)?.numbers()?, call.input(2)?.numbers()?];
    let numbers = if start.kind.is_float() {
        let [start, limit, delta] = ends.map(|end| end.floats().first().copied().unwrap_or(0.0));
        let count = ((limit - start) / delta).ceil().max(0.0);
        if !count.is_finite() {
            return Err(Error::invalid("a range without end"));
        }
        Numbers::Float((0..listed(count as i64)?).map(|i| start + i as f64 * delta).collect())
    } else {
        let [start, limit, delta] = ends.map(|end| end.ints().first().copied().unwrap_or(0));
        let span = i128::from(limit) - i128::from(start);
        let (count, rest) = match i128::from(delta) {
            0 => return Err(Error::invalid("a range without end")),
            delta => (span / delta, span % delta),
        };
        let count = (count + i128::from(rest != 0 && (span > 0) == (delta > 0))).max(0);
        let count = listed(i64::try_from(count).unwrap_or(i64::MAX))?;
        // A step may be longer than half of the range of i64, and what it reaches modulo 2⁶⁴ is right.
        Numbers::Int((0..count as i64).map(|i| start.wrapping_add(i.wrapping_mul(delta))).collect())
    };
    Ok(vec![rounded(start.kind, vec![numbers.len()], numbers)?])
}

fn eye_kind(node: &Node) -> Option<Option<Kind>> {
    match node.attributes.get("dtype") {
        None => Some(None),
        Some(&Attribute::Int(code)) => Kind::from_onnx(i32::try_from(code).ok()?).map(Some),
        Some(_) => None,
    }
}

fn eye_of_known(_graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    eye_kind(node).map(|_| ()).ok_or_else(|| "the element type of the matrix isn't supported".to_owned())
}

/// Ones on a diagonal.
fn eye_like(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    let &[rows, columns] = x.shape.as_slice() else { return Err(Error::invalid("no matrix")) };
    let kind = eye_kind(call.node).flatten().unwrap_or(x.kind);
    let diagonal = call.node.int("k", 0);
    let ones = (0..rows as i64).flat_map(|i| (0..columns as i64).map(move |j| i64::from(j - i == diagonal)));
    let ones = Numbers::Int(ones.collect()).convert(kind);
    Ok(vec![Tensor::host(kind, x.shape.clone(), ones)?])
}
