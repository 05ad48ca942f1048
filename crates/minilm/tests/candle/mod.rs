//! all-MiniLM-L6-v2 by candle-transformers on the CPU: an independent implementation to compare with.

use std::path::Path;

use candle_core::{DType, Device, IndexOp, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};

/// candle's model of the files in a directory.
pub(crate) struct Candle(BertModel);

impl Candle {
    /// Reads `config.json` and `model.safetensors`.
    pub(crate) fn load(dir: &Path) -> anyhow::Result<Self> {
        let config: Config = serde_json::from_slice(&std::fs::read(dir.join("config.json"))?)?;
        let weights = std::fs::read(dir.join("model.safetensors"))?;
        let weights = VarBuilder::from_buffered_safetensors(weights, DType::F32, &Device::Cpu)?;
        Ok(Self(BertModel::load(weights, &config)?))
    }

    /// Mean-pooled vectors of length 1, `[size, hidden]`, of token ids `[size, seq]` with the given lengths.
    pub(crate) fn embed(&self, ids: &[u32], lengths: &[u32]) -> Result<Vec<Vec<f32>>> {
        let (size, seq) = (lengths.len(), ids.len() / lengths.len().max(1));
        let ids = Tensor::from_slice(ids, (size, seq), &Device::Cpu)?;
        let mask: Vec<u32> =
            lengths.iter().flat_map(|&length| (0..seq as u32).map(move |i| u32::from(i < length))).collect();
        let mask = Tensor::from_vec(mask, (size, seq), &Device::Cpu)?;

        let hidden = self.0.forward(&ids, &ids.zeros_like()?, Some(&mask))?;
        let mask = mask.to_dtype(DType::F32)?.unsqueeze(2)?;
        let mean = hidden.broadcast_mul(&mask)?.sum(1)?.broadcast_div(&mask.sum(1)?)?;
        let norm = mean.sqr()?.sum_keepdim(1)?.sqrt()?;
        let unit = mean.broadcast_div(&norm)?;
        (0..size).map(|row| unit.i(row)?.to_vec1()).collect()
    }
}
