//! Which barriers and subgroup operations every invocation certainly reaches.
//!
//! naga accepts a barrier that only some invocations reach, which browsers refuse and hardware may hang on.
//! The suite `shaders` looks at the crate's own kernels with this, and `custom` at those of callers.

mod flow;
mod values;

use std::fmt;

use naga::Span;

pub use flow::check;

/// What some invocations of a workgroup may not reach, or have of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NonUniform {
    /// A barrier, or `workgroupUniformLoad`.
    Barrier,
    /// What `workgroupUniformLoad` loads, which has to be one place.
    Pointer,
    /// A subgroup operation.
    Subgroup,
}

/// A place where uniform control flow is needed, or a uniform value, and isn't certain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// Which kind of operation it is.
    pub kind: NonUniform,
    /// The operation, such as `a barrier`.
    pub what: &'static str,
    /// Where it is.
    pub span: Span,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.kind {
            NonUniform::Pointer => "may differ between invocations",
            NonUniform::Barrier | NonUniform::Subgroup => "may not be reached by every invocation",
        };
        write!(f, "{} {why}", self.what)
    }
}
