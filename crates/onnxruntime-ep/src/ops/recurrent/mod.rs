//! Recurrent layers: the products of every step's input as one, then step after step.

mod functions;
mod layer;

use std::ops::Range;

use backend_api::BinaryOp;

use self::functions::{Function, functions};
use self::layer::Layer;
use super::call::Call;
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::model::{Graph, Node};
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("LSTM", Kinds::Float, lstm).with_check(steps_as_known),
    Operator::new("GRU", Kinds::Float, gru).with_check(steps_as_known),
    Operator::new("RNN", Kinds::Float, rnn).with_check(steps_as_known),
];

fn steps_as_known(_graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    if node.attributes.contains_key("clip") {
        return Err("bounded gates".to_owned());
    }
    if node.int("input_forget", 0) != 0 {
        return Err("coupled gates".to_owned());
    }
    if !matches!(node.text("direction"), "" | "forward" | "reverse" | "bidirectional") {
        return Err(format!("the direction {:?}", node.text("direction")));
    }
    functions(node).map(|_| ())
}

/// The functions of a node's gates, of which there must be `N`.
fn of_gates<const N: usize>(call: &Call<'_>) -> Result<[Function; N]> {
    let all = functions(call.node).map_err(Error::invalid)?;
    all.try_into().map_err(|_| Error::invalid("the number of functions"))
}

/// Gates i, o, f and c of each step: c = f·c + i·g(…), h = o·h(c).
fn lstm(call: &Call<'_>) -> Result<Vec<Tensor>> {
    const I: usize = 0;
    const O: usize = 1;
    const F: usize = 2;
    const C: usize = 3;
    let layer = Layer::new(call, 4)?;
    let d = layer.d;
    let [f, g, h] = of_gates(call)?;
    let gates = layer.gates(4)?;
    layer.project(&gates, 0, 0..4, true)?;
    let peepholes = layer.peepholes(7)?;
    let (y, mut hidden, mut cell) = (layer.outputs()?, layer.state(5)?, layer.state(6)?);
    for step in 0..layer.steps {
        layer.add_product(&gates, 0, step, &hidden, 0..4)?;
        let gate = |which: Range<usize>| layer.part(&layer.gates_at(&gates, step), which);
        let of_cell = |which: usize, place: usize, cell: &Tensor| -> Result<Option<Tensor>> {
            let Some(weights) = &peepholes else { return Ok(None) };
            let seen = d.binary(BinaryOp::Mul, &layer.part(weights, place..place + 1)?, cell)?;
            let sum = d.binary(BinaryOp::Add, &gate(which..which + 1)?, &seen)?;
            Ok(Some(f.of(d, &sum)?))
        };
        // Weights for the cell are in the order i, o, f.
        let (input, forget, output) = match (of_cell(I, 0, &cell)?, of_cell(F, 2, &cell)?) {
            (Some(input), Some(forget)) => (input, forget, None),
            _ => {
                let three = f.of(d, &gate(I..C)?)?;
                let [input, output, forget] = [I, O, F].map(|which| layer.part(&three, which..which + 1));
                (input?, forget?, Some(output?))
            }
        };
        let candidate = g.of(d, &gate(C..C + 1)?)?;
        let kept = d.binary(BinaryOp::Mul, &forget, &cell)?;
        let next = d.binary(BinaryOp::Add, &kept, &d.binary(BinaryOp::Mul, &input, &candidate)?)?;
        let output = match output {
            Some(output) => output,
            None => of_cell(O, 1, &next)?.ok_or_else(|| Error::invalid("no peepholes"))?,
        };
        let place = layer.output_at(&y, step);
        d.binary_to(BinaryOp::Mul, &output, &h.of(d, &next)?, &place)?;
        cell = layer.kept(step, next, &cell)?;
        hidden = layer.kept(step, place, &hidden)?;
    }
    layer.finish(y, vec![hidden, cell])
}

/// Gates z, r and n of each step: h = (1 − z)·n + z·h, where r is multiplied with h, or with h's product.
fn gru(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let layer = Layer::new(call, 3)?;
    let d = layer.d;
    let [f, g] = of_gates(call)?;
    let is_late = call.node.int("linear_before_reset", 0) != 0;
    // Where r is multiplied with the product of h, it stands before that of the input.
    let gates = layer.gates(if is_late { 4 } else { 3 })?;
    if is_late {
        layer.project(&gates, 0, 0..2, true)?;
        layer.project(&gates, 3, 2..3, false)?;
        layer.fill(&gates, 2)?;
    } else {
        layer.project(&gates, 0, 0..3, true)?;
    }
    let (y, mut hidden) = (layer.outputs()?, layer.state(5)?);
    for step in 0..layer.steps {
        let gate = |which: Range<usize>| layer.part(&layer.gates_at(&gates, step), which);
        layer.add_product(&gates, 0, step, &hidden, 0..if is_late { 3 } else { 2 })?;
        let both = f.of(d, &gate(0..2)?)?;
        let (z, r) = (layer.part(&both, 0..1)?, layer.part(&both, 1..2)?);
        let sum = if is_late {
            d.binary(BinaryOp::Add, &d.binary(BinaryOp::Mul, &r, &gate(2..3)?)?, &gate(3..4)?)?
        } else {
            layer.add_product(&gates, 2, step, &d.binary(BinaryOp::Mul, &r, &hidden)?, 2..3)?;
            gate(2..3)?
        };
        let candidate = g.of(d, &sum)?;
        let change = d.binary(BinaryOp::Mul, &z, &d.binary(BinaryOp::Sub, &hidden, &candidate)?)?;
        let place = layer.output_at(&y, step);
        d.binary_to(BinaryOp::Add, &candidate, &change, &place)?;
        hidden = layer.kept(step, place, &hidden)?;
    }
    layer.finish(y, vec![hidden])
}

fn rnn(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let layer = Layer::new(call, 1)?;
    let [f] = of_gates(call)?;
    let gates = layer.gates(1)?;
    layer.project(&gates, 0, 0..1, true)?;
    let (y, mut hidden) = (layer.outputs()?, layer.state(5)?);
    for step in 0..layer.steps {
        layer.add_product(&gates, 0, step, &hidden, 0..1)?;
        let place = layer.output_at(&y, step);
        layer.d.unary_to(f.op, &layer.gates_at(&gates, step), f.parameters, &place)?;
        hidden = layer.kept(step, place, &hidden)?;
    }
    layer.finish(y, vec![hidden])
}
