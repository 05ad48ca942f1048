//! A process of its own for what uses the device: nothing but its end stops a kernel on some devices, and a driver's
//! crash ends it.

use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Failure, MISMATCH};

/// Set in the process that does the work, to the seconds that it has and the number of its parent.
const VARIABLE: &str = "KERNEL_LAB_CHILD";

/// Time between two looks at the child.
const LOOK: Duration = Duration::from_millis(5);

/// How much longer than its parent a child waits for its end, should the parent be stopped.
const GRACE: Duration = Duration::from_secs(2);

/// Time between two looks of the child at its parent.
const LOOK_BACK: Duration = Duration::from_millis(100);

/// Whether this process does the work.
pub(crate) fn is_child() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Has another process do what this one was asked to do, and ends it when the time is over.
pub(crate) fn parent(timeout: Duration, as_json: bool) -> ExitCode {
    // In no time nothing ends, however soon the system runs another process.
    if timeout.is_zero() {
        return Failure::Timeout(0.0).report(as_json);
    }
    let work = std::env::current_exe().and_then(|program| {
        Command::new(program)
            .args(std::env::args_os().skip(1))
            .env(VARIABLE, format!("{} {}", timeout.as_secs_f64(), std::process::id()))
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
            return outcome(status).map(ExitCode::from);
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

/// The exit code of a process that has told how the work went. Any other end, a panic's among them, has told nothing.
fn outcome(status: ExitStatus) -> Result<u8, Failure> {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.filter(|&code| code <= MISMATCH).ok_or_else(|| Failure::Crash(status.to_string()))
}

/// In the process that does the work, ends it when the time is over and nobody else has, or when whoever asked for the work
/// has ended the parent: a kernel without an end would keep the device meanwhile.
pub(crate) fn watch() {
    let given = std::env::var(VARIABLE).unwrap_or_default();
    let Some((seconds, parent)) = given.split_once(' ') else { return };
    let timeout = seconds.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let (Some(timeout), Ok(parent)) = (timeout, parent.parse::<u32>()) else { return };
    thread::spawn(move || {
        let (start, time) = (Instant::now(), timeout.saturating_add(GRACE));
        while start.elapsed() < time && has_parent(parent) {
            thread::sleep(LOOK_BACK);
        }
        std::process::abort();
    });
}

/// Whether this process is still a child of the one of this number, where the system tells.
#[cfg(unix)]
fn has_parent(number: u32) -> bool {
    std::os::unix::process::parent_id() == number
}

#[cfg(not(unix))]
fn has_parent(_: u32) -> bool {
    true
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn only_what_the_command_ends_with_is_an_outcome() {
        let ended = |code: i32| outcome(ExitStatus::from_raw(code << 8));
        for code in 0..=5 {
            assert!(matches!(ended(code.into()), Ok(same) if same == code));
        }
        // A panic, what Mesa ends with, and a signal.
        for status in [101 << 8, 255 << 8, 9, 11] {
            assert!(matches!(outcome(ExitStatus::from_raw(status)), Err(Failure::Crash(_))), "{status}");
        }
    }
}
