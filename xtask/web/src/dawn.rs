//! The suites for pages in node, on Dawn: Chromium's WebGPU without the browser, on drivers that Chromium
//! doesn't take.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use xshell::{Shell, cmd};

use crate::build::PAGES;

/// Dawn for node, as npm spells it.
const DAWN: &str = "webgpu@0.6.2";

const SCRIPT: &str = "xtask/web/node/suites.mjs";

/// Operations whose kernels the driver compiles within seconds. LLVM takes minutes over most of those with
/// barriers.
const QUICK: [&str; 24] = [
    "affine/",
    "batched_gemm/",
    "binary/",
    "binary_ext/",
    "clamp/",
    "compare/",
    "concat/",
    "copy/",
    "cumsum/",
    "fill/",
    "gather/",
    "gemm/",
    "matmul/",
    "pad/",
    "permute/",
    "pool2d/",
    "random/",
    "repeat/",
    "rope/",
    "scatter/",
    "slice/",
    "unary/",
    "unary_ext/",
    "where_cond/",
];

/// The sample of f16 is so many times as large as the others: no other test of pages has f16.
const F16: usize = 2;

/// What is run where.
#[derive(Debug)]
struct Suite {
    /// What Dawn runs on.
    driver: &'static str,
    /// A function of the module for pages, or "kernels".
    name: &'static str,
    /// Its arguments as JSON.
    arguments: Vec<String>,
}

impl Suite {
    fn new(driver: &'static str, name: &'static str) -> Self {
        Self { driver, name, arguments: Vec::new() }
    }

    /// One kernel in `every`.
    fn kernels(driver: &'static str, every: usize) -> Self {
        Self { arguments: vec![every.to_string()], ..Self::new(driver, "kernels") }
    }

    /// One case in `every` of those that `filter` names.
    fn conformance(every: usize, filter: &str) -> Self {
        let arguments = ["\"webgpu\"", &every.to_string(), &format!("{filter:?}"), "0", "1"];
        Self { arguments: arguments.map(str::to_owned).to_vec(), ..Self::new("vulkan", "conformance") }
    }

    fn fails(&self, sh: &Shell, dawn: &Path, page: &Path) -> bool {
        let Self { driver, name, arguments } = self;
        cmd!(sh, "node --expose-gc {SCRIPT} {dawn} {page} {driver} {name} {arguments...}")
            .quiet()
            .run()
            .is_err()
    }
}

/// Gives every kernel to Tint and a sample of them to the driver, and runs the faults and a sample of
/// conformance: one kernel and one case in `every`, and more of f16. Or every case whose path contains
/// `case`.
pub(crate) fn run(sh: &Shell, every: usize, case: &str) -> anyhow::Result<()> {
    let dawn = fetch(sh)?;
    let page = sh.current_dir().join(PAGES).join("suites");
    let suites = if case.is_empty() { sample(every) } else { vec![Suite::conformance(1, case)] };
    // Each in a process of its own, as in a page of its own.
    let failed: Vec<Suite> = suites.into_iter().filter(|suite| suite.fails(sh, &dawn, &page)).collect();
    ensure!(failed.is_empty(), "failures in Dawn: {failed:?}");
    Ok(())
}

fn sample(every: usize) -> Vec<Suite> {
    let of_f16 = QUICK.map(|operation| format!("{operation} f16")).join(",");
    vec![
        Suite::kernels("null", 1),
        Suite::kernels("vulkan", every),
        Suite::new("vulkan", "faults"),
        Suite::new("none", "without_webgpu"),
        Suite::conformance((every / F16).max(1), &of_f16),
        Suite::conformance(every, &QUICK.join(",")),
    ]
}

/// The package's folder. It is fetched once, and only what this system runs of it is unpacked.
fn fetch(sh: &Shell) -> anyhow::Result<PathBuf> {
    let folder = sh.current_dir().join("target").join(DAWN);
    if !folder.join("index.js").is_file() {
        sh.create_dir(&folder)?;
        let scratch = tempfile::tempdir()?;
        let scratch = scratch.path();
        let archive = cmd!(sh, "npm pack --silent --pack-destination {scratch} {DAWN}")
            .read()
            .context("Dawn comes with npm (Debian: apt-get install nodejs npm)")?;
        let archive = scratch.join(archive.trim());
        let platform = cmd!(sh, "node --print").arg("`${process.platform}-${process.arch}`").read()?;
        let platform = format!(
            "package/dist/{}",
            if platform.starts_with("darwin") { "darwin-universal" } else { &platform }
        );
        let members = ["package/package.json", "package/index.js", &platform];
        cmd!(sh, "tar -xzf {archive} -C {folder} --strip-components=1 {members...}").run()?;
    }
    Ok(folder)
}
