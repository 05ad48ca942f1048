//! Models of files that are read piece by piece.

use std::collections::BTreeSet;
use std::sync::Arc;

use backend_api::ComputeBackend;

use super::{Model, alike, divide_logits};
use crate::gguf::{Index, Source};
use crate::layer::Layer;
use crate::weights::{Loader, refuse_others};
use crate::{Precision, Result};

impl Model {
    /// [`load_with`](Self::load_with) that waits without blocking, for a file that needn't fit into memory: a
    /// layer's tensors are read, uploaded and forgotten before those of the next one. `index` is the file's, and
    /// `progress` hears of the bytes read so far and of all.
    ///
    /// # Errors
    /// As [`load_with`](Self::load_with), and [`Error::Read`](crate::Error::Read).
    pub async fn load_from(
        backend: &Arc<dyn ComputeBackend>,
        source: &(impl Source + ?Sized),
        index: &Index,
        precision: Precision,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Self> {
        let config = index.config(source).await?;
        let (rows, hidden) = (config.vocabulary, config.hidden);
        let (mut read, all) = (0, index.bytes());
        let mut progress = |bytes: u64| {
            read += bytes;
            progress(read.min(all), all);
        };
        let (taken, progress) = (BTreeSet::new(), &mut progress);
        let mut pieces = Pieces { backend, source, index, precision, taken, progress };

        let name = "token_embd.weight";
        let mut embeddings =
            pieces.load(|tensor| tensor == name, |loader| loader.matrix(name, rows, hidden)).await?;
        // Not by the number that the metadata claims: a layer that isn't there ends the loop.
        let mut layers = Vec::new();
        for layer in 0..config.layers {
            let prefix = format!("blk.{layer}.");
            let load = |loader: &mut Loader<'_>| Layer::load(loader, &config, layer);
            layers.push(pieces.load(|tensor| tensor.starts_with(&prefix), load).await?);
        }
        alike(&layers)?;
        let ends = ["output_norm.weight", "output.weight"];
        let load = |loader: &mut Loader<'_>| {
            let norm = loader.f32_vector(ends[0], hidden)?;
            let output = loader.has(ends[1]).then(|| loader.matrix(ends[1], rows, hidden)).transpose()?;
            Ok((norm, output))
        };
        let (output_norm, mut output) = pieces.load(|tensor| ends.contains(&tensor), load).await?;
        divide_logits(&config, output.as_mut().unwrap_or(&mut embeddings));
        refuse_others(&config, &pieces.taken, index.tensors())?;
        // With what isn't needed.
        (pieces.progress)(all);
        let backend = Arc::clone(backend);
        Ok(Self { backend, config, embeddings, layers, output_norm, output, precision })
    }
}

/// A file on its way to a device.
struct Pieces<'a, S: ?Sized> {
    backend: &'a Arc<dyn ComputeBackend>,
    source: &'a S,
    index: &'a Index,
    precision: Precision,
    /// Names of the tensors that were read.
    taken: BTreeSet<String>,
    progress: &'a mut dyn FnMut(u64),
}

impl<S: Source + ?Sized> Pieces<'_, S> {
    /// What `load` makes of the tensors that are `meant` by their names, once it is on the device.
    async fn load<T>(
        &mut self,
        meant: impl Fn(&str) -> bool,
        load: impl FnOnce(&mut Loader<'_>) -> Result<T>,
    ) -> Result<T> {
        let piece = self.index.piece(self.source, meant, self.progress).await?;
        let file = piece.file();
        let mut loader = Loader::new(self.backend, &file, self.precision)?;
        let loaded = load(&mut loader)?;
        let (mut taken, filling) = loader.finish();
        self.taken.append(&mut taken);
        filling.run(|_, _| ())?;
        // Bounds the uploads on their way.
        self.backend.synchronize_async().await?;
        Ok(loaded)
    }
}
