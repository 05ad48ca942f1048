//! Writes random models and what a forward pass in f64 makes of some tokens, for suites where the pass can't run:
//!
//! ```sh
//! cargo run --package llama --example random_models -- FOLDER
//! ```
//!
//! `FOLDER/index.json` has for each model its file's name, tokens, and the logarithms of the probabilities of what
//! follows each of them.

#[path = "../tests/models/mixture.rs"]
mod mixture;
#[path = "../tests/models/oracle.rs"]
mod oracle;
#[path = "../tests/models/random.rs"]
mod random;
#[path = "../tests/models/recipes.rs"]
mod recipes;
#[path = "../tests/models/writer.rs"]
mod writer;

use std::path::PathBuf;

use anyhow::Context;
use candle_core::quantized::GgmlDType;
use random::RandomModel;
use recipes::recipe;
use serde_json::json;

/// Architecture, numbers in a row, format, and the other format of a mixture.
const MODELS: [(&str, usize, GgmlDType, Option<GgmlDType>); 5] = [
    ("llama", 256, GgmlDType::Q4K, Some(GgmlDType::Q6K)),
    ("llama3.1", 64, GgmlDType::Q4_0, Some(GgmlDType::Q8_0)),
    ("qwen3", 64, GgmlDType::Q8_0, None),
    ("gemma2", 64, GgmlDType::F16, None),
    ("phi3", 256, GgmlDType::Q5K, None),
];

const TOKENS: usize = 12;

fn main() -> anyhow::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).context("which folder?")?);
    std::fs::create_dir_all(&folder)?;
    let mut index = Vec::new();
    for (architecture, hidden, kind, mixed) in MODELS {
        let model = RandomModel::new(recipe(architecture, hidden), kind, mixed)?;
        let tokens: Vec<u32> =
            (0..TOKENS).map(|i| ((i * 7 + i * i / 3) % model.recipe.vocabulary) as u32).collect();
        let expected = oracle::log_probabilities(&model.recipe, &model.weights, &tokens);
        let file = format!("{architecture}-{kind:?}.gguf");
        std::fs::write(folder.join(&file), &model.file)?;
        index.push(json!({ "file": file, "tokens": tokens, "log_probabilities": expected }));
    }
    std::fs::write(folder.join("index.json"), serde_json::to_vec(&index)?)?;
    Ok(())
}
