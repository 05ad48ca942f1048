//! Attention in ONNX Runtime's own operators, as its transformer optimiser writes them: over rows of heads, with
//! biases, masks of padded keys and a cache.

use backend_api::{Activation, BackendTranspose, BinaryOp, CompareOp};

use super::attention::{Heads, Reach, Scores, attend, number_of};
use super::call::Call;
use super::matrix::{Epilogue, product};
use super::shape::{extent, packed_strides};
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::numbers::Numbers;
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("MultiHeadAttention", Kinds::Float, multi_head)
        .of_microsoft()
        .with_check(separate_heads)
        .of_views(),
    Operator::new("Attention", Kinds::Float, projected).of_microsoft().with_check(one_projection).of_views(),
];

/// A mask of padded keys as numbers of 0 and 1, for all queries or for each.
fn padding_of_known(graph: &Graph, node: &Node, i: usize) -> std::result::Result<(), String> {
    match (node.input(i), graph.input_rank(node, i), graph.input_kind(node, i)) {
        (None, ..) | (_, Some(2 | 3), Some(Kind::I32)) => Ok(()),
        _ => Err("padded keys other than by a mask of two or three dimensions".to_owned()),
    }
}

/// Queries, keys and values apart, with a cache that grows.
fn separate_heads(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    padding_of_known(graph, node, 4)?;
    if [8, 9].iter().any(|&i| node.input(i).is_some()) || node.has_output(3) {
        return Err("a cache in place, beams or the scores".to_owned());
    }
    let last = |i| graph.input_type(node, i).and_then(|known| *known.shape.as_ref()?.last()?);
    let has = |i| node.input(i).is_some();
    let is_known = match [0, 1, 2].map(|i| graph.input_rank(node, i)) {
        [Some(3), Some(3), Some(3)] => last(0) == last(1),
        // Keys and values that were split before, as of another sequence.
        [Some(3), Some(4), Some(4)] if !has(3) && !has(6) => {
            let heads = extent(node.int("num_heads", 0)).unwrap_or(0);
            last(0) == last(1).and_then(|width| width.checked_mul(heads))
        }
        _ => false,
    };
    if !is_known || last(0).is_none() {
        return Err("packed keys or values, or queries of another width than keys".to_owned());
    }
    if has(6) == has(7) { Ok(()) } else { Err("a cache of keys or of values alone".to_owned()) }
}

/// A product that makes queries, keys and values at once, with a cache that grows.
fn one_projection(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    padding_of_known(graph, node, 3)?;
    if node.input(6).is_some()
        || node.int("past_present_share_buffer", 0) == 1
        || node.int("do_rotary", 0) == 1
    {
        return Err("a cache in place or a rotation".to_owned());
    }
    if (graph.input_rank(node, 0), graph.input_rank(node, 1)) != (Some(3), Some(2)) {
        return Err("an input of other than three dimensions".to_owned());
    }
    match node.ints("qkv_hidden_sizes") {
        None => Ok(()),
        Some(&[_, k, v]) if k != v && (node.has_output(1) || node.input(4).is_some()) => {
            Err("a cache of values of another width than keys".to_owned())
        }
        Some(&[q, k, v]) if q == k && q > 0 && v > 0 => Ok(()),
        Some(_) => Err("queries of another width than keys".to_owned()),
    }
}

/// Queries, keys and values of one attention, and what they are told of each other.
struct Problem<'a> {
    q: Heads,
    k: Heads,
    v: Heads,
    /// Keys and values of the tokens before.
    past: [Option<&'a Tensor>; 2],
    padding: Option<&'a Tensor>,
    bias: Option<&'a Tensor>,
}

/// Rows of heads, and the keys and values with those of the cache.
fn solve(call: &Call<'_>, problem: Problem<'_>) -> Result<[Tensor; 3]> {
    let (d, node) = (call.device(), call.node);
    let Problem { q, k, v, past, padding, bias } = problem;
    let before = past[0].and_then(|past| past.shape.get(2)).copied().unwrap_or(0);
    let (k, v) = (k.behind(call, past[0])?, v.behind(call, past[1])?);
    let padding = padding.map(|mask| summand(call, mask, q.tensor.kind)).transpose()?;
    let mask = match (padding, bias) {
        (Some(padding), Some(bias)) => Some(d.binary(BinaryOp::Add, &padding, bias)?),
        (padding, bias) => padding.or_else(|| bias.cloned()),
    };
    // A single query is the last one.
    let causal = node.int("unidirectional", 0) == 1 && q.tokens > 1;
    let reach = Reach { causal, last_sees_all: true, ..Reach::default() };
    let scale = Some(node.float("scale", 0.0)).filter(|&scale| scale != 0.0);
    let scores = Scores { scale, ..Scores::within(call, reach, [&q, &k], before, mask)? };
    Ok([attend(call, [&q, &k, &v], &scores)?, k.split(call)?, v.split(call)?])
}

/// What is added to the scores of padded keys, for all heads.
fn summand(call: &Call<'_>, mask: &Tensor, kind: Kind) -> Result<Tensor> {
    let d = call.device();
    let mut shape = mask.shape.clone();
    while shape.len() < 4 {
        shape.insert(1, 1);
    }
    let is_real = d.compare(CompareOp::Ne, &d.reshape(mask, shape)?, 0.0)?;
    let zero = Tensor::host(kind, vec![], Numbers::Float(vec![0.0]))?;
    d.choose(&is_real, &zero, call.node.float("mask_filter_value", -10_000.0))
}

fn multi_head(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let d = call.device();
    let heads = number_of(call, "num_heads");
    let bias = call.optional(3).map(|bias| d.packed(bias)).transpose()?;
    let mut first = 0;
    let mut part = |i| -> Result<Heads> {
        let x = call.input(i)?;
        let Some(bias) = &bias else { return Heads::new(call, x, heads) };
        let width = x.shape.last().copied().unwrap_or(0);
        if first + width > bias.count() {
            return Err(Error::invalid(format!("a bias of {} numbers", bias.count())));
        }
        let own = d.viewed(bias, first, vec![width], vec![1])?;
        first += width;
        Heads::new(call, &d.binary(BinaryOp::Add, x, &own)?, heads)
    };
    let (q, k, v) = (part(0)?, part(1)?, part(2)?);
    let past = [call.optional(6), call.optional(7)];
    let (padding, bias) = (call.optional(4), call.optional(5));
    Ok(solve(call, Problem { q, k, v, past, padding, bias })?.into())
}

fn projected(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let d = call.device();
    let bias = call.optional(2).map(|bias| d.packed(bias)).transpose()?;
    let epilogue = Epilogue { alpha: 1.0, bias: bias.as_ref(), activation: Activation::Identity };
    let (x, weights) = (d.packed(call.input(0)?)?, d.packed(call.input(1)?)?);
    let all = product(call, &x, &weights, [BackendTranspose::NoTrans; 2], epilogue)?;
    let &[batch, tokens, columns] = all.shape.as_slice() else {
        return Err(Error::invalid("an input of other than three dimensions"));
    };
    let widths = match call.node.ints("qkv_hidden_sizes") {
        Some(widths) => widths.iter().map(|&width| extent(width)).collect::<Result<_>>()?,
        None => vec![columns / 3; 3],
    };
    if widths.iter().try_fold(0usize, |sum, &width| sum.checked_add(width)) != Some(columns) {
        return Err(Error::invalid(format!("{columns} columns for {widths:?}")));
    }
    let heads = number_of(call, "num_heads");
    let mut first = 0;
    let mut part = |width: usize| -> Result<Heads> {
        let shape = vec![batch, tokens, width];
        let rows = d.viewed(&all, first, shape, vec![tokens * columns, columns, 1])?;
        first += width;
        Heads::new(call, &rows, heads)
    };
    let (q, k, v) = (part(widths[0])?, part(widths[1])?, part(widths[2])?);
    let past = call.optional(4).map(|past| both_caches(call, past)).transpose()?;
    let past = past.as_ref().map_or([None; 2], |[keys, values]| [Some(keys), Some(values)]);
    let (padding, bias) = (call.optional(3), call.optional(5));
    let [y, k, v] = solve(call, Problem { q, k, v, past, padding, bias })?;
    if !call.node.has_output(1) {
        return Ok(vec![y]);
    }
    let first = |x: &Tensor| d.reshape(x, [[1].as_slice(), &x.shape].concat());
    Ok(vec![y, d.concat(&[&first(&k)?, &first(&v)?], 0)?])
}

/// The keys and the values of a cache that has both.
fn both_caches(call: &Call<'_>, past: &Tensor) -> Result<[Tensor; 2]> {
    let d = call.device();
    let past = d.packed(past)?;
    let (&[2, ..], [_, shape @ ..]) = (past.shape.as_slice(), past.shape.as_slice()) else {
        return Err(Error::invalid(format!("a cache of {:?}", past.shape)));
    };
    let half = |first| d.viewed(&past, first, shape.to_vec(), packed_strides(shape));
    Ok([half(0)?, half(past.count() / 2)?])
}
