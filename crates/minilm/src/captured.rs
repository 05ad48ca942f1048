//! A forward pass recorded once for a shape.

use std::sync::Arc;

use backend_api::owned::Graph;
use backend_api::{BackendResult, ComputeBackend};

use crate::activations::Activations;
use crate::{Batch, Buffer, Error, Result};

/// The forward pass of batches of one shape, captured by [`Model::capture`](crate::Model::capture): running it costs
/// the host one call and three uploads, whatever the model's depth. It keeps the model's weights and its own tensors
/// alive.
#[derive(Debug)]
pub struct CapturedPass {
    graph: Graph,
    activations: Activations,
    output: Buffer,
}

impl CapturedPass {
    /// Captures what `record` calls: a pass through `activations` to `output`.
    pub(crate) fn new(
        backend: &Arc<dyn ComputeBackend>,
        activations: Activations,
        output: Buffer,
        record: impl Fn(&dyn ComputeBackend, &Activations, &Buffer) -> BackendResult<()>,
    ) -> BackendResult<Self> {
        let graph = Graph::capture(backend, |recorded| record(recorded, &activations, &output))?;
        Ok(Self { graph, activations, output })
    }

    /// Sequences of a batch.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.activations.batch
    }

    /// Tokens in each sequence of a batch, padding included.
    #[must_use]
    pub const fn seq(&self) -> usize {
        self.activations.seq
    }

    /// Runs the pass for a batch of its shape. The result, `[size, hidden]` of f32, is that of
    /// [`Model::forward`](crate::Model::forward), and stays until the next run. Reading it waits for the pass.
    ///
    /// # Errors
    /// [`Error::Batch`] for a batch of another shape; [`Error::Backend`].
    pub fn forward(&self, batch: &Batch) -> Result<&Buffer> {
        let shape = [self.size(), self.seq()];
        if [batch.size(), batch.seq()] != shape {
            return Err(Error::Batch { expected: shape, got: [batch.size(), batch.seq()] });
        }
        self.activations.upload(batch)?;
        self.graph.replay()?;
        Ok(&self.output)
    }
}
