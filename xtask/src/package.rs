//! The crates as they would be published.

use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::ensure;
use xshell::{Shell, cmd};

/// The published crates. They depend on each other, so they are packaged together.
const CRATES: [&str; 3] = ["backend-api", "backend-cpu", "backend-webgpu"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Package files that aren't committed
    #[arg(long)]
    allow_dirty: bool,
    /// Don't build the packages: what is in them is compared with the repository in any case
    #[arg(long)]
    no_verify: bool,
}

pub(crate) fn run(sh: &Shell, args: &Args) -> anyhow::Result<()> {
    let dirty = args.allow_dirty.then_some("--allow-dirty");
    let crates = CRATES.map(|name| format!("--package={name}"));
    // cargo takes the crates that a package depends on from a registry in the target directory, and remembers
    // what it once unpacked of one by that registry's path and the version: at a path used before it may
    // build old sources.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis();
    let target = PathBuf::from(format!("target/package-{now}"));
    // What is built is thrown away: only that it builds counts.
    let quick = [
        "--config=profile.dev.debug=false",
        "--config=profile.dev.opt-level=0",
        "--config=profile.dev.package.'*'.opt-level=0",
        "--config=profile.dev.package.backend-cpu.opt-level=0",
    ];
    let no_verify = args.no_verify.then_some("--no-verify");
    let options = dirty.into_iter().chain(no_verify);
    let packaged = cmd!(sh, "cargo package --target-dir {target} {crates...} {options...} {quick...}").run();
    sh.remove_path(&target)?;
    packaged?;
    check_shaders(sh, dirty)
}

/// The shaders lie outside their crate and reach its package through a symbolic link, which a checkout may
/// have turned into a text file.
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
