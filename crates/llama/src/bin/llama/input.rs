//! Lines of the standard input, and Ctrl-C while one is awaited or answered.

use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use anyhow::Context;

/// Whether Ctrl-C was pressed since the last line was awaited.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The exit code of a process that Ctrl-C ends, as shells know it.
const ENDED_BY_INTERRUPT: i32 = 130;

/// Whether an answer should stop. Never without [`Lines::interruptible`].
pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Lines of the standard input, which a thread reads: Ctrl-C doesn't end a read that blocks.
pub(crate) struct Lines {
    /// Of no capacity, so that no more is read than is asked for. `None` is the end.
    lines: Receiver<Option<io::Result<String>>>,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self::start().1
    }

    /// Lines of a terminal. Ctrl-C ends them while one is awaited; at other times [`is_interrupted`] tells of it, and a second
    /// one ends the process.
    pub(crate) fn interruptible() -> anyhow::Result<Self> {
        let (sender, lines) = Self::start();
        let handler = move || {
            if INTERRUPTED.swap(true, Ordering::Relaxed) {
                process::exit(ENDED_BY_INTERRUPT);
            }
            // Taken only by a receiver that waits.
            _ = sender.try_send(None);
        };
        ctrlc::set_handler(handler).context("can't listen to Ctrl-C")?;
        Ok(lines)
    }

    fn start() -> (mpsc::SyncSender<Option<io::Result<String>>>, Self) {
        let (sender, lines) = mpsc::sync_channel(0);
        let reader = sender.clone();
        thread::spawn(move || {
            let read = io::stdin().lines().map(Some).chain([None]);
            // Until nobody asks for more.
            read.map(|line| reader.send(line)).find(Result::is_err)
        });
        (sender, Self { lines })
    }

    /// The next line; `None` at the end of the input or after Ctrl-C.
    pub(crate) fn next(&self) -> Option<io::Result<String>> {
        INTERRUPTED.store(false, Ordering::Relaxed);
        self.lines.recv().ok().flatten()
    }
}
