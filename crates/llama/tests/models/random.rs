//! Files of random models.

use backend_api::random::{philox_block, uniforms};
use candle_core::quantized::GgmlDType;

use crate::oracle::{EPS, Experts, Recipe, Weights};
use crate::writer::{Value, Writer};

/// A file, and what it computes.
pub(crate) struct RandomModel {
    pub(crate) recipe: Recipe,
    pub(crate) weights: Weights,
    pub(crate) file: Vec<u8>,
}

impl RandomModel {
    /// With matrices of `kind`; `mixed` has values and `ffn_down` in another, as usual mixtures do.
    pub(crate) fn new(recipe: Recipe, kind: GgmlDType, mixed: Option<GgmlDType>) -> anyhow::Result<Self> {
        Self::with(recipe, kind, mixed, &[])
    }

    /// With `more` tensors by name and length, of which the recipe knows nothing.
    pub(crate) fn with(
        recipe: Recipe,
        kind: GgmlDType,
        mixed: Option<GgmlDType>,
        more: &[(&str, usize)],
    ) -> anyhow::Result<Self> {
        let r = &recipe;
        let mut made = Made { writer: Writer::default(), weights: Weights::new(), seed: 17, blocks: 0 };
        made.metadata(r);
        let (q, kv) = (r.heads * r.head_dim, r.kv_heads * r.head_dim);
        let other = mixed.unwrap_or(kind);
        made.matrix(
            "token_embd",
            r.vocabulary,
            r.hidden,
            kind,
            (r.hidden as f64).sqrt() / r.embedding_scale,
        )?;
        made.vector("output_norm", r.hidden)?;
        if !r.tied {
            made.matrix("output", r.vocabulary, r.hidden, other, 1.0)?;
        }
        if !r.rope_factors.is_empty() {
            let shape = [r.rope_factors.len()];
            made.writer.tensor("rope_freqs.weight", &shape, GgmlDType::F32, &r.rope_factors)?;
        }
        for layer in 0..r.layers {
            let name = |part: &str| format!("blk.{layer}.{part}");
            let norms = ["attn_norm", r.ffn_norm];
            let norms = if r.parallel { &norms[..1] } else { &norms };
            for norm in norms.iter().filter(|_| r.pre_norms) {
                made.vector(&name(norm), r.hidden)?;
            }
            if r.fused {
                made.matrix(&name("attn_qkv"), q + 2 * kv, r.hidden, kind, 1.0)?;
            } else {
                made.matrix(&name("attn_q"), q, r.hidden, kind, 1.0)?;
                made.matrix(&name("attn_k"), kv, r.hidden, kind, 1.0)?;
                made.matrix(&name("attn_v"), kv, r.hidden, other, 1.0)?;
            }
            match r.experts {
                Some(experts) => made.experts(r.hidden, experts, &name, [kind, other])?,
                None if r.fused => made.matrix(&name("ffn_up"), 2 * r.inner, r.hidden, kind, 1.0)?,
                None => {
                    made.matrix(&name("ffn_gate"), r.inner, r.hidden, kind, 1.0)?;
                    made.matrix(&name("ffn_up"), r.inner, r.hidden, kind, 1.0)?;
                }
            }
            if r.biases && r.fused {
                made.bias(&name("attn_qkv"), &[q + 2 * kv], 0.5)?;
            } else if r.biases {
                for (part, len) in [("attn_q", q), ("attn_k", kv), ("attn_v", kv)] {
                    made.bias(&name(part), &[len], 0.5)?;
                }
            }
            if r.output_biases {
                made.bias(&name("attn_output"), &[r.hidden], 0.5)?;
            }
            if r.sinks {
                made.named(&format!("{}.weight", name("attn_sinks")), &[r.heads], GgmlDType::F32, 0.0, 1.0)?;
            }
            if r.qk_norm {
                made.vector(&name("attn_q_norm"), r.head_dim)?;
                made.vector(&name("attn_k_norm"), r.head_dim)?;
            }
            if r.whole_qk_norm {
                made.vector(&name("attn_q_norm"), q)?;
                made.vector(&name("attn_k_norm"), kv)?;
            }
            if r.post_norms {
                made.vector(&name("post_attention_norm"), r.hidden)?;
                made.vector(&name("post_ffw_norm"), r.hidden)?;
            }
            made.matrix(&name("attn_output"), r.hidden, q, kind, 1.0)?;
            if r.experts.is_none() {
                made.matrix(&name("ffn_down"), r.hidden, r.inner, other, 1.0)?;
            }
        }
        for (name, len) in more {
            made.named(name, &[*len], GgmlDType::F32, 1.0, 0.2)?;
        }
        Ok(Self { file: made.writer.finish(), weights: made.weights, recipe })
    }
}

struct Made {
    writer: Writer,
    weights: Weights,
    seed: u64,
    /// Blocks of the stream of random numbers that are used.
    blocks: u64,
}

impl Made {
    fn metadata(&mut self, r: &Recipe) {
        let Self { writer, .. } = self;
        writer.set("general.architecture", Value::Text(r.architecture.to_owned()));
        let key = |name: &str| format!("{}.{name}", r.architecture);
        for (name, size) in [
            ("context_length", 512),
            ("embedding_length", r.hidden),
            ("block_count", r.layers),
            ("feed_forward_length", r.inner),
            ("attention.head_count", r.heads),
            ("attention.head_count_kv", r.kv_heads),
            ("attention.key_length", r.head_dim),
            ("attention.value_length", r.head_dim),
            ("rope.dimension_count", r.rotary_dim),
            ("vocab_size", r.vocabulary),
        ] {
            writer.set(key(name), Value::U32(size as u32));
        }
        let epsilon = if r.layer_norms { "layer_norm_epsilon" } else { "layer_norm_rms_epsilon" };
        writer.set(key(&format!("attention.{epsilon}")), Value::F32(EPS as f32));
        writer.set(key("rope.freq_base"), Value::F32(r.rope_base as f32));
        if r.rope_divisor != 1.0 {
            writer.set(key("rope.scaling.type"), Value::Text("linear".to_owned()));
            writer.set(key("rope.scaling.factor"), Value::F32(r.rope_divisor as f32));
        }
        if let Some(yarn) = r.yarn {
            writer.set(key("rope.scaling.type"), Value::Text("yarn".to_owned()));
            writer.set(key("rope.scaling.factor"), Value::F32(yarn.factor as f32));
            writer.set(key("rope.scaling.original_context_length"), Value::U32(yarn.original as u32));
            for (name, number, usual) in [
                ("yarn_beta_fast", yarn.turns[0], 32.0),
                ("yarn_beta_slow", yarn.turns[1], 1.0),
                ("yarn_log_multiplier", yarn.log_multiplier, 0.0),
            ] {
                if number != usual {
                    writer.set(key(&format!("rope.scaling.{name}")), Value::F32(number as f32));
                }
            }
        }
        if !(r.rotates)(0) {
            writer.set(key("rope.scaling.finetuned"), Value::Bool(false));
        }
        if r.temperature != 0.0 {
            writer.set(key("attention.temperature_scale"), Value::F32(r.temperature as f32));
        }
        let is_granite = r.architecture.starts_with("granite");
        for (name, scale) in [
            ("embedding_scale", is_granite.then_some(r.embedding_scale)),
            ("attention.scale", r.attention_scale),
            ("residual_scale", is_granite.then_some(r.residual_scale)),
            // Cohere multiplies by it.
            (
                "logit_scale",
                is_granite.then_some(r.logit_scale).or(r.parallel.then_some(1.0 / r.logit_scale)),
            ),
        ] {
            if let Some(scale) = scale {
                writer.set(key(name), Value::F32(scale as f32));
            }
        }
        if let Some(experts) = r.experts {
            let Experts { count, used, inner, shared, scale, .. } = experts;
            let sizes = [("count", count), ("used_count", used), ("feed_forward_length", inner)];
            for (name, size) in sizes.into_iter().chain([("shared_feed_forward_length", shared)]) {
                writer.set(key(&format!("expert_{name}")), Value::U32(size as u32));
            }
            if scale != 1.0 {
                writer.set(key("expert_weights_scale"), Value::F32(scale as f32));
            }
        }
        if let Some(window) = (r.window)(0) {
            writer.set(key("attention.sliding_window"), Value::U32(window as u32));
        }
        for (name, cap) in
            [("attn_logit_softcapping", r.softcaps[0]), ("final_logit_softcapping", r.softcaps[1])]
        {
            if cap != 0.0 {
                writer.set(key(name), Value::F32(cap as f32));
            }
        }
    }

    /// The router, the experts, which are always quantised, and the network that all tokens use.
    fn experts(
        &mut self,
        hidden: usize,
        experts: Experts,
        name: &dyn Fn(&str) -> String,
        kinds: [GgmlDType; 2],
    ) -> anyhow::Result<()> {
        let Experts { count, inner, shared, .. } = experts;
        let [kind, other] = kinds.map(|kind| if kind.block_size() == 1 { GgmlDType::Q8_0 } else { kind });
        // Logits far from each other, so that no rounding chooses other experts.
        self.matrix(&name("ffn_gate_inp"), count, hidden, GgmlDType::F32, 2.0)?;
        for (part, rows, columns, kind) in [
            ("ffn_gate_exps", inner, hidden, kind),
            ("ffn_up_exps", inner, hidden, kind),
            ("ffn_down_exps", hidden, inner, other),
        ] {
            let deviation = (columns as f64).sqrt().recip();
            let part = format!("{}.weight", name(part));
            self.named(&part, &[count, rows, columns], kind, 0.0, deviation)?;
        }
        if experts.clamped {
            self.bias(&name("ffn_gate_inp"), &[count], 1.0)?;
            // Some gates and what they open are beyond their bounds of 7.
            self.bias(&name("ffn_gate_exps"), &[count, inner], 4.0)?;
            self.bias(&name("ffn_up_exps"), &[count, inner], 4.0)?;
            self.bias(&name("ffn_down_exps"), &[count, hidden], 0.5)?;
        }
        if shared > 0 {
            if experts.share {
                let part = format!("{}.weight", name("ffn_gate_inp_shexp"));
                self.named(&part, &[hidden], GgmlDType::F32, 0.0, 0.2)?;
            }
            self.matrix(&name("ffn_gate_shexp"), shared, hidden, kinds[0], 1.0)?;
            self.matrix(&name("ffn_up_shexp"), shared, hidden, kinds[0], 1.0)?;
            self.matrix(&name("ffn_down_shexp"), hidden, shared, kinds[1], 1.0)?;
        }
        Ok(())
    }

    fn matrix(
        &mut self,
        name: &str,
        rows: usize,
        columns: usize,
        kind: GgmlDType,
        scale: f64,
    ) -> anyhow::Result<()> {
        let deviation = scale / (columns as f64).sqrt();
        self.named(&format!("{name}.weight"), &[rows, columns], kind, 0.0, deviation)
    }

    fn bias(&mut self, name: &str, shape: &[usize], deviation: f64) -> anyhow::Result<()> {
        self.named(&format!("{name}.bias"), shape, GgmlDType::F32, 0.0, deviation)
    }

    /// Weights of a norm.
    fn vector(&mut self, name: &str, len: usize) -> anyhow::Result<()> {
        self.named(&format!("{name}.weight"), &[len], GgmlDType::F32, 1.0, 0.2)
    }

    fn named(
        &mut self,
        name: &str,
        shape: &[usize],
        kind: GgmlDType,
        mean: f64,
        deviation: f64,
    ) -> anyhow::Result<()> {
        let count: usize = shape.iter().product();
        let first = self.blocks;
        self.blocks += count.div_ceil(4) as u64;
        let uniform = (first..self.blocks).flat_map(|block| uniforms(philox_block(self.seed, block)));
        // Uniform numbers of this half width have the deviation asked for.
        let width = 3f64.sqrt() * deviation;
        let numbers: Vec<f32> =
            uniform.take(count).map(|x| (mean + width * (2.0 * f64::from(x) - 1.0)) as f32).collect();
        let stored = self.writer.tensor(name, shape, kind, &numbers)?;
        self.weights.insert(name.to_owned(), stored);
        Ok(())
    }
}
