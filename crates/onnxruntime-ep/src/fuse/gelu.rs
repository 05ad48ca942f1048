//! Activations that exporters take apart.

use std::f64::consts::FRAC_1_SQRT_2;

use super::{View, is_close, orders, replacing};
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
                let product = view.only(a, "Mul").filter(|_| is_close(half, 0.5))?;
                orders(product).into_iter().find_map(|(x, gate)| (gated(view, gate)? == x).then_some(x))?
            }
            // (½ · x) · gate, or ½ in the gate's stead at x
            None => {
                let (x, half) = view.scaled(view.only(a, "Mul").or_else(|| view.only(a, "Div"))?)?;
                (is_close(half, 0.5) && gated(view, b)? == x).then_some(x)?
            }
        };
        Some(vec![replacing(last, "Gelu", &[x])])
    })
}

/// The x of `1 + erf(x / √2)`.
fn gated<'a>(view: &View<'a>, gate: &str) -> Option<&'a str> {
    let sum = view.only(gate, "Add")?;
    orders(sum).into_iter().find_map(|(erf, one)| {
        let erf = view.only(erf, "Erf").filter(|_| view.scalar(one).is_some_and(|one| is_close(one, 1.0)))?;
        let name = erf.input(0)?;
        let (x, factor) = view.scaled(view.only(name, "Mul").or_else(|| view.only(name, "Div"))?)?;
        is_close(factor, FRAC_1_SQRT_2).then_some(x)
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
