//! Programs of the workspace.

use std::path::PathBuf;

use xshell::{Shell, cmd};

/// Builds them in a profile; the folder where they are then. In the dev profile, they are built as
/// `cargo test` builds them, with the same features of dependencies: after the suites, they are there.
pub(crate) fn build(sh: &Shell, names: &[&str], profile: &str) -> anyhow::Result<PathBuf> {
    let bins = names.iter().map(|name| format!("--bin={name}"));
    let like_tests = (profile == "dev").then_some("--tests");
    cmd!(sh, "cargo build --profile {profile} --workspace {bins...} {like_tests...}").run()?;
    Ok(folder(sh, if profile == "dev" { "debug" } else { profile }))
}

/// Builds an example in the dev profile; where it is then. It has the features that tests ask for, so after the
/// suites, its dependencies are there.
pub(crate) fn build_example(sh: &Shell, name: &str) -> anyhow::Result<PathBuf> {
    cmd!(sh, "cargo build --workspace --example {name}").run()?;
    Ok(folder(sh, "debug").join("examples").join(name))
}

/// A folder of the target directory.
fn folder(sh: &Shell, name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    sh.current_dir().join(target).join(name)
}
