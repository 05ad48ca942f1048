//! Ours beside onnxruntime-web, in one page and on one adapter.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use xshell::{Shell, cmd};

use crate::browser::Browser;
use crate::build::PAGES;
use crate::devtools::Page;
use crate::server::Server;

/// The other library, as npm spells it.
const OTHER: &str = "onnxruntime-web@1.30.0";

/// Its files that the page loads.
const FILES: [&str; 3] =
    ["ort.webgpu.min.mjs", "ort-wasm-simd-threaded.asyncify.mjs", "ort-wasm-simd-threaded.asyncify.wasm"];

/// What writes its models, and with what.
const MODELS: &str = "benches/web/onnx_models.py";
const PACKAGES: [&str; 3] = ["onnx==1.23.2", "numpy==2.4.6", "safetensors==0.8.0"];

const PATIENCE: Duration = Duration::from_secs(240);

/// Each comparison: what is computed, our call and theirs.
const PAIRS: [(&str, &str, &str); 2] = [
    ("f32 matmul 512×512×512", "matmul_ours(512, 3)", "matmul_ort(512, 3)"),
    ("MiniLM, one sentence of 16 tokens", "sentence_ours(3)", "sentence_ort(3)"),
];

/// How often the two take turns, so that both see the same of what else the machine does.
const TURNS: usize = 3;

/// Prints a line for each pair: the medians in milliseconds and their ratio.
pub(crate) fn run(sh: &Shell, server: &Server) -> anyhow::Result<()> {
    let folder = sh.current_dir().join(PAGES).join("compare");
    fetch(sh, &folder)?;
    sh.copy_file("benches/web/index.html", &folder)?;
    let browser = Browser::launch()?;
    let mut page = Page::open(&browser, &server.url("compare/index.html"), "")?;
    page.wait_until("window.tests !== undefined", PATIENCE)?;
    for (what, ours, theirs) in PAIRS {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..TURNS {
            for (times, call) in times.iter_mut().zip([ours, theirs]) {
                times.extend(milliseconds(&mut page, call).with_context(|| page.errors.join("\n"))?);
            }
        }
        let [ours, theirs] = times.map(median);
        println!("{what}: ours {ours:.1} ms, {OTHER} {theirs:.1} ms: {:.2} times as fast", theirs / ours);
    }
    Ok(())
}

/// The times of a call's rounds.
fn milliseconds(page: &mut Page<'_>, call: &str) -> anyhow::Result<Vec<f64>> {
    let times =
        page.evaluate(&format!("tests.{call}.then(times => JSON.stringify([...times]))"), PATIENCE)?;
    Ok(serde_json::from_str(times.as_str().context("no times")?)?)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Gets the other library with npm, and writes its models with Python, once.
fn fetch(sh: &Shell, folder: &Path) -> anyhow::Result<()> {
    sh.create_dir(folder)?;
    if !FILES.iter().all(|file| folder.join(file).is_file()) {
        let scratch = tempfile::tempdir()?;
        let scratch = scratch.path();
        let archive = cmd!(sh, "npm pack --silent --pack-destination {scratch} {OTHER}").read()?;
        let archive = scratch.join(archive.trim());
        let members = FILES.map(|file| format!("package/dist/{file}"));
        cmd!(sh, "tar -xzf {archive} -C {folder} --strip-components=2 {members...}").run()?;
    }
    if !folder.join("minilm.onnx").is_file() {
        let python = folder.join("python");
        cmd!(sh, "python3 -m venv {python}").run()?;
        let python = python.join("bin/python");
        cmd!(sh, "{python} -m pip install --quiet {PACKAGES...}").run()?;
        cmd!(sh, "{python} {MODELS} .cache/minilm/model.safetensors {folder}").run()?;
    }
    ensure!(folder.join("minilm.onnx").is_file(), "{MODELS} wrote no model");
    Ok(())
}
