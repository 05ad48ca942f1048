//! Random language models in a page, against the forward pass in f64.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use xshell::{Shell, cmd};

use crate::browser::Browser;
use crate::build::PAGES;
use crate::devtools::Page;
use crate::server::Server;

/// Of a logarithm of a probability, from the one in f64.
const TOLERANCE: f64 = 2e-3;

/// Tokens that are taken in one step. Those after them are captured steps of their own.
const PROMPT: usize = 5;

const PATIENCE: Duration = Duration::from_secs(180);

/// A model's file, tokens, and the logarithms of the probabilities of what follows each.
#[derive(Deserialize)]
struct Model {
    file: String,
    tokens: Vec<u32>,
    log_probabilities: Vec<Vec<f64>>,
}

pub(crate) fn run(sh: &Shell, server: &Server) -> anyhow::Result<()> {
    let folder = sh.current_dir().join(PAGES).join("models");
    // `cargo xtask test-web` has built it beside this program.
    let writer = std::env::current_exe()?.with_file_name("examples").join("random_models");
    cmd!(sh, "{writer} {folder}").run().context("no models")?;
    let models = read(&folder)?;
    let browser = Browser::launch()?;
    for backend in ["webgpu", "cpu"] {
        let mut page = Page::open(&browser, &server.url("suites/index.html"), "")?;
        for model in &models {
            let name = format!("language_models/{backend}/{}", model.file);
            let off = compare(&mut page, server, backend, model);
            let off = off.with_context(|| format!("{name}: {}", page.errors.join("\n")))?;
            println!("test {name} ... ok (at most {off:.1e} from f64)");
        }
        ensure!(page.errors.is_empty(), "on the console: {}", page.errors.join("\n"));
    }
    Ok(())
}

fn read(folder: &Path) -> anyhow::Result<Vec<Model>> {
    let models: Vec<Model> = serde_json::from_slice(&fs::read(folder.join("index.json"))?)?;
    ensure!(!models.is_empty(), "no models were written");
    Ok(models)
}

/// The largest difference of a logarithm.
fn compare(page: &mut Page<'_>, server: &Server, backend: &str, model: &Model) -> anyhow::Result<f64> {
    let url = server.url(&format!("models/{}", model.file));
    let Model { tokens, log_probabilities, .. } = model;
    let call = format!(
        "Promise.all([window.suites, fetch({url:?}).then(file => file.bytes())])
            .then(([suites, file]) => suites.logits({backend:?}, file, new Uint32Array({tokens:?}), {PROMPT}))
            .then(logits => JSON.stringify([...logits]))"
    );
    let logits = page.evaluate(&call, PATIENCE)?;
    let logits: Vec<f64> = serde_json::from_str(logits.as_str().context("no logits")?)?;
    let expected = log_probabilities.get(PROMPT - 1..).context("too few tokens")?;
    let numbers: usize = expected.iter().map(Vec::len).sum();
    ensure!(logits.len() == numbers, "{} logits, not {numbers}", logits.len());
    let vocabulary = numbers / expected.len().max(1);
    let mut largest = 0f64;
    for (row, expected) in logits.chunks(vocabulary).zip(expected) {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total = max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
        for (logit, expected) in row.iter().zip(expected) {
            let off = (logit - total - expected).abs();
            // Written so that NaN fails.
            ensure!(off < TOLERANCE, "{} instead of {expected}", logit - total);
            largest = largest.max(off);
        }
    }
    Ok(largest)
}
