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
mod parallel;
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
    let sh = shell(root)?;
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

/// A part of the tests, in browsers of its own.
type Part<'a> = Box<dyn FnOnce() -> anyhow::Result<()> + Send + 'a>;

fn test(sh: &Shell, root: &Path, args: &TestArgs) -> anyhow::Result<()> {
    let server = &server::Server::start(root, 0)?;
    let has_demos = !args.suites && args.case.is_empty();
    let mut parts: Vec<Part<'_>> = Vec::new();
    if !args.demo && args.case != suites::REPLAYS {
        parts.extend(suites::parts(server, args.every, &args.case));
    }
    // The parts that take longest begin first.
    if has_demos {
        sh.create_dir(&args.screenshots)?;
        parts.push(Box::new(|| chat::change(&shell(root)?, server, &args.screenshots)));
    }
    if !args.demo && args.case.is_empty() {
        parts.push(Box::new(|| language_models::run(&shell(root)?, server)));
    }
    if has_demos {
        parts.push(Box::new(|| chat::answer(&shell(root)?, server, &args.screenshots)));
        parts.push(Box::new(|| demo::run(&shell(root)?, server, &args.screenshots)));
    }
    parallel::run(parts)?;
    // What is timed has the machine to itself.
    if !args.demo && suites::REPLAYS.contains(&args.case) {
        suites::replays(server)?;
    }
    // Tasks are longest where the page's thread computes.
    if has_demos { demo::on_the_main_thread(sh, server, &args.screenshots) } else { Ok(()) }
}

/// A shell in the workspace's root, for a thread of its own.
fn shell(root: &Path) -> anyhow::Result<Shell> {
    let sh = Shell::new()?;
    sh.change_dir(root);
    Ok(sh)
}
