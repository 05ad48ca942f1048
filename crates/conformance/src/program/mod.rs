//! Random programs of calls, and a model of the contract on the host that says what each call must do.
//!
//! [`generate`] makes a [`Program`] from a seed. [`run`] makes its calls on a backend and, one by one, on a
//! [`Model`] that keeps every allocation as bytes. After each read the bytes are compared, after each call
//! the error kinds, and at the end everything that is still allocated. [`shrink`] makes a failing program
//! smaller.
//!
//! Numbers are small integers, so that every sum and product is exact in every element type and in any order.
//! A byte that the contract leaves open (new memory, a rounded sum, the sign of a zero) is unknown to the
//! model, and not compared.

mod call;
mod generate;
mod invoke;
mod model;
mod run;
mod shrink;
mod text;

pub use call::{Axis, Call, Lookup, Rows, Slot};
pub use generate::{Profile, generate};
pub use model::Model;
pub use run::{Findings, Plain, Target, run};
pub use shrink::shrink;

/// Calls of one or several threads on one backend, each thread over handles of its own and over inputs that
/// all share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// The calls of each thread.
    pub threads: Vec<Vec<Call>>,
}

impl Program {
    /// The number of calls.
    #[must_use]
    pub fn len(&self) -> usize {
        self.threads.iter().map(Vec::len).sum()
    }

    /// Whether there is no call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether some call fits.
    fn has(&self, fits: impl Fn(&Call) -> bool) -> bool {
        self.threads.iter().flatten().any(fits)
    }
}
