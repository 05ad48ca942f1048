//! Attention.

use backend_api::desc::{
    AttentionDesc, AttentionMask, AttentionShape, ConcatDesc, MatmulDesc, Matrix, PadDesc, RepeatDesc,
    SoftmaxDesc,
};
use backend_api::{BackendResult, BackendTranspose, BinaryOp, CompareOp, DType, UnaryOp};

use crate::data::Kind;
use crate::device::{Device, Outcome, Tensor};
use crate::node::Node;

pub(super) fn run(node: &Node<'_>) -> Outcome<Option<Vec<Tensor>>> {
    if node.case.operator != "Attention" {
        return Ok(None);
    }
    let problem = Problem::new(node)?;
    let output = problem.output()?;
    let output = match node.input(0)?.shape.len() {
        3 => node.device.permute(&output, &[0, 2, 1, 3])?.reshaped(node.output(0)?.1),
        _ => output,
    };
    let mut outputs = vec![output, problem.k.clone(), problem.v.clone()];
    if node.case.outputs.len() > 3 {
        outputs.push(problem.scores(node.int("qk_matmul_output_mode", 0))?);
    }
    outputs.truncate(node.case.outputs.len());
    Ok(Some(outputs))
}

/// Queries, keys and values as `[batch, heads, tokens, numbers]`, and who sees whom.
struct Problem<'a> {
    device: &'a Device<'a>,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    /// Added to the scores, of four dimensions.
    mask: Option<Tensor>,
    scale: f64,
    softcap: f64,
    causal: bool,
    /// How many keys to either side of its position a query sees.
    window: [Option<i64>; 2],
    /// The position of each sequence's first query among its keys.
    positions: Vec<i64>,
    /// How many keys of each sequence are real.
    lengths: Option<Vec<i64>>,
}

impl<'a> Problem<'a> {
    fn new(node: &'a Node<'a>) -> Outcome<Self> {
        let device = node.device;
        let heads = |i: usize, name: &str| -> Outcome<Tensor> {
            let x = node.input(i)?;
            let &[batch, tokens, numbers] = x.shape.as_slice() else { return Ok(x.clone()) };
            let heads = node.int(name, 1) as usize;
            let split = x.reshaped(&[batch, tokens, heads, numbers / heads]);
            Ok(device.permute(&split, &[0, 2, 1, 3])?)
        };
        let (q, new_k, new_v) =
            (heads(0, "q_num_heads")?, heads(1, "kv_num_heads")?, heads(2, "kv_num_heads")?);
        let [k, v] = [(4, new_k), (5, new_v)].map(|(i, new)| match node.optional(i) {
            Some(past) => concat(device, past, &new, 2),
            None => Ok(new),
        });
        let (k, v) = (k?, v?);
        let lengths = node.integers(6)?;
        let past = node.optional(4).map_or(0, |past| past.shape[2] as i64);
        let positions = match &lengths {
            Some(lengths) => lengths.iter().map(|length| length - q.shape[2] as i64).collect(),
            None => vec![past; q.shape[0]],
        };
        let side = |name| Some(node.int(name, -1)).filter(|&keys| keys >= 0);
        Ok(Self {
            mask: mask(node, k.shape[2])?,
            scale: node.float("scale", 1.0 / (q.shape[3] as f64).sqrt()),
            softcap: node.float("softcap", 0.0),
            causal: node.int("is_causal", 0) == 1,
            window: [side("left_window_size"), side("right_window_size")],
            device,
            q,
            k,
            v,
            positions,
            lengths,
        })
    }

    /// By `attention_ext`, which aligns the last query with the last key. Where that is not where ONNX has
    /// it, keys that no query sees are left out; where there are none to leave out, a mask says who sees
    /// whom.
    fn output(&self) -> Outcome<Tensor> {
        let [batch, _, queries, _] = self.q.shape[..] else { return Err("not four dimensions".into()) };
        let keys: Vec<usize> =
            self.positions.iter().map(|p| usize::try_from(p + queries as i64)).collect::<Result<_, _>>()?;
        let aligned = keys.iter().all(|&keys| keys <= self.k.shape[2]);
        if !(self.causal && aligned) {
            let hidden =
                if self.causal || self.window != [None; 2] { self.bias(false)? } else { self.mask.clone() };
            return self.attend(&self.q, [&self.k, &self.v], hidden.as_ref(), false);
        }
        let mut outputs = Vec::new();
        for (b, &keys) in keys.iter().enumerate() {
            let part = |x: &Tensor, tokens: usize| {
                self.device.narrow(&self.device.narrow(x, 0, b, 1)?, 2, 0, tokens)
            };
            let mask = match &self.mask {
                Some(mask) => {
                    let own = if mask.shape[0] == 1 { 0 } else { b };
                    Some(self.device.narrow(&self.device.narrow(mask, 0, own, 1)?, 3, 0, keys)?)
                }
                None => None,
            };
            let (q, k, v) = (part(&self.q, queries)?, part(&self.k, keys)?, part(&self.v, keys)?);
            let output = self.attend(&q, [&k, &v], mask.as_ref(), true)?;
            outputs.push(output);
        }
        let mut all = outputs[0].clone();
        for output in &outputs[1..batch] {
            all = concat(self.device, &all, output, 0)?;
        }
        Ok(all)
    }

    /// One call. Keys and values of different lengths are filled up with zeros.
    fn attend(
        &self,
        q: &Tensor,
        [k, v]: [&Tensor; 2],
        mask: Option<&Tensor>,
        causal: bool,
    ) -> Outcome<Tensor> {
        let device = self.device;
        let (wide, values) = (k.shape[3].max(v.shape[3]), v.shape[3]);
        let [q, k, v] = [q, k, v].map(|x| filled(device, x, wide, 0.0));
        let (q, k, v) = (q?, k?, v?);
        let o = device.empty(q.dtype, &q.shape)?;
        let shape = AttentionShape {
            batch: q.shape[0],
            heads: q.shape[1],
            seq_q: q.shape[2],
            seq_kv: k.shape[2],
            head_dim: wide,
        };
        let mut desc = AttentionDesc::new(q.dtype, q.ptr, k.ptr, v.ptr, o.ptr, shape);
        (desc.kv_heads, desc.scale, desc.softcap, desc.causal) =
            (k.shape[1], self.scale, self.softcap, causal);
        if causal {
            desc.window = self.window[0].map(|left| left as usize + 1);
        } else if let Some(lengths) = &self.lengths {
            let lengths: Vec<f64> = lengths.iter().map(|&length| length as f64).collect();
            desc.key_lengths = Some(device.upload(DType::U32, &[lengths.len()], &lengths)?.ptr);
        }
        desc.mask = mask.map(|mask| {
            let [batch, heads, queries, keys] = [0, 1, 2, 3].map(|k| mask.shape[k]);
            let stride = |extent, stride| if extent == 1 { 0 } else { stride };
            AttentionMask {
                ptr: mask.ptr,
                batch_stride: stride(batch, heads * queries * keys),
                head_stride: stride(heads, queries * keys),
                query_stride: stride(queries, keys),
            }
        });
        device.backend.attention_ext(&desc)?;
        Ok(device.narrow(&o, 3, 0, values)?)
    }

    /// The mask with −∞ for the keys that a query doesn't see, and with `lengths` for those that aren't real.
    fn bias(&self, lengths: bool) -> Outcome<Option<Tensor>> {
        let (batch, queries, keys) = (self.q.shape[0], self.q.shape[2], self.k.shape[2]);
        let mut hidden = vec![0.0; batch * queries * keys];
        for (i, hidden) in hidden.iter_mut().enumerate() {
            let (b, query, key) = (i / keys / queries, i / keys % queries, (i % keys) as i64);
            let ahead = key - self.positions[b] - query as i64;
            let sees = !(self.causal && ahead > 0)
                && self.window[0].is_none_or(|left| -ahead <= left)
                && self.window[1].is_none_or(|right| ahead <= right)
                && !(lengths && self.lengths.as_ref().is_some_and(|lengths| key >= lengths[b]));
            if !sees {
                *hidden = f64::NEG_INFINITY;
            }
        }
        let hidden = self.device.upload(DType::F32, &[batch, 1, queries, keys], &hidden)?;
        Ok(Some(match &self.mask {
            Some(mask) => self.device.binary(BinaryOp::Add, mask, &hidden)?,
            None => hidden,
        }))
    }

    /// Scores as they are scaled, bounded (1), masked (2) or weighed (3).
    fn scores(&self, mode: i64) -> Outcome<Tensor> {
        let device = self.device;
        let shape = [self.q.shape[0], self.q.shape[1], self.q.shape[2], self.k.shape[2]];
        let [batch, heads, queries, keys] = shape;
        let width = self.q.shape[3];
        let k = device.empty(self.k.dtype, &[batch, heads, keys, width])?;
        // A head of keys for each head of queries.
        let groups = |x: &Tensor, heads| x.reshaped(&[batch, heads, keys * width]);
        let (from, to) = (groups(&self.k, self.k.shape[1]), groups(&k, heads));
        device.backend.repeat(&RepeatDesc::new(from.desc(), to.desc()).with_interleaved())?;
        let scores = device.empty(self.q.dtype, &shape)?;
        let matrix = |x: &Tensor, rows, columns| {
            Matrix::new(x.ptr, x.dtype, columns).with_batch_stride(rows * columns)
        };
        let desc = MatmulDesc::new(
            queries,
            keys,
            width,
            matrix(&self.q, queries, width),
            matrix(&k, keys, width),
            matrix(&scores, queries, keys),
        );
        let desc = desc.with_transpose(BackendTranspose::NoTrans, BackendTranspose::Trans);
        device.backend.matmul(&desc.with_scale(self.scale, 0.0).with_batch(batch * heads))?;
        let mut scores = scores;
        if mode > 0 && self.softcap > 0.0 {
            let bounded = device.unary(UnaryOp::Tanh, &device.affine(&scores, 1.0 / self.softcap, 0.0)?)?;
            scores = device.affine(&bounded, self.softcap, 0.0)?;
        }
        if mode > 1
            && let Some(bias) = self.bias(true)?
        {
            scores = device.binary(BinaryOp::Add, &scores, &bias)?;
        }
        if mode < 3 {
            return Ok(scores);
        }
        let weights = device.empty(scores.dtype, &shape)?;
        let rows = batch * heads * queries;
        device.backend.softmax(&SoftmaxDesc::rows(scores.dtype, scores.ptr, weights.ptr, rows, keys))?;
        // A query that sees no key.
        let none = device.compare(CompareOp::Ne, &weights, &weights)?;
        Ok(device.choose(&none, 0.0, &weights)?)
    }
}

/// The mask as numbers that are added, for all keys, as a tensor of four dimensions.
fn mask(node: &Node<'_>, keys: usize) -> Outcome<Option<Tensor>> {
    let Some(given) = node.optional(3) else { return Ok(None) };
    let truth = matches!(&node.case.inputs[3], Some(array) if array.dtype == Kind::Bool);
    let mask = if truth { node.device.choose(given, 0.0, f64::NEG_INFINITY)? } else { given.clone() };
    let mut shape = vec![1; 4 - mask.shape.len()];
    shape.extend(&mask.shape);
    Ok(Some(filled(node.device, &mask.reshaped(&shape), keys, f64::NEG_INFINITY)?))
}

/// A tensor whose last dimension is filled up with a number.
fn filled(device: &Device<'_>, x: &Tensor, extent: usize, value: f64) -> BackendResult<Tensor> {
    if x.shape[3] == extent {
        return Ok(x.clone());
    }
    let y = device.empty(x.dtype, &[&x.shape[..3], &[extent]].concat())?;
    device.backend.pad(&PadDesc::new(x.desc(), y.desc(), &[0; 4], value))?;
    Ok(y)
}

fn concat(device: &Device<'_>, a: &Tensor, b: &Tensor, axis: usize) -> BackendResult<Tensor> {
    let mut shape = a.shape.clone();
    shape[axis] += b.shape[axis];
    let y = device.empty(a.dtype, &shape)?;
    device.backend.concat(&ConcatDesc::new(&[a.desc(), b.desc()], y.desc(), axis))?;
    Ok(y)
}
