//! Normalisations that exporters take apart.

use super::{View, orders, replacing};
use crate::model::{Attribute, Node};

/// `w · (x − mean) / √(variance + ε) + b` of the last dimension.
pub(super) fn layer(view: &View<'_>, last: &Node) -> Option<Vec<Node>> {
    if last.operator != "Add" {
        return None;
    }
    orders(last).into_iter().find_map(|(product, bias)| {
        is_row(view, bias)?;
        orders(view.only(product, "Mul")?).into_iter().find_map(|(normal, weight)| {
            is_row(view, weight)?;
            let (centred, eps) = over_root_mean_square(view, normal)?;
            let x = centred_of(view, centred)?;
            Some(vec![normalisation(last, "LayerNormalization", &[x, weight, bias], eps)])
        })
    })
}

/// `w · x / √(mean of squares + ε)` of the last dimension.
pub(super) fn root_mean_square(view: &View<'_>, last: &Node) -> Option<Vec<Node>> {
    if last.operator != "Mul" {
        return None;
    }
    orders(last).into_iter().find_map(|(normal, weight)| {
        is_row(view, weight)?;
        let (x, eps) = over_root_mean_square(view, normal)?;
        Some(vec![normalisation(last, "SimplifiedLayerNormalization", &[x, weight], eps)])
    })
}

fn normalisation(last: &Node, operator: &str, inputs: &[&str], eps: f64) -> Node {
    let mut node = replacing(last, operator, inputs);
    node.attributes.insert("epsilon".to_owned(), Attribute::Float(eps));
    node.attributes.insert("axis".to_owned(), Attribute::Int(-1));
    node
}

/// A constant with a number for each column.
fn is_row(view: &View<'_>, name: &str) -> Option<()> {
    view.graph.constants.get(name).filter(|row| row.rank() == 1 && row.kind.is_float()).map(|_| ())
}

/// The x and ε of `x / √(mean(x²) + ε)`, by a quotient or by a product with a reciprocal.
fn over_root_mean_square<'a>(view: &View<'a>, name: &str) -> Option<(&'a str, f64)> {
    let named = |(x, root): (&'a str, &str)| {
        let (of, eps) = mean_square(view, root)?;
        // A graph may compute one difference twice.
        (of == x || centred_of(view, of).is_some_and(|of| Some(of) == centred_of(view, x)))
            .then_some((x, eps))
    };
    if let Some(quotient) = view.only(name, "Div") {
        let [x, root] = quotient.inputs.as_slice() else { return None };
        return named((x, view.only(root, "Sqrt")?.input(0)?));
    }
    orders(view.only(name, "Mul")?).into_iter().find_map(|(x, inverse)| {
        let root = match view.only(inverse, "Reciprocal") {
            Some(node) => node.input(0)?,
            None => match view.only(inverse, "Div")?.inputs.as_slice() {
                [one, root] if view.scalar(one).is_some_and(|one| view.is_close(inverse, one, 1.0)) => {
                    root.as_str()
                }
                _ => return None,
            },
        };
        named((x, view.only(root, "Sqrt")?.input(0)?))
    })
}

/// The x and ε of `mean(x²) + ε` of the last dimension.
fn mean_square<'a>(view: &View<'a>, name: &str) -> Option<(&'a str, f64)> {
    orders(view.only(name, "Add")?).into_iter().find_map(|(mean, eps)| {
        let eps = view.scalar(eps)?;
        let square = mean_of(view, mean)?;
        if let Some(power) = view.only(square, "Pow") {
            return view
                .scalar(power.input(1)?)
                .filter(|&power| power == 2.0)
                .and(power.input(0))
                .map(|x| (x, eps));
        }
        match view.only(square, "Mul")?.inputs.as_slice() {
            [a, b] if a == b => Some((a.as_str(), eps)),
            _ => None,
        }
    })
}

/// The x of `x − mean(x)`.
fn centred_of<'a>(view: &View<'a>, name: &str) -> Option<&'a str> {
    match view.made_by(name, "Sub")?.inputs.as_slice() {
        [x, mean] if mean_of(view, mean)? == x => Some(x),
        _ => None,
    }
}

/// What a mean of the last dimension, which stays, is of.
fn mean_of<'a>(view: &View<'a>, name: &str) -> Option<&'a str> {
    let mean = view.made_by(name, "ReduceMean")?;
    let x = mean.input(0)?;
    let axes = match mean.input(1) {
        Some(axes) => view.graph.constants.get(axes)?.ints().ok()?,
        None => mean.ints("axes")?.to_vec(),
    };
    let rank = view.graph.types.get(x).and_then(|known| Some(known.shape.as_ref()?.len() as i64));
    let is_last = matches!(*axes.as_slice(), [axis] if axis == -1 || Some(axis + 1) == rank);
    (is_last && mean.int("keepdims", 1) == 1).then_some(x)
}
