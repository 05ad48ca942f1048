//! Distributions of shapes: families of operations, their random shapes, and what a shape calls.

mod call;
mod family;
mod generate;
mod shape;

pub use call::{Call, Operands, Recorded};
pub use family::Family;
pub use generate::{Budget, random};
pub use shape::{Shape, dtype};
