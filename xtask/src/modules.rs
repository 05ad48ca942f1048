//! The modules of the pages: WebAssembly, by a compiler for wasm32-unknown-unknown. What lays them out needs more dependencies
//! and is a package of its own.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use xshell::{PushEnv, Shell, cmd};

/// The target of browsers.
const TARGET: &str = "wasm32-unknown-unknown";

/// Debian's compiler with the library's source, for systems without rustup.
const DEBIAN: &str =
    "apt-get install -y --no-install-recommends rustc-web cargo-web rust-web-src libstd-rust-web-dev lld";

/// Vectors are in every browser that has WebGPU, and the CPU's kernels are made of them. Random numbers, which a
/// dependency of the tokenizers asks for, come from the browser.
const FLAGS: &str = "-C target-feature=+simd128 --cfg getrandom_backend=\"wasm_js\"";

/// Compiles the modules into target/wasm32-unknown-unknown/web.
pub(crate) fn compile(sh: &Shell) -> anyhow::Result<()> {
    let cargo = find(sh)?;
    let (program, arguments) = (&cargo.program, &cargo.arguments);
    cmd!(sh, "{program} build --profile web --target {TARGET} {arguments...}")
        .args(["--package", "suites-web", "--package", "minilm-web", "--package", "llama-web"])
        .args(["--package", "backend-webgpu"])
        .args(["--lib", "--example", "browser"])
        .run()
        .context("the modules don't compile")
}

/// A cargo that can build for the target.
struct Cargo<'a> {
    program: PathBuf,
    /// What it needs besides `--target`.
    arguments: Vec<&'static str>,
    _environment: Vec<PushEnv<'a>>,
}

/// Finds one: the running toolchain, with rustup's help if the target is missing; else Debian's, which has no
/// library for the target and builds it.
fn find(sh: &Shell) -> anyhow::Result<Cargo<'_>> {
    let mut environment = vec![sh.push_env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", FLAGS)];
    if !has_library(sh) && cmd!(sh, "rustup target add {TARGET}").run().is_err() {
        let (cargo, rustc) = (PathBuf::from("/usr/bin/cargo"), PathBuf::from("/usr/bin/rustc"));
        let linker = ["/usr/bin/wasm-ld", "/usr/bin/rust-lld"].into_iter().find(|path| sh.path_exists(path));
        let Some(linker) = linker.filter(|_| sh.path_exists(&cargo) && sh.path_exists(&rustc)) else {
            bail!("no compiler for {TARGET}: `rustup target add {TARGET}`, or on Debian `{DEBIAN}`");
        };
        environment.push(sh.push_env("RUSTC", rustc));
        environment.push(sh.push_env("RUSTC_BOOTSTRAP", "1"));
        environment.push(sh.push_env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker));
        let arguments = vec!["-Zbuild-std=std,panic_abort"];
        return Ok(Cargo { program: cargo, arguments, _environment: environment });
    }
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()).into();
    Ok(Cargo { program, arguments: Vec::new(), _environment: environment })
}

/// Whether the running toolchain has the target's standard library.
fn has_library(sh: &Shell) -> bool {
    cmd!(sh, "rustc --print target-libdir --target {TARGET}")
        .quiet()
        .ignore_stderr()
        .read()
        .is_ok_and(|folder| PathBuf::from(folder).is_dir())
}
