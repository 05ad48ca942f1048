//! Models of f32 computed in f16: constants are rounded when a subgraph is compiled, inputs and outputs
//! converted in each run.

use std::collections::HashMap;

use half::f16;

use crate::error::Result;
use crate::kind::Kind;
use crate::model::{Attribute, Graph, Node};
use crate::numbers::Numbers;
use crate::tensor::Tensor;

/// The codes of the element types in ONNX.
const F32: i64 = 1;
const F16: i64 = 10;

/// Operators whose inputs from the second on are factors and sizes, which are no numbers of the model.
const WITH_SIZES: [&str; 2] = ["Resize", "Upsample"];

/// Makes a graph compute in f16. What it is given and gives back stays as it is.
pub(crate) fn halve(graph: &mut Graph) -> Result<()> {
    let is_f32 = |graph: &Graph, name: &String| {
        graph.types.get(name).is_some_and(|known| known.kind == Some(Kind::F32))
            && !graph.constants.contains_key(name)
    };
    let pick = |graph: &Graph, names: &[String]| -> HashMap<String, String> {
        let named = names.iter().filter(|name| is_f32(graph, name));
        named.map(|name| (name.clone(), format!("{name} in f16"))).collect()
    };
    let (given, made) = (pick(graph, &graph.inputs), pick(graph, &graph.outputs));
    let renamed = |name: &String| given.get(name).or_else(|| made.get(name)).unwrap_or(name).clone();
    let mut sizes = HashMap::new();
    for node in &mut graph.nodes {
        let keeps_from = if WITH_SIZES.contains(&node.operator.as_str()) { 1 } else { usize::MAX };
        for (i, name) in node.inputs.iter_mut().enumerate() {
            match graph.constants.get(name.as_str()).filter(|_| i >= keeps_from) {
                Some(constant) => {
                    let kept = format!("{name} as it is");
                    sizes.insert(kept.clone(), constant.clone());
                    *name = kept;
                }
                None => *name = renamed(name),
            }
        }
        node.outputs.iter_mut().for_each(|name| *name = renamed(name));
        for attribute in node.attributes.values_mut() {
            if let Attribute::Tensor(tensor) = attribute {
                *tensor = half(tensor)?;
            }
        }
        if node.operator == "Cast" && node.int("to", 0) == F32 {
            node.attributes.insert("to".to_owned(), Attribute::Int(F16));
        }
    }
    for constant in graph.constants.values_mut() {
        *constant = half(constant)?;
    }
    graph.constants.extend(sizes);
    for known in graph.types.values_mut().filter(|known| known.kind == Some(Kind::F32)) {
        known.kind = Some(Kind::F16);
    }
    let cast = |(from, to): (&String, &String), code| Node {
        name: format!("cast of {from}"),
        operator: "Cast".to_owned(),
        since: 13,
        inputs: vec![from.clone()],
        outputs: vec![to.clone()],
        attributes: [("to".to_owned(), Attribute::Int(code))].into(),
        ..Node::default()
    };
    let before: Vec<Node> = given.iter().map(|pair| cast(pair, F16)).collect();
    graph.nodes.splice(0..0, before);
    graph.nodes.extend(made.iter().map(|(name, inner)| cast((inner, name), F32)));
    Ok(())
}

/// A constant in f16. What is too large becomes the largest number there is, as masks are made of products of
/// 0 with such numbers.
fn half(tensor: &Tensor) -> Result<Tensor> {
    if tensor.kind != Kind::F32 {
        return Ok(tensor.clone());
    }
    let largest = f64::from(f16::MAX);
    let fit = |x: f64| if x.is_finite() { x.clamp(-largest, largest) } else { x };
    let numbers = tensor.numbers()?.floats().into_iter().map(fit).collect();
    Tensor::host(Kind::F16, tensor.shape.clone(), Numbers::Float(numbers).convert(Kind::F16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_constants_stay_finite() {
        let numbers = Numbers::Float(vec![-1e9, 0.5, f64::NEG_INFINITY]);
        let constant = half(&Tensor::host(Kind::F32, vec![3], numbers).unwrap()).unwrap();
        assert_eq!(constant.kind, Kind::F16);
        assert_eq!(constant.numbers().unwrap().floats(), [-65504.0, 0.5, f64::NEG_INFINITY]);
    }
}
