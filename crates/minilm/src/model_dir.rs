//! Where the model's files are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use backend_api::{ComputeBackend, DType};

use crate::{Encoder, Error, Model, Result, Tokenizer};

/// The environment variable that names the model's directory.
pub const MODEL_VARIABLE: &str = "MINILM_MODEL";

/// Where `cargo xtask model` puts it, from the workspace's root.
const CACHE: &str = ".cache/minilm";

const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const WEIGHTS: &str = "model.safetensors";

/// A directory with `config.json`, `tokenizer.json` and `model.safetensors`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelDir(PathBuf);

impl ModelDir {
    /// The directory `named`, or else the one that the environment variable [`MODEL_VARIABLE`] names, or else
    /// `.cache/minilm` in the current directory or the nearest one above that has it.
    ///
    /// # Errors
    /// [`Error::NoModel`] if one of the three files isn't there.
    pub fn locate(named: Option<&Path>) -> Result<Self> {
        let dir = named
            .map(Path::to_owned)
            .or_else(|| std::env::var_os(MODEL_VARIABLE).map(PathBuf::from))
            .or_else(nearest_cache)
            .unwrap_or_else(|| PathBuf::from(CACHE));
        if [CONFIG, TOKENIZER, WEIGHTS].iter().all(|file| dir.join(file).is_file()) {
            Ok(Self(dir))
        } else {
            Err(Error::NoModel { dir })
        }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the files and uploads the weights, which are kept in `dtype`, f32 or f16. `progress` hears of
    /// the bytes uploaded so far and of the file's.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Tokenizer`], and those of [`Model::from_bytes`].
    pub fn load(
        &self,
        backend: &Arc<dyn ComputeBackend>,
        dtype: DType,
        progress: impl FnMut(usize, usize),
    ) -> Result<Encoder> {
        let tokenizer = Tokenizer::from_bytes(&self.read(TOKENIZER)?)?;
        let model = Model::from_bytes(backend, &self.read(WEIGHTS)?, &self.read(CONFIG)?, dtype, progress)?;
        Ok(Encoder::new(model, tokenizer))
    }

    fn read(&self, file: &str) -> Result<Vec<u8>> {
        let path = self.0.join(file);
        std::fs::read(&path).map_err(|source| Error::Read { path, source })
    }
}

fn nearest_cache() -> Option<PathBuf> {
    let current = std::env::current_dir().ok()?;
    current.ancestors().map(|dir| dir.join(CACHE)).find(|dir| dir.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_model_is_an_error_that_says_what_to_do() {
        let error = ModelDir::locate(Some(Path::new("/nonexistent"))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no model in /nonexistent: fetch it with `cargo xtask model`, or name another directory with \
             MINILM_MODEL"
        );
    }
}
