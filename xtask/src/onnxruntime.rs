//! The provider's tests in ONNX Runtime, which Python drives.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use xshell::{Shell, cmd};

use crate::{drivers, model, parallel, wheel};

/// The package whose cases the lists in `crates/onnxruntime-ep/tests` are of.
const ONNX: &str = "onnx==1.23.2";

/// The tests of a version, in the order in which they run.
const ALL: &[&str] =
    &["node_models", "models", "architectures", "operators", "recurrent", "sharing", "failures", "profiling"];

/// The tests of a version between the first and the last one.
const BETWEEN: &[&str] = &["node_models", "models", "sharing", "failures", "profiling"];

/// The example for programs in Rust, a package outside the workspace.
const RUST_EXAMPLE: &str = "examples/ort/Cargo.toml";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Versions of ONNX Runtime, the newest first: what the provider claims there is compared with the lists. 1.25.1 is
    /// tested on demand
    #[arg(long, value_delimiter = ',', default_value = "1.32.0,1.23.2")]
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
    let mut runs = Vec::new();
    for (i, version) in args.versions.iter().enumerate() {
        let python = environment(sh, version)?;
        // One device and a part of the cases show whether an older version works. What the operators compute, the oldest one
        // tells for those in between.
        let (devices, older) = match i {
            0 => (args.devices.as_slice(), [].as_slice()),
            _ => (args.devices.get(..1).unwrap_or_default(), ["--older", "--sample=16"].as_slice()),
        };
        let tests = if i == 0 || i + 1 == args.versions.len() { ALL } else { BETWEEN };
        for (place, device) in devices.iter().enumerate() {
            // What is claimed doesn't depend on the device, and the CPU's own tests run all of its kernels.
            let is_further = place > 0 && args.arguments.is_empty();
            let further = if is_further { ["--sample=8"].as_slice() } else { &[] };
            let chosen = older.iter().chain(further).map(|&option| option.to_owned());
            let nodes: Vec<String> = chosen.chain(args.arguments.iter().cloned()).collect();
            runs.push(Run {
                sh: drivers::another_shell(sh)?,
                version: version.clone(),
                python: python.clone(),
                device: device.clone(),
                nodes,
                tests,
            });
        }
    }
    // Most of the tests keep one core busy.
    let at_once = std::thread::available_parallelism().map_or(1, usize::from).min(2);
    parallel::map(runs, at_once, |run| run.scripts(&library, &weights))
        .into_iter()
        .collect::<anyhow::Result<()>>()?;
    if let (Some(version), Some(device)) = (args.versions.first(), args.devices.first()) {
        let _device = sh.push_env("COMPUTE_BACKEND", device);
        let model = installed(sh, version, &library)?;
        from_rust(sh, version, &library, &model)?;
    }
    Ok(())
}

/// The tests of one version of ONNX Runtime on one device.
struct Run {
    sh: Shell,
    version: String,
    python: PathBuf,
    device: String,
    /// Arguments of the test of the node models.
    nodes: Vec<String>,
    tests: &'static [&'static str],
}

impl Run {
    /// Runs the tests in turn, and prints what each has printed when it ends.
    fn scripts(&self, library: &Path, weights: &Path) -> anyhow::Result<()> {
        let Self { sh, version, python, device, nodes, tests } = self;
        let _device = sh.push_env("COMPUTE_BACKEND", device);
        let weights = [weights.to_string_lossy().into_owned()];
        for &name in *tests {
            let arguments = match name {
                "node_models" => nodes.as_slice(),
                "models" => &weights,
                _ => &[],
            };
            let test = script(name);
            let output = cmd!(sh, "{python} {test} {library} {arguments...}").ignore_status().output()?;
            let text =
                [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            println!(
                "--- {name} of ONNX Runtime {version} on {device}: {}\n{}",
                output.status,
                text.concat()
            );
            if !output.status.success() {
                bail!("{name} of ONNX Runtime {version} on {device} failed");
            }
        }
        Ok(())
    }
}

/// The path of one of the tests.
fn script(name: &str) -> String {
    format!("crates/onnxruntime-ep/tests/{name}.py")
}

/// Installs the wheel into a new environment, and runs the lines of its README there. Returns the path of the
/// model that they run.
fn installed(sh: &Shell, version: &str, library: &Path) -> anyhow::Result<PathBuf> {
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
    Ok(folder.join("model.onnx"))
}

/// Lints the example in Rust, and runs it on a small model with the ONNX Runtime of Python's package. It
/// fails by itself where a node is left to the CPU or an output differs.
fn from_rust(sh: &Shell, version: &str, library: &Path, model: &Path) -> anyhow::Result<()> {
    cmd!(sh, "cargo fmt --manifest-path {RUST_EXAMPLE} --check").run()?;
    let target = sh.current_dir().join("target/onnxruntime/ort");
    let package = ["--locked", "--manifest-path", RUST_EXAMPLE, "--target-dir"];
    cmd!(sh, "cargo clippy {package...} {target} -- -D warnings").run()?;
    let _runtime = sh.push_env("ORT_DYLIB_PATH", runtime(sh, version)?);
    cmd!(sh, "cargo run {package...} {target} -- {library} {model} b=2 h=32 w=32").run()?;
    Ok(())
}

/// ONNX Runtime's own library in the package for Python.
fn runtime(sh: &Shell, version: &str) -> anyhow::Result<PathBuf> {
    let python = environment(sh, version)?;
    let program = "import os, onnxruntime; print(os.path.dirname(onnxruntime.__file__))";
    let folder = PathBuf::from(cmd!(sh, "{python} -c {program}").read()?).join("capi");
    // A version stands before the library's suffix on macOS, after it on Linux, and nowhere on Windows.
    let prefix = format!("{}onnxruntime.", std::env::consts::DLL_PREFIX);
    let is_runtime =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix));
    let found = sh.read_dir(&folder)?.into_iter().find(is_runtime);
    found.with_context(|| format!("{} has no {prefix}…", folder.display()))
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
