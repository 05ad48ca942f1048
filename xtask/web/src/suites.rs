//! The suites in the browser.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::Part;
use crate::browser::Browser;
use crate::devtools::Page;
use crate::server::Server;

/// The longest time of one suite.
const PATIENCE: Duration = Duration::from_secs(900);

/// Hides WebGPU from a page.
pub(crate) const WITHOUT_WEBGPU: &str =
    "Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined });";

/// The `--case` that runs the comparison of replays with recording, and no other suite.
pub(crate) const REPLAYS: &str = "replays";

/// Pages among which the operations are divided, each in a browser of its own.
const PAGES: usize = 2;

/// For each page, its share of the faults and of one in `every` conformance cases, or of those whose path contains `case`.
pub(crate) fn parts<'a>(
    server: &'a Server,
    every: usize,
    case: &'a str,
) -> impl Iterator<Item = Part<'a>> + use<'a> {
    // Cases that are named are few, and may be of one operation.
    let count = if case.is_empty() { PAGES } else { 1 };
    (0..count).map(move |page| -> Part<'a> { Box::new(move || run(server, every, case, [page, count])) })
}

fn run(server: &Server, every: usize, case: &str, share: [usize; 2]) -> anyhow::Result<()> {
    expect_none(&run_page(server, every, case, share)?)
}

/// Fails where replaying operations costs a page too much beside recording them. It compares times, so that nothing else
/// should run meanwhile.
pub(crate) fn replays(server: &Server) -> anyhow::Result<()> {
    expect_none(&suite(&Browser::launch()?, server, "", "replays()")?)
}

fn expect_none(failures: &[String]) -> anyhow::Result<()> {
    for failure in failures {
        println!("{failure}");
    }
    ensure!(failures.is_empty(), "{} failures in the browser", failures.len());
    Ok(())
}

/// The failures of what page number `page` of `count` runs: its operations, and the first one the faults.
fn run_page(
    server: &Server,
    every: usize,
    case: &str,
    [page, count]: [usize; 2],
) -> anyhow::Result<Vec<String>> {
    let browser = Browser::launch()?;
    let mut failures = Vec::new();
    if case.is_empty() && page == 0 {
        failures.extend(suite(&browser, server, "", "faults()")?);
        failures.extend(suite(&browser, server, WITHOUT_WEBGPU, "without_webgpu()")?);
    }
    for backend in ["webgpu", "cpu"] {
        // Cases that are named all run.
        let every = if case.is_empty() { every } else { 1 };
        let call = format!("conformance({backend:?}, {every}, {case:?}, {page}, {count})");
        failures.extend(suite(&browser, server, "", &call)?);
    }
    Ok(failures)
}

/// The failures of one suite, in a page of its own.
fn suite(browser: &Browser, server: &Server, prelude: &str, call: &str) -> anyhow::Result<Vec<String>> {
    let mut page = Page::open(browser, &server.url("suites/index.html"), prelude)?;
    // The list is a string: an array of the page's would be one of handles.
    let expression = format!("window.suites.then(s => s.{call}).then(list => JSON.stringify(list))");
    let failures = page.evaluate(&expression, PATIENCE).with_context(|| page.errors.join("\n"))?;
    let mut failures: Vec<String> = serde_json::from_str(failures.as_str().unwrap_or_default())?;
    failures.append(&mut page.errors);
    Ok(failures)
}
