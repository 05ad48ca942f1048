//! `cargo xtask`: the project's chores that a shell line can't do well.

mod bounds;
mod campaign;
mod demo;
mod demo_llm;
mod deny;
mod drivers;
mod interleavings;
mod mesa;
mod model;
mod modules;
mod msrv;
mod onnxruntime;
mod package;
mod parallel;
mod plot;
mod programs;
mod runner;
mod shader;
mod suites;
mod web;
mod wheel;
mod workflow;

use std::path::Path;

use anyhow::Context as _;
use clap::Parser;
use xshell::Shell;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about)]
enum Task {
    /// Fetch the weights of all-MiniLM-L6-v2 into .cache/minilm
    Model(model::Args),
    /// Rank the passages of the project's own documents against a question
    Demo(demo::Args),
    /// Go on with texts, by the small language model that crates/llama/models/train.py trains
    DemoLlm(demo_llm::Args),
    /// Run every suite on every adapter, installing a software Vulkan and OpenGL driver if there is none
    Test(suites::Args),
    /// Run random arguments, programs and faults against every adapter, with a seed
    Campaign(campaign::Args),
    /// Run the suites of the kernels with every access compared with its operand
    TestBounds(bounds::Args),
    /// Run the backend's threads in many orders of their steps, with a seed
    TestInterleavings(interleavings::Args),
    /// Print a kernel's variants, the text of one as wgpu gets it, or hashes that no renaming changes
    Shader(shader::Args),
    /// Compile the modules of the pages for browsers, which the tasks below lay out
    Modules,
    /// Build the pages for browsers into target/web, and serve the demo with --serve
    Web(web::Args),
    /// Run the conformance suite, the faults and the demo in a headless Chromium
    TestWeb(web::Args),
    /// Compile every kernel in Dawn and run the suites for pages there, on a lavapipe with f16; needs node
    /// and npm
    TestDawn(web::Args),
    /// Time a product and a sentence in the browser beside onnxruntime-web; needs npm and Python
    CompareWeb(web::Args),
    /// Run ONNX's node models on the provider for ONNX Runtime; needs Python with venv and pip
    Onnxruntime(onnxruntime::Args),
    /// Build the Python wheel of the provider for ONNX Runtime
    Wheel(wheel::Args),
    /// Draw docs/plots and write the tables of docs/performance.md from docs/measurements
    Plot,
    /// Build the crates as they would be published, and check what is in them
    Package(package::Args),
    /// Check the licences, sources and versions of the dependencies against deny.toml
    Deny,
    /// Check the workflows for GitHub; needs node and npm
    Workflow,
    /// Check the minimum Rust version: stated in one place, and met by this toolchain
    Msrv,
}

fn main() -> anyhow::Result<()> {
    let task = Task::parse();
    let sh = workspace()?;
    match task {
        Task::Model(args) => model::run(&sh, &args),
        Task::Demo(args) => demo::run(&sh, &args),
        Task::DemoLlm(args) => demo_llm::run(&sh, &args),
        Task::Test(args) => suites::run(&sh, &args),
        Task::Campaign(args) => campaign::run(&sh, &args, &std::env::current_dir()?),
        Task::TestBounds(args) => bounds::run(&sh, &args),
        Task::TestInterleavings(args) => interleavings::run(&sh, &args),
        Task::Shader(args) => shader::run(&sh, &args),
        Task::Modules => modules::compile(&sh),
        Task::Web(args) => web::run(&sh, "web", &args),
        Task::TestWeb(args) => {
            model::ensure_present(&sh)?;
            web::run(&sh, "test-web", &args)
        }
        Task::TestDawn(args) => {
            drivers::choose_newer_lavapipe(&sh)?;
            web::run(&sh, "test-dawn", &args)
        }
        Task::CompareWeb(args) => {
            model::ensure_present(&sh)?;
            web::run(&sh, "compare-web", &args)
        }
        Task::Onnxruntime(args) => onnxruntime::run(&sh, &args),
        Task::Wheel(args) => wheel::run(&sh, &args),
        Task::Deny => deny::run(&sh),
        Task::Workflow => workflow::run(&sh),
        Task::Plot => plot::run(&sh),
        Task::Package(args) => package::run(&sh, &args),
        Task::Msrv => msrv::run(&sh),
    }
}

/// A shell in the root of the workspace, wherever the task was called.
fn workspace() -> anyhow::Result<Shell> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace's root")?;
    let sh = Shell::new()?;
    sh.change_dir(root);
    Ok(sh)
}
