//! The Python wheel of the ONNX Runtime provider: a zip archive of the library and a module that finds it.

use std::env::consts::{ARCH, OS};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use xshell::{Shell, cmd};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

const MODULE: &str = "webgpu_compute_onnxruntime";

/// The module's sources.
const PYTHON: &str = "crates/onnxruntime-ep/python";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The profile that the library is built in; dev builds the suites with it, which share its dependencies
    #[arg(long, default_value = "release")]
    profile: String,
    /// Where the wheel goes
    #[arg(long, default_value = "target/wheels")]
    out: PathBuf,
}

pub(crate) fn run(sh: &Shell, args: &Args) -> anyhow::Result<()> {
    let library = build(sh, &args.profile)?;
    let wheel = pack(sh, &library, &args.out)?;
    println!("wheel: {}", wheel.display());
    Ok(())
}

/// Packs the library and its module into a wheel in a folder. Returns the wheel's path.
pub(crate) fn pack(sh: &Shell, library: &Path, out: &Path) -> anyhow::Result<PathBuf> {
    let version = env!("CARGO_PKG_VERSION");
    let binary = fs::read(library)?;
    let tag = format!("py3-none-{}", platform(OS, ARCH, &binary)?);
    let folder = sh.current_dir().join(out);
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{MODULE}-{version}-{tag}.whl"));
    let python = sh.current_dir().join(PYTHON);
    let info = format!("{MODULE}-{version}.dist-info");
    let file_name = library.file_name().context("a library has a name")?.to_string_lossy().into_owned();
    let files = [
        (format!("{MODULE}/__init__.py"), fs::read(python.join(MODULE).join("__init__.py"))?),
        (format!("{MODULE}/{file_name}"), binary),
        (format!("{info}/METADATA"), metadata(version, &fs::read_to_string(python.join("README.md"))?)),
        (format!("{info}/licenses/LICENSE-MIT"), fs::read("LICENSE-MIT")?),
        (format!("{info}/licenses/LICENSE-APACHE"), fs::read("LICENSE-APACHE")?),
        (
            format!("{info}/WHEEL"),
            format!("Wheel-Version: 1.0\nGenerator: cargo xtask wheel\nRoot-Is-Purelib: false\nTag: {tag}\n")
                .into_bytes(),
        ),
    ];
    let mut wheel = ZipWriter::new(File::create(&path)?);
    let options = SimpleFileOptions::default();
    let mut record = String::new();
    for (name, bytes) in &files {
        wheel.start_file(name.as_str(), options)?;
        wheel.write_all(bytes)?;
        let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(bytes));
        record += &format!("{name},sha256={digest},{}\n", bytes.len());
    }
    wheel.start_file(format!("{info}/RECORD"), options)?;
    wheel.write_all(format!("{record}{info}/RECORD,,\n").as_bytes())?;
    wheel.finish()?;
    Ok(path)
}

/// What is built with the library in the dev profile: all that has its features, but for the pages' modules, which are for
/// browsers.
const IN_DEV: &str =
    "--workspace --lib --tests --bins --exclude suites-web --exclude minilm-web --exclude llama-web";

/// The provider's library, built in a profile; in the dev profile as the suites are, with the same features.
pub(crate) fn build(sh: &Shell, profile: &str) -> anyhow::Result<PathBuf> {
    let packages = match profile {
        "dev" => IN_DEV,
        _ => "--package onnxruntime-ep --lib",
    }
    .split(' ');
    cmd!(sh, "cargo build --profile {profile} {packages...}").run()?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(sh.current_dir().join(target).join(folder).join(format!("{prefix}{MODULE}{suffix}")))
}

/// The platform as wheels name it. On Linux it says which glibc the library needs, and at least the one that
/// pip's own wheels are built for.
fn platform(os: &str, arch: &str, library: &[u8]) -> anyhow::Result<String> {
    Ok(match (os, arch) {
        ("windows", "x86_64") => "win_amd64".to_owned(),
        ("windows", "aarch64") => "win_arm64".to_owned(),
        ("macos", "x86_64") => "macosx_11_0_x86_64".to_owned(),
        ("macos", "aarch64") => "macosx_11_0_arm64".to_owned(),
        ("linux", _) => format!("manylinux_2_{}_{arch}", glibc_minor(library).max(28)),
        _ => anyhow::bail!("there are no wheels for {os} on {arch}"),
    })
}

/// The newest minor version in the library's requirements of symbols, `GLIBC_2.…`.
fn glibc_minor(library: &[u8]) -> u32 {
    const PREFIX: &[u8] = b"GLIBC_2.";
    let places = library.windows(PREFIX.len()).enumerate().filter(|(_, window)| *window == PREFIX);
    let minor = |(place, _): (usize, &[u8])| {
        let digits = library.get(place + PREFIX.len()..)?.iter().take_while(|byte| byte.is_ascii_digit());
        String::from_utf8(digits.copied().collect()).ok()?.parse().ok()
    };
    places.filter_map(minor).max().unwrap_or(0)
}

fn metadata(version: &str, readme: &str) -> Vec<u8> {
    format!(
        "Metadata-Version: 2.4\nName: {MODULE}\nVersion: {version}\nSummary: An execution provider for ONNX \
         Runtime on every GPU that WebGPU reaches\nLicense-Expression: MIT OR Apache-2.0\nRequires-Python: \
         >=3.10\nDescription-Content-Type: text/markdown\n\n{readme}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::{glibc_minor, platform};

    #[test]
    fn the_newest_requirement_counts() {
        assert_eq!(glibc_minor(b"..GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_2."), 34);
        assert_eq!(glibc_minor(b"none"), 0);
    }

    #[test]
    fn a_tag_names_the_system_and_the_processor() {
        let tag = |os, arch| platform(os, arch, b"GLIBC_2.31").unwrap();
        assert_eq!(tag("linux", "aarch64"), "manylinux_2_31_aarch64");
        assert_eq!(tag("macos", "x86_64"), "macosx_11_0_x86_64");
        assert_eq!(tag("macos", "aarch64"), "macosx_11_0_arm64");
        assert_eq!(tag("windows", "aarch64"), "win_arm64");
        assert_eq!(tag("windows", "x86_64"), "win_amd64");
        assert!(platform("windows", "x86", b"").is_err());
    }
}
