//! What deny.toml asks of the dependencies: their licences, where they come from, and one version of each.
//!
//! cargo-deny is the tool for it, but takes longer to build than everything else that CI does. Where it isn't
//! installed, the rules of the file that count here are checked by what `cargo metadata` tells.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use xshell::{Shell, cmd};

/// The only registry, as Cargo spells it.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The package outside the workspace, whose dependencies have a lock file of their own.
const EXAMPLE: &str = "examples/ort/Cargo.toml";

/// The rules that are checked here.
#[derive(Deserialize)]
struct Rules {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

/// A version that may be there beside another one.
#[derive(Deserialize)]
struct Skip {
    /// Such as `base64@0.13.1`.
    #[serde(rename = "crate")]
    package: String,
    reason: String,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// None for those of the workspace.
    source: Option<String>,
}

pub(crate) fn run(sh: &Shell) -> anyhow::Result<()> {
    if cmd!(sh, "cargo deny --version").quiet().ignore_stdout().ignore_stderr().run().is_ok() {
        let checks = ["--config", "deny.toml", "bans", "licenses", "sources"];
        for manifest in ["./Cargo.toml", EXAMPLE] {
            cmd!(sh, "cargo deny --manifest-path {manifest} --all-features --locked check {checks...}")
                .run()?;
        }
        return Ok(());
    }
    let rules: Rules = toml::from_str(&sh.read_file("deny.toml")?).context("deny.toml")?;
    let workspace = packages(sh, "Cargo.toml")?;
    let example = packages(sh, EXAMPLE)?;
    let mut faults = check(&rules, &workspace);
    faults.extend(always_faults(&rules.licenses, &example));
    faults.extend(version_faults(&Bans { skip: Vec::new() }, &example));
    ensure!(faults.is_empty(), "deny.toml isn't met:\n{}", faults.join("\n"));
    println!(
        "{} packages, and {} of an example: licences and sources as deny.toml allows, {} versions besides \
         another one, each with a reason",
        workspace.len(),
        example.len(),
        rules.bans.skip.len()
    );
    Ok(())
}

/// The packages of a lock file.
fn packages(sh: &Shell, manifest: &str) -> anyhow::Result<Vec<Package>> {
    let metadata =
        cmd!(sh, "cargo metadata --manifest-path {manifest} --all-features --locked --format-version 1");
    let Metadata { packages } = serde_json::from_str(&metadata.quiet().read()?)?;
    Ok(packages)
}

/// Every fault, one line each.
fn check(rules: &Rules, packages: &[Package]) -> Vec<String> {
    let mut faults = always_faults(&rules.licenses, packages);
    faults.extend(version_faults(&rules.bans, packages));
    faults
}

/// Faults for which there are no exceptions.
fn always_faults(rules: &Licenses, packages: &[Package]) -> Vec<String> {
    let faults = packages.iter().flat_map(|package| [license_fault(rules, package), source_fault(package)]);
    faults.flatten().collect()
}

fn license_fault(rules: &Licenses, Package { name, version, license, .. }: &Package) -> Option<String> {
    let Some(text) = license else {
        return Some(format!("{name} {version} states no licence"));
    };
    // Old manifests separate alternatives by a slash.
    let expression = match spdx::Expression::parse_mode(text, spdx::ParseMode::LAX) {
        Ok(expression) => expression,
        Err(error) => return Some(format!("{name} {version}: {text:?} is no licence: {}", error.reason)),
    };
    let accepted = |needed: &spdx::LicenseReq| {
        let mut ours = rules.allow.iter().filter_map(|name| spdx::Licensee::parse(name).ok());
        ours.any(|ours| ours.satisfies(needed))
    };
    let allowed = expression.evaluate(accepted);
    (!allowed).then(|| format!("{name} {version} is under {text}, which isn't allowed"))
}

fn source_fault(Package { name, version, source, .. }: &Package) -> Option<String> {
    let source = source.as_deref().filter(|&source| source != CRATES_IO)?;
    Some(format!("{name} {version} comes from {source}"))
}

/// Versions beside another one that no rule lets be, rules without a reason, and rules that nothing needs.
fn version_faults(rules: &Bans, packages: &[Package]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for Package { name, version, .. } in packages {
        versions.entry(name).or_default().insert(format!("{name}@{version}"));
    }
    let skipped = |version: &String| rules.skip.iter().any(|skip| skip.package == *version);
    let several = versions.values().filter(|versions| versions.iter().filter(|v| !skipped(v)).count() > 1);
    let mut faults: Vec<String> = several.map(|versions| format!("several versions: {versions:?}")).collect();
    for Skip { package, reason } in &rules.skip {
        let needed = versions.values().any(|versions| versions.len() > 1 && versions.contains(package));
        if !needed || reason.is_empty() {
            faults.push(format!(
                "{package} is skipped, {}",
                if needed { "without a reason" } else { "but alone or gone" }
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"
        licenses.allow = ["MIT", "Apache-2.0"]
        bans.skip = [{ crate = "old@1.0.0", reason = "someone needs it" }]
    "#;

    fn package(name: &str, version: &str, license: &str, source: Option<&str>) -> Package {
        let [name, version, license] = [name, version, license].map(str::to_owned);
        Package { name, version, license: Some(license), source: source.map(str::to_owned) }
    }

    fn faults(extra: Package) -> Vec<String> {
        let rules = toml::from_str(RULES).unwrap();
        let mut packages = vec![
            package("ours", "0.1.0", "MIT OR Apache-2.0", None),
            package("old", "1.0.0", "MIT/Apache-2.0", Some(CRATES_IO)),
            package("old", "2.0.0", "GPL-3.0-only OR MIT", Some(CRATES_IO)),
        ];
        packages.push(extra);
        check(&rules, &packages)
    }

    #[test]
    fn what_the_rules_allow_is_no_fault() {
        assert_eq!(faults(package("new", "1.0.0", "MIT AND Apache-2.0", Some(CRATES_IO))), [""; 0]);
    }

    #[test]
    fn each_rule_finds_its_fault() {
        let found = |package: Package| faults(package).join("\n");
        assert!(found(package("new", "1.0.0", "GPL-3.0-only", Some(CRATES_IO))).contains("isn't allowed"));
        assert!(
            found(package("new", "1.0.0", "MIT AND GPL-3.0-only", Some(CRATES_IO))).contains("isn't allowed")
        );
        assert!(
            found(package("new", "1.0.0", "MIT", Some("git+https://example.org"))).contains("comes from git")
        );
        assert!(found(package("old", "3.0.0", "MIT", Some(CRATES_IO))).contains("several versions"));
        let unused = toml::from_str::<Rules>(RULES).map(|rules| check(&rules, &[])).unwrap();
        assert_eq!(unused, ["old@1.0.0 is skipped, but alone or gone"]);
    }
}
