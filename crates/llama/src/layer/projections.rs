//! Queries, keys and values of a layer.

use backend_api::BackendResult;
use backend_api::desc::RopeStyle;
use backend_api::owned::Buffer;

use super::{Pass, input_of_block, rms_norm};
use crate::linear::{Into, Linear};
use crate::weights::{Loader, NeighbouringPairs};
use crate::{Config, Result};

/// Queries, keys and values.
#[derive(Debug)]
pub(super) enum Projections {
    /// One product for all three, in which the elements of a rotated pair are neighbours.
    Stacked(Linear),
    /// Three products, as queries and keys are normalised by themselves: each head, or all heads of a token together.
    Normalised { parts: [Linear; 3], query_norm: Buffer, key_norm: Buffer, by_head: bool },
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
        let [query, key, value] = parts.map(|part| Linear::load(loader, &[part], hidden));
        Ok(Self::Normalised { parts: [query?, key?, value?], query_norm, key_norm, by_head })
    }

    /// Projects the pass's `x`, normalised if there is a norm.
    pub(super) fn forward(&self, pass: &Pass<'_>, norm: Option<&Buffer>) -> BackendResult<()> {
        let a = pass.activations;
        match self {
            Self::Stacked(linear) => linear.forward_normed(pass, norm, a.parts[0]),
            Self::Normalised { parts, .. } => {
                let x = input_of_block(pass, norm)?;
                let mut products = parts.iter().zip(a.parts);
                products.try_for_each(|(linear, part)| {
                    linear.forward(pass.backend, a.rows, x, part, Into::Assign)
                })
            }
        }
    }

    /// Normalises queries and keys, where an architecture does.
    pub(super) fn normalise(&self, pass: &Pass<'_>) -> BackendResult<()> {
        let Pass { config, activations: a, .. } = *pass;
        let Self::Normalised { query_norm, key_norm, by_head, .. } = self else { return Ok(()) };
        // Activations of such a layer have both packed.
        let Some([queries, keys]) = &a.packed else { return Ok(()) };
        let shape = |heads: usize| match by_head {
            true => [a.rows * heads, config.head_dim],
            false => [a.rows, heads * config.head_dim],
        };
        rms_norm(pass, a.dtype, queries, query_norm, shape(config.heads))?;
        rms_norm(pass, a.dtype, keys, key_norm, shape(config.kv_heads))
    }
}
