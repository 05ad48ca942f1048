//! One layer of a decoder.

mod projections;

use backend_api::desc::{
    BinaryDesc, CopyDesc, LayerNormDesc, Matrix, RmsNormDesc, RopeAppendDesc, RopeAppendShape, RopeDesc,
    RopeShape, RopeStyle, RopeTables, TensorDesc,
};
use backend_api::owned::Buffer;
use backend_api::{BackendResult, BinaryOp, ComputeBackend, DType, Gate};

use crate::activations::Activations;
use crate::cache::{Cache, Heads, Placement};
use crate::feed_forward::FeedForward;
use crate::linear::{Into, Linear};
use crate::precision::RESIDUAL;
use crate::rotations::Rotations;
use crate::weights::{Loader, Weight};
use crate::{Architecture, Config, Result};
use projections::Projections;

/// What every layer of gpt-oss has; without a bias it would compute something else.
const GPT_OSS_TENSORS: [&str; 9] = [
    "attn_sinks.weight",
    "attn_q.bias",
    "attn_k.bias",
    "attn_v.bias",
    "attn_output.bias",
    "ffn_gate_inp.bias",
    "ffn_gate_exps.bias",
    "ffn_up_exps.bias",
    "ffn_down_exps.bias",
];

/// Attention and a feed-forward network, or experts, with norms before each, after each, or both, or one before both.
#[derive(Debug)]
pub(crate) struct Layer {
    index: usize,
    attention_norm: Option<Buffer>,
    projections: Projections,
    sinks: Option<Buffer>,
    attention_output: Linear,
    attention_post_norm: Option<Buffer>,
    ffn_norm: Option<Buffer>,
    feed_forward: FeedForward,
    ffn_post_norm: Option<Buffer>,
}

/// The operands of a forward pass besides the weights.
pub(crate) struct Pass<'a> {
    pub(crate) backend: &'a dyn ComputeBackend,
    pub(crate) config: &'a Config,
    pub(crate) activations: &'a Activations,
    pub(crate) cache: &'a Cache,
    pub(crate) rotations: &'a Rotations,
    pub(crate) placement: Placement<'a>,
}

impl Layer {
    /// Layer `index` of the file.
    pub(crate) fn load(loader: &mut Loader<'_>, config: &Config, index: usize) -> Result<Self> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let norm = |part: &str| format!("blk.{index}.{part}.weight");
        let (hidden, query) = (config.hidden, config.query_width());
        if config.architecture == Architecture::GptOss {
            GPT_OSS_TENSORS.iter().try_for_each(|part| loader.require(&name(part)))?;
        }
        // A factor of what is normalised afterwards would be none, so that a file with both is refused.
        let is_parallel = config.architecture.has_parallel_blocks();
        let may_post_norm = config.residual_scale == 1.0 && !is_parallel;
        let post_norm = |loader: &mut Loader<'_>, part: &str| match may_post_norm {
            true => loader.f32_vector_if(config.architecture.has_post_norms(), &norm(part), hidden),
            false => Ok(None),
        };
        // Where an architecture has none, a file with one is refused.
        let has_pre_norms = config.architecture.has_pre_norms();
        let pre_norm = |loader: &mut Loader<'_>, part: &str| {
            has_pre_norms.then(|| loader.f32_vector(&norm(part), hidden)).transpose()
        };
        let (ffn_norm, after_attention) = (config.architecture.ffn_norm(), "post_attention_norm");
        let has_own_name = ffn_norm != after_attention;
        let attention_post_norm = if has_own_name { post_norm(loader, after_attention)? } else { None };
        let feed_forward = FeedForward::load(loader, config, index)?;
        // What experts add isn't normalised, so that a file with such a norm is refused.
        let ffn_post_norm = match &feed_forward {
            FeedForward::Experts(_) => None,
            FeedForward::Dense(_) => post_norm(loader, "post_ffw_norm")?,
        };
        Ok(Self {
            index,
            attention_norm: pre_norm(loader, "attn_norm")?,
            projections: Projections::load(loader, config, index)?,
            sinks: loader.f32_vector_if(false, &norm("attn_sinks"), config.heads)?,
            attention_output: Linear::into_residual(
                loader,
                &name("attn_output"),
                hidden,
                query,
                config.residual_scale,
            )?,
            attention_post_norm,
            ffn_norm: if is_parallel { None } else { pre_norm(loader, ffn_norm)? },
            feed_forward,
            ffn_post_norm,
        })
    }

    /// Whether queries and keys are normalised by themselves, in tensors of their own.
    pub(crate) const fn is_split(&self) -> bool {
        matches!(self.projections, Projections::Normalised { .. })
    }

    /// Which elements of queries and keys are paired.
    const fn style(&self, config: &Config) -> RopeStyle {
        if self.is_split() { config.rope.style } else { RopeStyle::Interleaved }
    }

    /// Whether gate and up projections are written before the gate is opened.
    pub(crate) fn has_gates_apart(&self) -> bool {
        self.feed_forward.has_gates_apart()
    }

    /// Whether what a block makes is normalised before it is added.
    pub(crate) const fn has_post_norms(&self) -> bool {
        self.attention_post_norm.is_some() || self.ffn_post_norm.is_some()
    }

    /// The weights of all products.
    pub(crate) fn weights_mut(&mut self) -> impl Iterator<Item = &mut Weight> {
        let attention = [self.projections.linear_mut(), &mut self.attention_output].into_iter();
        attention.flat_map(Linear::weights_mut).chain(self.feed_forward.weights_mut())
    }

    /// Adds the outputs of attention and of the feed-forward network to `activations.x`.
    pub(crate) fn forward(&self, pass: &Pass<'_>) -> BackendResult<()> {
        let Pass { backend, config, activations: a, .. } = *pass;
        let packed = |buffer: &Buffer, row| Matrix::new(buffer.ptr(), a.dtype, row);

        self.projections.forward(pass, self.attention_norm.as_ref())?;
        self.rotate_and_append(pass)?;
        pass.rotations.scale_queries(pass)?;
        let heads = Heads { layer: self.index, sinks: self.sinks.as_ref() };
        pass.cache.attend(backend, config, heads, a, &pass.placement)?;
        let context = packed(&a.context, config.query_width());
        let add_attention =
            || self.add(pass, &self.attention_output, context, self.attention_post_norm.as_ref());
        let gate = match config.architecture {
            architecture if architecture.is_gemma() => Gate::GegluTanh,
            Architecture::GptOss => Gate::SwigluOai,
            _ => Gate::Swiglu,
        };
        match &self.feed_forward {
            // Both read `x` before anything is added to it.
            FeedForward::Dense(network) if config.architecture.has_parallel_blocks() => {
                let inner = network.forward_inner(pass, self.attention_norm.as_ref(), gate)?;
                add_attention()?;
                self.add(pass, &network.down, inner, None)
            }
            FeedForward::Dense(network) => {
                add_attention()?;
                let inner = network.forward_inner(pass, self.ffn_norm.as_ref(), gate)?;
                self.add(pass, &network.down, inner, self.ffn_post_norm.as_ref())
            }
            FeedForward::Experts(experts) => {
                add_attention()?;
                experts.forward(pass, self.ffn_norm.as_ref(), gate)
            }
        }
    }

    /// Adds a block's output to `x`, normalised first where the architecture has it.
    fn add(
        &self,
        pass: &Pass<'_>,
        output: &Linear,
        input: Matrix,
        post_norm: Option<&Buffer>,
    ) -> BackendResult<()> {
        let Pass { backend, config, activations: a, .. } = *pass;
        let (rows, hidden) = (a.rows, config.hidden);
        let matrix = |buffer: &Buffer| Matrix::new(buffer.ptr(), RESIDUAL, hidden);
        // Activations for a layer with such a norm have a block's output.
        let Some((norm, block)) = post_norm.zip(a.block.as_ref()) else {
            return output.forward(backend, rows, input, matrix(&a.x), Into::Add);
        };
        output.forward(backend, rows, input, matrix(block), Into::Assign)?;
        rms_norm(pass, RESIDUAL, block, norm, [rows, hidden])?;
        let shape = [rows, hidden];
        let [x, block] = [&a.x, block].map(|buffer| TensorDesc::packed(buffer.ptr(), RESIDUAL, &shape));
        backend.binary_ext(&BinaryDesc::new(BinaryOp::Add, x, block, x))
    }

    /// Normalises queries and keys where an architecture does, rotates them by their positions, and appends keys and values to
    /// the cache.
    fn rotate_and_append(&self, pass: &Pass<'_>) -> BackendResult<()> {
        let Pass { backend, config, activations: a, rotations, cache, .. } = *pass;
        let tables = rotations.of_layer(config, self.index);
        let is_normalised_last = config.architecture.normalises_rotated();
        let target = cache.rope_append_target(config, self.index, a, &pass.placement);
        let target = target.filter(|_| a.is_stacked && !is_normalised_last);
        let norm = self.projections.norm_of_heads(config).filter(|_| target.is_some());
        if norm.is_none() && !is_normalised_last {
            self.projections.normalise(pass)?;
        }
        match target {
            Some(target) => {
                let shape = RopeAppendShape {
                    rows: a.rows,
                    heads: config.heads,
                    kv_heads: config.kv_heads,
                    head_dim: config.head_dim,
                    cache_rows: target.rows,
                };
                let width = config.query_width() + 2 * config.kv_width();
                let qkv = Matrix::new(a.qkv.ptr, a.dtype, width);
                let (positions, indices) = (a.positions.ptr(), target.indices.ptr());
                let desc = RopeAppendDesc::new(qkv, target.cache, tables, shape, positions, indices);
                let desc = desc.with_style(self.style(config)).with_rotary_dim(config.rope.dim);
                backend.rope_append(&match norm {
                    Some(norm) => desc.with_norm(norm),
                    None => desc,
                })
            }
            None => {
                if config.rope.rotates(self.index) {
                    self.rotate(pass, tables)?;
                }
                if is_normalised_last {
                    self.projections.normalise(pass)?;
                }
                cache.append(backend, config, self.index, a, &pass.placement)
            }
        }
    }

    /// Rotates queries and keys by their positions.
    fn rotate(&self, pass: &Pass<'_>, tables: RopeTables) -> BackendResult<()> {
        let Pass { backend, config, activations: a, .. } = *pass;
        let rotate = |part: Matrix, heads: usize| {
            let shape = RopeShape { batch: 1, heads, seq: a.rows, head_dim: config.head_dim };
            let layout = backend_api::desc::HeadLayout {
                offset: part.offset,
                batch: 0,
                head: config.head_dim,
                token: part.ld,
            };
            let desc = RopeDesc::new(a.dtype, part.ptr, part.ptr, tables, shape, self.style(config))
                .with_rotary_dim(config.rope.dim)
                .with_positions(a.positions.ptr())
                .with_input_layout(layout)
                .with_output_layout(layout);
            backend.rope(&desc)
        };
        let [queries, keys, _] = a.parts;
        if self.is_split() {
            rotate(queries, config.heads)?;
            rotate(keys, config.kv_heads)
        } else {
            rotate(queries, config.heads + config.kv_heads)
        }
    }
}

/// What a block's products read: rows of the residual stream, normalised if there is a norm, in the type of activations.
pub(crate) fn input_of_block(pass: &Pass<'_>, norm: Option<&Buffer>) -> BackendResult<Matrix> {
    let (a, hidden) = (pass.activations, pass.config.hidden);
    if let Some(norm) = norm {
        normalise(pass, &a.x, norm, a.rows)?;
    } else if a.dtype == RESIDUAL {
        return Ok(Matrix::new(a.x.ptr(), RESIDUAL, hidden));
    } else {
        let shape = [a.rows, hidden];
        let from = TensorDesc::packed(a.x.ptr(), RESIDUAL, &shape);
        pass.backend.copy(&CopyDesc::new(from, TensorDesc::packed(a.normed.ptr(), a.dtype, &shape)))?;
    }
    Ok(a.normed_rows(hidden))
}

/// Normalises `rows` packed rows of the residual stream into `activations.normed`.
pub(crate) fn normalise(pass: &Pass<'_>, x: &Buffer, weight: &Buffer, rows: usize) -> BackendResult<()> {
    let (a, hidden) = (pass.activations, pass.config.hidden);
    if pass.config.architecture.has_layer_norms() {
        let desc = LayerNormDesc::new(RESIDUAL, x.ptr(), a.normed.ptr(), rows, hidden)
            .with_output_dtype(a.dtype)
            .with_eps(pass.config.norm_eps)
            .with_weight(weight.ptr());
        return pass.backend.layer_norm(&desc);
    }
    let desc = RmsNormDesc::new(RESIDUAL, x.ptr(), a.normed.ptr(), rows, hidden)
        .with_output_dtype(a.dtype)
        .with_eps(pass.config.norm_eps)
        .with_weight(weight.ptr());
    pass.backend.rms_norm(&desc)
}

/// Normalises packed rows where they are.
fn rms_norm(
    pass: &Pass<'_>,
    dtype: DType,
    x: &Buffer,
    weight: &Buffer,
    [rows, columns]: [usize; 2],
) -> BackendResult<()> {
    let desc = RmsNormDesc::new(dtype, x.ptr(), x.ptr(), rows, columns)
        .with_eps(pass.config.norm_eps)
        .with_weight(weight.ptr());
    pass.backend.rms_norm(&desc)
}
