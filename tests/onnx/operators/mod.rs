//! What each operator is in operations of a backend.

mod attention;
mod elementwise;
mod image;
mod index;
mod logic;
mod matrix;
mod movement;
mod norm;
mod reduce;

use crate::device::{Outcome, Tensor};
use crate::node::Node;

/// The outputs of a node, as many as the case asks for.
pub(crate) fn run(node: &Node<'_>) -> Outcome<Vec<Tensor>> {
    let families = [
        elementwise::run,
        logic::run,
        reduce::run,
        matrix::run,
        image::run,
        attention::run,
        norm::run,
        movement::run,
        index::run,
    ];
    for family in families {
        if let Some(outputs) = family(node)? {
            return Ok(outputs);
        }
    }
    Err(format!("{} is made by no operation, and the case is not listed", node.case.operator).into())
}
