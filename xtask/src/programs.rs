//! Programs of the workspace.

use std::path::PathBuf;

use xshell::{Shell, cmd};

/// Builds them in a profile; the folder where they are then. In the dev profile, they are built as
/// `cargo test` builds them, with the same features of dependencies: after the suites, they are there.
pub(crate) fn build(sh: &Shell, names: &[&str], profile: &str) -> anyhow::Result<PathBuf> {
    let bins = names.iter().map(|name| format!("--bin={name}"));
    let like_tests = (profile == "dev").then_some("--tests");
    cmd!(sh, "cargo build --profile {profile} --workspace {bins...} {like_tests...}").run()?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    Ok(sh.current_dir().join(target).join(if profile == "dev" { "debug" } else { profile }))
}
