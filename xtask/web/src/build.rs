//! The pages: modules compiled, bound and laid out with what they load.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use wasm_bindgen_cli_support::Bindgen;
use xshell::{Shell, cmd};

use crate::toolchain::{self, TARGET};

/// Where the pages go, below the workspace's root: one folder each.
pub(crate) const PAGES: &str = "target/web";

/// The most bytes of the module with nothing but the backend.
const BACKEND_LIMIT: u64 = 1_020_000;

/// A page: its folder, the compiled module, and the folder with the rest of it.
struct Page {
    name: &'static str,
    module: &'static str,
    files: Option<&'static str>,
}

const BACKEND: &str = "backend";

const ALL: [Page; 3] = [
    Page { name: BACKEND, module: "examples/browser", files: None },
    Page { name: "suites", module: "suites_web", files: Some("tests/web/page") },
    Page { name: "demo", module: "minilm_web", files: Some("crates/minilm/web/page") },
];

/// Builds every page and says how large its module is.
pub(crate) fn run(sh: &Shell) -> anyhow::Result<()> {
    compile(sh)?;
    for page in &ALL {
        let folder = sh.current_dir().join(PAGES).join(page.name);
        let module = bind(sh, page, &folder)?;
        if let Some(files) = page.files {
            for file in sh.read_dir(files)? {
                sh.copy_file(&file, &folder)?;
            }
        }
        let (raw, zipped) = sizes(&module)?;
        println!("{:<8} {raw:>9} bytes, {zipped:>9} with gzip: {}", page.name, folder.display());
        ensure!(
            page.name != BACKEND || raw < BACKEND_LIMIT,
            "the backend's module passes {BACKEND_LIMIT} bytes"
        );
    }
    Ok(())
}

fn compile(sh: &Shell) -> anyhow::Result<()> {
    let cargo = toolchain::find(sh)?;
    let (program, arguments) = (&cargo.program, &cargo.arguments);
    cmd!(sh, "{program} build --profile web --target {TARGET} {arguments...}")
        .args(["--package", "suites-web", "--package", "minilm-web", "--package", "backend-webgpu"])
        .args(["--lib", "--example", "browser"])
        .run()
        .context("the modules don't compile")
}

/// Writes the module and its script to `folder`; the module's path.
fn bind(sh: &Shell, page: &Page, folder: &Path) -> anyhow::Result<PathBuf> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| sh.current_dir().join("target"), PathBuf::from);
    let compiled = target.join(TARGET).join("web").join(page.module).with_extension("wasm");
    let name =
        Path::new(page.module).file_name().and_then(|name| name.to_str()).context("a module has a name")?;
    Bindgen::new()
        .input_path(&compiled)
        .web(true)?
        .typescript(false)
        .omit_default_module_path(false)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate(folder)
        .with_context(|| format!("can't bind {}", compiled.display()))?;
    Ok(folder.join(format!("{name}_bg.wasm")))
}

/// Bytes of a file as it is and with gzip.
fn sizes(path: &Path) -> anyhow::Result<(u64, u64)> {
    let bytes = fs::read(path)?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&bytes)?;
    Ok((bytes.len() as u64, encoder.finish()?.len() as u64))
}
