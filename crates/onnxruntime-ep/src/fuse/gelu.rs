//! Activations that exporters take apart.

use std::f64::consts::FRAC_1_SQRT_2;

use super::{View, orders, replacing};
use crate::model::Node;

/// `x · (1 + erf(x / √2)) · ½`, in any order of the factors.
pub(super) fn exact(view: &View<'_>, last: &Node) -> Option<Vec<Node>> {
    if last.operator != "Mul" {
        return None;
    }
    orders(last).into_iter().find_map(|(a, b)| {
        let x = match view.scalar(b) {
            // (x · gate) · ½
            Some(half) => {
                let product = view.only(a, "Mul").filter(|_| view.is_close(a, half, 0.5))?;
                orders(product).into_iter().find_map(|(x, gate)| (gate_of(view, gate)? == x).then_some(x))?
            }
            // (½ · x) · gate, or ½ in the gate's stead at x
            None => {
                let (x, half) = view.scaled(view.only(a, "Mul").or_else(|| view.only(a, "Div"))?)?;
                (view.is_close(a, half, 0.5) && gate_of(view, b)? == x).then_some(x)?
            }
        };
        // A factor of one dimension gives a number a dimension. A number's shape is told as one that isn't known.
        let shape = view.graph.types.get(x).and_then(|known| known.shape.as_ref());
        let has_dimensions = shape.is_some_and(|shape| !shape.is_empty());
        let is_shaped_as_x =
            has_dimensions || !last.inputs.iter().any(|input| has_shaped_constant(view, input, x));
        is_shaped_as_x.then(|| vec![replacing(last, "Gelu", &[x])])
    })
}

/// Whether a value is computed of `x` with a constant that has dimensions.
fn has_shaped_constant(view: &View<'_>, value: &str, x: &str) -> bool {
    if value == x {
        return false;
    }
    match view.graph.constants.get(value) {
        Some(constant) => constant.rank() > 0,
        None => view
            .producers
            .get(value)
            .is_some_and(|node| node.inputs.iter().any(|input| has_shaped_constant(view, input, x))),
    }
}

/// The x of `1 + erf(x / √2)`.
fn gate_of<'a>(view: &View<'a>, gate: &str) -> Option<&'a str> {
    let sum = view.only(gate, "Add")?;
    orders(sum).into_iter().find_map(|(erf, one)| {
        let is_one = || view.scalar(one).is_some_and(|one| view.is_close(gate, one, 1.0));
        let erf = view.only(erf, "Erf").filter(|_| is_one())?;
        let name = erf.input(0)?;
        let (x, factor) = view.scaled(view.only(name, "Mul").or_else(|| view.only(name, "Div"))?)?;
        view.is_close(name, factor, FRAC_1_SQRT_2).then_some(x)
    })
}

/// `x · sigmoid(x)`.
pub(super) fn silu(view: &View<'_>, last: &Node) -> Option<Vec<Node>> {
    if last.operator != "Mul" {
        return None;
    }
    orders(last).into_iter().find_map(|(x, gate)| {
        let sigmoid = view.only(gate, "Sigmoid")?;
        (sigmoid.input(0)? == x).then(|| vec![replacing(last, "Swish", &[x])])
    })
}

/// `x · hard_sigmoid(x)` with a slope of a sixth.
pub(super) fn hard_swish(view: &View<'_>, last: &Node) -> Option<Vec<Node>> {
    if last.operator != "Mul" {
        return None;
    }
    orders(last).into_iter().find_map(|(x, name)| {
        let gate = view.only(name, "HardSigmoid")?;
        let is_sixth =
            view.is_close(name, gate.float("alpha", 0.2), 1.0 / 6.0) && gate.float("beta", 0.5) == 0.5;
        (gate.input(0)? == x && is_sixth).then(|| vec![replacing(last, "HardSwish", &[x])])
    })
}

/// `silu(gate) · x` of one shape.
pub(super) fn gated(view: &View<'_>, last: &Node) -> Option<Vec<Node>> {
    if last.operator != "Mul" {
        return None;
    }
    orders(last).into_iter().find_map(|(gate, x)| {
        let silu = view.only(gate, "Swish").filter(|silu| silu.float("alpha", 1.0) == 1.0)?;
        let shape = |name: &str| view.graph.types.get(name)?.shape.as_ref();
        let gate = silu.input(0)?;
        (shape(gate)? == shape(x)?).then(|| vec![replacing(last, "SwiGLU", &[gate, x])])
    })
}
