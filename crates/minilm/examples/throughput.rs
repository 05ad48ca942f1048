//! Sentences per second, without the tokenizer: of full batches, 32 sequences of 128 tokens, and of one sequence of
//! 16, each recorded and captured.
//!
//! `cargo run --release -p minilm --example throughput -- webgpu` measures a device in f32 and, where it has
//! it, in f16. The model is of MiniLM's sizes, its weights are random: the time doesn't depend on them, and
//! nothing has to be fetched. Batches are recorded one after another, and the vectors of the last are read,
//! which waits for all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use backend_api::{ComputeBackend, DType};
use minilm::{Batch, Buffer, Model};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

const CONFIG: &str = r#"{
    "model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute",
    "hidden_size": 384, "intermediate_size": 1536, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
    "num_attention_heads": 12, "num_hidden_layers": 6, "type_vocab_size": 2, "vocab_size": 30522
}"#;
const HIDDEN: usize = 384;
const INNER: usize = 1536;
const VOCAB: usize = 30522;

/// Sequences, and tokens in each.
const SHAPES: [[usize; 2]; 2] = [[32, 128], [1, 16]];
const WARM_UP: Duration = Duration::from_millis(500);
const ROUNDS: usize = 9;
/// What a round takes at least, in batches of one recording.
const ROUND: Duration = Duration::from_millis(200);

fn main() -> anyhow::Result<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "auto".to_owned());
    let selection = model_cli::select(&name)?;
    println!("{} ({})", selection.device.name, selection.device.api);
    let backend: Arc<dyn ComputeBackend> = Arc::from(selection.backend);
    let file = weights()?;
    measure(&backend, &file, DType::F32)?;
    if backend.capabilities()?.f16 {
        measure(&backend, &file, DType::F16)?;
    }
    Ok(())
}

fn measure(backend: &Arc<dyn ComputeBackend>, file: &[u8], dtype: DType) -> anyhow::Result<()> {
    let model = Model::from_bytes(backend, file, CONFIG.as_bytes(), dtype, |_, _| ())?;
    for [sequences, tokens] in SHAPES {
        let ids: Vec<Vec<u32>> = (0..sequences)
            .map(|s| (0..tokens).map(|t| ((s * tokens + t) * 7919 % VOCAB) as u32).collect())
            .collect();
        let batch = Batch::new(&ids);
        let output = Buffer::new::<f32>(backend, &[sequences, HIDDEN])?;
        let recorded = || Ok(model.forward(&batch, &output)?);
        let pass = model.capture(sequences, tokens)?;
        let captured = || Ok(pass.forward(&batch).map(drop)?);
        time(&format!("{dtype}, {sequences}x{tokens}, recorded"), sequences, &recorded, &output)?;
        let result = pass.forward(&batch)?;
        time(&format!("{dtype}, {sequences}x{tokens}, captured"), sequences, &captured, result)?;
    }
    Ok(())
}

/// Times `forward`, which leaves its vectors in `output`.
fn time(
    name: &str,
    sequences: usize,
    forward: &dyn Fn() -> anyhow::Result<()>,
    output: &Buffer,
) -> anyhow::Result<()> {
    let mut vectors = vec![0.0f32; sequences * HIDDEN];
    let mut run = |batches: usize| -> anyhow::Result<Duration> {
        let start = Instant::now();
        for _ in 0..batches {
            forward()?;
        }
        output.read(&mut vectors)?;
        Ok(start.elapsed())
    };
    // The first batch compiles kernels. An idle device clocks down.
    run(1)?;
    let (start, mut one) = (Instant::now(), Duration::MAX);
    while start.elapsed() < WARM_UP {
        one = one.min(run(1)?);
    }
    let batches = (ROUND.as_secs_f64() / one.as_secs_f64()).ceil() as usize;
    let mut seconds = (0..ROUNDS)
        .map(|_| Ok(run(batches)?.as_secs_f64() / batches as f64))
        .collect::<anyhow::Result<Vec<f64>>>()?;
    seconds.sort_by(f64::total_cmp);
    let median = seconds[ROUNDS / 2];
    let rate = sequences as f64 / median;
    println!(
        "{name}: {rate:.1} sentences/s, {:.3} ms a batch, {:.3} ms alone",
        1e3 * median,
        1e3 * one.as_secs_f64()
    );
    anyhow::ensure!(vectors.iter().all(|number| number.is_finite()), "the vectors are not finite");
    Ok(())
}

/// A checkpoint of small random numbers.
fn weights() -> anyhow::Result<Vec<u8>> {
    let mut shapes: Vec<(String, Vec<usize>)> = vec![
        ("embeddings.word_embeddings.weight".to_owned(), vec![VOCAB, HIDDEN]),
        ("embeddings.position_embeddings.weight".to_owned(), vec![512, HIDDEN]),
        ("embeddings.token_type_embeddings.weight".to_owned(), vec![2, HIDDEN]),
    ];
    let mut layer = |name: &str, weight: &[usize]| {
        shapes.push((format!("{name}.weight"), weight.to_vec()));
        shapes.push((format!("{name}.bias"), weight[..1].to_vec()));
    };
    layer("embeddings.LayerNorm", &[HIDDEN]);
    for i in 0..6 {
        let name = |part: &str| format!("encoder.layer.{i}.{part}");
        for part in
            ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]
        {
            layer(&name(part), &[HIDDEN, HIDDEN]);
        }
        layer(&name("intermediate.dense"), &[INNER, HIDDEN]);
        layer(&name("output.dense"), &[HIDDEN, INNER]);
        layer(&name("attention.output.LayerNorm"), &[HIDDEN]);
        layer(&name("output.LayerNorm"), &[HIDDEN]);
    }
    let mut state = 1u32;
    let mut random = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 * 0.1 - 0.05
    };
    let data: Vec<Vec<f32>> =
        shapes.iter().map(|(_, shape)| (0..shape.iter().product()).map(|_| random()).collect()).collect();
    let tensors = shapes.iter().zip(&data).map(|((name, shape), numbers)| {
        Ok((name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytemuck::cast_slice(numbers))?))
    });
    Ok(safetensors::serialize(tensors.collect::<anyhow::Result<Vec<_>>>()?, None)?)
}
