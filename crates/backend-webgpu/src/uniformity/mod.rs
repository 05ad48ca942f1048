//! Which barriers and subgroup operations every invocation certainly reaches.
//!
//! naga accepts a barrier that only some invocations reach, which browsers refuse and hardware may hang on.
//! The suite `shaders` looks at the crate's own kernels with this, and `custom` at those of callers.

mod flow;
mod values;

use naga::Span;

pub use flow::check;

/// What some invocations of a workgroup may not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NonUniform {
    /// A barrier, or `workgroupUniformLoad`.
    Barrier,
    /// A subgroup operation.
    Subgroup,
}

/// A place in non-uniform control flow where uniform flow is needed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// Which kind of operation it is.
    pub kind: NonUniform,
    /// The operation, such as `a barrier`.
    pub what: &'static str,
    /// Where it is.
    pub span: Span,
}
