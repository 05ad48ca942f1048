//! What can go wrong, as text with the source line and as JSON, and the exit code that says it.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use backend_api::{BackendError, Diagnostic, DiagnosticKind, SourcePlace};
use backend_webgpu::KernelDesc;
use codespan_reporting::diagnostic::{Diagnostic as Shown, Label};
use codespan_reporting::files::SimpleFile;
use codespan_reporting::term::termcolor::{ColorChoice, StandardStream};
use codespan_reporting::term::{self, emit_to_write_style};
use serde_json::{Value, json};
use thiserror::Error;

/// The exit code of an output that isn't what was expected.
pub(crate) const MISMATCH: u8 = 5;

/// Why the command has no result.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// The kernel is wrong.
    #[error("{said}")]
    Refused { said: Box<Diagnostic>, desc: Box<KernelDesc> },
    /// The launch passes a limit of the device.
    #[error("{0}")]
    Limit(String),
    /// The command line, or a file that it names, can't be used.
    #[error("{0:#}")]
    Usage(anyhow::Error),
    /// The device, or a call.
    #[error(transparent)]
    Device(#[from] BackendError),
    /// The time was over.
    #[error("no end within {0} s")]
    Timeout(f64),
    /// The process that used the device was ended from outside.
    #[error("the driver ended the process: {0}")]
    Crash(String),
}

impl Failure {
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Usage(anyhow::Error::msg(text.into()))
    }

    /// An error of compiling a kernel.
    pub(crate) fn of_kernel(error: BackendError, desc: &KernelDesc) -> Self {
        match error {
            BackendError::Kernel { source, .. } => {
                Self::Refused { said: Box::new(source), desc: Box::new(desc.clone()) }
            }
            other => other.into(),
        }
    }

    /// The exit code and the kind. What the caller can mend is told from what the device did.
    fn code_and_kind(&self) -> (u8, &'static str) {
        use BackendError::{
            BufferTooSmall, Dtype, Limit, Misaligned, NoAdapter, Overflow, Overlap, Shape, Timeout,
        };
        match self {
            Self::Refused { said, .. } => (1, said.kind.name()),
            Self::Limit(_) => (1, DiagnosticKind::Limit.name()),
            Self::Usage(_) => (2, "usage"),
            Self::Timeout(_) => (4, "timeout"),
            Self::Crash(_) => (3, "device"),
            Self::Device(error) => match error {
                Limit { .. } => (1, DiagnosticKind::Limit.name()),
                Shape { .. } | BufferTooSmall { .. } | Misaligned { .. } | Overlap { .. } => (2, "usage"),
                Overflow { .. } | Dtype { .. } => (2, "usage"),
                NoAdapter { .. } => (3, "no_device"),
                Timeout { .. } => (4, "timeout"),
                _ => (3, "device"),
            },
        }
    }

    fn json(&self) -> Value {
        let error = match self {
            Self::Refused { said, .. } => diagnostic(said),
            _ => json!({ "kind": self.code_and_kind().1, "reason": self.chain() }),
        };
        json!({ "ok": false, "error": error })
    }

    /// The error with its causes.
    fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut next = std::error::Error::source(self);
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        text
    }

    /// Tells what went wrong, as JSON to the standard output if that is asked for; the exit code, which is the same where
    /// nobody reads what is told.
    pub(crate) fn report(&self, as_json: bool) -> ExitCode {
        match self {
            _ if as_json && writeln!(io::stdout(), "{:#}", self.json()).is_ok() => {}
            Self::Refused { said, desc } if !as_json => show(said, desc, Shown::error()),
            _ => say(&format!("kernel-lab: {}", self.chain())),
        }
        ExitCode::from(self.code_and_kind().0)
    }
}

/// A diagnostic as JSON; `text` has all of it for people.
pub(crate) fn diagnostic(said: &Diagnostic) -> Value {
    let mut value = json!({
        "kind": said.kind.name(),
        "reason": said.reason,
        "notes": said.notes,
        "text": said.to_string(),
    });
    if let Some(place) = &said.place {
        let SourcePlace { line, column, length, text, .. } = &**place;
        value["line"] = json!(line);
        value["column"] = json!(column);
        value["length"] = json!(length);
        value["source"] = json!(text);
    }
    value
}

/// Shows warnings on the standard error.
pub(crate) fn show_warnings(warnings: &[Diagnostic], desc: &KernelDesc) {
    for warning in warnings {
        show(warning, desc, Shown::warning());
    }
}

/// Shows a diagnostic on the standard error with carets below the source, in colour on a terminal.
fn show(said: &Diagnostic, desc: &KernelDesc, shown: Shown<()>) {
    let label = said.place.as_ref().map(|place| Label::primary((), place.bytes.clone()));
    let shown = shown
        .with_message(&said.reason)
        .with_labels(label.into_iter().collect())
        .with_notes(said.notes.clone());
    let colour = if std::io::stderr().is_terminal() { ColorChoice::Auto } else { ColorChoice::Never };
    let file = SimpleFile::new(&desc.name, &desc.wgsl);
    let mut stream = StandardStream::stderr(colour);
    if emit_to_write_style(&mut stream, &term::Config::default(), &file, &shown).is_err() {
        say(&format!("{}: {said}", desc.name));
    }
}

/// Writes a line to the standard error, if somebody reads it: unlike `eprintln`, which panics then.
fn say(line: &str) {
    _ = writeln!(io::stderr(), "{line}");
}
