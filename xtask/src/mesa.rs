//! A newer lavapipe beside the system's.
//!
//! Debian 12 has Mesa 22.3, and 25.0 in its backports. Users have either, what one gets wrong the other may
//! not, and Dawn refuses the older one. The newer driver is unpacked into a folder, so the system's stays as
//! it is.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use xshell::{Shell, cmd};

/// Where it goes, below the workspace's root.
const FOLDER: &str = "target/mesa-backports";

/// The release of Debian that the package is made for.
const RELEASE: &str = "bookworm";

/// The package. What it needs besides (LLVM, libdrm, xcb) the system's own version of it has brought.
const PACKAGE: &str = "mesa-vulkan-drivers";

const LIBRARY: &str = "libvulkan_lvp.so";

/// The manifest of the newer lavapipe for a Vulkan loader, fetched at the first call.
///
/// # Errors
/// The system isn't Debian 12, its archive can't be reached, or libraries are missing that the driver needs.
pub(crate) fn newer_lavapipe(sh: &Shell) -> anyhow::Result<PathBuf> {
    let folder = sh.current_dir().join(FOLDER);
    let manifest = folder.join("lvp_icd.json");
    if !manifest.is_file() {
        let system = sh.read_file("/etc/os-release").unwrap_or_default();
        ensure!(
            system.lines().any(|line| line == format!("VERSION_CODENAME={RELEASE}")),
            "the second lavapipe is unpacked from the backports of Debian's {RELEASE}, which this system isn't"
        );
        fetch(sh, &folder)?;
        let library = find(&folder.join("root/usr/lib"))?;
        check_libraries(sh, &library)?;
        // Written last: it says that everything else is there.
        sh.write_file(&manifest, manifest_of(&library)?)?;
    }
    Ok(manifest)
}

/// Downloads and unpacks the package with lists and a cache of our own, for which nobody has to be an
/// administrator.
fn fetch(sh: &Shell, folder: &Path) -> anyhow::Result<()> {
    sh.remove_path(folder)?;
    let (lists, cache) = (folder.join("lists"), folder.join("cache"));
    for folder in [lists.join("partial"), cache.join("archives/partial")] {
        sh.create_dir(folder)?;
    }
    let sources = folder.join("sources.list");
    sh.write_file(&sources, format!("deb {} {RELEASE}-backports main\n", mirror(sh)?))?;
    let settings = [
        format!("Dir::Etc::SourceList={}", sources.display()),
        "Dir::Etc::SourceParts=/dev/null".to_owned(),
        format!("Dir::State::Lists={}", lists.display()),
        format!("Dir::Cache={}", cache.display()),
    ];
    let settings: &Vec<String> = &settings.into_iter().flat_map(|value| ["-o".to_owned(), value]).collect();
    cmd!(sh, "apt-get {settings...} --quiet update").run()?;
    let _here = sh.push_dir(folder);
    cmd!(sh, "apt-get {settings...} --quiet download {PACKAGE}/{RELEASE}-backports").run()?;
    let packages = sh.read_dir(".")?;
    let package = packages.iter().find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let package = package.context("apt-get downloaded no package")?;
    cmd!(sh, "dpkg-deb --extract {package} root").run()?;
    Ok(())
}

/// Where this system gets the release from: the archive whose index `apt-get update` would fetch.
fn mirror(sh: &Shell) -> anyhow::Result<String> {
    let uris = cmd!(sh, "apt-get update --print-uris").quiet().read()?;
    let index = format!("/dists/{RELEASE}/InRelease'");
    let mirror = uris.split_whitespace().find_map(|word| word.strip_prefix('\'')?.strip_suffix(&index));
    Ok(mirror.with_context(|| format!("apt has no archive of {RELEASE} among its sources"))?.to_owned())
}

/// The driver, in the folder of the machine's architecture.
fn find(libraries: &Path) -> anyhow::Result<PathBuf> {
    let folders = fs::read_dir(libraries).with_context(|| libraries.display().to_string())?;
    let mut found = folders.filter_map(|entry| Some(entry.ok()?.path().join(LIBRARY)));
    found.find(|path| path.is_file()).with_context(|| format!("{PACKAGE} has no {LIBRARY}"))
}

fn check_libraries(sh: &Shell, driver: &Path) -> anyhow::Result<()> {
    let needed = cmd!(sh, "ldd {driver}").quiet().read()?;
    let missing: Vec<&str> = needed.lines().filter(|line| line.contains("not found")).collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!("{}: {}; install the system's own {PACKAGE} first", driver.display(), missing.join(","))
}

/// A driver's manifest. The library's path is absolute, as the manifest lies in no folder of the loader's.
fn manifest_of(library: &Path) -> anyhow::Result<String> {
    let library = library.to_str().context("the workspace's path isn't text")?;
    ensure!(!library.contains(['"', '\\']), "a manifest can't name {library}");
    Ok(format!(
        "{{\"file_format_version\": \"1.0.0\", \"ICD\": {{\"api_version\": \"1.4.0\", \"library_path\": \"{library}\"}}}}\n"
    ))
}
