//! A process of its own for what uses the device: nothing but its end stops a kernel on some devices, and a driver's
//! crash ends it.

use std::process::{Child, Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// Set in the process that does the work.
const VARIABLE: &str = "KERNEL_LAB_CHILD";

/// Time between two looks at the child.
const LOOK: Duration = Duration::from_millis(5);

/// How much longer than its parent a child waits for its end, should the parent be gone.
const GRACE: Duration = Duration::from_secs(2);

/// Whether this process does the work.
pub(crate) fn is_child() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Has another process do what this one was asked to do, and ends it when the time is over.
pub(crate) fn parent(timeout: Duration, as_json: bool) -> ExitCode {
    let work = std::env::current_exe().and_then(|program| {
        Command::new(program)
            .args(std::env::args_os().skip(1))
            .env(VARIABLE, timeout.as_secs_f64().to_string())
            .spawn()
    });
    let ended = match work {
        Ok(mut child) => wait(&mut child, timeout),
        Err(error) => Err(Failure::usage(format!("can't start a process: {error}"))),
    };
    ended.unwrap_or_else(|failure| failure.report(as_json))
}

fn wait(child: &mut Child, timeout: Duration) -> Result<ExitCode, Failure> {
    let start = Instant::now();
    loop {
        let status = child.try_wait().map_err(|error| Failure::Crash(error.to_string()))?;
        if let Some(status) = status {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return code.map(ExitCode::from).ok_or_else(|| Failure::Crash(status.to_string()));
        }
        if start.elapsed() >= timeout {
            // It may have ended by itself; then there is nothing to kill.
            _ = child.kill();
            _ = child.wait();
            return Err(Failure::Timeout(timeout.as_secs_f64()));
        }
        thread::sleep(LOOK);
    }
}

/// In the process that does the work, ends it when the time is over and nobody else has.
pub(crate) fn watch() {
    let timeout = std::env::var(VARIABLE).ok().and_then(|seconds| seconds.parse().ok());
    let timeout = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    if let Some(timeout) = timeout {
        thread::spawn(move || {
            thread::sleep(timeout.saturating_add(GRACE));
            std::process::abort();
        });
    }
}
