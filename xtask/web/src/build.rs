//! The pages: modules, which `cargo xtask` has compiled, bound and laid out with what they load.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use wasm_bindgen_cli_support::Bindgen;
use xshell::Shell;

/// Where the pages go, below the workspace's root: one folder each.
pub(crate) const PAGES: &str = "target/web";

/// The most bytes of the module with nothing but the backend.
const BACKEND_LIMIT: u64 = 1_425_000;

/// The most bytes of the chat's module.
const CHAT_LIMIT: u64 = 4_690_000;

/// A page: its folder, the compiled module with the most bytes that it may have, and the files and the folders of
/// files beside it.
struct Page {
    name: &'static str,
    module: &'static str,
    limit: Option<u64>,
    files: &'static [&'static str],
}

/// What pages with an engine in a worker share.
const WORKER: &str = "xtask/web/page";

/// The model that the chat comes with.
const MODEL: &str = "crates/llama/models/bytes-1m-q8_0.gguf";

const ALL: [Page; 4] = [
    Page { name: "backend", module: "examples/browser", limit: Some(BACKEND_LIMIT), files: &[] },
    Page { name: "suites", module: "suites_web", limit: None, files: &["tests/web/page"] },
    Page { name: "demo", module: "minilm_web", limit: None, files: &["crates/minilm/web/page", WORKER] },
    Page {
        name: "chat",
        module: "llama_web",
        limit: Some(CHAT_LIMIT),
        files: &["crates/llama/web/page", WORKER, MODEL],
    },
];

/// Lays out every page and says how large its module is.
pub(crate) fn run(sh: &Shell) -> anyhow::Result<()> {
    for page in &ALL {
        let folder = sh.current_dir().join(PAGES).join(page.name);
        let module = bind(sh, page, &folder)?;
        for files in page.files {
            let files = sh.current_dir().join(files);
            let files = if files.is_dir() { sh.read_dir(files)? } else { vec![files] };
            for file in files {
                sh.copy_file(&file, &folder)?;
            }
        }
        let (raw, zipped) = sizes(&module)?;
        println!("{:<8} {raw:>9} bytes, {zipped:>9} with gzip: {}", page.name, folder.display());
        if let Some(limit) = page.limit {
            ensure!(raw < limit, "the module of {} passes {limit} bytes", page.name);
        }
    }
    Ok(())
}

/// Writes the module and its script to `folder`; the module's path.
fn bind(sh: &Shell, page: &Page, folder: &Path) -> anyhow::Result<PathBuf> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| sh.current_dir().join("target"), PathBuf::from);
    let compiled = target.join("wasm32-unknown-unknown/web").join(page.module).with_extension("wasm");
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
