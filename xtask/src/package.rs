//! The crates as they would be published.

use anyhow::ensure;
use xshell::{Shell, cmd};

/// The published crates. They depend on each other, so they are packaged together.
const CRATES: [&str; 3] = ["backend-api", "backend-cpu", "backend-webgpu"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Package files that aren't committed
    #[arg(long)]
    allow_dirty: bool,
}

pub(crate) fn run(sh: &Shell, args: &Args) -> anyhow::Result<()> {
    let dirty = args.allow_dirty.then_some("--allow-dirty");
    let crates = CRATES.map(|name| format!("--package={name}"));
    cmd!(sh, "cargo package {crates...} {dirty...}").run()?;
    check_shaders(sh, dirty)
}

/// The shaders lie outside their crate and reach its package through a symbolic link, which a checkout may have
/// turned into a text file.
fn check_shaders(sh: &Shell, dirty: Option<&str>) -> anyhow::Result<()> {
    let is_shader = |path: &&str| path.starts_with("shaders/") && path.ends_with(".wgsl");
    let packaged = cmd!(sh, "cargo package --package backend-webgpu --list {dirty...}").read()?;
    let tracked = cmd!(sh, "git ls-files --cached --others --exclude-standard shaders").read()?;
    let mut packaged: Vec<&str> = packaged.lines().filter(is_shader).collect();
    let mut tracked: Vec<&str> = tracked.lines().filter(is_shader).collect();
    packaged.sort_unstable();
    tracked.sort_unstable();
    ensure!(packaged == tracked, "shaders packaged: {packaged:?}, in the repository: {tracked:?}");
    println!("backend-webgpu carries all {} files of shaders/", packaged.len());
    Ok(())
}
