//! What two backends disagree about.

use std::fmt;
use std::path::PathBuf;

/// What two backends disagree about that make the same calls.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Disagreement {
    /// The operation's descriptor, or the arguments of another call.
    pub call: String,
    /// Names of the two devices.
    pub devices: [String; 2],
    /// In what they differ.
    pub about: Difference,
    /// Where the call and its operands were written, if that was asked for.
    pub file: Option<PathBuf>,
}

/// In what the results of two backends differ.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// Elements of an output are farther apart than rounding explains.
    Elements {
        /// The output.
        arg: &'static str,
        /// How many elements differ.
        wrong: usize,
        /// Of how many that were written.
        total: usize,
        /// The one that is farthest off, counted in elements from the handle's start.
        index: usize,
        /// Its two values.
        values: [String; 2],
        /// What would have been accepted.
        accepted: String,
    },
    /// A call succeeds on one and fails on the other, or fails for another reason: both outcomes.
    Outcomes([String; 2]),
}

impl Disagreement {
    /// About one call of two devices.
    #[must_use]
    pub const fn new(call: String, devices: [String; 2], about: Difference) -> Self {
        Self { call, devices, about, file: None }
    }
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = &self.devices;
        match &self.about {
            Difference::Elements { arg, wrong, total, index, values: [a, b], accepted } => write!(
                f,
                "{first} and {second} disagree about {wrong} of {total} elements of `{arg}`, most about \
                 {arg}[{index}]: {a} and {b}, accepted is {accepted}"
            )?,
            Difference::Outcomes([a, b]) => write!(f, "{first}: {a}; {second}: {b}")?,
        }
        write!(f, "; the call: {}", self.call)?;
        match &self.file {
            Some(file) => write!(f, "; its operands: {}", file.display()),
            None => Ok(()),
        }
    }
}
