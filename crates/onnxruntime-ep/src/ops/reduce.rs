//! Reductions, cumulative sums and softmax.

use backend_api::desc::{CumSumDesc, SoftmaxDesc, TopKDesc};
use backend_api::{BinaryOp, CompareOp, ReduceOp, UnaryOp};

use super::call::{Call, rounded};
use super::movement::permute;
use super::shape::{axes, axis, extent, listed_elements};
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::host;
use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::numbers::Numbers;
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("ReduceSum", Kinds::Number, reduction),
    Operator::new("ReduceSumSquare", Kinds::Number, reduction),
    Operator::new("ReduceLogSum", Kinds::Float, reduction),
    Operator::new("ReduceMean", Kinds::Float, reduction),
    Operator::new("ReduceMax", Kinds::Any, reduction),
    Operator::new("ReduceMin", Kinds::Any, reduction),
    Operator::new("ReduceProd", Kinds::Number, reduction),
    Operator::new("ReduceL1", Kinds::Float, reduction),
    Operator::new("ReduceL2", Kinds::Float, reduction),
    Operator::new("ReduceLogSumExp", Kinds::Float, reduction),
    Operator::new("ArgMax", Kinds::Number, extreme),
    Operator::new("ArgMin", Kinds::Number, extreme),
    Operator::new("TopK", Kinds::Number, top_k),
    Operator::new("CumSum", Kinds::Number, cumulative_sum),
    Operator::new("Softmax", Kinds::Float, softmax).with_check(has_rank),
    Operator::new("LogSoftmax", Kinds::Float, softmax).with_check(has_rank),
    Operator::new("Hardmax", Kinds::Float, hardmax).with_check(has_rank),
    Operator::new("LpNormalization", Kinds::Float, lp_normalization),
];

/// A softmax of a single number has no axis.
fn has_rank(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    if graph.input_rank(node, 0) == Some(0) { Err("no dimension".to_owned()) } else { Ok(()) }
}

fn op(operator: &str) -> Result<ReduceOp> {
    Ok(match operator {
        "ReduceSum" | "ReduceSumSquare" | "ReduceLogSum" => ReduceOp::Sum,
        "ReduceMean" => ReduceOp::Mean,
        "ReduceMax" => ReduceOp::Max,
        "ReduceMin" => ReduceOp::Min,
        "ReduceProd" => ReduceOp::Prod,
        "ReduceL1" => ReduceOp::NormL1,
        "ReduceL2" => ReduceOp::NormL2,
        "ReduceLogSumExp" => ReduceOp::LogSumExp,
        other => return Err(Error::invalid(format!("{other} is no reduction"))),
    })
}

fn reduction(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (node, d) = (call.node, call.device());
    let x = call.input(0)?.clone();
    let named = call.ints_or(1, "axes")?.unwrap_or_default();
    let axes = match named.is_empty() {
        true if node.int("noop_with_empty_axes", 0) == 1 => Vec::new(),
        true => (0..x.rank()).collect(),
        false => axes(&named, x.rank())?,
    };
    // Without axes, only what is done to each number is left.
    let is_sum = matches!(
        node.operator.as_str(),
        "ReduceSum" | "ReduceMean" | "ReduceMax" | "ReduceMin" | "ReduceProd"
    );
    let y = if axes.is_empty() && is_sum {
        x
    } else if !x.kind.is_float() && (x.kind == Kind::I64 || x.is_on_host()) {
        integers(&node.operator, &x, &axes)?
    } else {
        let x = if node.operator == "ReduceSumSquare" { d.unary(UnaryOp::Square, &x)? } else { x };
        let y = d.reduce(op(&node.operator)?, &x, &axes)?;
        if node.operator == "ReduceLogSum" { d.unary(UnaryOp::Log, &y)? } else { y }
    };
    Ok(vec![if node.int("keepdims", 1) == 1 { y } else { without(&y, &axes)? }])
}

/// Reductions of whole numbers on the host.
fn integers(operator: &str, x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let numbers = x.ints()?;
    let (shape, groups) = host::groups(&x.shape, axes);
    let missing = || Error::invalid(format!("{} numbers for the shape {:?}", numbers.len(), x.shape));
    let reduced = groups.into_iter().map(|group| {
        let group: Option<Vec<i64>> = group.into_iter().map(|i| numbers.get(i).copied()).collect();
        let group = group.ok_or_else(missing)?.into_iter();
        Ok(match operator {
            "ReduceSum" => group.fold(0i64, i64::wrapping_add),
            "ReduceSumSquare" => group.map(|x| x.wrapping_mul(x)).fold(0i64, i64::wrapping_add),
            "ReduceProd" => group.fold(1i64, i64::wrapping_mul),
            "ReduceMax" => group.max().unwrap_or(least(x.kind)),
            "ReduceMin" => group.min().unwrap_or(largest(x.kind)),
            other => return Err(Error::invalid(format!("{other} of integers"))),
        })
    });
    rounded(x.kind, shape, Numbers::Int(reduced.collect::<Result<_>>()?))
}

/// The least number of a kind: the largest of none.
fn least(kind: Kind) -> i64 {
    match kind {
        Kind::I32 => i64::from(i32::MIN),
        Kind::U32 | Kind::Bool => 0,
        _ => i64::MIN,
    }
}

/// The largest number of a kind: the smallest of none.
fn largest(kind: Kind) -> i64 {
    match kind {
        Kind::I32 => i64::from(i32::MAX),
        Kind::U32 => i64::from(u32::MAX),
        Kind::Bool => 1,
        _ => i64::MAX,
    }
}

/// The tensor without its reduced dimensions.
fn without(y: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let kept = y.shape.iter().enumerate().filter(|(k, _)| !axes.contains(k)).map(|(_, &extent)| extent);
    y.reshaped(kept.collect())
}

/// The place of the first extreme, or with `select_last_index` of the last.
fn extreme(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x) = (call.device(), call.input(0)?);
    let axis = call.axis(0, x.rank())?;
    let op = if call.node.operator == "ArgMax" { ReduceOp::ArgMax } else { ReduceOp::ArgMin };
    let is_first = call.node.int("select_last_index", 0) == 0;
    let place = if x.kind == Kind::I64 {
        extreme_of_integers(x, axis, op, is_first)?
    } else if is_first {
        d.reduce(op, x, &[axis])?
    } else {
        // The first of the numbers in reverse order, counted from the end.
        let length = x.shape[axis] as i64;
        let backwards = d.select(x, axis, &Tensor::vector((0..length).rev().collect()))?;
        d.binary(BinaryOp::Sub, length as f64 - 1.0, &d.reduce(op, &backwards, &[axis])?)?
    };
    Ok(vec![if call.node.int("keepdims", 1) == 1 { place } else { without(&place, &[axis])? }])
}

/// Places of the extremes of 64-bit integers, on the host.
fn extreme_of_integers(x: &Tensor, axis: usize, op: ReduceOp, is_first: bool) -> Result<Tensor> {
    let numbers = x.ints()?;
    let (shape, groups) = host::groups(&x.shape, &[axis]);
    let place = |group: Vec<usize>| {
        let mut best: Option<(i64, i64)> = None;
        for (place, i) in (0..).zip(group) {
            let number = *numbers.get(i).ok_or_else(|| Error::invalid("the shape has more numbers"))?;
            let wins = best.is_none_or(|(_, so_far)| match op {
                _ if number == so_far => !is_first,
                ReduceOp::ArgMax => number > so_far,
                _ => number < so_far,
            });
            if wins {
                best = Some((place, number));
            }
        }
        best.map(|(place, _)| place).ok_or_else(|| Error::invalid("the extreme of no numbers"))
    };
    let places = groups.into_iter().map(place).collect::<Result<_>>()?;
    Tensor::host(Kind::I64, shape, Numbers::Int(places))
}

/// The largest or smallest numbers along an axis, in order, and their places.
fn top_k(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, node, x) = (call.device(), call.node, call.input(0)?);
    let axis = call.axis(-1, x.rank())?;
    let k = call.ints(1)?.and_then(|k| k.first().copied()).unwrap_or_else(|| node.int("k", 0));
    let (k, columns) = (extent(k)?, x.shape[axis]);
    if k > columns {
        return Err(Error::invalid(format!("the first {k} of {columns} numbers")));
    }
    let is_largest = node.int("largest", 1) == 1;
    // Rows along the axis, and where each dimension is found in them.
    let order: Vec<usize> = (0..x.rank()).filter(|&k| k != axis).chain([axis]).collect();
    let mut shape: Vec<usize> = order.iter().map(|&from| x.shape[from]).collect();
    shape.pop();
    let rows = shape.iter().product();
    shape.push(k);
    let (values, places) = if x.kind == Kind::I64 {
        top_integers(x, axis, k, is_largest, &shape)?
    } else {
        let from = if axis + 1 == x.rank() { x.clone() } else { d.packed(&permute(call, x, &order)?)? };
        // Of 32 bits until they are in place: those of 64 would be the host's to move.
        let (values, places) = (d.empty(x.kind, &shape)?, d.empty(Kind::I32, &shape)?);
        let desc = TopKDesc::new(x.kind.dtype(), d.ptr(&from)?, d.ptr(&places)?, rows, columns, k);
        let desc = desc.with_values(d.ptr(&values)?);
        call.backend.top_k(&if is_largest { desc } else { desc.with_smallest() })?;
        (values, places)
    };
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, &from)| back[from] = to);
    let in_place = |y: Tensor| {
        if axis + 1 == x.rank() { Ok(y) } else { d.packed(&permute(call, &y, &back)?) }
    };
    let (values, places) = (in_place(values)?, in_place(places)?);
    let places = if places.kind == Kind::I64 { places } else { places.with_kind(Kind::I64)? };
    Ok(vec![values, places])
}

/// The first of 64-bit integers in order, and their places, on the host. Of equal ones the first comes first.
fn top_integers(
    x: &Tensor,
    axis: usize,
    k: usize,
    is_largest: bool,
    shape: &[usize],
) -> Result<(Tensor, Tensor)> {
    let numbers = x.ints()?;
    let (_, groups) = host::groups(&x.shape, &[axis]);
    let (mut values, mut places) = (Vec::new(), Vec::new());
    for group in groups {
        let group: Option<Vec<i64>> = group.into_iter().map(|i| numbers.get(i).copied()).collect();
        let mut row: Vec<(i64, i64)> =
            group.ok_or_else(|| Error::invalid("the shape has more numbers"))?.into_iter().zip(0..).collect();
        row.sort_by(|(a, _), (b, _)| if is_largest { b.cmp(a) } else { a.cmp(b) });
        let (first, at): (Vec<i64>, Vec<i64>) = row.into_iter().take(k).unzip();
        values.extend(first);
        places.extend(at);
    }
    let list = |numbers| Tensor::host(Kind::I64, shape.to_vec(), Numbers::Int(numbers));
    Ok((list(values)?, list(places)?))
}

fn cumulative_sum(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, node, x) = (call.device(), call.node, call.input(0)?);
    let named = call.ints(1)?.and_then(|axes| axes.first().copied()).unwrap_or_default();
    let axis = axis(named, x.rank())?;
    let (exclusive, reverse) = (node.int("exclusive", 0) == 1, node.int("reverse", 0) == 1);
    if x.kind == Kind::I64 {
        return Ok(vec![sums(x, axis, exclusive, reverse)?]);
    }
    let y = d.empty(x.kind, &x.shape)?;
    let mut desc = CumSumDesc::along(x.kind.dtype(), d.ptr(x)?, d.ptr(&y)?, &x.shape, axis)?;
    (desc.exclusive, desc.reverse) = (exclusive, reverse);
    call.backend.cumsum(&desc)?;
    Ok(vec![y])
}

/// Cumulative sums of whole numbers on the host.
fn sums(x: &Tensor, axis: usize, exclusive: bool, reverse: bool) -> Result<Tensor> {
    let mut numbers = x.ints()?;
    let (_, groups) = host::groups(&x.shape, &[axis]);
    for mut group in groups {
        if reverse {
            group.reverse();
        }
        let mut sum = 0i64;
        for number in group {
            let number =
                numbers.get_mut(number).ok_or_else(|| Error::invalid("the shape has more numbers"))?;
            let before = sum;
            sum = sum.wrapping_add(*number);
            *number = if exclusive { before } else { sum };
        }
    }
    Tensor::host(x.kind, x.shape.clone(), Numbers::Int(numbers))
}

/// Before operator set 13 the dimensions from the axis on are taken as one.
fn softmax(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x) = (call.device(), call.input(0)?);
    let y = d.empty(x.kind, &x.shape)?;
    let (dtype, from, to) = (x.kind.dtype(), d.ptr(x)?, d.ptr(&y)?);
    let desc = if call.node.since < 13 {
        let axis = call.axis(1, x.rank())?;
        let (outer, inner) = x.shape.split_at(axis);
        SoftmaxDesc::rows(dtype, from, to, outer.iter().product(), inner.iter().product())
    } else {
        SoftmaxDesc::along(dtype, from, to, &x.shape, call.axis(-1, x.rank())?)?
    };
    call.backend.softmax(&if call.node.operator == "LogSoftmax" { desc.with_log() } else { desc })?;
    Ok(vec![y])
}

/// 1 at the first of the largest numbers, else 0. Before operator set 13 the dimensions from the axis on are
/// taken as one.
fn hardmax(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x) = (call.device(), call.input(0)?);
    let rows = if call.node.since < 13 {
        let (outer, inner) = x.shape.split_at(call.axis(1, x.rank())?);
        x.reshaped(vec![outer.iter().product(), inner.iter().product()])?
    } else {
        x.clone()
    };
    let axis = if call.node.since < 13 { 1 } else { call.axis(-1, x.rank())? };
    let length = listed_elements(&rows.shape[axis..=axis])?;
    let mut places = vec![1; rows.rank()];
    places[axis] = length;
    let places = Tensor::host(Kind::I32, places, Numbers::Int((0..length as i64).collect()))?;
    let largest = d.reduce(ReduceOp::ArgMax, &rows, &[axis])?;
    let hot = d.compare(CompareOp::Eq, &largest, &places)?;
    Ok(vec![d.convert(&hot, x.kind)?.reshaped(x.shape.clone())?])
}

/// x / ‖x‖, and 0 where the norm is.
fn lp_normalization(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x) = (call.device(), call.input(0)?);
    let op = if call.node.int("p", 2) == 1 { ReduceOp::NormL1 } else { ReduceOp::NormL2 };
    let norm = d.reduce(op, x, &[call.axis(-1, x.rank())?])?;
    let none = d.compare(CompareOp::Eq, &norm, 0.0)?;
    Ok(vec![d.binary(BinaryOp::Div, x, &d.choose(&none, 1.0, &norm)?)?])
}
