//! What `cargo xtask web` and `cargo xtask test-web` do. A package of its own, so that the other tasks don't
//! wait for its dependencies.

mod browser;
mod build;
mod chat;
mod compare;
mod dawn;
mod demo;
mod devtools;
mod language_models;
mod server;
mod suites;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Parser;
use xshell::Shell;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about)]
enum Task {
    /// Build the pages into target/web
    Web(WebArgs),
    /// Run the suites and the demos in a headless browser
    TestWeb(TestArgs),
    /// Compile every kernel in Dawn and run the suites there
    TestDawn(DawnArgs),
    /// Time a product and a sentence beside onnxruntime-web; needs npm and Python
    CompareWeb,
}

#[derive(Debug, clap::Args)]
struct WebArgs {
    /// Serve the demos afterwards, until it is stopped
    #[arg(long)]
    serve: bool,
    /// The port to serve on; 0 takes a free one
    #[arg(long, default_value_t = 8080)]
    port: u16,
}

#[derive(Debug, clap::Args)]
struct TestArgs {
    /// Run one conformance case in so many of each operation
    #[arg(long, default_value_t = 96)]
    every: usize,
    /// Run only the conformance cases whose path contains this, and nothing else
    #[arg(long, default_value = "")]
    case: String,
    /// Only the suites, without the demos
    #[arg(long, conflicts_with = "demo")]
    suites: bool,
    /// Only the demos, without the suites
    #[arg(long)]
    demo: bool,
    /// Where the demos' screenshots go
    #[arg(long, default_value = "target/web/screenshots")]
    screenshots: PathBuf,
}

#[derive(Debug, clap::Args)]
struct DawnArgs {
    /// Run one conformance case in so many of each operation, and of f16 twice as many
    #[arg(long, default_value_t = 32)]
    every: usize,
    /// Run only the conformance cases whose path contains this, and nothing else
    #[arg(long, default_value = "")]
    case: String,
}

fn main() -> anyhow::Result<()> {
    let task = Task::parse();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .context("xtask/web lies in the workspace")?;
    let sh = Shell::new()?;
    sh.change_dir(root);
    match task {
        Task::Web(args) => {
            build::run(&sh)?;
            if args.serve { server::serve(root, args.port) } else { Ok(()) }
        }
        Task::TestWeb(args) => {
            build::run(&sh)?;
            test(&sh, root, &args)
        }
        Task::TestDawn(args) => {
            build::run(&sh)?;
            dawn::run(&sh, args.every, &args.case)
        }
        Task::CompareWeb => {
            build::run(&sh)?;
            compare::run(&sh, &server::Server::start(root, 0)?)
        }
    }
}

fn test(sh: &Shell, root: &Path, args: &TestArgs) -> anyhow::Result<()> {
    let server = server::Server::start(root, 0)?;
    if !args.demo {
        suites::run(&server, args.every, &args.case)?;
        if args.case.is_empty() {
            language_models::run(sh, &server)?;
        }
    }
    if !args.suites && args.case.is_empty() {
        sh.create_dir(&args.screenshots)?;
        demo::run(sh, &server, &args.screenshots)?;
        chat::run(sh, &server, &args.screenshots)?;
    }
    Ok(())
}
