//! The intermediate tensors of a pass over some rows.

use std::sync::Arc;

use backend_api::desc::Matrix;
use backend_api::owned::Buffer;
use backend_api::{BackendResult, ComputeBackend, DType};

use crate::precision::{Precision, RESIDUAL};
use crate::{Config, ExpertConfig};

/// Rows up to which `rope_append` rotates and appends, in place of two launches, or of eight where it also normalises
/// queries and keys: it compares the indices of all rows.
const FEW_ROWS: usize = 64;

/// The tensors that `rows` tokens pass through, shared by all layers.
#[derive(Debug)]
pub(crate) struct Activations {
    /// Tokens.
    pub(crate) rows: usize,
    /// Of all that follows but the indices, `x` and `block`: f32 or f16.
    pub(crate) dtype: DType,
    /// `[rows]` of u32: what is looked up in the embeddings.
    pub(crate) ids: Buffer,
    /// `[rows]` of u32: the tokens' positions in their sequences.
    pub(crate) positions: Buffer,
    /// `[rows]` of u32: the tokens' rows of the cache, if these are few and `rope_append` can take what is projected.
    pub(crate) cache_rows: Option<Buffer>,
    /// `[rows]`: factors of the tokens' queries, in models where these grow with positions.
    pub(crate) query_factors: Option<Buffer>,
    /// Embeddings as they are stored, where that is of another type.
    pub(crate) stored: Option<Buffer>,
    /// `[rows, hidden]`: what flows from layer to layer.
    pub(crate) x: Buffer,
    /// `[rows, hidden]`: normalised rows of `x`.
    pub(crate) normed: Buffer,
    /// `[rows, hidden]`: what a block adds to `x`, where that is normalised before.
    pub(crate) block: Option<Buffer>,
    /// The memory of `qkv`.
    _qkv: Buffer,
    /// What is projected: a token's queries, keys and values side by side.
    pub(crate) qkv: Matrix,
    /// Whether queries and keys stay in `qkv`. Several rows of them leave it where `rms_norm` normalises them.
    pub(crate) is_stacked: bool,
    /// `[rows, heads, head_dim]`: the heads' outputs.
    pub(crate) context: Buffer,
    /// `[rows, 2, intermediate]`: gate and up projections, where they aren't one quantised product. That of a shared
    /// expert may be larger.
    pub(crate) gate_up: Option<Buffer>,
    /// `[rows, intermediate]`.
    pub(crate) inner: Buffer,
    /// What experts need, if the model has some.
    pub(crate) experts: Option<ExpertActivations>,
    /// The queries, keys and values that are rotated and kept.
    pub(crate) parts: [Matrix; 3],
    /// Packed queries and packed keys, where operations of their own normalise them.
    pub(crate) packed: Option<[Buffer; 2]>,
}

/// The tensors of a mixture of experts.
#[derive(Debug)]
pub(crate) struct ExpertActivations {
    /// `[rows, experts]` of f32: what the router says of each.
    pub(crate) logits: Buffer,
    /// `[rows, used]` of u32: the chosen experts.
    pub(crate) indices: Buffer,
    /// `[rows, used]` of f32: the weights of their results.
    pub(crate) weights: Buffer,
    /// `[rows, used, intermediate]`.
    pub(crate) inner: Buffer,
    /// `[rows]`: how much of the shared expert a token takes.
    pub(crate) share: Buffer,
}

impl ExpertActivations {
    fn new(
        backend: &Arc<dyn ComputeBackend>,
        config: ExpertConfig,
        (rows, dtype): (usize, DType),
    ) -> BackendResult<Self> {
        let ExpertConfig { count, used, intermediate, .. } = config;
        Ok(Self {
            logits: Buffer::of(backend, DType::F32, &[rows, count])?,
            indices: Buffer::of(backend, DType::U32, &[rows, used])?,
            weights: Buffer::of(backend, DType::F32, &[rows, used])?,
            inner: Buffer::of(backend, dtype, &[rows, used, intermediate])?,
            share: Buffer::of(backend, dtype, &[rows])?,
        })
    }
}

impl Activations {
    /// Allocates the tensors. `stored` is the element type of the embeddings if it isn't that of `x`; `split`
    /// parts queries, keys and values, `gates_apart` gate and up projections from what is made of them, and `post_norms` a
    /// block's output from `x`. `fits_append` tells whether `rope_append` can write the cache.
    pub(crate) fn new(
        backend: &Arc<dyn ComputeBackend>,
        config: &Config,
        (rows, precision): (usize, Precision),
        stored: Option<DType>,
        [split, gates_apart, post_norms]: [bool; 3],
        fits_append: bool,
    ) -> BackendResult<Self> {
        let dtype = precision.operands();
        let of_residual = || Buffer::of(backend, RESIDUAL, &[rows, config.hidden]);
        let tensor = |columns: usize| Buffer::of(backend, dtype, &[rows, columns]);
        let (q, kv) = (config.query_width(), config.kv_width());
        let qkv = tensor(q + 2 * kv)?;
        let row = q + 2 * kv;
        let part = |offset| Matrix::new(qkv.ptr(), dtype, row).with_offset(offset);
        let architecture = config.architecture;
        let appends_normed =
            fits_append && architecture.normalises_heads() && !architecture.normalises_rotated();
        let is_stacked = !split || rows == 1 || appends_normed && rows <= FEW_ROWS;
        let packed = match (split, is_stacked) {
            (false, _) => None,
            // `rope_append` normalises them.
            (true, true) if rows > 1 => None,
            (true, true) => {
                let bytes = |columns: usize| columns * dtype.size();
                Some([qkv.view(0, bytes(q))?, qkv.view(bytes(q), bytes(kv))?])
            }
            (true, false) => Some([tensor(q)?, tensor(kv)?]),
        };
        let mut parts = [part(0), part(q), part(q + kv)];
        if let Some([queries, keys]) = packed.as_ref().filter(|_| !is_stacked) {
            (parts[0], parts[1]) = (Matrix::new(queries.ptr(), dtype, q), Matrix::new(keys.ptr(), dtype, kv));
        }
        let inner = config.experts.map_or(0, |experts| experts.shared_intermediate).max(config.intermediate);
        let experts = config.experts.map(|experts| ExpertActivations::new(backend, experts, (rows, dtype)));
        Ok(Self {
            rows,
            dtype,
            ids: Buffer::of(backend, DType::U32, &[rows])?,
            positions: Buffer::of(backend, DType::U32, &[rows])?,
            cache_rows: (is_stacked && rows <= FEW_ROWS)
                .then(|| Buffer::of(backend, DType::U32, &[rows]))
                .transpose()?,
            query_factors: config.attention_temperature.map(|_| tensor(1)).transpose()?,
            stored: stored.map(|dtype| Buffer::of(backend, dtype, &[rows, config.hidden])).transpose()?,
            x: of_residual()?,
            normed: tensor(config.hidden)?,
            block: post_norms.then(of_residual).transpose()?,
            context: tensor(q)?,
            gate_up: gates_apart.then(|| tensor(2 * inner)).transpose()?,
            inner: tensor(inner)?,
            experts: experts.transpose()?,
            is_stacked,
            qkv: part(0),
            _qkv: qkv,
            parts,
            packed,
        })
    }
    /// Packed rows of `x`, normalised.
    pub(crate) const fn normed_rows(&self, hidden: usize) -> Matrix {
        Matrix::new(self.normed.ptr(), self.dtype, hidden)
    }
}
