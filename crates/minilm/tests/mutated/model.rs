//! A model of a few numbers, as its files have it.

use std::sync::Arc;

use backend_api::{ComputeBackend, DType};
use backend_cpu::CpuBackend;
use minilm::{Config, Model};

pub(super) const TOKENIZER: &str = include_str!("../fixtures/tokenizer.json");

pub(super) const CONFIG: &str = r#"{"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2,
"num_hidden_layers": 1, "vocab_size": 4, "max_position_embeddings": 256, "type_vocab_size": 2,
"layer_norm_eps": 1e-12, "hidden_act": "gelu", "model_type": "bert"}"#;

/// A checkpoint that fits [`CONFIG`].
pub(super) fn checkpoint() -> Vec<u8> {
    let mut tensors: Vec<(String, Vec<usize>)> = vec![
        ("embeddings.word_embeddings.weight".to_owned(), vec![4, 8]),
        ("embeddings.position_embeddings.weight".to_owned(), vec![256, 8]),
        ("embeddings.token_type_embeddings.weight".to_owned(), vec![2, 8]),
    ];
    let layer = "encoder.layer.0.";
    let linear = [
        ("attention.self.query", 8, 8),
        ("attention.self.key", 8, 8),
        ("attention.self.value", 8, 8),
        ("attention.output.dense", 8, 8),
        ("intermediate.dense", 8, 16),
        ("output.dense", 16, 8),
    ];
    for (name, inputs, outputs) in linear {
        tensors.push((format!("{layer}{name}.weight"), vec![outputs, inputs]));
        tensors.push((format!("{layer}{name}.bias"), vec![outputs]));
    }
    let norms = ["attention.output.LayerNorm", "output.LayerNorm"].map(|name| format!("{layer}{name}"));
    for name in norms.into_iter().chain(["embeddings.LayerNorm".to_owned()]) {
        tensors.push((format!("{name}.weight"), vec![8]));
        tensors.push((format!("{name}.bias"), vec![8]));
    }
    let (mut header, mut end) = (serde_json::Map::new(), 0);
    for (name, shape) in tensors {
        let start = end;
        end += 4 * shape.iter().product::<usize>();
        let entry = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [start, end]});
        header.insert(name, entry);
    }
    let header = serde_json::Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.resize(file.len() + end, 0);
    file
}

/// Loads a model both ways; both must come to the same.
pub(super) fn load(checkpoint: &[u8], config: &[u8]) -> Result<bool, String> {
    let backend: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
    let blocking = Model::from_bytes(&backend, checkpoint, config, DType::F32, |_, _| {}).is_ok();
    let waiting = Model::from_bytes_async(&backend, checkpoint, config, DType::F32, |_, _| {});
    if pollster::block_on(waiting).is_ok() != blocking {
        return Err("from_bytes and from_bytes_async disagree".to_owned());
    }
    if blocking && Config::from_json(config).is_err() {
        return Err("a model without a configuration".to_owned());
    }
    match backend.memory_stats().handles {
        0 => Ok(blocking),
        handles => Err(format!("{handles} handles are left")),
    }
}
