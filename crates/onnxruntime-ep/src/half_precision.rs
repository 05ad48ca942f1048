//! Models of f32 computed in f16: constants are rounded when a subgraph is compiled, inputs and outputs
//! converted in each run.

mod wide;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use backend_api::ComputeBackend;
use half::f16;

use crate::error::Result;
use crate::kind::Kind;
use crate::model::{Attribute, Graph, Name, Node};
use crate::numbers::Numbers;
use crate::tensor::Tensor;

/// The codes of the element types in ONNX.
const F32: i64 = 1;
const F16: i64 = 10;

/// Operators whose result has the element type that an attribute names.
const NAMED_TYPES: [(&str, &str); 2] = [("Cast", "to"), ("EyeLike", "dtype")];

/// Makes a graph compute in f16. What it is given and gives back stays as it is, and what needs more digits is
/// computed in f32 ([`wide`]). A graph whose sums of whole numbers are converted, for which f16 has no room, stays
/// as it is.
pub(crate) fn halve(graph: &mut Graph, backend: &Arc<dyn ComputeBackend>) -> Result<()> {
    if graph.nodes.iter().any(|node| matches!(node.operator.as_str(), "MatMulInteger" | "ConvInteger")) {
        return Ok(());
    }
    let wide = wide::nodes(graph);
    let mut values = Values::new(graph, &wide);
    let made: Vec<Vec<Name>> = graph.nodes.iter().map(|node| node.outputs.clone()).collect();
    let mut exact = HashMap::new();
    for (node, &wide) in graph.nodes.iter_mut().zip(&wide) {
        for (i, name) in node.inputs.iter_mut().enumerate() {
            let is_exact = wide || wide::is_exact(&node.operator, i);
            match graph.constants.get(name.as_str()).filter(|constant| constant.kind == Kind::F32) {
                Some(constant) if is_exact => {
                    let kept = format!("{name} as it is");
                    exact.insert(kept.clone(), constant.clone());
                    *name = kept;
                }
                Some(_) => {}
                None => *name = values.read(name, is_exact),
            }
        }
        node.outputs.iter_mut().for_each(|name| *name = values.written(name));
        if !wide {
            narrow(node, backend)?;
        }
    }
    for (name, constant) in &mut graph.constants {
        if constant.kind == Kind::F32 && constant.count() == 1 {
            graph.unrounded.insert(name.clone(), constant.clone());
        }
        *constant = half(constant, backend)?;
    }
    graph.constants.extend(exact);
    let mut nodes: Vec<Node> = graph.inputs.iter().filter_map(|name| values.conversion(name)).collect();
    for (node, made) in std::mem::take(&mut graph.nodes).into_iter().zip(made) {
        nodes.push(node);
        nodes.extend(made.iter().filter_map(|name| values.conversion(name)));
    }
    let results = graph.outputs.iter().collect::<BTreeSet<_>>().into_iter();
    nodes.extend(
        results
            .filter(|name| values.in_f16.contains(*name))
            .map(|name| cast(values.written(name), name, F32)),
    );
    graph.nodes = nodes;
    for (name, known) in &mut graph.types {
        if known.kind == Some(Kind::F32) && !values.in_f32.contains(name) {
            known.kind = Some(Kind::F16);
        }
    }
    Ok(())
}

/// The values of f32 of a graph by their names, and in which element types they are there and read.
struct Values {
    /// What the graph is given and what is computed in f32.
    in_f32: HashSet<Name>,
    /// What is computed in f16.
    in_f16: HashSet<Name>,
    /// What the graph gives back.
    outputs: HashSet<Name>,
    /// What is read in the other element type too.
    converted: HashSet<Name>,
}

impl Values {
    fn new(graph: &Graph, wide: &[bool]) -> Self {
        let is_f32 = |name: &&Name| {
            graph.types.get(*name).is_some_and(|known| known.kind == Some(Kind::F32))
                && !graph.constants.contains_key(*name)
        };
        let made = |by_wide: bool| {
            let outputs = graph.nodes.iter().zip(wide).flat_map(|(node, &wide)| {
                // The mean and the inverse deviation are always of f32.
                let is_norm = node.operator == "LayerNormalization";
                node.outputs.iter().enumerate().map(move |(i, name)| (name, wide || is_norm && i > 0))
            });
            outputs.filter(move |&(_, wide)| wide == by_wide).map(|(name, _)| name).filter(is_f32).cloned()
        };
        Self {
            in_f32: graph.inputs.iter().filter(is_f32).cloned().chain(made(true)).collect(),
            in_f16: made(false).collect(),
            outputs: graph.outputs.iter().cloned().collect(),
            converted: HashSet::new(),
        }
    }

    /// The name by which a node reads a value, in f32 or in f16.
    fn read(&mut self, name: &Name, wide: bool) -> Name {
        if (wide && self.in_f16.contains(name)) || (!wide && self.in_f32.contains(name)) {
            self.converted.insert(name.clone());
            return self.other(name);
        }
        self.written(name)
    }

    /// The name of a value as a node makes it.
    fn written(&self, name: &Name) -> Name {
        // The name itself is of f32, as the graph gives it back.
        let is_converted = self.in_f16.contains(name) && self.outputs.contains(name);
        if is_converted { format!("{name} in f16") } else { name.clone() }
    }

    /// The name of a value in the element type that it isn't made in.
    fn other(&self, name: &Name) -> Name {
        format!("{name} in {}", if self.in_f32.contains(name) { "f16" } else { "f32" })
    }

    /// The node that converts a value that is read in both element types.
    fn conversion(&self, name: &Name) -> Option<Node> {
        let to = if self.in_f32.contains(name) { F16 } else { F32 };
        self.converted.contains(name).then(|| cast(self.written(name), &self.other(name), to))
    }
}

fn cast(from: Name, to: &Name, code: i64) -> Node {
    Node {
        name: format!("cast of {from}"),
        operator: "Cast".to_owned(),
        since: 13,
        inputs: vec![from],
        outputs: vec![to.clone()],
        attributes: [("to".to_owned(), Attribute::Int(code))].into(),
        ..Node::default()
    }
}

/// Makes a node compute in f16.
fn narrow(node: &mut Node, backend: &Arc<dyn ComputeBackend>) -> Result<()> {
    for attribute in node.attributes.values_mut() {
        if let Attribute::Tensor(tensor) = attribute {
            *tensor = half(tensor, backend)?;
        }
    }
    for (operator, attribute) in NAMED_TYPES {
        if node.operator == operator && node.int(attribute, 0) == F32 {
            node.attributes.insert(attribute.to_owned(), Attribute::Int(F16));
        }
    }
    // Otherwise it is that of the scale.
    if node.operator == "DequantizeLinear" {
        node.attributes.insert("output_dtype".to_owned(), Attribute::Int(F16));
    }
    if node.operator == "ConstantOfShape" {
        let value = node.attributes.entry("value".to_owned());
        if let Entry::Vacant(value) = value {
            value.insert(Attribute::Tensor(Tensor::host(Kind::F16, vec![1], Numbers::Float(vec![0.0]))?));
        }
    }
    Ok(())
}

/// A constant in f16. What is too large becomes the largest number there is, as masks are made of products of
/// 0 with such numbers; what is too small becomes the smallest one, as a bound that keeps a divisor from 0 may
/// be no zero. It lies on the device or on the host as before: what is computed of constants on the host alone, is
/// computed there, however large they are.
fn half(tensor: &Tensor, backend: &Arc<dyn ComputeBackend>) -> Result<Tensor> {
    if tensor.kind != Kind::F32 {
        return Ok(tensor.clone());
    }
    let (smallest, largest) = (f64::from(f16::from_bits(1)), f64::from(f16::MAX));
    let fit = |x: f64| match x {
        0.0 => x,
        _ if x.is_finite() => x.abs().clamp(smallest, largest).copysign(x),
        _ => x,
    };
    let (shape, is_on_device) = (tensor.shape.clone(), tensor.is_on_device());
    let numbers = Numbers::Float(tensor.numbers()?.floats().into_iter().map(fit).collect());
    if is_on_device {
        return Tensor::upload(backend, Kind::F16, shape, &numbers.encode_device(Kind::F16));
    }
    Tensor::host(Kind::F16, shape, numbers.convert(Kind::F16))
}

#[cfg(test)]
mod tests {
    use backend_cpu::CpuBackend;

    use super::*;
    use crate::fuse::fuse;
    use crate::model::ValueType;
    use crate::plan::Plan;

    fn cpu() -> Arc<dyn ComputeBackend> {
        Arc::new(CpuBackend::new())
    }

    /// A table on the host would have its rows looked up there, in every run.
    #[test]
    fn constants_stay_where_they_are() {
        let bytes: Vec<u8> = [0.1f32, 2.0].into_iter().flat_map(f32::to_le_bytes).collect();
        let table = Tensor::upload(&cpu(), Kind::F32, vec![2], &bytes).unwrap();
        let rounded = half(&table, &cpu()).unwrap();
        assert!(rounded.is_on_device() && !rounded.is_on_host());
        let tenth = f64::from(f16::from_f32(0.1));
        assert_eq!((rounded.kind, rounded.numbers().unwrap().floats()), (Kind::F16, vec![tenth, 2.0]));
        let on_host = half(&Tensor::host(Kind::F32, vec![1], Numbers::Float(vec![2.0])).unwrap(), &cpu());
        assert!(on_host.unwrap().is_on_host());
    }

    #[test]
    fn large_constants_stay_finite() {
        let numbers = Numbers::Float(vec![-1e9, 0.5, f64::NEG_INFINITY]);
        let constant = half(&Tensor::host(Kind::F32, vec![3], numbers).unwrap(), &cpu()).unwrap();
        assert_eq!(constant.kind, Kind::F16);
        assert_eq!(constant.numbers().unwrap().floats(), [-65504.0, 0.5, f64::NEG_INFINITY]);
    }

    #[test]
    fn small_constants_stay_apart_from_zero() {
        let numbers = Numbers::Float(vec![1e-12, -1e-12, 0.0]);
        let constant = half(&Tensor::host(Kind::F32, vec![3], numbers).unwrap(), &cpu()).unwrap();
        let smallest = 2f64.powi(-24);
        assert_eq!(constant.numbers().unwrap().floats(), [smallest, -smallest, 0.0]);
    }

    fn node(operator: &str, inputs: &[&str], output: &str) -> Node {
        Node {
            operator: operator.to_owned(),
            since: 18,
            inputs: inputs.iter().map(|&name| name.to_owned()).collect(),
            outputs: vec![output.to_owned()],
            ..Node::default()
        }
    }

    fn halved(nodes: Vec<Node>, constants: &[(&str, &[usize], f64)], output: &str) -> Graph {
        let shape = |rank: usize| Some(ValueType { kind: Some(Kind::F32), shape: Some(vec![None; rank]) });
        let tensor = |shape: &[usize], number| {
            let count = shape.iter().product();
            Tensor::host(Kind::F32, shape.to_vec(), Numbers::Float(vec![number; count])).unwrap()
        };
        let named = |&(name, shape, number): &(&str, &[usize], f64)| (name.to_owned(), tensor(shape, number));
        let mut types = HashMap::from([("x".to_owned(), shape(2).unwrap())]);
        for node in &nodes {
            types.insert(node.outputs[0].clone(), shape(2).unwrap());
        }
        let mut graph = Graph {
            nodes,
            types,
            constants: constants.iter().map(named).collect(),
            inputs: vec!["x".to_owned()],
            outputs: vec![output.to_owned()],
            ..Graph::default()
        };
        halve(&mut graph, &cpu()).unwrap();
        graph
    }

    /// y = weight · (x − mean) / √(variance + ε) + bias.
    fn layer_norm(eps: f64) -> Graph {
        let mut nodes = vec![
            node("ReduceMean", &["x", "axes"], "mean"),
            node("Sub", &["x", "mean"], "centred"),
            node("Mul", &["centred", "centred"], "square"),
            node("ReduceMean", &["square", "axes"], "variance"),
            node("Add", &["variance", "eps"], "sum"),
            node("Sqrt", &["sum"], "root"),
            node("Div", &["centred", "root"], "normal"),
            node("Mul", &["normal", "weight"], "scaled"),
            node("Add", &["scaled", "bias"], "y"),
        ];
        for mean in nodes.iter_mut().filter(|node| node.operator == "ReduceMean") {
            mean.inputs.truncate(1);
            mean.attributes.insert("axes".to_owned(), Attribute::Ints(vec![-1]));
        }
        halved(nodes, &[("eps", &[], eps), ("weight", &[4], 1.0), ("bias", &[4], 0.5)], "y")
    }

    fn run(graph: Graph, rows: &[f64]) -> Vec<f64> {
        let backend = cpu();
        let bytes: Vec<u8> = rows.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect();
        let x = Tensor::upload(&backend, Kind::F32, vec![rows.len() / 4, 4], &bytes).unwrap();
        let y = Plan::new(graph, &backend).unwrap().run(vec![Some(x)]).unwrap();
        y[0].numbers().unwrap().floats()
    }

    #[test]
    fn a_normalisation_has_the_epsilon_of_the_model() {
        let mut graph = layer_norm(1e-12);
        assert_eq!(run(graph.clone(), &[3.0; 4]), [0.5; 4], "a constant row");
        fuse(&mut graph);
        let norm = graph.nodes.iter().find(|node| node.operator == "LayerNormalization").unwrap();
        assert!((norm.float("epsilon", 0.0) - 1e-12).abs() < 1e-18);
    }

    #[test]
    fn bytes_keep_their_scale() {
        let nodes =
            vec![node("DequantizeLinear", &["bytes", "scale"], "small"), node("Add", &["x", "small"], "y")];
        let mut graph = halved(nodes, &[("scale", &[], 1e-6)], "y");
        let bytes = Tensor::host(Kind::I8, vec![4], Numbers::Int(vec![100, -100, 127, -128])).unwrap();
        graph.constants.insert("bytes".to_owned(), bytes);
        for (y, expected) in run(graph, &[0.0; 4]).into_iter().zip([1e-4, -1e-4, 1.27e-4, -1.28e-4]) {
            assert!((y - expected).abs() < 1e-3 * f64::abs(expected), "{y} for {expected}");
        }
    }

    #[test]
    fn the_bound_of_a_norm_keeps_quotients_finite() {
        let nodes = vec![
            node("ReduceL2", &["x"], "norm"),
            node("Clip", &["norm", "least"], "bounded"),
            node("Div", &["x", "bounded"], "y"),
        ];
        assert_eq!(run(halved(nodes, &[("least", &[], 1e-12)], "y"), &[0.0; 4]), [0.0; 4]);
    }

    #[test]
    fn operators_that_name_a_type_or_have_one_by_default_make_f16() {
        let (mut eye, mut cast) = (node("EyeLike", &["x"], "eye"), node("Cast", &["eye"], "y"));
        eye.attributes.insert("dtype".to_owned(), Attribute::Int(F32));
        cast.attributes.insert("to".to_owned(), Attribute::Int(F32));
        let graph = halved(vec![eye, cast, node("ConstantOfShape", &["s"], "zeros")], &[], "y");
        let find = |operator: &str| graph.nodes.iter().find(|node| node.operator == operator).unwrap();
        assert_eq!(find("EyeLike").int("dtype", 0), F16);
        let zeros = find("ConstantOfShape").attributes.get("value");
        assert!(matches!(zeros, Some(Attribute::Tensor(zero)) if zero.kind == Kind::F16));
        assert_eq!(run(graph, &[7.0; 16]), (0..16).map(|i| f64::from(i % 5 == 0)).collect::<Vec<_>>());
    }
}
