//! Patterns of exporters, and what becomes of them.

mod attention;
mod rows;
mod sums;

use std::sync::Arc;

use backend_api::ComputeBackend;
use backend_cpu::CpuBackend;

use super::*;
use crate::kind::Kind;
use crate::model::{Attribute, ValueType};
use crate::numbers::Numbers;

/// A graph of `operator(inputs) -> output`, with scalar constants by their text.
fn graph(nodes: &[(&str, &[&str], &str)], output: &str) -> Graph {
    graph_of_outputs(nodes, &[output])
}

fn graph_of_outputs(nodes: &[(&str, &[&str], &str)], outputs: &[&str]) -> Graph {
    let outputs = outputs.iter().map(|&output| output.to_owned()).collect();
    let mut graph = Graph { outputs, ..Graph::default() };
    for &(operator, inputs, output) in nodes {
        for &name in inputs {
            if let Ok(number) = name.parse() {
                let number = Tensor::host(Kind::F32, vec![], Numbers::Float(vec![number])).unwrap();
                graph.constants.insert(name.to_owned(), number);
            }
        }
        graph.nodes.push(Node {
            operator: operator.to_owned(),
            inputs: inputs.iter().map(|&name| name.to_owned()).collect(),
            outputs: vec![output.to_owned()],
            since: 13,
            ..Node::default()
        });
    }
    graph
}

/// The graph after the passes.
fn fused(nodes: &[(&str, &[&str], &str)], output: &str) -> Graph {
    let mut graph = graph(nodes, output);
    fuse(&mut graph);
    graph
}

fn operators(graph: &Graph) -> Vec<&str> {
    graph.nodes.iter().map(|node| node.operator.as_str()).collect()
}

fn types(graph: &mut Graph, shapes: &[(&str, &[usize])]) {
    for (name, shape) in shapes {
        let shape = Some(shape.iter().map(|&extent| Some(extent)).collect());
        graph.types.insert((*name).to_owned(), ValueType { kind: Some(Kind::F32), shape });
    }
}

fn constant(graph: &mut Graph, name: &str, shape: &[usize]) {
    let numbers = Numbers::Float(vec![0.5; shape.iter().product()]);
    graph.constants.insert(name.to_owned(), Tensor::host(Kind::F32, shape.to_vec(), numbers).unwrap());
    types(graph, &[(name, shape)]);
}

fn list(graph: &mut Graph, name: &str, numbers: &[i64]) {
    graph.constants.insert(name.to_owned(), Tensor::vector(numbers.to_vec()));
}

fn perm(graph: &mut Graph, node: usize, axes: &[i64]) {
    graph.nodes[node].attributes.insert("perm".to_owned(), Attribute::Ints(axes.to_vec()));
}

#[test]
fn gelu_in_the_order_of_two_exporters() {
    let pytorch: [(&str, &[&str], &str); 5] = [
        ("Div", &["x", "1.4142135"], "a"),
        ("Erf", &["a"], "b"),
        ("Add", &["b", "1"], "c"),
        ("Mul", &["x", "c"], "d"),
        ("Mul", &["d", "0.5"], "y"),
    ];
    let dynamo: [(&str, &[&str], &str); 5] = [
        ("Mul", &["x", "0.70710677"], "a"),
        ("Erf", &["a"], "b"),
        ("Add", &["b", "1"], "c"),
        ("Mul", &["0.5", "x"], "d"),
        ("Mul", &["d", "c"], "y"),
    ];
    for nodes in [pytorch, dynamo] {
        let graph = fused(&nodes, "y");
        assert_eq!(operators(&graph), ["Gelu"]);
        assert_eq!(graph.nodes[0].inputs, ["x"]);
    }
}

#[test]
fn constants_are_rounded_as_their_element_type_is() {
    let of = |kind: Kind, root: &str, one: &str| {
        let nodes: [(&str, &[&str], &str); 5] = [
            ("Div", &["x", root], "a"),
            ("Erf", &["a"], "b"),
            ("Add", &["b", one], "c"),
            ("Mul", &["x", "c"], "d"),
            ("Mul", &["d", "0.5"], "y"),
        ];
        let mut graph = graph(&nodes, "y");
        for name in ["a", "b", "c", "d", "y"] {
            graph.types.insert(name.to_owned(), ValueType { kind: Some(kind), shape: None });
        }
        fuse(&mut graph);
        operators(&graph) == ["Gelu"]
    };
    assert!(of(Kind::F32, "1.4142", "1"));
    assert!(of(Kind::F16, "1.4140625", "1"));
    assert!(!of(Kind::F32, "1.4140625", "1"), "another function in f32");
    assert!(!of(Kind::F32, "1.4142", "1.0009"));
}

#[test]
fn positions_of_rotations_are_looked_at_once() {
    let mut graph = graph(&[("RotaryEmbedding", &["x", "positions", "cos", "sin"], "y")], "y");
    graph.nodes[0].domain = crate::ops::MICROSOFT.to_owned();
    for _ in 0..2 {
        fuse(&mut graph);
        assert_eq!(operators(&graph), ["Indices", "RotaryEmbedding"]);
    }
    assert_eq!(graph.nodes[0].inputs, ["positions", "cos"]);
    assert_eq!(graph.nodes[1].inputs[1], graph.nodes[0].outputs[0]);
}

#[test]
fn what_is_read_elsewhere_stays() {
    let mut other = graph_of_outputs(&[("Sigmoid", &["x"], "s"), ("Mul", &["x", "s"], "y")], &["y", "s"]);
    fuse(&mut other);
    assert_eq!(operators(&other), ["Sigmoid", "Mul"]);
    let silu = fused(&[("Sigmoid", &["x"], "s"), ("Mul", &["s", "x"], "y")], "y");
    assert_eq!(operators(&silu), ["Swish"]);
}

#[test]
fn a_product_takes_bias_and_activation() {
    let mut layer =
        graph(&[("MatMul", &["x", "w"], "p"), ("Add", &["b", "p"], "q"), ("Relu", &["q"], "y")], "y");
    for (name, shape) in [("w", vec![2, 3]), ("b", vec![3])] {
        let numbers = Numbers::Float(vec![0.0; shape.iter().product()]);
        layer.constants.insert(name.to_owned(), Tensor::host(Kind::F32, shape, numbers).unwrap());
    }
    fuse(&mut layer);
    assert_eq!(operators(&layer), ["MatMul"]);
    assert_eq!((layer.nodes[0].inputs.len(), layer.nodes[0].text("activation")), (3, "Relu"));
}

#[test]
fn a_transposed_product_takes_a_bias_for_each_row_of_its_matrix() {
    for (shape, bias, is_fused) in
        [([4, 1], 1, false), ([4, 1], 4, true), ([1, 5], 5, false), ([1, 5], 1, true)]
    {
        let mut layer = graph(&[("MatMul", &["x", "w"], "p"), ("Add", &["p", "b"], "y")], "y");
        layer.nodes[0].attributes.insert("transB".to_owned(), Attribute::Int(1));
        constant(&mut layer, "w", &shape);
        constant(&mut layer, "b", &[bias]);
        fuse(&mut layer);
        assert_eq!(operators(&layer).len() == 1, is_fused, "{shape:?}, {bias}");
    }
}

#[test]
fn normalisations_taken_apart() {
    let mut rms = graph(
        &[
            ("Pow", &["x", "2"], "a"),
            ("ReduceMean", &["a", "last"], "b"),
            ("Add", &["b", "0.001"], "c"),
            ("Sqrt", &["c"], "d"),
            ("Reciprocal", &["d"], "e"),
            ("Mul", &["x", "e"], "f"),
            ("Mul", &["w", "f"], "y"),
        ],
        "y",
    );
    constant(&mut rms, "w", &[8]);
    list(&mut rms, "last", &[-1]);
    let mut first = rms.clone();
    fuse(&mut rms);
    assert_eq!(operators(&rms), ["SimplifiedLayerNormalization"]);
    assert_eq!(rms.nodes[0].inputs, ["x", "w"]);
    list(&mut first, "last", &[1]);
    fuse(&mut first);
    assert_eq!(operators(&first).len(), 7, "of another axis");
    let mut layer = graph(
        &[
            ("ReduceMean", &["x", "last"], "a"),
            ("Sub", &["x", "a"], "b"),
            ("Pow", &["b", "2"], "c"),
            ("ReduceMean", &["c", "last"], "d"),
            ("Add", &["d", "0.001"], "e"),
            ("Sqrt", &["e"], "f"),
            ("Div", &["b", "f"], "g"),
            ("Mul", &["g", "w"], "h"),
            ("Add", &["h", "o"], "y"),
        ],
        "y",
    );
    constant(&mut layer, "w", &[8]);
    constant(&mut layer, "o", &[8]);
    list(&mut layer, "last", &[-1]);
    fuse(&mut layer);
    assert_eq!(operators(&layer), ["LayerNormalization"]);
    assert_eq!(
        (layer.nodes[0].inputs.join(" ").as_str(), layer.nodes[0].float("epsilon", 0.0)),
        ("x w o", 0.001)
    );
}

#[test]
fn gates() {
    let mut hard = graph(&[("HardSigmoid", &["x"], "s"), ("Mul", &["x", "s"], "y")], "y");
    let mut other = hard.clone();
    hard.nodes[0].attributes.insert("alpha".to_owned(), Attribute::Float(1.0 / 6.0));
    fuse(&mut hard);
    assert_eq!(operators(&hard), ["HardSwish"]);
    fuse(&mut other);
    assert_eq!(operators(&other), ["HardSigmoid", "Mul"], "of another slope");
    let mut gated =
        graph(&[("Sigmoid", &["a"], "s"), ("Mul", &["a", "s"], "t"), ("Mul", &["b", "t"], "y")], "y");
    types(&mut gated, &[("a", &[2, 3]), ("b", &[2, 3])]);
    fuse(&mut gated);
    assert_eq!(operators(&gated), ["SwiGLU"]);
    assert_eq!(gated.nodes[0].inputs, ["a", "b"]);
}

#[test]
fn a_linear_layer_between_reshapes_takes_its_activation() {
    let mut layer = graph(
        &[
            ("Reshape", &["x", "flat"], "a"),
            ("Gemm", &["a", "w", "o"], "b"),
            ("Reshape", &["b", "apart"], "c"),
            ("Relu", &["c"], "y"),
        ],
        "y",
    );
    types(&mut layer, &[("x", &[2, 5, 8])]);
    constant(&mut layer, "w", &[8, 3]);
    constant(&mut layer, "o", &[3]);
    list(&mut layer, "flat", &[10, 8]);
    list(&mut layer, "apart", &[2, 5, 3]);
    let mut other = layer.clone();
    fuse(&mut layer);
    assert_eq!(operators(&layer), ["MatMul"]);
    assert_eq!(
        (layer.nodes[0].inputs.join(" ").as_str(), layer.nodes[0].text("activation")),
        ("x w o", "Relu")
    );
    list(&mut other, "apart", &[5, 2, 3]);
    fuse(&mut other);
    assert_eq!(operators(&other), ["Reshape", "Gemm", "Reshape", "Relu"], "rows in other groups");
}

#[test]
fn projections_of_one_input_are_one_product() {
    let backend: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
    let mut heads = graph_of_outputs(
        &[
            ("MatMul", &["x", "v", "b"], "q"),
            ("MatMul", &["x", "w"], "k"),
            ("Neg", &["q"], "y"),
            ("Neg", &["k"], "z"),
        ],
        &["y", "z"],
    );
    constant(&mut heads, "v", &[4, 2]);
    constant(&mut heads, "w", &[4, 3]);
    constant(&mut heads, "b", &[2]);
    merge(&mut heads, &backend).unwrap();
    assert_eq!(operators(&heads), ["MatMul", "Split", "Neg", "Neg"]);
    let shape = |i: usize| heads.constants[&heads.nodes[0].inputs[i]].shape.clone();
    assert_eq!((shape(1), shape(2)), (vec![4, 5], vec![5]));
    let biases = heads.constants[&heads.nodes[0].inputs[2]].numbers().unwrap().floats();
    assert_eq!(biases, [0.5, 0.5, 0.0, 0.0, 0.0]);
    assert_eq!(heads.nodes[1].outputs, ["q", "k"]);
    // A node that needs packed numbers would copy them.
    let mut packed = graph_of_outputs(
        &[
            ("MatMul", &["x", "v"], "q"),
            ("MatMul", &["x", "v"], "k"),
            ("Softmax", &["q"], "y"),
            ("Neg", &["k"], "z"),
        ],
        &["y", "z"],
    );
    constant(&mut packed, "v", &[4, 2]);
    merge(&mut packed, &backend).unwrap();
    assert_eq!(operators(&packed), ["MatMul", "MatMul", "Softmax", "Neg"]);
}
