//! Lines of the standard input, and Ctrl-C while one is awaited or answered.

use std::io::{self, BufRead};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::Context;

/// Whether Ctrl-C was pressed since [`forget_interrupt`].
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The exit code of a process that Ctrl-C ends, as shells know it.
pub(crate) const ENDED_BY_INTERRUPT: u8 = 130;

/// Whether a text should stop. Never without [`catch_interrupt`] and [`Lines::interruptible`].
pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// How long Ctrl-C may take to end the wait for a line where it was pressed just before that began.
const PATIENCE: Duration = Duration::from_millis(100);

/// Lets Ctrl-C count from now on. Called before a line is asked for, so that what is pressed from then on isn't lost.
pub(crate) fn forget_interrupt() {
    INTERRUPTED.store(false, Ordering::Relaxed);
}

/// From now on, [`is_interrupted`] tells of Ctrl-C, and a second one ends the process.
pub(crate) fn catch_interrupt() -> anyhow::Result<()> {
    catch_interrupt_with(|| {})
}

fn catch_interrupt_with(act: impl Fn() + Send + 'static) -> anyhow::Result<()> {
    let handler = move || {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            process::exit(ENDED_BY_INTERRUPT.into());
        }
        act();
    };
    ctrlc::set_handler(handler).context("can't listen to Ctrl-C")
}

/// What was read, without the line break; `None` is the end.
type Line = Option<io::Result<Vec<u8>>>;

/// Lines of the standard input, which a thread reads: Ctrl-C doesn't end a read that blocks.
pub(crate) struct Lines {
    /// Of no capacity, so that no more than one line is read ahead.
    lines: Receiver<Line>,
}

impl Lines {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self::start()?.1)
    }

    /// Lines of a terminal. Ctrl-C ends them while one is awaited; at other times [`is_interrupted`] tells of it, and a second
    /// one ends the process.
    pub(crate) fn interruptible() -> anyhow::Result<Self> {
        let (sender, lines) = Self::start()?;
        // Taken only by a receiver that waits.
        catch_interrupt_with(move || _ = sender.try_send(None))?;
        Ok(lines)
    }

    fn start() -> anyhow::Result<(mpsc::SyncSender<Line>, Self)> {
        let (sender, lines) = mpsc::sync_channel(0);
        let reader = sender.clone();
        let read = move || {
            let mut input = io::stdin().lock();
            let read = std::iter::from_fn(|| line(&mut input)).map(Some).chain([None]);
            // Until nobody asks for more.
            read.map(|line| reader.send(line)).find(Result::is_err)
        };
        let thread = thread::Builder::new().name("standard input".to_owned());
        thread.spawn(read).context("there is no thread to read the standard input")?;
        Ok((sender, Self { lines }))
    }

    /// The next line; `None` at the end of the input or after Ctrl-C, also if it was pressed before this call and after
    /// [`forget_interrupt`].
    pub(crate) fn next(&self) -> Line {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => return line,
                Err(RecvTimeoutError::Timeout) if !is_interrupted() => {}
                Err(_) => return None,
            }
        }
    }
}

/// The next line, whose bytes may be any.
fn line(input: &mut impl BufRead) -> Line {
    let mut line = Vec::new();
    match input.read_until(b'\n', &mut line) {
        Ok(0) => return None,
        Ok(_) => {}
        Err(error) => return Some(Err(error)),
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    }
    Some(Ok(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_of_any_bytes() {
        let mut input = &b"a\xff\r\n\n\rb"[..];
        let mut next = || line(&mut input).map(Result::unwrap);
        assert_eq!([next(), next(), next()], [&b"a\xff"[..], b"", b"\rb"].map(|line| Some(line.to_vec())));
        assert_eq!(next(), None);
    }

    /// Otherwise Ctrl-C behind a prompt that is shown already would do nothing.
    #[test]
    fn an_interrupt_before_the_wait_for_a_line_ends_it() {
        let (sender, lines) = mpsc::sync_channel(0);
        let lines = Lines { lines };
        forget_interrupt();
        // As the handler does where nobody waits yet.
        INTERRUPTED.store(true, Ordering::Relaxed);
        assert!(sender.try_send(None).is_err());
        assert!(lines.next().is_none());

        forget_interrupt();
        let reader = thread::spawn(move || {
            thread::sleep(3 * PATIENCE);
            sender.send(Some(Ok(b"a line".to_vec()))).unwrap();
        });
        assert_eq!(lines.next().unwrap().unwrap(), b"a line");
        reader.join().unwrap();
        assert!(lines.next().is_none(), "the end of the input");
    }
}
