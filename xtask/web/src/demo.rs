//! The demo, as a visitor would use it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use xshell::{Shell, cmd};

use crate::browser::Browser;
use crate::devtools::Page;
use crate::server::Server;
use crate::suites::WITHOUT_WEBGPU;

/// The longest time until the model is ready, and until an answer is there.
const PATIENCE: Duration = Duration::from_secs(180);

/// How far the score of a passage may be from the native one.
const TOLERANCE: f64 = 1e-4;

/// The longest task in the page's thread, in milliseconds.
const LONGEST_TASK: f64 = 200.0;

/// The text that the page comes with.
const SAMPLE: &str = "crates/minilm/web/page/sample.txt";

/// Keeps what the test asks for: the tasks that took long, and the devices that were opened.
pub(crate) const PRELUDE: &str = "
    window.longTasks = [];
    new PerformanceObserver(list => longTasks.push(...list.getEntries()))
        .observe({ type: 'longtask', buffered: true });
    window.devices = [];
    const requestDevice = GPUAdapter.prototype.requestDevice;
    GPUAdapter.prototype.requestDevice = async function (...args) {
        const device = await requestDevice.apply(this, args);
        devices.push(device);
        return device;
    };
";

/// A way to run the demo: its name and the page's options.
type Mode = (&'static str, &'static str);

/// Ways that leave the page's thread to the page.
const IN_WORKERS: [Mode; 2] = [("webgpu", "backend=webgpu"), ("cpu", "backend=cpu")];

const ON_THE_MAIN_THREAD: Mode = ("webgpu-main-thread", "backend=webgpu&thread=main");

/// A ranked passage.
#[derive(Debug, Deserialize)]
struct Hit {
    score: f64,
    line: usize,
}

#[derive(Deserialize)]
struct Report {
    results: Vec<Hit>,
}

/// Runs the demo in workers and without WebGPU, and compares what it ranks with the native command on the CPU.
pub(crate) fn run(sh: &Shell, server: &Server, screenshots: &Path) -> anyhow::Result<()> {
    let browser = Browser::launch()?;
    for mode in IN_WORKERS {
        run_mode(sh, server, &browser, screenshots, mode)?;
    }
    let url = server.url("demo/index.html?thread=main");
    let mut page = Page::open(&browser, &url, WITHOUT_WEBGPU)?;
    ready(&mut page)?;
    let backend = text(&mut page, "backend")?;
    ensure!(backend.starts_with("cpu"), "without WebGPU the demo runs on {backend}");
    println!("test demo/without-webgpu ... ok ({backend})");
    Ok(())
}

/// Runs the demo in the page's thread, whose longest task is told and limited: nothing else should run meanwhile.
pub(crate) fn on_the_main_thread(sh: &Shell, server: &Server, screenshots: &Path) -> anyhow::Result<()> {
    run_mode(sh, server, &Browser::launch()?, screenshots, ON_THE_MAIN_THREAD)?;
    println!("screenshots: {}", sh.current_dir().join(screenshots).display());
    Ok(())
}

fn run_mode(
    sh: &Shell,
    server: &Server,
    browser: &Browser,
    screenshots: &Path,
    (mode, options): Mode,
) -> anyhow::Result<()> {
    let mut page = Page::open(browser, &server.url(&format!("demo/index.html?{options}")), PRELUDE)?;
    let outcome = visit(sh, &mut page, mode);
    sh.write_file(screenshots.join(format!("{mode}.png")), page.screenshot()?)?;
    outcome.with_context(|| format!("demo/{mode}: {}", page.errors.join("\n")))?;
    ensure!(page.errors.is_empty(), "demo/{mode}: on the console: {}", page.errors.join("\n"));
    Ok(())
}

/// One visit: a search, in one mode also a loss and another search, and how busy the page's thread was.
fn visit(sh: &Shell, page: &mut Page<'_>, mode: &str) -> anyhow::Result<()> {
    ready(page)?;
    let query = page.evaluate("document.getElementById('query').value", PATIENCE)?;
    let expected = native(sh, query.as_str().context("no query")?)?;
    search(page, &expected)?;
    println!("test demo/{mode} ... ok ({})", text(page, "timings")?);
    if mode.ends_with("main-thread") {
        lose(page, &expected)?;
        println!("test demo/{mode}/loss ... ok ({})", text(page, "notice")?);
    }
    stalls(page, mode)
}

/// Waits for the model; a demo that gives up says why.
fn ready(page: &mut Page<'_>) -> anyhow::Result<()> {
    settled(page)?;
    ensure!(state(page)? == "ready", "not ready: {}", text(page, "notice")?);
    Ok(())
}

/// Searches and compares the ranking.
fn search(page: &mut Page<'_>, expected: &[Hit]) -> anyhow::Result<()> {
    page.evaluate("document.getElementById('form').requestSubmit()", PATIENCE)?;
    settled(page)?;
    ensure!(state(page)? == "ranked", "not ranked: {}", text(page, "notice")?);
    let list = "JSON.stringify([...document.querySelectorAll('#results li')].map(item =>
        ({ score: Number(item.dataset.score), line: Number(item.dataset.line) })))";
    let found = page.evaluate(list, PATIENCE)?;
    let found: Vec<Hit> = serde_json::from_str(found.as_str().context("no list")?)?;
    let lines = |hits: &[Hit]| hits.iter().map(|hit| hit.line).collect::<Vec<_>>();
    ensure!(lines(&found) == lines(expected), "ranked {found:?}, natively {expected:?}");
    let off = found.iter().zip(expected).map(|(a, b)| (a.score - b.score).abs()).fold(0.0, f64::max);
    ensure!(off <= TOLERANCE, "a score is {off:e} from the native one: {found:?}, {expected:?}");
    Ok(())
}

/// Destroys the device below the demo; the next search must say so and rank as before.
fn lose(page: &mut Page<'_>, expected: &[Hit]) -> anyhow::Result<()> {
    page.evaluate("devices.at(-1).destroy()", PATIENCE)?;
    search_after_loss(page, expected)?;
    let notice = text(page, "notice")?;
    ensure!(notice.contains("lost"), "the loss is not told: {notice:?}");
    Ok(())
}

fn search_after_loss(page: &mut Page<'_>, expected: &[Hit]) -> anyhow::Result<()> {
    search(page, expected)?;
    let devices = page.evaluate("devices.length", PATIENCE)?;
    ensure!(devices == 2, "{devices} devices were opened, not 2");
    Ok(())
}

/// Reports how long the page's thread was kept busy, and refuses tasks that a visitor would notice.
fn stalls(page: &mut Page<'_>, mode: &str) -> anyhow::Result<()> {
    let longest = |after: &str| {
        format!(
            "Math.max(0, ...longTasks.filter(task => task.startTime >= {after}).map(task => task.duration))"
        )
    };
    let warm = "performance.getEntriesByName('Warming up')[0].startTime";
    let all = page.evaluate(&longest("0"), PATIENCE)?.as_f64().context("no duration")?;
    let after = page.evaluate(&longest(warm), PATIENCE)?.as_f64().context("no duration")?;
    println!(
        "demo/{mode}: longest task {all:.0} ms in all, {after:.0} ms in warm-up and search (0: none over 50)"
    );
    ensure!(after <= LONGEST_TASK, "a task of warm-up or search took {after} ms");
    Ok(())
}

fn settled(page: &mut Page<'_>) -> anyhow::Result<()> {
    page.wait_until("!['loading', 'searching'].includes(document.body.dataset.state)", PATIENCE)
}

fn state(page: &mut Page<'_>) -> anyhow::Result<String> {
    let state = page.evaluate("document.body.dataset.state", PATIENCE)?;
    Ok(state.as_str().unwrap_or_default().to_owned())
}

fn text(page: &mut Page<'_>, id: &str) -> anyhow::Result<String> {
    let text = page.evaluate(&format!("document.getElementById({id:?}).textContent"), PATIENCE)?;
    Ok(text.as_str().unwrap_or_default().to_owned())
}

/// What the command ranks on the CPU, which `cargo xtask test-web` has built beside this program.
fn native(sh: &Shell, query: &str) -> anyhow::Result<Vec<Hit>> {
    let minilm = std::env::current_exe()?.with_file_name("minilm");
    let json = cmd!(sh, "{minilm} --backend cpu --json --top 10 --query {query} {SAMPLE}")
        .read()
        .context("no minilm")?;
    Ok(serde_json::from_str::<Report>(&json)?.results)
}
