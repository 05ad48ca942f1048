//! Activations of f16 with a residual stream of f32, against the forward pass in f64.

use std::sync::Arc;

use anyhow::{Context, ensure};
use backend_api::{Capabilities, ComputeBackend, DType};
use candle_core::quantized::GgmlDType;
use half::f16;
use llama::gguf::Gguf;
use llama::{Input, Model, Precision, Session, SessionOptions};

use crate::oracle::{self, Recipe};
use crate::random::RandomModel;
use crate::recipes::recipe;
use crate::{difference, text};

/// Roundings that what flows through a layer undergoes, one after the other: norm, projection, its norm, rotation, the
/// cache, what is attended to; norm, gate and up, their product.
const ROUNDINGS: usize = 9;

/// What f16 may change of a logarithm of a probability: a rounding changes a number by a relative 2⁻¹¹ at most, and so
/// the logits by as much of their range, if all of them add up. Those of the last norm and of weights of f32, which become
/// f16, are two more.
fn bound(recipe: &Recipe, expected: &[f64]) -> f64 {
    let range = expected.iter().copied().fold(f64::NEG_INFINITY, f64::max)
        - expected.iter().copied().fold(f64::INFINITY, f64::min);
    (ROUNDINGS * recipe.layers + 2) as f64 * 2f64.powi(-11) * range
}

/// Files whose weights tensor cores would have rounded.
pub(crate) fn dense_weights() -> anyhow::Result<()> {
    let mut device = Capabilities::host();
    device.cooperative_matrix = true;
    let model = RandomModel::new(recipe("llama", 64), GgmlDType::F32, None)?;
    let suited = Precision::suited(&device, &Gguf::parse(&model.file)?);
    ensure!(suited == Precision::F32, "{suited:?}");
    Ok(())
}

/// Steps of many tokens and captured ones, where a device has f16; elsewhere the model is refused.
pub(crate) fn texts(backend: &Arc<dyn ComputeBackend>, architecture: &'static str) -> anyhow::Result<()> {
    [GgmlDType::F16, GgmlDType::Q8_0]
        .into_iter()
        .try_for_each(|weights| text_of(backend, architecture, weights))
}

fn text_of(
    backend: &Arc<dyn ComputeBackend>,
    architecture: &'static str,
    weights: GgmlDType,
) -> anyhow::Result<()> {
    let mut recipe = recipe(architecture, 64);
    recipe.cache = DType::F16.into();
    // Which experts are chosen may be a matter of a rounding.
    if let Some(experts) = &mut recipe.experts {
        experts.used = experts.count;
    }
    let model = RandomModel::new(recipe, weights, None)?;
    let file = Gguf::parse(&model.file)?;
    let (host, mut device) = (Capabilities::host(), Capabilities::host());
    device.cooperative_matrix = true;
    let suited = [host, device].map(|device| Precision::suited(&device, &file));
    ensure!(suited == [Precision::F32, Precision::Mixed], "{weights:?}: {suited:?}");
    let loaded = Model::load_with(backend, &file, Precision::Mixed, |_, _| ());
    if !backend.capabilities()?.f16 {
        ensure!(loaded.is_err(), "a device without f16 took it");
        return Ok(());
    }
    let mut session = Session::new(&Arc::new(loaded?), SessionOptions::new(20))?;
    let text = text(&model, 1, 16);
    let expected = oracle::log_probabilities(&model.recipe, &model.weights, &text);
    let compare = |logits: &[f32], position: usize| {
        let (expected, error) = (&expected[position], difference(logits, &expected[position])?);
        let bound = bound(&model.recipe, expected);
        // Written so that NaN fails.
        ensure!(error <= bound, "{weights:?}, token {position}: an error of {error}, more than {bound}");
        anyhow::Ok(())
    };
    compare(&session.step(&[Input { sequence: 0, tokens: &text[..11] }])?.to_vec()?, 10)?;
    compare(&session.step(&[Input { sequence: 0, tokens: &text[11..12] }])?.to_vec()?, 11)?;
    for position in 12..16 {
        compare(&session.decode(0, &text[position..=position])?, position)?;
    }
    Ok(())
}

/// A residual stream of numbers that f16 doesn't have.
pub(crate) fn sums_beyond_f16(backend: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    if !backend.capabilities()?.f16 {
        return Ok(());
    }
    let mut model = RandomModel::new(recipe("llama", 64), GgmlDType::Q8_0, None)?;
    let range = {
        let file = Gguf::parse(&model.file)?;
        let table = file.tensor("token_embd.weight").context("no embeddings")?.data;
        let start = table.as_ptr() as usize - model.file.as_ptr() as usize;
        start..start + table.len()
    };
    // Each block's scale, which is f16.
    for block in model.file[range].chunks_mut(34) {
        let scale = f16::from_le_bytes([block[0], block[1]]).to_f32() * 2e6;
        block[..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
    }
    let tokens = text(&model, 1, 11);
    let logits = |precision| {
        let loaded = Model::load_with(backend, &Gguf::parse(&model.file)?, precision, |_, _| ())?;
        let mut session = Session::new(&Arc::new(loaded), SessionOptions::new(20))?;
        anyhow::Ok(session.step(&[Input { sequence: 0, tokens: &tokens }])?.to_vec()?)
    };
    let exact: Vec<f64> = logits(Precision::F32)?.into_iter().map(f64::from).collect();
    for (got, &expected) in logits(Precision::Mixed)?.into_iter().zip(&exact) {
        let (error, bound) = ((f64::from(got) - expected).abs(), bound(&model.recipe, &exact));
        ensure!(error <= bound, "an error of {error}, more than {bound}");
    }
    Ok(())
}
