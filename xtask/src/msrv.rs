//! The minimum supported Rust version.

use anyhow::{Context as _, bail, ensure};
use xshell::{Shell, cmd};

/// Checks that only the workspace's manifest states a version, that every package inherits it, and that the
/// running toolchain is of that version or newer. Cargo itself refuses an older one.
pub(crate) fn run(sh: &Shell) -> anyhow::Result<()> {
    let mut stated = Vec::new();
    // The packages in `examples` are outside the workspace, from which they would have to inherit it.
    let manifests = ["*Cargo.toml", ":!examples"];
    let manifests = cmd!(sh, "git ls-files --cached --others --exclude-standard {manifests...}").read()?;
    for manifest in manifests.lines() {
        let text = sh.read_file(manifest)?;
        let mut lines = text.lines().filter(|line| line.starts_with("rust-version"));
        match (lines.next(), lines.next()) {
            (Some("rust-version.workspace = true"), None) => {}
            (Some(line), None) => stated.push((manifest.to_owned(), quoted(line)?)),
            _ => bail!("{manifest} must have one rust-version, inherited from the workspace"),
        }
    }
    let [(manifest, minimum)] = stated.as_slice() else {
        bail!("rust-version is stated {} times: {stated:?}", stated.len());
    };
    ensure!(
        manifest == "Cargo.toml",
        "rust-version is stated in {manifest}, not in the workspace's manifest"
    );

    let running = cmd!(sh, "rustc --version").read()?;
    let version = running.split_whitespace().nth(1).context("`rustc --version` has no version")?;
    ensure!(minor(version)? >= minor(minimum)?, "rustc {version} is older than rust-version {minimum}");
    if minor(version)? == minor(minimum)? {
        println!("rust-version {minimum}, stated once; this toolchain is exactly that");
    } else {
        println!(
            "rust-version {minimum}, stated once; rustc {version} is newer, so a build doesn't prove it"
        );
    }
    Ok(())
}

/// The text between the first two quotation marks of `line`.
fn quoted(line: &str) -> anyhow::Result<String> {
    let value = line.split('"').nth(1).with_context(|| format!("no version in {line:?}"))?;
    Ok(value.to_owned())
}

/// Major and minor version of `1.95`, `1.95.0` or `1.96.0-nightly`.
fn minor(version: &str) -> anyhow::Result<(u32, u32)> {
    let mut parts = version.split('.').map(str::parse);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => bail!("{version:?} is not a version"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_number() {
        assert!(minor("1.100.0").unwrap() > minor("1.95").unwrap());
        assert_eq!(minor("1.96.0-nightly").unwrap(), (1, 96));
        assert!(minor("nightly").is_err());
        assert_eq!(quoted("rust-version = \"1.95\"").unwrap(), "1.95");
    }
}
