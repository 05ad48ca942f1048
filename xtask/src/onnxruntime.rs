//! The provider's tests in ONNX Runtime, which Python drives.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use xshell::{Shell, cmd};

use crate::{drivers, model, wheel};

/// The package whose cases the lists in `crates/onnxruntime-ep/tests` are of.
const ONNX: &str = "onnx==1.23.2";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Versions of ONNX Runtime; the first one's claims are compared with the lists
    #[arg(long, value_delimiter = ',', default_value = "1.32.0,1.25.1,1.23.2")]
    versions: Vec<String>,
    /// Devices, as COMPUTE_BACKEND names them
    #[arg(long, value_delimiter = ',', default_value = "webgpu:llvmpipe,cpu")]
    devices: Vec<String>,
    /// Arguments for node_models.py, such as --write
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(sh: &Shell, args: &Args) -> anyhow::Result<()> {
    drivers::prepare(sh, true, false)?;
    let weights = model::ensure_present(sh)?;
    let library = wheel::build(sh, "dev")?;
    let [nodes, models, architectures, operators, failures] =
        ["node_models", "models", "architectures", "operators", "failures"].map(script);
    let arguments = &args.arguments;
    for (i, version) in args.versions.iter().enumerate() {
        let python = environment(sh, version)?;
        // One device and a part of the cases show whether an older version works.
        let (devices, older) = match i {
            0 => (args.devices.as_slice(), [].as_slice()),
            _ => (args.devices.get(..1).unwrap_or_default(), ["--older", "--sample=8"].as_slice()),
        };
        for device in devices {
            let _device = sh.push_env("COMPUTE_BACKEND", device);
            cmd!(sh, "{python} {nodes} {library} {older...} {arguments...}").run()?;
            cmd!(sh, "{python} {models} {library} {weights}").run()?;
            cmd!(sh, "{python} {architectures} {library}").run()?;
            cmd!(sh, "{python} {operators} {library}").run()?;
            cmd!(sh, "{python} {failures} {library}").run()?;
        }
    }
    if let (Some(version), Some(device)) = (args.versions.first(), args.devices.first()) {
        let _device = sh.push_env("COMPUTE_BACKEND", device);
        installed(sh, version, &library)?;
    }
    Ok(())
}

/// The path of one of the tests.
fn script(name: &str) -> String {
    format!("crates/onnxruntime-ep/tests/{name}.py")
}

/// Installs the wheel into a new environment, and runs the lines of its README there.
fn installed(sh: &Shell, version: &str, library: &Path) -> anyhow::Result<()> {
    let folder = sh.current_dir().join("target/onnxruntime/installed");
    sh.remove_path(&folder)?;
    sh.create_dir(&folder)?;
    let wheel = wheel::pack(sh, library, &folder)?;
    let test = script("installed");
    let maker = environment(sh, version)?;
    cmd!(sh, "{maker} {test} --make {folder}").run()?;
    let venv = folder.join("venv");
    cmd!(sh, "python3 -m venv {venv}").run()?;
    let python = python_of(&venv);
    let package = format!("onnxruntime=={version}");
    cmd!(sh, "{python} -m pip install --quiet --disable-pip-version-check {package} numpy {wheel}").run()?;
    cmd!(sh, "{python} {test} {folder}").run()?;
    Ok(())
}

fn python_of(venv: &Path) -> PathBuf {
    venv.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" })
}

/// Python of a virtual environment with this version of ONNX Runtime.
fn environment(sh: &Shell, version: &str) -> anyhow::Result<PathBuf> {
    let folder = sh.current_dir().join("target/onnxruntime").join(version);
    let python = python_of(&folder);
    if !folder.join("complete").exists() {
        cmd!(sh, "python3 -m venv {folder}").run().context("Python 3 with venv makes the environments")?;
        let package = format!("onnxruntime=={version}");
        cmd!(sh, "{python} -m pip install --quiet --disable-pip-version-check {package} {ONNX} numpy")
            .run()?;
        sh.write_file(folder.join("complete"), "")?;
    }
    Ok(python)
}
