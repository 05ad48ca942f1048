//! The test programs of the workspace, several at a time.
//!
//! `cargo test` runs one after the other. Most of them keep one core busy: they compile kernels for a software adapter,
//! or wait for one.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use xshell::{Shell, cmd};

use crate::{drivers, parallel};

/// A program with tests that expect something within a second or less: these run by themselves, after the others. Those that
/// look at the memory of their own process, or that take more than a minute for a hang, needn't.
struct Timed {
    name: &'static str,
    /// The arguments that choose these tests.
    alone: &'static [&'static str],
    /// The arguments that choose the program's other tests, which run beside other programs.
    together: Option<&'static [&'static str]>,
}

const TIMED: [Timed; 3] = [
    // Plans are made and kernels tried within no time in particular.
    Timed { name: "backend_webgpu", alone: &["--skip", "ops::"], together: Some(&["ops::"]) },
    Timed { name: "custom_kernels", alone: &[], together: None },
    Timed { name: "faults", alone: &["in_time"], together: Some(&["--skip", "in_time"]) },
];

/// Programs that take longest on two cores, which begin first: conformance, beside what has other kernels than it has, and
/// then what runs a part of its cases again, whose kernels Mesa's cache has.
const LONG: [&str; 17] = [
    "conformance",
    "shaders",
    "matmul_kernels",
    "conv_kernels",
    "attention_kernels",
    "models",
    "against_candle",
    "quant_kernels",
    "bad_input",
    "faults",
    "small_bindings",
    "capture",
    "campaign",
    "long_work",
    "threads",
    "bounded",
    "backend_webgpu",
];

/// Programs, and parts of them, that run on SwiftShader too, where everything takes longest and nothing is cached: what depends
/// on a driver and its compiler most. The others have the adapters of Mesa. `EVERY` gives all of them SwiftShader.
const WITH_SWIFTSHADER: [&str; 4] = ["conformance", "custom_kernels", "faults --skip in_time", "threads"];

/// Programs that don't run on a software OpenGL, which compiles all of their kernels a second time: what they look at depends
/// little on the driver, whose kernels conformance looks at. `EVERY` gives it to all of them.
const WITHOUT_SOFTWARE_OPENGL: [&str; 9] = [
    "against_candle",
    "bad_input",
    "bounded",
    "campaign",
    "long_work",
    "models",
    "onnx",
    "small_bindings",
    "verify",
];

/// A program with tests, and the folder that cargo runs it in.
#[derive(Clone, Debug)]
struct Program {
    name: String,
    path: PathBuf,
    folder: PathBuf,
    /// What chooses some of its tests.
    arguments: &'static [&'static str],
}

impl Program {
    fn with(&self, arguments: &'static [&'static str]) -> Self {
        Self { arguments, ..self.clone() }
    }

    /// Its name, and which of its tests it runs.
    fn label(&self) -> String {
        let Self { name, arguments, .. } = self;
        if arguments.is_empty() { name.clone() } else { format!("{name} {}", arguments.join(" ")) }
    }
}

/// A line of `cargo test --message-format=json`, of which only artifacts matter.
#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

/// A program that has ended, for the table of them.
struct Ended {
    name: String,
    time: Duration,
    success: bool,
}

/// How a program ended.
struct Outcome {
    status: ExitStatus,
    output: String,
}

/// Builds every test program of the workspace and runs all of them, whatever fails.
pub(crate) fn run(sh: &Shell) -> anyhow::Result<()> {
    let messages =
        cmd!(sh, "cargo test --workspace --no-run --message-format=json-render-diagnostics").read()?;
    let (alone, mut together) = divided(programs(&messages)?);
    let rank = |program: &Program| LONG.iter().position(|name| *name == program.name).unwrap_or(LONG.len());
    together.sort_by_key(rank);
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let everywhere = drivers::variables(sh);
    let mesa = drivers::without_swiftshader(sh);
    let vulkan = drivers::without_software_opengl(sh);
    let variables = |program: &Program| {
        let label = program.label();
        if std::env::var_os("EVERY").is_some() || WITH_SWIFTSHADER.contains(&label.as_str()) {
            everywhere.as_slice()
        } else if WITHOUT_SOFTWARE_OPENGL.contains(&program.name.as_str()) {
            vulkan.as_slice()
        } else {
            mesa.as_slice()
        }
    };
    let mut ended = run_all(together, at_once, &variables);
    ended.extend(run_all(alone, 1, &variables));
    ended.sort_by_key(|program| Reverse(program.time));
    println!("seconds per program, of which {at_once} ran at a time:");
    for Ended { name, time, .. } in &ended {
        println!("{:8.1}  {name}", time.as_secs_f64());
    }
    let failed: Vec<String> =
        ended.into_iter().filter(|program| !program.success).map(|program| program.name).collect();
    if !failed.is_empty() {
        bail!("tests failed in {}", failed.join(", "));
    }
    Ok(())
}

/// What runs alone, and what runs beside other programs.
fn divided(programs: Vec<Program>) -> (Vec<Program>, Vec<Program>) {
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for program in programs {
        match TIMED.iter().find(|timed| timed.name == program.name) {
            Some(timed) => {
                alone.push(program.with(timed.alone));
                together.extend(timed.together.map(|arguments| program.with(arguments)));
            }
            None => together.push(program),
        }
    }
    (alone, together)
}

/// The test programs in the order in which cargo names them.
fn programs(messages: &str) -> anyhow::Result<Vec<Program>> {
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Message = serde_json::from_str(line).with_context(|| format!("cargo says {line}"))?;
        let Message {
            reason,
            manifest_path: Some(manifest),
            target: Some(target),
            profile: Some(Profile { test: true }),
            executable: Some(path),
        } = message
        else {
            continue;
        };
        if reason == "compiler-artifact" {
            let folder = manifest.parent().context("a manifest lies in a folder")?.to_owned();
            programs.push(Program { name: target.name, path, folder, arguments: &[] });
        }
    }
    Ok(programs)
}

/// Environment variables of a program, besides its parent's.
type Variables = [(&'static str, OsString)];

/// Runs programs with the variables of each, so many at a time, and prints what each has printed when it ends.
fn run_all<'a>(
    programs: Vec<Program>,
    at_once: usize,
    variables: &(impl Fn(&Program) -> &'a Variables + Sync),
) -> Vec<Ended> {
    // Outputs don't mix: whoever prints has this.
    let printing = Mutex::new(());
    let run = |program: Program| {
        let start = Instant::now();
        let outcome = execute(&program, variables(&program));
        let time = start.elapsed();
        let _printing = printing.lock().unwrap_or_else(PoisonError::into_inner);
        let success = report(&program, time, outcome);
        Ended { name: program.label(), time, success }
    };
    parallel::map(programs, at_once, run)
}

/// Runs a program to its end.
fn execute(program: &Program, variables: &Variables) -> anyhow::Result<Outcome> {
    // Both streams go to one file, so that their lines keep their order and no pipe fills up.
    let mut file = tempfile::tempfile()?;
    let stream = |file: &File| file.try_clone().map(Stdio::from);
    let status = Command::new(&program.path)
        .args(program.arguments)
        .current_dir(&program.folder)
        .envs(variables.iter().cloned())
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .stdin(Stdio::null())
        .stdout(stream(&file)?)
        .stderr(stream(&file)?)
        .status()
        .with_context(|| format!("{} doesn't start", program.path.display()))?;
    let mut output = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut output)?;
    let output = String::from_utf8_lossy(&output).into_owned();
    Ok(Outcome { status, output })
}

/// Prints how a program ended; whether it did well.
fn report(program: &Program, time: Duration, outcome: anyhow::Result<Outcome>) -> bool {
    let (name, path) = (program.label(), &program.path);
    match outcome {
        Ok(Outcome { status, output }) => {
            println!("--- {name} ({}), {:.1} s: {status}\n{output}", path.display(), time.as_secs_f64());
            status.success()
        }
        Err(error) => {
            println!("--- {name}: {error:#}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    fn program(name: &str, path: &str) -> Program {
        Program { name: name.to_owned(), path: path.into(), folder: std::env::temp_dir(), arguments: &[] }
    }

    #[test]
    fn only_programs_with_tests_are_run() {
        let artifact = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/tests/Cargo.toml","target":{{"name":"faults"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let finished = r#"{"reason":"build-finished","success":true}"#.to_owned();
        let messages = [
            artifact(true, r#""/t/faults-1""#),
            artifact(false, r#""/t/llama""#),
            artifact(true, "null"),
            finished,
        ];
        let found = programs(&messages.join("\n")).unwrap();
        let found: Vec<_> =
            found.iter().map(|p| (p.name.as_str(), p.path.clone(), p.folder.clone())).collect();
        assert_eq!(found, [("faults", PathBuf::from("/t/faults-1"), PathBuf::from("/w/tests"))]);
        assert!(programs("no JSON").is_err());
    }

    #[test]
    #[cfg(unix)]
    fn every_test_of_a_divided_program_runs_once() {
        let names = ["conformance", "custom_kernels", "faults", "backend_webgpu"];
        let (alone, together) = divided(names.map(|name| program(name, "true")).into());
        let labels = |programs: Vec<Program>| programs.iter().map(Program::label).collect::<Vec<_>>();
        assert_eq!(labels(alone), ["custom_kernels", "faults in_time", "backend_webgpu --skip ops::"]);
        assert_eq!(labels(together), ["conformance", "faults --skip in_time", "backend_webgpu ops::"]);
        // What one half skips is what the other one runs.
        for Timed { name, alone, together } in TIMED {
            let Some(together) = together else { continue };
            let (chosen, skipped) = if alone.len() == 1 { (alone, together) } else { (together, alone) };
            assert!(matches!((chosen, skipped), ([this], ["--skip", that]) if this == that), "{name}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn every_program_runs_and_failures_are_named() {
        let programs = [("good", "true"), ("bad", "false"), ("absent", "/nowhere/absent"), ("other", "true")];
        let ended = run_all(programs.map(|(name, path)| program(name, path)).into(), 2, &|_| [].as_slice());
        assert_eq!(ended.len(), 4);
        let failed = ended.into_iter().filter(|program| !program.success);
        let mut failed: Vec<String> = failed.map(|program| program.name).collect();
        failed.sort_unstable();
        assert_eq!(failed, ["absent", "bad"]);
    }

    #[test]
    #[cfg(unix)]
    fn programs_know_the_drivers_that_the_shell_knows() {
        let sh = Shell::new().unwrap();
        sh.set_var("VK_ADD_DRIVER_FILES", "/drivers/one.json");
        let Outcome { status, output } = execute(&program("env", "env"), &drivers::variables(&sh)).unwrap();
        assert!(status.success());
        assert!(output.lines().any(|line| line == "VK_ADD_DRIVER_FILES=/drivers/one.json"), "{output}");
    }
}
