//! This program again, for faults of a whole process.

use std::io::Read;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// What the child does, and for which backend, separated by a space.
pub(crate) const VARIABLE: &str = "FAULTS_CHILD";

/// In a child, does what it is for; `None` in the parent.
pub(crate) fn run() -> Option<ExitCode> {
    let task = std::env::var(VARIABLE).ok()?;
    let (task, selector) = task.split_once(' ').unwrap_or((&task, ""));
    let outcome = match task {
        "no_adapter" => super::no_adapter::child(),
        "allocations" => super::out_of_memory::allocations(selector),
        "uploads" => super::out_of_memory::uploads(selector),
        "used_blocks" => super::out_of_memory::used_blocks(selector),
        "within_a_budget" => super::used_memory::within_a_budget(selector),
        "unsubmitted" => super::used_memory::unsubmitted(selector),
        _ => Err(format!("no such task: {task}")),
    };
    Some(match outcome {
        Ok(()) => {
            println!("<done>");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    })
}

/// Runs `task` in a child made by `command`, which must succeed within `limit`. Returns what it printed.
pub(crate) fn expect_success(task: &str, mut command: Command, limit: Duration) -> Result<String, String> {
    let start = Instant::now();
    let mut child = command
        .env(VARIABLE, task)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("the child didn't start: {error}"))?;
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if start.elapsed() > limit => {
                _ = child.kill();
                return Err(format!("the child didn't end within {limit:?}: {}", output(child)));
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let text = output(child);
    if status.success() && text.contains("<done>") {
        Ok(text)
    } else {
        Err(format!("the child ended with {status}: {text}"))
    }
}

/// What a child printed; little enough to fit in its pipes.
fn output(mut child: Child) -> String {
    let mut text = String::new();
    if let Some(stdout) = &mut child.stdout {
        _ = stdout.read_to_string(&mut text);
    }
    if let Some(stderr) = &mut child.stderr {
        _ = stderr.read_to_string(&mut text);
    }
    text
}

/// This program.
pub(crate) fn this_program() -> Result<Command, String> {
    let path = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(Command::new(path))
}
