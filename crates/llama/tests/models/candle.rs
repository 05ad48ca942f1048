//! candle's llama of a GGUF file: an independent implementation to compare with.

use std::io::Cursor;

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;

/// The `count` most probable tokens, one after the other, that follow `prompt`.
pub(crate) fn greedy(file: &[u8], prompt: &[u32], count: usize) -> anyhow::Result<Vec<u32>> {
    let mut reader = Cursor::new(file);
    let content = Content::read(&mut reader)?;
    let mut model = ModelWeights::from_gguf(content, &mut reader, &Device::Cpu)?;
    let (mut input, mut position, mut result) = (prompt.to_vec(), 0, Vec::new());
    for _ in 0..count {
        let tokens = Tensor::from_slice(&input, (1, input.len()), &Device::Cpu)?;
        let logits = model.forward(&tokens, position)?.flatten_all()?;
        position += input.len();
        let token = logits.argmax(0)?.to_scalar::<u32>()?;
        result.push(token);
        input = vec![token];
    }
    Ok(result)
}
