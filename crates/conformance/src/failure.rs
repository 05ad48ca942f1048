//! What is wrong, in one line.

use std::fmt;

use backend_api::BackendError;

/// Why a case failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The case, as `family/name`.
    pub case: String,
    /// The backend's name.
    pub backend: String,
    pub(crate) detail: Box<Detail>,
}

#[derive(Clone, Debug)]
pub(crate) enum Detail {
    /// A call returned an error.
    Error(BackendError),
    /// Elements of an operand are wrong.
    Elements {
        arg: &'static str,
        wrong: usize,
        total: usize,
        /// Index of the worst.
        index: usize,
        got: f64,
        want: String,
    },
    /// The elements are each within their bound, but not together.
    Nmse { arg: &'static str, got: f64, limit: f64 },
    /// An element that the call doesn't name has changed.
    Touched { arg: &'static str, index: usize },
    /// A byte outside the operand's view has changed; the offset is relative to the view.
    Guard { arg: &'static str, offset: isize },
    /// A call that had to be refused was not, or not as documented.
    NotRefused(Option<BackendError>),
    /// What a script found.
    Script(String),
}

impl From<BackendError> for Detail {
    fn from(error: BackendError) -> Self {
        Self::Error(error)
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => write!(f, "unexpected error: {}", with_source(error)),
            Self::Elements { arg, wrong, total, index, got, want } => write!(
                f,
                "{wrong} of {total} elements of `{arg}` are wrong, worst {arg}[{index}]: got {got:e}, want {want}"
            ),
            Self::Nmse { arg, got, limit } => {
                write!(f, "`{arg}` has an NMSE of {got:.2e}, limit {limit:.0e}")
            }
            Self::Touched { arg, index } => {
                write!(f, "{arg}[{index}] has changed, which the call doesn't name")
            }
            Self::Guard { arg, offset } => {
                write!(f, "byte {offset} of `{arg}`, outside its view, has changed")
            }
            Self::NotRefused(Some(error)) => write!(f, "want Unsupported without f16, got: {error}"),
            Self::NotRefused(None) => write!(f, "want Unsupported without f16, got success"),
            Self::Script(text) => f.write_str(text),
        }
    }
}

/// An error and what the driver or compiler said about it, in one line.
fn with_source(error: &BackendError) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string);
    let words: Vec<&str> = source.as_deref().unwrap_or_default().split_whitespace().collect();
    if words.is_empty() { error.to_string() } else { format!("{error}: {}", words.join(" ")) }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} on {}: {}; rerun: CASE={} cargo test -p suites --test conformance",
            self.case, self.backend, self.detail, self.case
        )
    }
}

impl std::error::Error for Failure {}
