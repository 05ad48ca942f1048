//! The demonstration: sentence embeddings of the project's own documents, on whatever backend there is.

use std::path::PathBuf;

use xshell::{Shell, cmd};

use crate::{model, programs};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The backend: "auto", "cpu", "webgpu", "webgpu:1", "webgpu:vulkan"; with --profile dev also "verify:FIRST,SECOND"
    #[arg(long, default_value = "auto")]
    backend: String,
    /// The question
    #[arg(long, default_value = "Which of an operation's operands may share memory?")]
    query: String,
    /// The Cargo profile to build with; dev builds the whole workspace, as its tests do
    #[arg(long, default_value = "demo")]
    profile: String,
    /// Text files to search; README.md and docs/*.md if none are given
    files: Vec<PathBuf>,
}

pub(crate) fn run(sh: &Shell, args: &Args) -> anyhow::Result<()> {
    let files = match args.files.as_slice() {
        [] => documents(sh)?,
        // Relative to where the caller stands: the command below runs in the workspace's root.
        files => files.iter().map(std::path::absolute).collect::<Result<_, _>>()?,
    };
    let _model = sh.push_env("MINILM_MODEL", model::ensure_present(sh)?);
    let Args { backend, query, profile, .. } = args;
    let minilm = programs::build(sh, &["minilm"], profile)?.join("minilm");
    cmd!(sh, "{minilm} --backend {backend} --query {query} {files...}").run()?;
    Ok(())
}

/// The project's own documents.
fn documents(sh: &Shell) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = sh.read_dir("docs")?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    files.insert(0, sh.current_dir().join("README.md"));
    Ok(files)
}
