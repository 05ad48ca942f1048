//! The forward pass in f64 on the numbers that a file's formats make of its weights, written from the papers and
//! from llama.cpp's graphs, and told by a [`Recipe`] rather than by the file what to compute.

use std::collections::HashMap;

use backend_api::DType;
use backend_api::kv::KvFormat;

use crate::mixture::mixture;

/// What a model computes.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) architecture: &'static str,
    pub(crate) hidden: usize,
    pub(crate) inner: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) vocabulary: usize,
    /// Pairs of neighbours are rotated rather than halves.
    pub(crate) interleaved: bool,
    pub(crate) rotary_dim: usize,
    pub(crate) rope_base: f64,
    /// In layers with a window.
    pub(crate) window_rope_base: f64,
    /// Divides positions, in layers that see all keys.
    pub(crate) rope_divisor: f64,
    /// Divides frequencies.
    pub(crate) rope_factors: Vec<f32>,
    /// Scaling of rotations.
    pub(crate) yarn: Option<Yarn>,
    /// Whether a layer rotates queries and keys, by its index.
    pub(crate) rotates: fn(usize) -> bool,
    /// Keys that a layer sees, by its index.
    pub(crate) window: fn(usize) -> Option<usize>,
    pub(crate) softcaps: [f64; 2],
    pub(crate) gelu: bool,
    pub(crate) embedding_scale: f64,
    /// Of scores, in place of the inverse root of the length of a head.
    pub(crate) attention_scale: Option<f64>,
    /// Growth of queries with the logarithm of their position in units of YaRN's original context.
    pub(crate) temperature: f64,
    /// Of what a block adds.
    pub(crate) residual_scale: f64,
    /// Divides the logits.
    pub(crate) logit_scale: f64,
    pub(crate) biases: bool,
    /// Also of attention's output.
    pub(crate) output_biases: bool,
    /// A score of each head that has no value.
    pub(crate) sinks: bool,
    /// Of each head of queries and keys.
    pub(crate) qk_norm: bool,
    /// Norms of queries and keys come after the rotation.
    pub(crate) norms_rotated: bool,
    /// Of all queries of a token, and of all of its keys.
    pub(crate) whole_qk_norm: bool,
    pub(crate) pre_norms: bool,
    /// Norms subtract the mean.
    pub(crate) layer_norms: bool,
    /// The network reads what attention reads.
    pub(crate) parallel: bool,
    /// What the norm before the network is called.
    pub(crate) ffn_norm: &'static str,
    pub(crate) post_norms: bool,
    pub(crate) fused: bool,
    pub(crate) tied: bool,
    pub(crate) experts: Option<Experts>,
    /// Keys and values are rounded to f16 when they are cached.
    pub(crate) cache: KvFormat,
}

/// YaRN's scaling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Yarn {
    pub(crate) factor: f64,
    /// Tokens of the context before.
    pub(crate) original: usize,
    /// How often pairs at the ends of the range turn in it.
    pub(crate) turns: [f64; 2],
    /// The magnitude is divided by one with this factor of its logarithm.
    pub(crate) log_multiplier: f64,
    /// The ends of the range are whole pairs.
    pub(crate) is_rounded: bool,
    /// Layers with a window are scaled.
    pub(crate) scales_windows: bool,
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Experts {
    pub(crate) count: usize,
    pub(crate) used: usize,
    pub(crate) inner: usize,
    /// Inside of a network that all tokens use; 0 for none.
    pub(crate) shared: usize,
    /// Of that network, a token takes a part that a row of weights says.
    pub(crate) share: bool,
    /// Weights are divided by their sum.
    pub(crate) normalised: bool,
    pub(crate) scale: f64,
    /// The router and all matrices have biases, and gates are clamped, as gpt-oss has it.
    pub(crate) clamped: bool,
}

pub(crate) const EPS: f64 = 1e-5;

/// Weights by name.
pub(crate) type Weights = HashMap<String, Vec<f64>>;

/// The logarithms of the probabilities of each token of the vocabulary after each of `tokens`.
pub(crate) fn log_probabilities(recipe: &Recipe, weights: &Weights, tokens: &[u32]) -> Vec<Vec<f64>> {
    let r = recipe;
    let w = |name: &str| weights[&format!("{name}.weight")].as_slice();
    let mut rows: Vec<Vec<f64>> = tokens
        .iter()
        .map(|&token| {
            w("token_embd")[token as usize * r.hidden..][..r.hidden]
                .iter()
                .map(|x| x * r.embedding_scale)
                .collect()
        })
        .collect();
    for layer in 0..r.layers {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let before = |x: &[f64], part: &str| {
            if r.pre_norms { norm_of_stream(r, x, w(&name(part))) } else { x.to_vec() }
        };
        let normed: Vec<_> = rows.iter().map(|x| before(x, "attn_norm")).collect();
        let attended = attention(r, weights, layer, &normed);
        for (x, attended) in rows.iter_mut().zip(attended) {
            let mut update = product(w(&name("attn_output")), &attended);
            if r.output_biases {
                add(&mut update, &weights[&name("attn_output.bias")]);
            }
            if r.post_norms {
                update = norm(&update, w(&name("post_attention_norm")));
            }
            add_scaled(x, &update, r.residual_scale);
        }
        for (x, normed) in rows.iter_mut().zip(normed) {
            let h = if r.parallel { normed } else { before(x, r.ffn_norm) };
            let mut update = match &r.experts {
                Some(experts) => mixture(experts, &|part| weights[&name(part)].as_slice(), &h),
                None => {
                    let (gate, up) = if r.fused {
                        let both = product(w(&name("ffn_up")), &h);
                        (both[..r.inner].to_vec(), both[r.inner..].to_vec())
                    } else {
                        (product(w(&name("ffn_gate")), &h), product(w(&name("ffn_up")), &h))
                    };
                    product(w(&name("ffn_down")), &opened(&gate, &up, if r.gelu { gelu_tanh } else { silu }))
                }
            };
            if r.post_norms {
                update = norm(&update, w(&name("post_ffw_norm")));
            }
            add_scaled(x, &update, r.residual_scale);
        }
    }
    let output = if r.tied { w("token_embd") } else { w("output") };
    let logits = rows.iter().map(|x| product(output, &norm_of_stream(r, x, w("output_norm"))));
    logits
        .map(|logits| {
            log_softmax(&logits.iter().map(|&x| cap(x / r.logit_scale, r.softcaps[1])).collect::<Vec<_>>())
        })
        .collect()
}

pub(crate) fn opened(gate: &[f64], up: &[f64], activation: fn(f64) -> f64) -> Vec<f64> {
    gate.iter().zip(up).map(|(&gate, up)| activation(gate) * up).collect()
}

fn attention(r: &Recipe, weights: &Weights, layer: usize, rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let w = |part: &str| weights[&format!("blk.{layer}.{part}.weight")].as_slice();
    let (q_width, kv_width) = (r.heads * r.head_dim, r.kv_heads * r.head_dim);
    let projected = |part: &str, start: usize, width: usize, x: &[f64]| {
        let matrix = if r.fused { &w("attn_qkv")[start * r.hidden..][..width * r.hidden] } else { w(part) };
        let mut y = product(matrix, x);
        if r.biases && r.fused {
            add(&mut y, &weights[&format!("blk.{layer}.attn_qkv.bias")][start..][..width]);
        } else if r.biases {
            add(&mut y, &weights[&format!("blk.{layer}.{part}.bias")]);
        }
        y
    };
    let window = (r.window)(layer);
    let scale = r.attention_scale.unwrap_or((r.head_dim as f64).sqrt().recip());
    let finish = |mut y: Vec<f64>, norm_name: &str, position: usize| {
        if r.whole_qk_norm {
            y = norm(&y, w(norm_name));
        }
        for head in y.chunks_mut(r.head_dim) {
            if r.qk_norm && !r.norms_rotated {
                head.copy_from_slice(&norm(head, w(norm_name)));
            }
            if (r.rotates)(layer) {
                rotate(r, head, position, window.is_some());
            }
            if r.qk_norm && r.norms_rotated {
                head.copy_from_slice(&norm(head, w(norm_name)));
            }
        }
        y
    };
    let stored = |mut y: Vec<f64>| {
        match r.cache {
            KvFormat::Float(DType::F16) => {
                y.iter_mut().for_each(|x| *x = half::f16::from_f64(*x).to_f64());
            }
            KvFormat::Q8_0 => y.chunks_mut(KvFormat::BLOCK).for_each(in_8_bits),
            _ => {}
        }
        y
    };
    let (mut keys, mut values, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
    for (position, x) in rows.iter().enumerate() {
        let mut q = finish(projected("attn_q", 0, q_width, x), "attn_q_norm", position);
        let contexts = r.yarn.map_or(0, |yarn| position / yarn.original);
        q.iter_mut().for_each(|q| *q *= 1.0 + r.temperature * (1.0 + contexts as f64).ln());
        keys.push(stored(finish(projected("attn_k", q_width, kv_width, x), "attn_k_norm", position)));
        values.push(stored(projected("attn_v", q_width + kv_width, kv_width, x)));
        let first = window.map_or(0, |window| (position + 1).saturating_sub(window));
        let mut output = Vec::new();
        for (head, q) in q.chunks(r.head_dim).enumerate() {
            let shared = head / (r.heads / r.kv_heads) * r.head_dim;
            let scores: Vec<f64> = keys[first..]
                .iter()
                .map(|k| cap(dot(q, &k[shared..][..r.head_dim]) * scale, r.softcaps[0]))
                .collect();
            let mut sum = vec![0.0; r.head_dim];
            // The sink's weight multiplies nothing.
            let sink = r.sinks.then(|| w("attn_sinks")[head]);
            let scores: Vec<f64> = scores.into_iter().chain(sink).collect();
            for (log_weight, v) in log_softmax(&scores).iter().zip(&values[first..]) {
                let v = &v[shared..][..r.head_dim];
                sum.iter_mut().zip(v).for_each(|(sum, v)| *sum += log_weight.exp() * v);
            }
            output.extend(sum);
        }
        outputs.push(output);
    }
    outputs
}

impl Yarn {
    /// The frequency of a pair, and the factor of what is rotated, by the reference of gpt-oss.
    fn scale(self, r: &Recipe, pair: usize, frequency: f64) -> (f64, f64) {
        let half = r.rotary_dim as f64 / 2.0;
        let end = |turns: f64| {
            half * (self.original as f64 / (turns * std::f64::consts::TAU)).ln() / r.rope_base.ln()
        };
        let (low, high) = (end(self.turns[0]), end(self.turns[1]));
        let (low, high) = if self.is_rounded { (low.floor(), high.ceil()) } else { (low, high) };
        assert!(0.0 < low && low < high && high < half - 1.0, "{low} to {high} of {half}");
        let mask = 1.0 - ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
        let magnitude = |multiplier: f64| 0.1 * multiplier * self.factor.ln() + 1.0;
        let frequency = frequency / self.factor * (1.0 - mask) + frequency * mask;
        (frequency, magnitude(1.0) / magnitude(self.log_multiplier))
    }
}

fn rotate(r: &Recipe, head: &mut [f64], position: usize, window: bool) {
    let pairs = r.rotary_dim / 2;
    let (base, divisor) = if window { (r.window_rope_base, 1.0) } else { (r.rope_base, r.rope_divisor) };
    for i in 0..pairs {
        let factor = r.rope_factors.get(i).map_or(1.0, |&factor| f64::from(factor));
        let frequency = base.powf(-2.0 * i as f64 / r.rotary_dim as f64) / factor / divisor;
        let yarn = r.yarn.filter(|yarn| yarn.scales_windows || !window);
        let (frequency, magnitude) = yarn.map_or((frequency, 1.0), |yarn| yarn.scale(r, i, frequency));
        let (sine, cosine) = (position as f64 * frequency).sin_cos();
        let (sine, cosine) = (magnitude * sine, magnitude * cosine);
        let (a, b) = if r.interleaved { (2 * i, 2 * i + 1) } else { (i, i + pairs) };
        (head[a], head[b]) = (head[a] * cosine - head[b] * sine, head[a] * sine + head[b] * cosine);
    }
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `W · x` for W with rows as long as x.
pub(crate) fn product(matrix: &[f64], x: &[f64]) -> Vec<f64> {
    matrix.chunks(x.len()).map(|row| dot(row, x)).collect()
}

fn add_scaled(x: &mut [f64], y: &[f64], scale: f64) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += scale * y);
}

pub(crate) fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

fn norm_of_stream(r: &Recipe, x: &[f64], weight: &[f64]) -> Vec<f64> {
    let mean = if r.layer_norms { x.iter().sum::<f64>() / x.len() as f64 } else { 0.0 };
    norm(&x.iter().map(|x| x - mean).collect::<Vec<_>>(), weight)
}

fn norm(x: &[f64], weight: &[f64]) -> Vec<f64> {
    let scale = (dot(x, x) / x.len() as f64 + EPS).sqrt().recip();
    x.iter().zip(weight).map(|(x, w)| x * scale * w).collect()
}

fn cap(x: f64, cap: f64) -> f64 {
    if cap == 0.0 { x } else { cap * (x / cap).tanh() }
}

pub(crate) fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn gelu_tanh(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
}

pub(crate) fn log_softmax(x: &[f64]) -> Vec<f64> {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total = max + x.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
    x.iter().map(|x| x - total).collect()
}

/// A block of 32 numbers as one of ggml's Q8_0 holds them.
fn in_8_bits(block: &mut [f64]) {
    let scale = block.iter().fold(0.0, |largest: f64, x| largest.max(x.abs())) / 127.0;
    if scale > 0.0 {
        let stored = half::f16::from_f64(scale).to_f64();
        block.iter_mut().for_each(|x| *x = (*x / scale).round() * stored);
    }
}
