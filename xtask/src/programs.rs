//! Programs of the workspace.

use std::path::PathBuf;

use xshell::{Shell, cmd};

/// Builds programs, each of the package of its name, in a profile, and returns the folder where they are then.
/// In the dev profile, they are built as `cargo test` builds them, with the same features of dependencies:
/// after the suites, they are there. Elsewhere they are built alone, without the shader languages that only
/// suites write, and without the backend "verify:…", whose oracles take a minute to compile.
pub(crate) fn build(sh: &Shell, names: &[&str], profile: &str) -> anyhow::Result<PathBuf> {
    let bins = names.iter().map(|name| format!("--bin={name}"));
    let packages = match profile {
        "dev" => ["--workspace", "--tests"].map(str::to_owned).to_vec(),
        _ => {
            let packages = names.iter().map(|name| format!("--package={name}"));
            packages.chain(["--no-default-features", "--features=cli"].map(str::to_owned)).collect()
        }
    };
    cmd!(sh, "cargo build --profile {profile} {packages...} {bins...}").run()?;
    Ok(folder(sh, if profile == "dev" { "debug" } else { profile }))
}

/// Builds an example in the dev profile; where it is then. It has the features that tests ask for, so after
/// the suites, its dependencies are there.
pub(crate) fn build_example(sh: &Shell, name: &str) -> anyhow::Result<PathBuf> {
    cmd!(sh, "cargo build --workspace --example {name}").run()?;
    Ok(folder(sh, "debug").join("examples").join(name))
}

/// A folder of the target directory.
fn folder(sh: &Shell, name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    sh.current_dir().join(target).join(name)
}
