//! Activations of f16 with a residual stream of f32, against the forward pass in f64.

use std::sync::Arc;

use anyhow::ensure;
use backend_api::{ComputeBackend, DType};
use candle_core::quantized::GgmlDType;
use llama::gguf::Gguf;
use llama::{Input, Model, Precision, Session, SessionOptions};

use crate::oracle::{self, Recipe};
use crate::random::{RandomModel, recipe};
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
    let loaded = Model::load_with(backend, &Gguf::parse(&model.file)?, Precision::Mixed, |_, _| ());
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
