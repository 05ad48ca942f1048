//! What files of gpt-oss must have.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use backend_api::ComputeBackend;
use candle_core::quantized::GgmlDType;
use llama::Model;
use llama::gguf::Gguf;

use crate::random::{RandomModel, recipe};

/// Without any tensor of a layer, a file of gpt-oss isn't taken for another computation.
pub(crate) fn missing_tensors_are_named(backend: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    let model = RandomModel::new(recipe("gpt-oss", 64), GgmlDType::Q8_0, None)?;
    let mut parts: Vec<&str> = model.weights.keys().filter_map(|name| name.strip_prefix("blk.1.")).collect();
    parts.sort_unstable();
    ensure!(parts.len() == 19, "{parts:?}");
    for part in parts {
        let name = format!("blk.1.{part}");
        // Names of one length, so that the rest of the file stays.
        let other = name.replacen("blk", "BLK", 1);
        let mut file = model.file.clone();
        let at =
            file.windows(name.len()).position(|bytes| bytes == name.as_bytes()).context("no such tensor")?;
        file[at..at + name.len()].copy_from_slice(other.as_bytes());
        match Model::load(backend, &Gguf::parse(&file)?, |_, _| ()) {
            Err(llama::Error::MissingTensor { name: missing }) if missing == name => {}
            other => anyhow::bail!("without {name}: {:?}", other.err()),
        }
    }
    Ok(())
}
