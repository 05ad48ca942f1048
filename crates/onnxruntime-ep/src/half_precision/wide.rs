//! What stays in f32 where a model is computed in f16: numbers that become sizes or indices, and angles of
//! positions. From 2048 on, f16 has no odd numbers.

use std::collections::HashSet;

use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::ops;

/// Operators that compare numbers.
const COMPARISONS: &[&str] =
    &["ArgMax", "ArgMin", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "TopK"];

/// Operators that multiply positions by frequencies.
const PRODUCTS: &[&str] = &["MatMul", "Einsum", "Gemm"];

/// Whether an operator's input are sizes, indices or factors of such, which are no numbers of the model.
pub(super) fn is_exact(operator: &str, i: usize) -> bool {
    match operator {
        "ConstantOfShape" | "Range" => true,
        "Resize" | "Upsample" | "Slice" | "QuantizeLinear" | "DequantizeLinear" | "QLinearMatMul"
        | "QLinearConv" => i > 0,
        "Expand" | "Gather" | "GatherElements" | "GatherND" | "Reshape" | "Scatter" | "ScatterElements"
        | "ScatterND" | "Split" | "Tile" | "TopK" | "Trilu" => i == 1,
        "OneHot" => i < 2,
        "Pad" => i == 1 || i == 3,
        "GroupQueryAttention" => i == 5 || i == 6,
        _ => false,
    }
}

/// Which nodes are computed in f32: ranges, what integers, conditions, sizes and indices are made by, comparisons of what was
/// made of integers, and angles up to their sines and cosines.
pub(super) fn nodes(graph: &Graph) -> Vec<bool> {
    let (angles, counts) = (made_of_integers(graph, PRODUCTS), made_of_integers(graph, &[]));
    let mut needed: HashSet<&str> = HashSet::new();
    let mut wide = vec![false; graph.nodes.len()];
    for (node, wide) in graph.nodes.iter().zip(&mut wide).rev() {
        let makes = |names: &HashSet<&str>| node.outputs.iter().any(|name| names.contains(name.as_str()));
        // What is made of a product's or a layer's results is as exact as these.
        let carries = !ops::is_heavy(node) || makes(&angles);
        *wide = is(node, &["Range", "DynamicQuantizeLinear"])
            || is(node, &["Cast"]) && !is_to_float(node)
            || is(node, COMPARISONS) && is_of(graph, node, &counts)
            || makes(&needed) && carries
            || is(node, &["Sin", "Cos"]) && node.input(0).is_some_and(|name| angles.contains(name));
        for (i, name) in node.inputs.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            if *wide || is_exact(&node.operator, i) {
                needed.insert(name);
            }
        }
    }
    wide
}

/// Whether a `Cast` is to floating-point numbers: f32, f16, f64 or bf16.
fn is_to_float(node: &Node) -> bool {
    matches!(node.int("to", 0), 1 | 10 | 11 | 16)
}

/// Whether a node reads numbers of f32 besides constants, and none but these.
fn is_of(graph: &Graph, node: &Node, numbers: &HashSet<&str>) -> bool {
    let mut varying = node
        .inputs
        .iter()
        .map(String::as_str)
        .filter(|name| kind(graph, name) == Some(Kind::F32))
        .filter(|name| !graph.constants.contains_key(*name))
        .peekable();
    varying.peek().is_some() && varying.all(|name| numbers.contains(name))
}

fn kind(graph: &Graph, name: &str) -> Option<Kind> {
    match graph.constants.get(name) {
        Some(constant) => Some(constant.kind),
        None => graph.types.get(name).and_then(|known| known.kind),
    }
}

/// Numbers of f32 that positions may become before their sine or cosine: ranges, converted integers, what the
/// graph is given, and what is computed of nothing else, without layers but these products.
fn made_of_integers<'a>(graph: &'a Graph, products: &[&str]) -> HashSet<&'a str> {
    let is_f32 = |name: &&str| kind(graph, name) == Some(Kind::F32);
    let mut made: HashSet<&str> = graph.inputs.iter().map(String::as_str).filter(is_f32).collect();
    for node in &graph.nodes {
        let of_integers =
            || node.input(0).and_then(|name| kind(graph, name)).is_some_and(|kind| !kind.is_float());
        let is_made = is(node, &["Range"])
            || is(node, &["Cast"]) && of_integers()
            || (!ops::is_heavy(node) || is(node, products)) && is_of(graph, node, &made);
        if is_made {
            made.extend(node.outputs.iter().map(String::as_str).filter(is_f32));
        }
    }
    made
}

/// Whether a node is one of these operators of ONNX's.
fn is(node: &Node, operators: &[&str]) -> bool {
    node.domain.is_empty() && operators.contains(&node.operator.as_str())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use backend_api::ComputeBackend;
    use backend_cpu::CpuBackend;

    use super::*;
    use crate::half_precision::halve;
    use crate::model::{Attribute, ValueType};
    use crate::numbers::Numbers;
    use crate::plan::Plan;
    use crate::tensor::Tensor;

    fn floats(numbers: &[f64]) -> Tensor {
        Tensor::host(Kind::F32, vec![numbers.len()], Numbers::Float(numbers.to_vec())).unwrap()
    }

    fn scalar(number: f64) -> Tensor {
        floats(&[number]).reshaped(vec![]).unwrap()
    }

    /// `operator(inputs) -> output: kind`.
    type TypedNode = (&'static str, &'static [&'static str], &'static str, Kind);

    /// The output `y` of nodes, of which `x` is given, in f16. A node that makes `y` has its element type.
    fn run(nodes: &[TypedNode], constants: &[(&str, Tensor)], x: Tensor) -> Tensor {
        let typed = |kind| ValueType { kind: Some(kind), shape: None };
        let mut graph = Graph {
            constants: constants.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect(),
            inputs: vec!["x".to_owned()],
            outputs: vec!["y".to_owned()],
            types: [("x".to_owned(), typed(x.kind))].into(),
            ..Graph::default()
        };
        for &(operator, inputs, output, kind) in nodes {
            graph.types.insert(output.to_owned(), typed(kind));
            let to = if kind == Kind::F32 { 1 } else { 7 };
            graph.nodes.push(Node {
                operator: operator.to_owned(),
                since: 18,
                inputs: inputs.iter().map(|&name| name.to_owned()).collect(),
                outputs: vec![output.to_owned()],
                attributes: [("to".to_owned(), Attribute::Int(to))].into(),
                ..Node::default()
            });
        }
        let backend: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
        halve(&mut graph, &backend).unwrap();
        Plan::new(graph, &backend).unwrap().run(vec![Some(x)]).unwrap().remove(0)
    }

    /// As [`run`], of nodes behind the `product` of a vector's length, in floats, and a number.
    fn run_after_product(nodes: &[TypedNode], factor: f64, length: usize) -> Tensor {
        let product: &[TypedNode] = &[
            ("Shape", &["x"], "shape", Kind::I64),
            ("Cast", &["shape"], "floats", Kind::F32),
            ("Mul", &["floats", "factor"], "product", Kind::F32),
        ];
        run(&[product, nodes].concat(), &[("factor", floats(&[factor]))], floats(&vec![0.5; length]))
    }

    #[test]
    fn a_size_that_is_computed_in_floats_has_all_its_digits() {
        let resize: &[TypedNode] = &[
            ("Floor", &["product"], "whole", Kind::F32),
            ("Cast", &["whole"], "sizes", Kind::I64),
            ("Resize", &["x", "", "", "sizes"], "y", Kind::F32),
        ];
        assert_eq!(run_after_product(resize, 2.5, 1023).shape, [2557]);
    }

    #[test]
    fn a_scale_that_is_computed_stays_as_it_is() {
        let resize: &[TypedNode] = &[("Resize", &["x", "", "product"], "y", Kind::F32)];
        assert_eq!(run_after_product(resize, 2.0006 / 4000.0, 4000).shape, [8002]);
    }

    #[test]
    fn a_range_has_all_its_numbers() {
        let nodes: &[TypedNode] = &[
            ("Size", &["x"], "size", Kind::I64),
            ("Cast", &["size"], "limit", Kind::F32),
            ("Range", &["zero", "limit", "one"], "y", Kind::F32),
        ];
        let y = run(nodes, &[("zero", scalar(0.0)), ("one", scalar(1.0))], floats(&[0.0; 2051]));
        let expected: Vec<f64> = (0..2051).map(f64::from).collect();
        assert_eq!(y.numbers().unwrap().floats(), expected);
    }

    #[test]
    fn an_index_that_was_a_float_is_not_rounded() {
        let table: Vec<f64> = (0..2100).map(|i| f64::from(i % 7)).collect();
        let nodes: &[TypedNode] =
            &[("Cast", &["x"], "index", Kind::I64), ("Gather", &["table", "index"], "y", Kind::F32)];
        let y = run(nodes, &[("table", floats(&table))], floats(&[2049.0, 2051.0]));
        assert_eq!(y.numbers().unwrap().floats(), [5.0, 0.0]);
    }

    #[test]
    fn what_the_model_computes_becomes_an_index() {
        let nodes: &[TypedNode] = &[
            ("Relu", &["x"], "relu", Kind::F32),
            ("Add", &["relu", "offset"], "sum", Kind::F32),
            ("Cast", &["sum"], "index", Kind::I64),
            ("Gather", &["x", "index"], "found", Kind::F32),
            ("Add", &["found", "sum"], "y", Kind::F32),
        ];
        let y = run(nodes, &[("offset", floats(&[1.0]))], floats(&[1.0, -2.0, 0.5]));
        assert_eq!(y.numbers().unwrap().floats(), [2.5, -1.0, -0.5]);
    }

    #[test]
    fn comparisons_of_integers_are_exact() {
        let ids = Tensor::host(Kind::I64, vec![4], Numbers::Int(vec![5000, 5001, 80_000, 80_001])).unwrap();
        for (operator, than, expected) in
            [("Equal", 5001.0, [0.0, 1.0, 0.0, 0.0]), ("Greater", 80_000.0, [0.0, 0.0, 0.0, 1.0])]
        {
            let nodes: &[TypedNode] = &[
                ("Cast", &["x"], "ids", Kind::F32),
                (operator, &["ids", "than"], "found", Kind::Bool),
                ("Cast", &["found"], "y", Kind::F32),
            ];
            let y = run(nodes, &[("than", scalar(than))], ids.clone());
            assert_eq!(y.numbers().unwrap().floats(), expected, "{operator}");
        }
    }

    /// Lengths of sequences, which no list of operators' inputs has to name.
    #[test]
    fn an_integer_that_was_a_float_is_not_rounded() {
        let nodes: &[TypedNode] = &[
            ("Cast", &["x"], "floats", Kind::F32),
            ("Add", &["floats", "one"], "sum", Kind::F32),
            ("Cast", &["sum"], "y", Kind::I64),
        ];
        let x = Tensor::host(Kind::I64, vec![2], Numbers::Int(vec![2050, 100_002])).unwrap();
        let y = run(nodes, &[("one", scalar(1.0))], x);
        assert_eq!(y.numbers().unwrap().ints(), [2051, 100_003]);
    }

    #[test]
    fn angles_of_positions_are_exact() {
        let positions = [2000, 2001, 4095, 30_001];
        let x = Tensor::host(Kind::I64, vec![4, 1], Numbers::Int(positions.to_vec())).unwrap();
        for function in ["Sin", "Cos"] {
            let nodes: &[TypedNode] = &[
                ("Cast", &["x"], "positions", Kind::F32),
                ("MatMul", &["positions", "frequencies"], "angles", Kind::F32),
                (function, &["angles"], "wave", Kind::F32),
                ("Relu", &["wave"], "y", Kind::F32),
            ];
            let frequency = f64::from(0.7f32);
            let y =
                run(nodes, &[("frequencies", floats(&[frequency]).reshaped(vec![1, 1]).unwrap())], x.clone());
            for (y, position) in y.numbers().unwrap().floats().into_iter().zip(positions) {
                let angle = position as f64 * frequency;
                let expected = if function == "Sin" { angle.sin() } else { angle.cos() }.max(0.0);
                // Half a step of f16 below 1, and of f32 at angles of 2^15.
                assert!((y - expected).abs() <= 2f64.powi(-12) + 2f64.powi(-10), "{y}, not {expected}");
            }
        }
    }
}
