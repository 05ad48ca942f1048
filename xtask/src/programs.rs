//! Programs of the workspace.

use std::path::PathBuf;

use xshell::{Shell, cmd};

/// Builds them, each the program of a package of its name, in a profile; the folder where they are then. In the dev
/// profile, they are built as `cargo test` builds them, with the same features of dependencies: after the suites, they are
/// there. Elsewhere they are built alone, without the shader languages that only suites write.
pub(crate) fn build(sh: &Shell, names: &[&str], profile: &str) -> anyhow::Result<PathBuf> {
    let bins = names.iter().map(|name| format!("--bin={name}"));
    let packages = match profile {
        "dev" => ["--workspace", "--tests"].map(str::to_owned).to_vec(),
        _ => names.iter().map(|name| format!("--package={name}")).collect(),
    };
    cmd!(sh, "cargo build --profile {profile} {packages...} {bins...}").run()?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    Ok(sh.current_dir().join(target).join(if profile == "dev" { "debug" } else { profile }))
}
