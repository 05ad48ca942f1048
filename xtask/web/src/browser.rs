//! A headless Chromium with a software WebGPU.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context as _, bail};
use tempfile::TempDir;

/// The environment variable that names the browser's program.
const VARIABLE: &str = "CHROMIUM";

const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// Always the same adapter, in software, and no traffic of the browser's own.
const ARGUMENTS: [&str; 14] = [
    "--headless=new",
    "--no-sandbox",
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--remote-debugging-port=0",
    "--window-size=1100,1000",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-renderer-backgrounding",
    "--disable-dev-shm-usage",
];

/// A running browser with a profile of its own, ended and forgotten on drop.
pub(crate) struct Browser {
    process: Child,
    _profile: TempDir,
    /// The address of its debugging interface.
    pub(crate) address: String,
}

impl Browser {
    pub(crate) fn launch() -> anyhow::Result<Self> {
        let profile = tempfile::tempdir()?;
        let program = find()?;
        let mut process = Command::new(&program)
            .args(ARGUMENTS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("can't run {}", program.display()))?;
        let mut lines =
            BufReader::new(process.stderr.take().context("the browser has no standard error")?).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("DevTools listening on ").map(str::to_owned));
        // Read on, or the browser would block on a full pipe.
        thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let Some(address) = address else {
            process.kill()?;
            process.wait()?;
            bail!("{} ended without a debugging interface", program.display());
        };
        Ok(Self { process, _profile: profile, address })
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Err(error) = self.process.kill().and_then(|()| self.process.wait()) {
            eprintln!("the browser goes on: {error}");
        }
    }
}

fn find() -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Ok(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    PROGRAMS
        .iter()
        .flat_map(|program| folders.iter().map(move |folder| folder.join(program)))
        .find(|program| program.is_file())
        .with_context(|| {
            format!(
                "no Chromium found; on Debian: apt-get install chromium, or name its program with {VARIABLE}"
            )
        })
}
