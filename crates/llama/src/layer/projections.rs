//! Queries, keys and values of a layer.

use backend_api::BackendResult;
use backend_api::desc::{CopyDesc, QkNorm, RopeStyle, TensorDesc};
use backend_api::owned::Buffer;

use super::{Pass, rms_norm};
use crate::linear::Linear;
use crate::weights::{Loader, NeighbouringPairs};
use crate::{Config, Result};

/// Queries, keys and values.
#[derive(Debug)]
pub(super) enum Projections {
    /// One product for all three, in which the elements of a rotated pair are neighbours.
    Stacked(Linear),
    /// One product, after which queries and keys are normalised by themselves: each head, or all heads of a token together.
    Normalised { linear: Linear, query_norm: Buffer, key_norm: Buffer, by_head: bool },
}

impl Projections {
    pub(super) fn load(loader: &mut Loader<'_>, config: &Config, index: usize) -> Result<Self> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let (q, kv, hidden) = (config.query_width(), config.kv_width(), config.hidden);
        let normalised = config.architecture.has_query_norms();
        // With them, a backend may rotate what a product makes in its launch.
        let order = (config.rope.style == RopeStyle::Half).then_some(NeighbouringPairs {
            rows: q + kv,
            head_dim: config.head_dim,
            rotary_dim: config.rope.dim,
        });
        let stacked = |loader: &mut _, parts: &[(String, usize)]| {
            Linear::with_neighbouring_pairs(loader, parts, hidden, order).map(Self::Stacked)
        };
        if loader.has(&name("attn_qkv.weight")) && !normalised {
            return stacked(loader, &[(name("attn_qkv"), q + 2 * kv)]);
        }
        let parts = [(name("attn_q"), q), (name("attn_k"), kv), (name("attn_v"), kv)];
        let by_head = config.architecture.normalises_heads();
        let [query_len, key_len] = if by_head { [config.head_dim; 2] } else { [q, kv] };
        // Layer norms of queries and keys, as larger models of Cohere have them, are refused.
        let query_norm = match config.architecture.has_layer_norms() {
            true => None,
            false => loader.vector_if(normalised, &name("attn_q_norm.weight"), query_len)?,
        };
        let Some(query_norm) = query_norm else {
            return stacked(loader, &parts);
        };
        let key_norm = loader.vector(&name("attn_k_norm.weight"), key_len)?;
        let linear = Linear::load(loader, &parts, hidden)?;
        Ok(Self::Normalised { linear, query_norm, key_norm, by_head })
    }

    /// Projects the pass's `x`, normalised if there is a norm.
    pub(super) fn forward(&self, pass: &Pass<'_>, norm: Option<&Buffer>) -> BackendResult<()> {
        let a = pass.activations;
        let (Self::Stacked(linear) | Self::Normalised { linear, .. }) = self;
        linear.forward_normed(pass, norm, a.qkv)?;
        if a.is_stacked {
            return Ok(());
        }
        let columns = [pass.config.query_width(), pass.config.kv_width()];
        let mut column = 0;
        a.parts.iter().zip(columns).try_for_each(|(part, columns)| {
            let (shape, strides) = ([a.rows, columns], [a.qkv.ld, 1]);
            let from = TensorDesc::strided(a.qkv.ptr, a.dtype, &shape, &strides).with_offset(column);
            column += columns;
            let to = TensorDesc::packed(part.ptr, a.dtype, &shape);
            pass.backend.copy(&CopyDesc::new(from, to))
        })
    }

    /// The product.
    pub(super) fn linear_mut(&mut self) -> &mut Linear {
        let (Self::Stacked(linear) | Self::Normalised { linear, .. }) = self;
        linear
    }

    /// The norms of queries and keys, if each head is normalised by itself.
    pub(super) fn norm_of_heads(&self, config: &Config) -> Option<QkNorm> {
        match self {
            Self::Normalised { query_norm, key_norm, by_head: true, .. } => {
                Some(QkNorm::new(query_norm.ptr(), key_norm.ptr(), config.norm_eps))
            }
            _ => None,
        }
    }

    /// Normalises queries and keys, where an architecture does.
    pub(super) fn normalise(&self, pass: &Pass<'_>) -> BackendResult<()> {
        let Pass { config, activations: a, .. } = *pass;
        let Self::Normalised { query_norm, key_norm, by_head, .. } = self else { return Ok(()) };
        // Without packed ones, `rope_append` normalises them.
        let Some([queries, keys]) = &a.packed else { return Ok(()) };
        let shape = |heads: usize| match by_head {
            true => [a.rows * heads, config.head_dim],
            false => [a.rows, heads * config.head_dim],
        };
        rms_norm(pass, a.dtype, queries, query_norm, shape(config.heads))?;
        rms_norm(pass, a.dtype, keys, key_norm, shape(config.kv_heads))
    }
}
