//! Attention: ONNX's operator, which a fusion also makes of the operators that it consists of.

use backend_api::desc::{AttentionAlignment, AttentionDesc, AttentionMask, AttentionShape, HeadLayout};

use super::call::Call;
use super::shape::{broadcast, listed_elements};
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::numbers::Numbers;
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] =
    &[Operator::new("Attention", Kinds::Float, attention).with_check(as_onnx).of_views()];

/// Queries and keys of one width, and no scores as an output.
fn as_onnx(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    if node.has_output(3) {
        return Err("the scores as an output".to_owned());
    }
    if node.int("softmax_precision", 1) != 1 && graph.input_kind(node, 0) == Some(Kind::F16) {
        return Err("another precision of the softmax".to_owned());
    }
    if node.input(6).is_some() && node.int("right_window_size", -1) >= 0 {
        return Err("a window to the right beside lengths of padded keys".to_owned());
    }
    let last = |i: usize| {
        let shape = graph.input_type(node, i)?.shape.as_ref()?;
        Some((shape.len(), *shape.last()?))
    };
    let is_known = match (last(0), last(1), graph.input_rank(node, 2)) {
        (Some((4, Some(q))), Some((4, Some(k))), Some(4)) => q == k,
        (Some((3, Some(q))), Some((3, Some(k))), Some(3)) => {
            let [heads, kv_heads] = ["q_num_heads", "kv_num_heads"].map(|name| node.int(name, 0));
            let width = |numbers: usize, heads: i64| {
                usize::try_from(heads).ok().and_then(|heads| numbers.checked_div(heads))
            };
            width(q, heads).is_some() && width(q, heads) == width(k, kv_heads)
        }
        _ => false,
    };
    if is_known { Ok(()) } else { Err("queries of another width than keys".to_owned()) }
}

/// Queries, keys or values: the tensor, its heads, and where its vectors lie.
pub(super) struct Heads {
    pub(super) tensor: Tensor,
    pub(super) heads: usize,
    pub(super) tokens: usize,
    pub(super) width: usize,
    pub(super) layout: HeadLayout,
}

impl Heads {
    /// Of `[batch, heads, tokens, width]`, or of `[batch, tokens, heads · width]`.
    pub(super) fn new(call: &Call<'_>, tensor: &Tensor, heads: usize) -> Result<Self> {
        let is_adjacent = tensor.strides().last() == Some(&1);
        let tensor = if is_adjacent { tensor.clone() } else { call.device().packed(tensor)? };
        let (offset, strides) = (tensor.offset(), tensor.strides());
        match (tensor.shape.as_slice(), strides.as_slice()) {
            (&[_, heads, tokens, width], &[batch, head, token, _]) => {
                let layout = HeadLayout { offset, batch, head, token };
                Ok(Self { tensor, heads, tokens, width, layout })
            }
            (&[_, tokens, numbers], &[batch, token, _]) if heads > 0 && numbers.is_multiple_of(heads) => {
                let width = numbers / heads;
                let layout = HeadLayout { offset, batch, head: width, token };
                Ok(Self { tensor, heads, tokens, width, layout })
            }
            _ => Err(Error::invalid(format!("{:?} in {heads} heads", tensor.shape))),
        }
    }

    /// Memory for as many vectors of a width, whose dimensions follow each other as those of these vectors do:
    /// so heads that were split from rows can be merged into rows again without a copy.
    pub(super) fn results(&self, call: &Call<'_>, width: usize) -> Result<(Tensor, HeadLayout)> {
        let mut shape = self.tensor.shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = *last / self.width.max(1) * width;
        }
        let mut order: Vec<usize> = (0..shape.len()).collect();
        let strides = self.tensor.strides();
        if let Some((_, outer)) = order.split_last_mut() {
            outer.sort_by_key(|&k| std::cmp::Reverse(strides[k]));
        }
        let stored: Vec<usize> = order.iter().map(|&k| shape[k]).collect();
        let memory = call.device().empty(self.tensor.kind, &stored)?;
        let mut to = vec![0; shape.len()];
        for (&k, stride) in order.iter().zip(super::shape::packed_strides(&stored)) {
            to[k] = stride;
        }
        let layout = match *to.as_slice() {
            [batch, head, token, _] => HeadLayout { offset: 0, batch, head, token },
            [batch, token, _] => HeadLayout { offset: 0, batch, head: width, token },
            _ => return Err(Error::invalid("heads of two dimensions")),
        };
        Ok((memory.viewed(0, shape, to), layout))
    }

    pub(super) fn batch(&self) -> usize {
        self.tensor.shape.first().copied().unwrap_or(1)
    }

    /// The vectors of a cache before these, as `[batch, heads, tokens, width]`.
    pub(super) fn behind(self, call: &Call<'_>, past: Option<&Tensor>) -> Result<Self> {
        let Some(past) = past else { return Ok(self) };
        Self::new(call, &call.device().concat(&[past, &self.split(call)?], 2)?, self.heads)
    }

    /// As `[batch, heads, tokens, width]`.
    pub(super) fn split(&self, call: &Call<'_>) -> Result<Tensor> {
        if self.tensor.rank() == 4 {
            return Ok(self.tensor.clone());
        }
        let batch = self.batch();
        let shape = [batch, self.heads, self.tokens, self.width];
        let HeadLayout { offset, batch, head, token } = self.layout;
        call.device().viewed(&self.tensor, offset, shape.to_vec(), vec![batch, head, token, 1])
    }
}

/// Who sees whom, and how.
#[derive(Clone, Debug, Default)]
pub(super) struct Scores {
    pub(super) scale: Option<f64>,
    pub(super) softcap: f64,
    pub(super) causal: bool,
    /// How many keys back a query sees, the one at its own position included.
    pub(super) window: Option<usize>,
    pub(super) alignment: AttentionAlignment,
    /// How many keys of each sequence are real, as integers of 32 bits.
    pub(super) lengths: Option<Tensor>,
    /// A score of each head that joins the denominator without a value, as f32.
    pub(super) sinks: Option<Tensor>,
    pub(super) mask: Option<Tensor>,
}

/// Keys that a query sees from its position: none behind it if it is causal, and as many to either side as are
/// given.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reach {
    pub(super) causal: bool,
    pub(super) left: Option<usize>,
    pub(super) right: Option<usize>,
    /// Whether the last query sees every key, as in ONNX Runtime's own operators, where there may be more keys
    /// than queries.
    pub(super) last_sees_all: bool,
}

impl Scores {
    /// Scores of queries of which the first stands behind `past` keys, with a mask that is given. Positions that
    /// the backend doesn't know become a mask.
    pub(super) fn within(
        call: &Call<'_>,
        reach: Reach,
        [q, k]: [&Heads; 2],
        past: usize,
        given: Option<Tensor>,
    ) -> Result<Self> {
        let Reach { causal, left, right, last_sees_all } = reach;
        let right = right.filter(|_| !causal);
        let alignment = match past {
            _ if past + q.tokens == k.tokens => Some(AttentionAlignment::BottomRight),
            _ if last_sees_all && past + q.tokens < k.tokens => None,
            0 => Some(AttentionAlignment::TopLeft),
            _ => None,
        };
        let is_limited = causal || left.is_some() || right.is_some();
        Ok(match alignment {
            _ if !is_limited => Self { mask: given, ..Self::default() },
            Some(alignment) if right.is_none() => {
                let window = left.map(|left| left.saturating_add(1));
                Self { causal, window, alignment, mask: given, ..Self::default() }
            }
            _ => {
                let mask = banded(call, reach, [q.tokens, k.tokens], past, given.as_ref())?;
                Self { mask: Some(mask), ..Self::default() }
            }
        })
    }
}

/// The output has the shape of the queries, but for the width of the values.
pub(super) fn attend(call: &Call<'_>, [q, k, v]: [&Heads; 3], scores: &Scores) -> Result<Tensor> {
    let d = call.device();
    let batch = q.batch();
    let is_repeated = |heads: &Heads| matches!(heads.batch(), 1) || heads.batch() == batch;
    let alike = (k.heads, k.tokens) == (v.heads, v.tokens) && q.width == k.width;
    if !(alike && is_repeated(k) && is_repeated(v)) {
        let shapes = [q, k, v].map(|heads| &heads.tensor.shape);
        return Err(Error::invalid(format!("attention of {shapes:?}")));
    }
    let (y, to) = q.results(call, v.width)?;
    let shape =
        AttentionShape { batch, heads: q.heads, seq_q: q.tokens, seq_kv: k.tokens, head_dim: q.width };
    // One sequence of keys for all.
    let shared = |heads: &Heads| HeadLayout {
        batch: if heads.batch() == 1 { 0 } else { heads.layout.batch },
        ..heads.layout
    };
    let [at_q, at_k, at_v, at_y] = [d.base(&q.tensor)?, d.base(&k.tensor)?, d.base(&v.tensor)?, d.base(&y)?];
    let mut desc = AttentionDesc::new(q.tensor.kind.dtype(), at_q, at_k, at_v, at_y, shape)
        .with_kv_heads(k.heads)
        .with_v_head_dim(v.width)
        .with_softcap(scores.softcap)
        .with_causal(scores.causal)
        .with_alignment(scores.alignment)
        .with_q_layout(q.layout)
        .with_k_layout(shared(k))
        .with_v_layout(shared(v))
        .with_o_layout(to);
    (desc.window, desc.scale) = (scores.window, scores.scale.unwrap_or(desc.scale));
    let mask = scores.mask.as_ref();
    let mask = mask.map(|mask| summand(call, &d.packed(mask)?, q.tensor.kind, k.tokens)).transpose()?;
    if let Some(mask) = &mask {
        desc = desc.with_mask(strides(mask, [batch, q.heads, q.tokens], d.ptr(mask)?)?);
    }
    // The bits of a length that isn't negative are the same in every type of 32 bits.
    desc.key_lengths = d.optional_sized(scores.lengths.as_ref(), batch)?;
    desc.sinks = d.optional_sized(scores.sinks.as_ref(), q.heads)?;
    call.backend.attention_ext(&desc)?;
    Ok(y)
}

/// A mask as numbers that are added, for every key.
fn summand(call: &Call<'_>, mask: &Tensor, kind: Kind, keys: usize) -> Result<Tensor> {
    let d = call.device();
    let mask = if mask.kind == Kind::Bool {
        let zero = Tensor::host(kind, vec![], Numbers::Float(vec![0.0]))?;
        d.choose(mask, &zero, f64::NEG_INFINITY)?
    } else {
        d.convert(mask, kind)?
    };
    match mask.shape.last() {
        Some(&extent) if extent == keys => Ok(mask),
        Some(&1) => {
            let mut shape = mask.shape.clone();
            shape.pop();
            shape.push(keys);
            d.expand(&mask, &shape)
        }
        Some(&extent) if extent < keys => {
            let mut shape = mask.shape.clone();
            shape.pop();
            shape.push(keys);
            d.pad(&mask, &shape, &vec![0; shape.len()], f64::NEG_INFINITY)
        }
        _ => Err(Error::invalid(format!("a mask {:?} for {keys} keys", mask.shape))),
    }
}

/// The rows of a mask that is broadcast to batch, heads and queries.
fn strides(mask: &Tensor, to: [usize; 3], ptr: u64) -> Result<AttentionMask> {
    let missing =
        4usize.checked_sub(mask.rank()).ok_or_else(|| Error::invalid("a mask of five dimensions"))?;
    let mut shape = vec![1; missing];
    shape.extend(&mask.shape);
    if shape.iter().zip(to).any(|(&extent, wanted)| extent != 1 && extent != wanted) {
        return Err(Error::invalid(format!("a mask {:?} for scores of {to:?} rows", mask.shape)));
    }
    let packed = super::shape::packed_strides(&shape);
    let stride = |k: usize| if shape[k] == 1 { 0 } else { packed[k] };
    Ok(AttentionMask { ptr, batch_stride: stride(0), head_stride: stride(1), query_stride: stride(2) })
}

pub(super) fn number_of(call: &Call<'_>, name: &str) -> usize {
    usize::try_from(call.node.int(name, 0)).unwrap_or(0)
}

/// Output, and the keys and values with those of the cache.
fn attention(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let node = call.node;
    let heads = |i, past| -> Result<Heads> {
        Heads::new(call, call.input(i)?, number_of(call, "kv_num_heads"))?.behind(call, call.optional(past))
    };
    let (k, v) = (heads(1, 4)?, heads(2, 5)?);
    let q = queries(call, [&k, &v], call.optional(3))?;
    let given = node.float("scale", f64::NAN);
    let past = call.optional(4).and_then(|past| past.shape.get(2)).copied().unwrap_or(0);
    let side = |name| usize::try_from(node.int(name, -1)).ok();
    let causal = node.int("is_causal", 0) == 1;
    let reach = Reach {
        causal,
        left: side("left_window_size"),
        right: side("right_window_size"),
        last_sees_all: false,
    };
    let mask = call.optional(3).cloned();
    let seen = match call.optional(6) {
        // The last query stands at the last real key.
        Some(lengths) => Scores {
            causal,
            window: reach.left.map(|left| left.saturating_add(1)),
            alignment: AttentionAlignment::KeyLengths,
            lengths: Some(call.device().packed(lengths)?),
            mask,
            ..Scores::default()
        },
        None => Scores::within(call, reach, [&q, &k], past, mask)?,
    };
    let scale = Some(given).filter(|scale| !scale.is_nan());
    let scores = Scores { scale, softcap: node.float("softcap", 0.0), ..seen };
    let mut outputs = vec![attend(call, [&q, &k, &v], &scores)?];
    if node.has_output(1) || node.has_output(2) {
        outputs.extend([k.split(call)?, v.split(call)?]);
    }
    Ok(outputs)
}

/// The queries of an [`attention`], repeated where the keys, the values or the mask have more batches, heads
/// or rows: a fusion stands for products and sums, which are broadcast.
fn queries(call: &Call<'_>, others: [&Heads; 2], mask: Option<&Tensor>) -> Result<Heads> {
    let (x, heads) = (call.input(0)?, number_of(call, "q_num_heads"));
    let &[_, _, _, width] = x.shape.as_slice() else { return Heads::new(call, x, heads) };
    let mut shape = x.shape[..3].to_vec();
    for other in others {
        shape = broadcast(&shape, &[other.batch(), 1, 1])?;
    }
    if let Some((_, rows)) = mask.and_then(|mask| mask.shape.split_last()) {
        shape = broadcast(&shape, rows)?;
    }
    shape.push(width);
    let x = if shape == x.shape { x.clone() } else { call.device().expand(x, &shape)? };
    Heads::new(call, &x, heads)
}

/// A mask that hides what each query doesn't reach, added to what is given.
fn banded(
    call: &Call<'_>,
    reach: Reach,
    [queries, keys]: [usize; 2],
    past: usize,
    given: Option<&Tensor>,
) -> Result<Tensor> {
    listed_elements(&[queries, keys])?;
    let Reach { causal, left, right, last_sees_all } = reach;
    let sees = |position: usize, key: usize| {
        !(causal && key > position)
            && left.is_none_or(|left| position.saturating_sub(key) <= left)
            && right.is_none_or(|right| key.saturating_sub(position) <= right)
    };
    let sees_all = |i: usize| last_sees_all && i + 1 == queries;
    let sees = (0..queries).flat_map(|i| (0..keys).map(move |j| i64::from(sees_all(i) || sees(i + past, j))));
    let sees = Tensor::host(Kind::Bool, vec![queries, keys], Numbers::Int(sees.collect()))?;
    let kind = call.input(0)?.kind;
    let Some(given) = given else { return summand(call, &sees, kind, keys) };
    let given = summand(call, &call.device().packed(given)?, kind, keys)?;
    call.device().choose(&sees, &given, f64::NEG_INFINITY)
}
