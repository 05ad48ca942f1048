//! Sentences per second on the CPU, against candle-transformers with the same weights.
//!
//! Run it with `cargo run --release -p minilm --example against_candle`; a device can be named as its
//! argument. Both sides get the same batches of token ids and end with vectors on the host. Rounds alternate
//! between them, so that a machine that warms up or is shared slows both down; the median of the rounds is
//! what counts.

#[path = "../tests/candle/mod.rs"]
mod candle;

use std::sync::Arc;
use std::time::Instant;

use backend_api::DType;
use candle::Candle;
use minilm::{Batch, Buffer, DEFAULT_BATCH_SIZE, Encoder, ModelDir, plan_batches};

const SENTENCES: &str = include_str!("../tests/fixtures/sentences.txt");
/// Copies of the sentences in a round, so that batches are full.
const COPIES: usize = 4;
const ROUNDS: usize = 7;

fn main() -> anyhow::Result<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "cpu".to_owned());
    let selection = model_cli::select(&name)?;

    let dir = ModelDir::locate(None)?;
    let candle = Candle::load(dir.path())?;
    let encoder = dir.load(&Arc::from(selection.backend), DType::F32, |_, _| ())?;
    let batches = batches(&encoder)?;
    let sentences: usize = batches.iter().map(Batch::size).sum();

    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let start = Instant::now();
        for batch in &batches {
            embed(&encoder, batch)?;
        }
        let our_time = start.elapsed().as_secs_f64();

        let start = Instant::now();
        for batch in &batches {
            candle.embed(batch.ids(), batch.lengths())?;
        }
        let their_time = start.elapsed().as_secs_f64();

        // The first round warms up.
        if round > 0 {
            ours.push(sentences as f64 / our_time);
            theirs.push(sentences as f64 / their_time);
        }
    }

    let (ours, theirs) = (median(ours), median(theirs));
    println!("{sentences} sentences, {} batches, median of {ROUNDS} rounds", batches.len());
    println!("minilm on {}: {ours:.1} sentences/s", selection.device.name);
    println!("candle on the CPU: {theirs:.1} sentences/s");
    println!("ratio: {:.2}", ours / theirs);
    Ok(())
}

fn batches(encoder: &Encoder) -> anyhow::Result<Vec<Batch>> {
    let sentences: Vec<&str> = SENTENCES.lines().collect::<Vec<_>>().repeat(COPIES);
    let sequences = encoder.tokenizer().encode(&sentences);
    let lengths: Vec<usize> = sequences.iter().map(Vec::len).collect();
    let batch = |indices: Vec<usize>| {
        let parts: Vec<&[u32]> = indices.iter().map(|&i| sequences[i].as_slice()).collect();
        Batch::new(&parts)
    };
    Ok(plan_batches(&lengths, DEFAULT_BATCH_SIZE).into_iter().map(batch).collect())
}

fn embed(encoder: &Encoder, batch: &Batch) -> anyhow::Result<Vec<f32>> {
    let shape = [batch.size(), encoder.model().config().hidden_size];
    let output = Buffer::new::<f32>(encoder.model().backend(), &shape)?;
    encoder.model().forward(batch, &output)?;
    let mut vectors = vec![0.0; shape.iter().product()];
    output.read(&mut vectors)?;
    Ok(vectors)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
