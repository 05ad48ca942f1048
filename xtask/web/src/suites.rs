//! The suites in the browser.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::browser::Browser;
use crate::devtools::Page;
use crate::server::Server;

/// The longest time of one suite.
const PATIENCE: Duration = Duration::from_secs(900);

/// Hides WebGPU from a page.
pub(crate) const WITHOUT_WEBGPU: &str =
    "Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined });";

/// Runs the faults and one in `every` conformance cases, or those whose path contains `case`.
pub(crate) fn run(server: &Server, every: usize, case: &str) -> anyhow::Result<()> {
    let browser = Browser::launch()?;
    let mut failures = Vec::new();
    if case.is_empty() {
        failures.extend(suite(&browser, server, "", "faults()")?);
        failures.extend(suite(&browser, server, WITHOUT_WEBGPU, "without_webgpu()")?);
    }
    for backend in ["webgpu", "cpu"] {
        // Those that are named are all meant.
        let every = if case.is_empty() { every } else { 1 };
        let call = format!("conformance({backend:?}, {every}, {case:?})");
        failures.extend(suite(&browser, server, "", &call)?);
    }
    for failure in &failures {
        println!("{failure}");
    }
    ensure!(failures.is_empty(), "{} failures in the browser", failures.len());
    Ok(())
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
