//! The software adapters that the suites run on, and how to get them.
//!
//! Linux only: elsewhere the system brings a driver, and there is nothing to find or install.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::bail;
use xshell::{Shell, cmd};

use crate::mesa;

/// Where the Vulkan loader looks for the manifests of installed drivers.
const VULKAN_MANIFESTS: [&str; 3] =
    ["/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d"];

/// Where EGL looks for the manifests of installed OpenGL drivers.
const EGL_MANIFESTS: [&str; 2] = ["/usr/share/glvnd/egl_vendor.d", "/etc/glvnd/egl_vendor.d"];

/// SwiftShader's manifest in Debian's package of Chromium, which no Vulkan loader finds by itself.
const SWIFTSHADER: &str = "/usr/lib/chromium/vk_swiftshader_icd.json";

/// Where shared libraries are.
const LIBRARIES: [&str; 5] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"];

/// Tells the Vulkan loader of drivers besides the installed ones.
const ADDED_DRIVERS: &str = "VK_ADD_DRIVER_FILES";

/// Variables that name the only drivers that a Vulkan loader may use; then we add none.
const CHOSEN_DRIVERS: [&str; 2] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];

/// One interface through which a suite finds adapters.
struct Interface {
    /// What it is, for a person.
    what: &'static str,
    /// The manifests of its drivers.
    drivers: Vec<PathBuf>,
    /// Debian's packages that bring a software driver of it.
    packages: &'static [&'static str],
    /// Whether the suites are complete without it on a user's machine.
    optional: bool,
}

impl Interface {
    fn is_missing(&self) -> bool {
        self.drivers.is_empty()
    }
}

/// Finds the drivers of this system, installs software drivers where they are missing and it may, and makes
/// SwiftShader known to the Vulkan loader of every command that `sh` runs, which has a runtime folder too.
///
/// With `all`, a missing SwiftShader is an error too.
pub(crate) fn prepare(sh: &Shell, install: bool, all: bool) -> anyhow::Result<()> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let mut interfaces = find();
    if install && interfaces.iter().any(Interface::is_missing) && can_install(sh) {
        install_missing(sh, &interfaces)?;
        interfaces = find();
    }
    let missing = interfaces.iter().filter(|interface| interface.is_missing());
    let (spared, needed): (Vec<_>, Vec<_>) = missing.partition(|interface| interface.optional && !all);
    if !needed.is_empty() {
        bail!("no driver for {}; to install one: {}", names(&needed), by_hand(&needed));
    }
    if !spared.is_empty() {
        println!("not tested: {}; to add it: {}", names(&spared), by_hand(&spared));
    }
    report(&interfaces);
    if sh.var_os(RUNTIME_FOLDER).is_none() {
        sh.set_var(RUNTIME_FOLDER, env::temp_dir());
    }
    if CHOSEN_DRIVERS.iter().any(|variable| env::var_os(variable).is_some()) {
        return Ok(());
    }
    if Path::new(SWIFTSHADER).is_file() {
        add(sh, SWIFTSHADER)?;
    }
    Ok(())
}

/// Tells llvmpipe not to optimise what it compiles. With barriers, as most kernels have, newer versions of it
/// take minutes over a kernel otherwise.
const UNOPTIMISED: (&str, &str) = ("GALLIVM_PERF", "nopt");

/// Where EGL looks for a display's socket; Mesa complains, for each device, where it isn't set.
const RUNTIME_FOLDER: &str = "XDG_RUNTIME_DIR";

/// Makes the newer lavapipe known to the Vulkan loader of every command that `sh` runs, besides the other
/// drivers.
pub(crate) fn add_newer_lavapipe(sh: &Shell) -> anyhow::Result<()> {
    let manifest = mesa::newer_lavapipe(sh)?;
    println!("  Vulkan: {}", manifest.display());
    sh.set_var(UNOPTIMISED.0, UNOPTIMISED.1);
    add(sh, &manifest.to_string_lossy())
}

/// Makes the newer lavapipe the only driver of the Vulkan loader of every command that `sh` runs.
pub(crate) fn choose_newer_lavapipe(sh: &Shell) -> anyhow::Result<()> {
    sh.set_var(CHOSEN_DRIVERS[0], mesa::newer_lavapipe(sh)?);
    sh.set_var(UNOPTIMISED.0, UNOPTIMISED.1);
    Ok(())
}

fn find() -> [Interface; 3] {
    let chosen = CHOSEN_DRIVERS.iter().find_map(env::var_os);
    let vulkan = match chosen {
        Some(list) => env::split_paths(&list).collect(),
        None => manifests(&VULKAN_MANIFESTS, "libvulkan.so.1"),
    };
    let swiftshader = PathBuf::from(SWIFTSHADER);
    [
        Interface {
            what: "Vulkan",
            drivers: vulkan,
            packages: &["libvulkan1", "mesa-vulkan-drivers"],
            optional: false,
        },
        Interface {
            what: "OpenGL",
            drivers: manifests(&EGL_MANIFESTS, "libEGL.so.1"),
            packages: &["libegl1", "libgl1-mesa-dri", "libgles2"],
            optional: false,
        },
        Interface {
            what: "SwiftShader",
            drivers: swiftshader.is_file().then_some(swiftshader).into_iter().collect(),
            packages: &["chromium-common"],
            optional: true,
        },
    ]
}

/// The manifests in `folders`; none if the library that reads them isn't installed.
fn manifests(folders: &[&str], loader: &str) -> Vec<PathBuf> {
    if !LIBRARIES.iter().any(|folder| Path::new(folder).join(loader).exists()) {
        return Vec::new();
    }
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    found.sort();
    found
}

/// Whether this is Debian or a relative, and we are its administrator.
fn can_install(sh: &Shell) -> bool {
    let answers = |command: xshell::Cmd<'_>| command.quiet().ignore_stderr().read().ok();
    answers(cmd!(sh, "apt-get --version")).is_some() && answers(cmd!(sh, "id -u")).as_deref() == Some("0")
}

/// Tries to install each missing driver. What is missing after that is told by the caller, so a package that
/// this system doesn't have is no error here.
fn install_missing(sh: &Shell, interfaces: &[Interface]) -> anyhow::Result<()> {
    let _noninteractive = sh.push_env("DEBIAN_FRONTEND", "noninteractive");
    cmd!(sh, "apt-get update --quiet").run()?;
    for &Interface { what, packages, .. } in interfaces.iter().filter(|interface| interface.is_missing()) {
        let install = cmd!(sh, "apt-get install --yes --quiet --no-install-recommends {packages...}");
        if let Err(error) = install.run() {
            println!("no driver for {what} could be installed: {error}");
        }
    }
    Ok(())
}

fn names(interfaces: &[&Interface]) -> String {
    let names: Vec<&str> = interfaces.iter().map(|interface| interface.what).collect();
    names.join(", ")
}

/// The command that installs what is missing, for someone who may.
fn by_hand(interfaces: &[&Interface]) -> String {
    let packages: Vec<&str> = interfaces.iter().flat_map(|i| i.packages.iter().copied()).collect();
    format!(
        "sudo apt-get update && sudo apt-get install -y --no-install-recommends {}\n(the names are Debian's; other \
         systems have Mesa's lavapipe and llvmpipe under names of their own)",
        packages.join(" ")
    )
}

fn report(interfaces: &[Interface]) {
    println!("drivers found (one without its hardware gives no adapter):");
    for Interface { what, drivers, .. } in interfaces {
        for driver in drivers {
            println!("  {what}: {}", driver.display());
        }
    }
}

/// What `sh` tells the loaders and the drivers of the commands that it runs, for a program that it doesn't start.
pub(crate) fn variables(sh: &Shell) -> Vec<(&'static str, OsString)> {
    let names = [ADDED_DRIVERS, CHOSEN_DRIVERS[0], UNOPTIMISED.0, RUNTIME_FOLDER];
    names.into_iter().filter_map(|name| Some((name, sh.var_os(name)?))).collect()
}

/// What [`variables`] gives, without SwiftShader.
pub(crate) fn without_swiftshader(sh: &Shell) -> Vec<(&'static str, OsString)> {
    let mut all = variables(sh);
    for (_, list) in all.iter_mut().filter(|(name, _)| *name == ADDED_DRIVERS) {
        let others: Vec<PathBuf> =
            env::split_paths(list).filter(|path| path != Path::new(SWIFTSHADER)).collect();
        *list = env::join_paths(others).unwrap_or_default();
    }
    all
}

/// Where Linux has its graphics devices, and NVIDIA's driver its own.
const GRAPHICS_DEVICES: [&str; 2] = ["/dev/dri", "/dev/nvidiactl"];

/// The manifests of OpenGL drivers that EGL may use, in place of those that it looks for.
const CHOSEN_EGL_DRIVERS: &str = "__EGL_VENDOR_LIBRARY_FILENAMES";

/// What [`without_swiftshader`] gives, without OpenGL where that can only be a software driver's.
pub(crate) fn without_software_opengl(sh: &Shell) -> Vec<(&'static str, OsString)> {
    let mut all = without_swiftshader(sh);
    if !GRAPHICS_DEVICES.iter().any(|path| Path::new(path).exists()) {
        all.push((CHOSEN_EGL_DRIVERS, "/dev/null".into()));
    }
    all
}

/// Another shell in the workspace's root that knows the same drivers, for another thread.
pub(crate) fn another_shell(sh: &Shell) -> anyhow::Result<Shell> {
    let other = Shell::new()?;
    other.change_dir(sh.current_dir());
    for (name, value) in variables(sh) {
        other.set_var(name, value);
    }
    Ok(other)
}

/// Adds a driver's manifest to those that the loader knows of.
fn add(sh: &Shell, manifest: &str) -> anyhow::Result<()> {
    let list = match sh.var_os(ADDED_DRIVERS) {
        Some(others) if !others.is_empty() => {
            env::join_paths(env::split_paths(&others).chain([PathBuf::from(manifest)]))?
        }
        _ => manifest.into(),
    };
    sh.set_var(ADDED_DRIVERS, list);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swiftshader_is_left_out_and_no_other_driver() {
        let other = PathBuf::from("/drivers/one.json");
        let sh = Shell::new().unwrap();
        sh.set_var(ADDED_DRIVERS, env::join_paths([other.clone(), PathBuf::from(SWIFTSHADER)]).unwrap());
        let added = |variables: Vec<(&str, OsString)>| {
            let list = variables.into_iter().find(|(name, _)| *name == ADDED_DRIVERS).unwrap().1;
            env::split_paths(&list).collect::<Vec<_>>()
        };
        assert_eq!(added(variables(&sh)), [other.clone(), PathBuf::from(SWIFTSHADER)]);
        assert_eq!(added(without_swiftshader(&sh)), [other]);
    }

    #[test]
    fn opengl_is_left_out_without_a_graphics_device() {
        let sh = Shell::new().unwrap();
        let left_out = without_software_opengl(&sh).iter().any(|(name, _)| *name == CHOSEN_EGL_DRIVERS);
        assert_eq!(left_out, !GRAPHICS_DEVICES.iter().any(|path| Path::new(path).exists()));
        assert!(without_swiftshader(&sh).iter().all(|(name, _)| *name != CHOSEN_EGL_DRIVERS));
    }
}
