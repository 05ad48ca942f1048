//! Calls that must come back.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Tells what comes next. Each step has the same time.
#[derive(Clone)]
pub(crate) struct Steps(Sender<String>);

impl Steps {
    /// The step called `label` begins.
    pub(crate) fn begin(&self, label: &str) {
        // The receiver is gone after a deadline was missed; then nobody listens any more.
        _ = self.0.send(label.to_owned());
    }
}

/// Runs `work` on a thread of its own; an error naming the step that took longer than `limit`, or that
/// panicked. The thread is left behind then: a hung call can't be ended.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce(&Steps) -> T + Send + 'static,
) -> Result<T, String> {
    let (sender, steps) = channel();
    let worker = thread::spawn(move || work(&Steps(sender)));
    let mut current = "its start".to_owned();
    loop {
        match steps.recv_timeout(limit) {
            Ok(label) => current = label,
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("no end after {limit:?} in {current}"));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return worker.join().map_err(|_| format!("a panic in {current}"));
            }
        }
    }
}
