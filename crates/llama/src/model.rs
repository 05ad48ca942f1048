//! The weights of a model on a device, and the pass through them.

mod pieces;

use std::sync::Arc;

use backend_api::desc::{AffineDesc, Matrix, TensorDesc, UnaryDesc};
use backend_api::owned::Buffer;
use backend_api::{BackendResult, ComputeBackend, DType, MathMode, UnaryOp};

use crate::activations::Activations;
use crate::cache::Cache;
use crate::gguf::Gguf;
use crate::layer::{Layer, Pass, normalise};
use crate::linear::Into;
use crate::precision::RESIDUAL;
use crate::weights::{Filling, Loader, Weight, refuse_others};
use crate::{Config, Error, Precision, Result};

/// A decoder's weights. What it remembers of texts is in a [`Session`](crate::Session).
#[derive(Debug)]
pub struct Model {
    backend: Arc<dyn ComputeBackend>,
    config: Config,
    embeddings: Weight,
    layers: Vec<Layer>,
    output_norm: Buffer,
    /// The embeddings, where the file has no output matrix.
    output: Option<Weight>,
    precision: Precision,
}

impl Model {
    /// Uploads the tensors of a file, in the formats that it has them in. `progress` hears of the bytes
    /// uploaded so far and of all.
    ///
    /// # Errors
    /// What [`Config::from_gguf`] returns, [`Error::MissingTensor`], [`Error::Tensor`], also for a tensor that nothing
    /// would compute with, [`Error::Backend`].
    pub fn load(
        backend: &Arc<dyn ComputeBackend>,
        file: &Gguf<'_>,
        progress: impl FnMut(usize, usize),
    ) -> Result<Self> {
        Self::load_with(backend, file, Precision::F32, progress)
    }

    /// [`load`](Self::load) for activations of other types, such as [`Precision::suited`] says.
    ///
    /// # Errors
    /// As [`load`](Self::load); [`Error::Backend`] also for a type that the backend doesn't have.
    pub fn load_with(
        backend: &Arc<dyn ComputeBackend>,
        file: &Gguf<'_>,
        precision: Precision,
        progress: impl FnMut(usize, usize),
    ) -> Result<Self> {
        let (model, filling) = Self::allocate(backend, file, precision)?;
        filling.run(progress)?;
        Ok(model)
    }

    /// The first half of [`load_with`](Self::load_with): a model whose matrices have their places on the device, and what
    /// [fills](Filling::run) them. Kernels may be compiled meanwhile.
    ///
    /// # Errors
    /// As [`load_with`](Self::load_with).
    pub fn allocate<'a>(
        backend: &'a Arc<dyn ComputeBackend>,
        file: &'a Gguf<'a>,
        precision: Precision,
    ) -> Result<(Self, Filling<'a>)> {
        let config = Config::from_gguf(file)?;
        let mut loader = Loader::new(backend, file, precision)?;
        let (rows, hidden) = (config.vocabulary, config.hidden);
        let mut embeddings = loader.matrix("token_embd.weight", rows, hidden)?;
        // Not by the number that the metadata claims: a layer that isn't there ends the loop.
        let mut layers = Vec::new();
        for index in 0..config.layers {
            layers.push(Layer::load(&mut loader, &config, index)?);
        }
        alike(&layers)?;
        let output_norm = loader.f32_vector("output_norm.weight", hidden)?;
        let output = loader.has("output.weight");
        let mut output = output.then(|| loader.matrix("output.weight", rows, hidden)).transpose()?;
        divide_logits(&config, output.as_mut().unwrap_or(&mut embeddings));
        let (taken, filling) = loader.finish();
        let tensors = file.tensors().map(|(name, tensor)| (name, tensor.kind, tensor.shape.as_slice()));
        refuse_others(&config, &taken, tensors)?;
        let backend = Arc::clone(backend);
        Ok((Self { backend, config, embeddings, layers, output_norm, output, precision }, filling))
    }

    /// With another arithmetic of all products with quantised weights: [`MathMode::Int8`] allows their activations to
    /// be rounded to 8 bits.
    #[must_use]
    pub fn with_math(mut self, math: MathMode) -> Self {
        let layers = self.layers.iter_mut().flat_map(Layer::weights_mut);
        layers.chain([&mut self.embeddings]).chain(&mut self.output).for_each(|weight| weight.math = math);
        self
    }

    /// The model's sizes.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The backend that holds the weights.
    #[must_use]
    pub const fn backend(&self) -> &Arc<dyn ComputeBackend> {
        &self.backend
    }

    /// The element types of activations.
    #[must_use]
    pub const fn precision(&self) -> Precision {
        self.precision
    }

    /// Room for a pass over so many rows, whose keys and values go to `cache`.
    pub(crate) fn activations(&self, rows: usize, cache: &Cache) -> BackendResult<Activations> {
        let kinds = [Layer::is_split, Layer::has_gates_apart, Layer::has_post_norms];
        let kinds = kinds.map(|is_kind| self.layers.iter().any(is_kind));
        let stored = self.embeddings.stored_rows(RESIDUAL);
        Activations::new(
            &self.backend,
            &self.config,
            (rows, self.precision),
            stored,
            kinds,
            cache.fits_append,
        )
    }

    /// The pass of `activations.ids` through all layers: `activations.x` becomes what the last one leaves.
    pub(crate) fn forward(&self, pass: &Pass<'_>) -> BackendResult<()> {
        let Pass { backend, activations: a, .. } = *pass;
        self.embeddings.lookup(backend, a.rows, &a.ids, a.stored.as_ref(), (&a.x, RESIDUAL))?;
        if self.config.embedding_scale != 1.0 {
            let shape = [a.rows, self.config.hidden];
            let x = TensorDesc::packed(a.x.ptr(), RESIDUAL, &shape);
            backend.affine(&AffineDesc::new(x, x, self.config.embedding_scale, 0.0))?;
        }
        pass.rotations.look_up_query_factors(pass)?;
        self.layers.iter().try_for_each(|layer| layer.forward(pass))
    }

    /// The logits of `rows` packed rows of `x`, no more than the pass has. An operation normalises them into the activations'
    /// `normed` where the product can't.
    pub(crate) fn logits(
        &self,
        pass: &Pass<'_>,
        rows: usize,
        x: &Buffer,
        logits: Matrix,
    ) -> BackendResult<()> {
        let output = self.output.as_ref().unwrap_or(&self.embeddings);
        if let Some(desc) = output.normed(pass, rows, x, &self.output_norm, logits, None) {
            return pass.backend.quant_matmul(&desc);
        }
        normalise(pass, x, &self.output_norm, rows)?;
        output.product(
            pass.backend,
            rows,
            pass.activations.normed_rows(self.config.hidden),
            logits,
            None,
            Into::Assign,
        )
    }

    /// Bounds packed logits, where the architecture has it. Their order stays.
    pub(crate) fn cap(&self, backend: &dyn ComputeBackend, rows: usize, logits: Matrix) -> BackendResult<()> {
        let cap = self.config.logit_softcap;
        if cap == 0.0 {
            return Ok(());
        }
        let shape = [rows, self.config.vocabulary];
        let logits = TensorDesc::packed(logits.ptr, DType::F32, &shape).with_offset(logits.offset);
        backend.affine(&AffineDesc::new(logits, logits, cap.recip(), 0.0))?;
        backend.unary_ext(&UnaryDesc::new(UnaryOp::Tanh, logits, logits))?;
        backend.affine(&AffineDesc::new(logits, logits, cap, 0.0))
    }
}

/// Makes logits those of the architecture: products with the output matrix have their divisor.
fn divide_logits(config: &Config, output: &mut Weight) {
    output.scale = config.logit_divisor.recip();
}

/// Refuses layers of which only some normalise queries and keys: they share their activations.
fn alike(layers: &[Layer]) -> Result<()> {
    if layers.iter().any(Layer::is_split) && !layers.iter().all(Layer::is_split) {
        let expected = "in all layers or in none".to_owned();
        let name = "attn_q_norm.weight".to_owned();
        return Err(Error::Tensor { name, expected, got: "in some".to_owned() });
    }
    Ok(())
}
