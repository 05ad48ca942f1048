//! Sums that normalisations make.

use super::*;
use crate::ops::{self, Call};
use crate::workspace::Workspace;

/// A sum that is normalised and read behind the normalisation.
fn residual(operator: &str) -> Graph {
    let nodes: &[(&str, &[&str], &str)] = &[
        ("Add", &["a", "b"], "s"),
        ("Neg", &["s"], "e"),
        (operator, &["s", "w"], "n"),
        ("MatMul", &["n", "m"], "p"),
        ("Add", &["s", "p"], "y"),
    ];
    let mut layer = graph_of_outputs(nodes, &["y", "e"]);
    constant(&mut layer, "w", &[8]);
    constant(&mut layer, "m", &[8, 8]);
    layer
}

#[test]
fn a_sum_that_others_read_is_an_output_of_its_normalisation() {
    for operator in ["LayerNormalization", "SimplifiedLayerNormalization"] {
        let mut layer = residual(operator);
        fuse(&mut layer);
        assert_eq!(operators(&layer), [operator, "Neg", "MatMul", "Add"]);
        assert_eq!(layer.nodes[0].inputs, ["a", "w", "", "b"]);
        assert_eq!(layer.nodes[0].outputs, ["n", "", "", "s"]);
    }
    let mut other = residual("LayerNormalization");
    other.constants.remove("w");
    fuse(&mut other);
    assert_eq!(operators(&other)[0], "Add", "a factor that may not be there yet");
    let mut other = residual("LayerNormalization");
    constant(&mut other, "b", &[8]);
    fuse(&mut other);
    assert_eq!(operators(&other)[0], "Add", "a bias");
}

/// Sums of one shape are the kernel's, others are made before it.
#[test]
fn the_sum_and_what_is_made_of_it_are_right() {
    let backend: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
    for operator in ["LayerNormalization", "SimplifiedLayerNormalization"] {
        for b in [vec![3.0, -5.0, 2.0, 8.0, 1.0, -1.0, 4.0, 0.5], vec![3.0, -5.0, 2.0, 8.0]] {
            let a = [1.0, 2.0, 3.0, 4.0, -5.0, 6.0, 7.0, -8.0];
            let mut layer = residual(operator);
            fuse(&mut layer);
            let node = &layer.nodes[0];
            let tensor = |numbers: &[f64]| {
                Tensor::host(Kind::F32, vec![numbers.len() / 4, 4], Numbers::Float(numbers.to_vec())).unwrap()
            };
            let weight = Tensor::host(Kind::F32, vec![4], Numbers::Float(vec![0.5; 4])).unwrap();
            let inputs = [Some(tensor(&a)), Some(weight), None, Some(tensor(&b))];
            let call = Call { node, memory: Workspace::new(&backend), backend: &*backend, inputs: &inputs };
            let outputs = (ops::find(node).unwrap().run)(&call).unwrap();
            let floats = |i: usize| outputs[i].numbers().unwrap().floats();
            let sums: Vec<f64> = a.iter().zip(b.iter().cycle()).map(|(a, b)| a + b).collect();
            assert_eq!(floats(3), sums);
            for (row, y) in sums.chunks(4).zip(floats(0).chunks(4)) {
                let mean = if operator == "LayerNormalization" { row.iter().sum::<f64>() / 4.0 } else { 0.0 };
                let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 4.0;
                for (x, y) in row.iter().zip(y) {
                    let expected = 0.5 * (x - mean) / (variance + 1e-5).sqrt();
                    assert!((y - expected).abs() < 1e-5, "{operator}: {y}, {expected}");
                }
            }
        }
    }
}
