//! What decoders of language models do with keys: rotary embeddings, and grouped heads over a cache.

use backend_api::desc::{RopeDesc, RopeShape, RopeStyle, RopeTables};

use super::attention::{Heads, Scores, attend, number_of};
use super::call::Call;
use super::shape::extent;
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::numbers::Numbers;
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("GroupQueryAttention", Kinds::Float, grouped).of_microsoft().with_check(plain_cache),
    Operator::new("RotaryEmbedding", Kinds::Float, rotary).of_microsoft().with_check(one_batch_each),
    Operator::new("RotaryEmbedding", Kinds::Float, rotary_of_onnx),
];

/// The input that has a sink for each head.
const SINKS: usize = 11;

/// A cache of floating-point numbers, whole scores, and positions that follow the cache's.
fn plain_cache(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    if (9..16).any(|i| i != SINKS && node.input(i).is_some()) || node.has_output(3) {
        return Err("positions, a bias or the scores".to_owned());
    }
    if !matches!(node.text("k_quant_type"), "" | "NONE") || !matches!(node.text("v_quant_type"), "" | "NONE")
    {
        return Err("a quantised cache".to_owned());
    }
    if graph.input_rank(node, 0) != Some(3) {
        return Err("queries of other than three dimensions".to_owned());
    }
    Ok(())
}

fn one_batch_each(_graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    if node.int("is_packed_batching", 0) == 1 { Err("packed batches".to_owned()) } else { Ok(()) }
}

/// Where the vectors of a sequence are.
#[derive(Clone, Copy, Debug)]
enum Positions<'a> {
    /// One after the other from this one on.
    From(usize),
    /// As listed, for each token of each sequence.
    Listed(&'a Tensor),
}

/// The angles of a rotation.
#[derive(Clone, Copy, Debug)]
struct Angles<'a> {
    cos: &'a Tensor,
    sin: &'a Tensor,
    positions: Positions<'a>,
}

/// The vectors, rotated; in memory in the order in which they were.
fn rotated(call: &Call<'_>, x: &Heads, angles: Angles<'_>) -> Result<Tensor> {
    let d = call.device();
    let [cos, sin] = [d.convert(angles.cos, Kind::F32)?, d.convert(angles.sin, Kind::F32)?];
    if cos.shape != sin.shape {
        return Err(Error::invalid(format!("cosines {:?} and sines {:?}", cos.shape, sin.shape)));
    }
    let half = cos.shape.last().copied().unwrap_or(0);
    let rows = cos.count() / half.max(1);
    let is_interleaved = call.node.int("interleaved", 0) == 1 || call.node.int("rotary_interleaved", 0) == 1;
    let style = if is_interleaved { RopeStyle::Interleaved } else { RopeStyle::Half };
    let tables = RopeTables { cos: d.ptr(&cos)?, sin: d.ptr(&sin)?, max_position: rows };
    let shape = RopeShape { batch: x.batch(), heads: x.heads, seq: x.tokens, head_dim: x.width };
    let (y, to) = x.results(call, x.width)?;
    let (from, at) = (d.base(&x.tensor)?, d.base(&y)?);
    let mut desc =
        RopeDesc::new(x.tensor.kind.dtype(), from, at, tables, shape, style).with_rotary_dim(2 * half);
    (desc.input_layout, desc.output_layout) = (Some(x.layout), Some(to));
    match angles.positions {
        Positions::From(start) => desc.start = start,
        Positions::Listed(positions) => desc.positions = Some(d.ptr(positions)?),
    }
    call.backend.rope(&desc)?;
    Ok(y)
}

/// Vectors with as many heads as the attribute says, or as the tables' width makes.
fn heads(call: &Call<'_>, cos: &Tensor) -> Result<Heads> {
    let x = call.input(0)?;
    let width = 2 * cos.shape.last().copied().unwrap_or(0);
    let heads = match number_of(call, "num_heads") {
        0 => x.shape.last().copied().unwrap_or(0).checked_div(width).unwrap_or(0),
        heads => heads,
    };
    Heads::new(call, x, heads)
}

/// Positions are those of all tokens, or only of the first.
fn rotary(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (positions, cos, sin) = (call.input(1)?, call.input(2)?, call.input(3)?);
    let x = heads(call, cos)?;
    let first = match positions.count() {
        1 => call.number(1)?,
        _ => None,
    };
    let positions = match first {
        Some(first) => Positions::From(extent(first as i64)?),
        None => Positions::Listed(positions),
    };
    require_positions(&x, positions)?;
    Ok(vec![rotated(call, &x, Angles { cos, sin, positions })?])
}

fn require_positions(x: &Heads, positions: Positions<'_>) -> Result<()> {
    match positions {
        Positions::Listed(positions) if positions.count() != x.batch() * x.tokens => Err(Error::invalid(
            format!("{} positions for {} tokens", positions.count(), x.batch() * x.tokens),
        )),
        _ => Ok(()),
    }
}

/// Without positions, the tables have a row for each token of each sequence.
fn rotary_of_onnx(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (cos, sin) = (call.input(1)?, call.input(2)?);
    let x = heads(call, cos)?;
    let all = Tensor::vector((0..(x.batch() * x.tokens) as i64).collect());
    let positions = Positions::Listed(call.optional(3).unwrap_or(&all));
    require_positions(&x, positions)?;
    Ok(vec![rotated(call, &x, Angles { cos, sin, positions })?])
}

/// Queries, keys and values of some sequences of a batch, and their caches.
struct Part {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    past: [Option<Tensor>; 2],
}

/// Causal attention of grouped heads over a cache, and the cache with the new keys and values behind those
/// that it had.
fn grouped(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let d = call.device();
    let [q, k, v] = projections(call)?;
    let (batch, tokens) = (q.shape[0], q.shape[1]);
    let lengths = call.ints(5)?.unwrap_or_default();
    let longest = call.number(6)?.map_or(Ok(tokens), |longest| extent(longest as i64))?;
    let lengths: Vec<usize> =
        lengths.into_iter().map(|last| extent(last.saturating_add(1))).collect::<Result<_>>()?;
    if lengths.len() != batch {
        return Err(Error::invalid(format!("{} lengths of {batch} sequences", lengths.len())));
    }
    let past = [call.optional(3), call.optional(4)];
    let capacity = past[0].and_then(|past| past.shape.get(2)).copied().unwrap_or(0).max(longest);
    // Keys before the new ones; none where these are all that there is.
    let before = |&length: &usize| {
        if tokens == longest {
            Ok(0)
        } else {
            length.checked_sub(tokens).ok_or_else(|| Error::invalid("a length of fewer tokens than are new"))
        }
    };
    let before = lengths.iter().map(before).collect::<Result<Vec<_>>>()?;
    if before.windows(2).all(|pair| pair[0] == pair[1]) {
        let past = past.map(|past| past.cloned());
        let start = before.first().copied().unwrap_or(0);
        return Ok(extended(call, Part { q, k, v, past }, start, capacity)?.into());
    }
    let mut parts = [const { Vec::new() }; 3];
    for (i, &start) in before.iter().enumerate() {
        let one = |x: &Tensor| -> Result<Tensor> {
            let (mut shape, strides) = (x.shape.clone(), x.strides());
            let offset = x.offset() + i * strides[0];
            shape[0] = 1;
            d.packed(&d.viewed(x, offset, shape, strides)?)
        };
        let past = [past[0].map(one).transpose()?, past[1].map(one).transpose()?];
        let part = Part { q: one(&q)?, k: one(&k)?, v: one(&v)?, past };
        for (all, one) in parts.iter_mut().zip(extended(call, part, start, capacity)?) {
            all.push(one);
        }
    }
    parts.iter().map(|parts| d.concat(&parts.iter().collect::<Vec<_>>(), 0)).collect()
}

/// Queries, keys and values, which may be the columns of one tensor.
fn projections(call: &Call<'_>) -> Result<[Tensor; 3]> {
    let x = call.input(0)?;
    if let (Some(k), Some(v)) = (call.optional(1), call.optional(2)) {
        return Ok([x.clone(), k.clone(), v.clone()]);
    }
    let &[batch, tokens, columns] = x.shape.as_slice() else {
        return Err(Error::invalid("queries without rows"));
    };
    let (heads, kv_heads) = (number_of(call, "num_heads"), number_of(call, "kv_num_heads"));
    let width = columns.checked_div(heads + 2 * kv_heads).unwrap_or(0);
    let part = |first: usize, heads: usize| {
        let strides = vec![tokens * columns, columns, 1];
        call.device().viewed(x, first * width, vec![batch, tokens, heads * width], strides)
    };
    Ok([part(0, heads)?, part(heads, kv_heads)?, part(heads + kv_heads, kv_heads)?])
}

/// The sinks: those that are given, or 0 for each head, which is what a smooth softmax is.
fn sinks(call: &Call<'_>) -> Result<Option<Tensor>> {
    if let Some(sinks) = call.optional(SINKS) {
        let d = call.device();
        return Ok(Some(d.packed(&d.convert(sinks, Kind::F32)?)?));
    }
    let zeros = Numbers::Float(vec![0.0; number_of(call, "num_heads")]);
    let is_smooth = call.node.int("smooth_softmax", 0) == 1;
    is_smooth.then(|| Tensor::host(Kind::F32, vec![number_of(call, "num_heads")], zeros)).transpose()
}

/// Output, keys and values of sequences that all have `start` tokens in their caches.
fn extended(call: &Call<'_>, part: Part, start: usize, capacity: usize) -> Result<[Tensor; 3]> {
    let (d, node) = (call.device(), call.node);
    let kv_heads = number_of(call, "kv_num_heads");
    let mut q = Heads::new(call, &part.q, number_of(call, "num_heads"))?;
    let mut k = Heads::new(call, &part.k, kv_heads)?;
    if node.int("do_rotary", 0) == 1 {
        let (cos, sin, positions) = (call.input(7)?, call.input(8)?, Positions::From(start));
        let angles = Angles { cos, sin, positions };
        q = Heads::new(call, &rotated(call, &q, angles)?, q.heads)?;
        k = Heads::new(call, &rotated(call, &k, angles)?, kv_heads)?;
    }
    let v = Heads::new(call, &part.v, kv_heads)?;
    let [past_keys, past_values] = part.past;
    let all = |new: Heads, past: Option<Tensor>| -> Result<Tensor> {
        let new = new.split(call)?;
        let Some(past) = past.filter(|_| start > 0) else { return Ok(new) };
        let (mut shape, strides) = (past.shape.clone(), past.strides());
        shape[2] = start;
        if past.shape[2] < start {
            return Err(Error::invalid(format!("{start} tokens of a cache of {}", past.shape[2])));
        }
        d.concat(&[&past.viewed(0, shape, strides), &new], 2)
    };
    let (k, v) = (all(k, past_keys)?, all(v, past_values)?);
    let scores = Scores {
        scale: Some(node.float("scale", 0.0)).filter(|&scale| scale != 0.0),
        softcap: node.float("softcap", 0.0),
        causal: true,
        window: extent(node.int("local_window_size", -1)).ok().filter(|&keys| keys > 0),
        sinks: sinks(call)?,
        ..Scores::default()
    };
    let y = attend(call, [&q, &Heads::new(call, &k, kv_heads)?, &Heads::new(call, &v, kv_heads)?], &scores)?;
    let filled = |x: Tensor| -> Result<Tensor> {
        let x = d.packed(&x)?;
        let mut shape = x.shape.clone();
        if shape[2] >= capacity {
            return Ok(x);
        }
        shape[2] = capacity;
        d.pad(&x, &shape, &[0; 4], 0.0)
    };
    Ok([d.packed(&y)?, filled(k)?, filled(v)?])
}
