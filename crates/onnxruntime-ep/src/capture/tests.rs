//! Captured runs beside the operations themselves, on the CPU backend.

use std::collections::HashMap;
use std::sync::Arc;

use backend_api::ComputeBackend;
use backend_cpu::CpuBackend;

use super::*;
use crate::model::{Attribute, Graph, Node};
use crate::numbers::Numbers;

/// Numbers that the device gets, as there are too many for the host.
const WIDTH: usize = 32;

fn node(operator: &str, inputs: &[&str], output: &str, attributes: &[(&str, i64)]) -> Node {
    let attributes = attributes.iter().map(|&(name, number)| (name.to_owned(), Attribute::Int(number)));
    Node {
        operator: operator.to_owned(),
        inputs: inputs.iter().map(|&name| name.to_owned()).collect(),
        outputs: vec![output.to_owned()],
        since: 13,
        attributes: attributes.collect::<HashMap<_, _>>(),
        ..Node::default()
    }
}

/// A plan of `nodes` with a table of `WIDTH` columns, whose rows are 0, 1, 2, ….
fn plan(nodes: Vec<Node>, inputs: &[&str], outputs: &[&str]) -> (Plan, Arc<dyn ComputeBackend>) {
    let backend: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
    let bytes: Vec<u8> = (0..8 * WIDTH).flat_map(|i| ((i / WIDTH) as f32).to_le_bytes()).collect();
    let table = Tensor::upload(&backend, Kind::F32, vec![8, WIDTH], &bytes).unwrap();
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let graph = Graph {
        nodes,
        constants: [("table".to_owned(), table)].into(),
        inputs: names(inputs),
        outputs: names(outputs),
        ..Graph::default()
    };
    (Plan::new(graph, &backend).unwrap(), backend)
}

fn ints(numbers: &[i64]) -> Option<Tensor> {
    Some(Tensor::vector(numbers.to_vec()))
}

fn floats(backend: &Arc<dyn ComputeBackend>, number: f32) -> Option<Tensor> {
    let bytes = number.to_le_bytes().repeat(WIDTH);
    Some(Tensor::upload(backend, Kind::F32, vec![1, WIDTH], &bytes).unwrap())
}

/// The first number of each row.
fn rows(tensor: &Tensor) -> Vec<f64> {
    tensor.numbers().unwrap().floats().into_iter().step_by(WIDTH).collect()
}

fn lookup() -> Vec<Node> {
    vec![node("Gather", &["table", "ids"], "rows", &[]), node("Add", &["rows", "x"], "y", &[])]
}

#[test]
fn shapes_that_repeat_are_replayed_with_other_numbers() {
    let (plan, backend) = plan(lookup(), &["ids", "x"], &["y"]);
    for (ids, x) in [([1, 2], 0.5), ([3, 4], 0.25), ([0, -1], 1.0), ([5, 5], 2.0)] {
        let y = plan.run(vec![ints(&ids), floats(&backend, x)]).unwrap();
        let row = |id: i64| f64::from(x) + if id < 0 { id + 8 } else { id } as f64;
        assert_eq!(rows(&y[0]), ids.map(row));
    }
    let state = plan.captures.state.lock();
    let entry = &state.entries[0];
    assert_eq!((state.entries.len(), entry.graphs, entry.misses, entry.idle.len()), (1, 1, 0, 1));
}

#[test]
fn a_wrong_index_of_a_replay_is_an_error() {
    let (plan, backend) = plan(lookup(), &["ids", "x"], &["y"]);
    for ids in [[1, 2], [1, 2], [3, 4]] {
        plan.run(vec![ints(&ids), floats(&backend, 0.0)]).unwrap();
    }
    assert!(plan.run(vec![ints(&[1, 8]), floats(&backend, 0.0)]).is_err());
    assert_eq!(rows(&plan.run(vec![ints(&[7, 6]), floats(&backend, 0.0)]).unwrap()[0]), [7.0, 6.0]);
}

#[test]
fn outputs_stay_while_somebody_has_them() {
    let (plan, backend) = plan(lookup(), &["ids", "x"], &["y"]);
    let kept: Vec<Vec<Tensor>> =
        (0..6).map(|i| plan.run(vec![ints(&[i, i]), floats(&backend, 0.0)]).unwrap()).collect();
    for (i, y) in kept.iter().enumerate() {
        assert_eq!(rows(&y[0]), [i as f64; 2]);
    }
    assert_eq!(plan.captures.state.lock().entries[0].graphs, GRAPHS);
    drop(kept);
    assert_eq!(plan.captures.state.lock().entries[0].idle.len(), GRAPHS);
}

#[test]
fn numbers_that_choose_operations_are_compared() {
    let nodes = vec![node("ReduceSum", &["table", "axes"], "y", &[("keepdims", 0)])];
    let (plan, _) = plan(nodes, &["axes"], &["y"]);
    for axis in [0, 0, 0, 1, 0, 1, 1, 1, 0, 1] {
        let y = plan.run(vec![ints(&[axis])]).unwrap();
        let (count, first) = if axis == 0 { (WIDTH, 28.0) } else { (8, 0.0) };
        assert_eq!((y[0].shape.as_slice(), y[0].numbers().unwrap().floats()[0]), (&[count][..], first));
    }
    assert_eq!(plan.captures.state.lock().entries[0].misses, MISSES);
}

#[test]
fn what_the_host_reads_of_the_device_is_not_captured() {
    let nodes =
        vec![node("ArgMax", &["x"], "place", &[("axis", 1)]), node("Add", &["place", "ids"], "y", &[])];
    let (plan, backend) = plan(nodes, &["ids", "x"], &["y"]);
    for _ in 0..4 {
        let y = plan.run(vec![ints(&[5]), floats(&backend, 1.0)]).unwrap();
        assert_eq!(y[0].ints().unwrap(), [5]);
    }
    assert_eq!(plan.captures.state.lock().entries[0].misses, MISSES);
}

#[test]
fn outputs_of_the_host_and_of_inputs() {
    let nodes = vec![
        node("Identity", &["x"], "same", &[]),
        node("Neg", &["ids"], "less", &[]),
        node("Identity", &["table"], "fixed", &[]),
    ];
    let (plan, backend) = plan(nodes, &["ids", "x"], &["same", "less", "fixed"]);
    for i in 0..4 {
        let y = plan.run(vec![ints(&[i]), floats(&backend, i as f32)]).unwrap();
        assert_eq!((rows(&y[0]), y[1].ints().unwrap()), (vec![i as f64], vec![-i]));
        assert_eq!(rows(&y[2]).len(), 8);
    }
}

#[test]
fn few_shapes_are_kept() {
    let (plan, _) = plan(lookup_of_ids(), &["ids"], &["rows"]);
    for count in 1..=3 * KEYS {
        for i in 0..3 {
            let y = plan.run(vec![ints(&vec![i; count])]).unwrap();
            assert_eq!(rows(&y[0]), vec![i as f64; count]);
        }
    }
    assert_eq!(plan.captures.state.lock().entries.len(), KEYS);
}

fn lookup_of_ids() -> Vec<Node> {
    vec![node("Gather", &["table", "ids"], "rows", &[])]
}

#[test]
fn threads_have_graphs_of_their_own() {
    let (plan, backend) = plan(lookup(), &["ids", "x"], &["y"]);
    std::thread::scope(|scope| {
        for thread in 0..8i64 {
            let (plan, backend) = (&plan, &backend);
            scope.spawn(move || {
                for i in 0..50 {
                    let id = (thread + i) % 8;
                    let y = plan.run(vec![ints(&[id, 7 - id]), floats(backend, 0.0)]).unwrap();
                    assert_eq!(rows(&y[0]), [id as f64, (7 - id) as f64]);
                }
            });
        }
    });
}

#[test]
fn numbers_of_a_view_of_a_list_are_those_of_the_run() {
    let mut sizes = node("Slice", &["list"], "sizes", &[]);
    for (name, number) in [("starts", 300), ("ends", 302), ("axes", 0)] {
        sizes.attributes.insert(name.to_owned(), Attribute::Ints(vec![number]));
    }
    let (plan, backend) =
        plan(vec![sizes, node("Expand", &["x", "sizes"], "y", &[])], &["list", "x"], &["y"]);
    for rows_wanted in [2, 2, 3, 4, 2] {
        let mut list = vec![0; 302];
        list[300..].copy_from_slice(&[rows_wanted, WIDTH as i64]);
        let list = Tensor::host(Kind::I32, vec![302], Numbers::Int(list)).unwrap();
        let y = plan.run(vec![Some(list), floats(&backend, 1.0)]).unwrap();
        assert_eq!(rows(&y[0]), vec![1.0; rows_wanted as usize]);
    }
}
