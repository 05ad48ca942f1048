//! Kernels of a careless caller: WGSL changed by tokens is refused by a typed error, or compiled, launched and kept
//! within its bindings.
//!
//! A process of its own compiles, as a stack that overflows ends one. It is asked for one case at a time, so that its
//! end, or none in time, has the case's number.

mod one;
mod texts;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::options::Options;

/// The selector and the seed for a child, separated by a space.
const VARIABLE: &str = "CAMPAIGN_WGSL_CHILD";

/// One text must be dealt with by then, its compilation in the driver included.
const LIMIT: Duration = Duration::from_secs(60);

/// Texts in CI.
const FEW: u64 = 150;

/// Failing texts after which no more are tried.
const MOST_FAILURES: usize = 5;

/// KiB of address space of a child, in which a driver and the threads' stacks fit: a text that takes all memory is to
/// end the child, not the machine.
const MEMORY_KIB: u64 = 16 << 20;

/// In a child, deals with the cases that it is asked for; `None` in the parent.
pub(crate) fn child() -> Option<ExitCode> {
    let task = std::env::var(VARIABLE).ok()?;
    let (selector, seed) = task.split_once(' ').unwrap_or((&task, "0"));
    match one::serve(selector, seed) {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(why) => {
            println!("{why}");
            Some(ExitCode::FAILURE)
        }
    }
}

pub(crate) fn run(selector: &str, options: &Options) -> Result<(), String> {
    let start = Instant::now();
    texts::are_valid()?;
    let mut asked = None;
    let (mut texts, mut counts, mut failures) = (0, [0; one::ANSWERS.len()], Vec::new());
    for case in options.cases(FEW) {
        let asking = match asked.take() {
            Some(asking) => asking,
            None => Asked::start(selector, options.seed)?,
        };
        texts += 1;
        match asking.ask(case) {
            Ok((answer, asking)) => {
                counts[answer] += 1;
                asked = asking;
            }
            Err(why) => {
                let text = texts::mutated(options.seed, case);
                let again = options.command("wgsl", selector, case);
                failures.push(format!("{why}\n  again: {again}\n{}", shown(&text)));
            }
        }
        if failures.len() >= MOST_FAILURES {
            break;
        }
    }
    let counts: Vec<String> =
        one::ANSWERS.iter().zip(counts).map(|(answer, count)| format!("{count} {answer}")).collect();
    println!("{selector}: {texts} mutated kernels, {}, {:.1?}", counts.join(", "), start.elapsed());
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// The start of a text: the case's number gives all of it again.
fn shown(text: &str) -> String {
    text.chars().take(3000).collect()
}

/// A child that waits for a case.
struct Asked {
    child: Child,
    answers: Receiver<String>,
}

impl Asked {
    fn start(selector: &str, seed: u64) -> Result<Self, String> {
        let told = |error: std::io::Error| format!("the child didn't start: {error}");
        let program = std::env::current_exe().map_err(told)?;
        let mut command = if cfg!(target_os = "linux") {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("ulimit -v {MEMORY_KIB}; exec \"$0\"")]).arg(program);
            shell
        } else {
            Command::new(program)
        };
        let mut child = command
            .env(VARIABLE, format!("{selector} {seed}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(told)?;
        let stdout = child.stdout.take().ok_or("a child without an output")?;
        let (sender, answers) = channel();
        // Ends with the child's output.
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.for_each(|line| _ = sender.send(line));
        });
        Ok(Self { child, answers })
    }

    /// Which of [`one::ANSWERS`] a case has, and the child, unless its device is at work for ever.
    fn ask(mut self, case: u64) -> Result<(usize, Option<Self>), String> {
        let asked =
            self.child.stdin.as_mut().map(|stdin| writeln!(stdin, "{case}").and_then(|()| stdin.flush()));
        if !matches!(asked, Some(Ok(()))) {
            return Err(format!(
                "the child can't be asked: {asked:?}, it said {:?}",
                self.answers.recv().ok()
            ));
        }
        let answer = match self.answers.recv_timeout(LIMIT) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => return Err(format!("no end after {LIMIT:?}")),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(format!("the process ended: {:?}", self.child.wait()));
            }
        };
        let known = one::ANSWERS.iter().position(|known| *known == answer).ok_or(answer)?;
        let goes_on = one::ANSWERS[known] != one::ENDLESS;
        Ok((known, goes_on.then_some(self)))
    }
}

impl Drop for Asked {
    /// Also of one that hangs.
    fn drop(&mut self) {
        let ended = self.child.kill().and_then(|()| self.child.wait());
        if let Err(error) = ended {
            println!("a child doesn't end: {error}");
        }
    }
}
