//! Who sees whom.

use super::super::MICROSOFT;
use super::*;
use crate::model::ValueType;

#[test]
fn queries_are_repeated_for_keys_and_masks() {
    let scale = [("scale", Attribute::Float(1.0))];
    let one = || floats(&[1, 1, 1, 1], &[0.0]);
    let keys = || floats(&[2, 1, 1, 1], &[1.0, 1.0]);
    let values = floats(&[2, 1, 1, 1], &[3.0, 4.0]);
    let y = run(&node("Attention", &scale), &[one(), keys(), values.clone()]).unwrap();
    assert_eq!((y.shape.as_slice(), y.numbers().unwrap().floats()), (&[2, 1, 1, 1][..], vec![3.0, 4.0]));
    let mask = floats(&[2, 2, 1, 1], &[0.0; 4]);
    let y = run(&node("Attention", &scale), &[one(), one(), floats(&[1, 1, 1, 1], &[3.0]), mask]).unwrap();
    assert_eq!((y.shape.as_slice(), y.numbers().unwrap().floats()), (&[2, 2, 1, 1][..], vec![3.0; 4]));
    let three = floats(&[3, 1, 1, 1], &[0.0; 3]);
    assert!(run(&node("Attention", &scale), &[three, keys(), values]).is_err());
}

#[test]
fn causal_heads_begin_with_the_first_key_and_the_last_sees_all() {
    let mut heads = node(
        "MultiHeadAttention",
        &[("unidirectional", Attribute::Int(1)), ("num_heads", Attribute::Int(1))],
    );
    heads.domain = MICROSOFT.to_owned();
    let means = |queries: usize, past: Option<Tensor>| {
        let [q, k] = [floats(&[1, queries, 1], &vec![0.0; queries]), floats(&[1, 4, 1], &[0.0; 4])];
        let v = floats(&[1, 4, 1], &[1.0, 3.0, 101.0, 103.0]);
        let inputs = [q, k, v, None, None, None, past.clone(), past];
        run(&heads, &inputs).unwrap().numbers().unwrap().floats()
    };
    // As ONNX Runtime's CPU provider computes them.
    assert_eq!(means(3, None), [1.0, 2.0, 52.0]);
    assert_eq!(means(1, None), [52.0], "a step of a decoder");
    assert_eq!(means(4, None), [1.0, 2.0, 35.0, 52.0]);
    assert_eq!(means(6, None), [1.0, 2.0, 35.0, 52.0, 52.0, 52.0]);
    assert_eq!(means(2, floats(&[1, 1, 1, 1], &[2.0])), [1.5, 42.0], "behind a cache");
}

/// Attention of three queries that weigh all keys alike, whose values are the rows 1, 10 and 3, 30 and 5, 50.
fn means(attributes: &[(&str, i64)], lengths: Option<Tensor>) -> Vec<f64> {
    let attributes: Vec<_> =
        attributes.iter().map(|&(name, number)| (name, Attribute::Int(number))).collect();
    let zeros = || floats(&[1, 1, 3, 1], &[0.0; 3]);
    let values = floats(&[1, 1, 3, 2], &[1.0, 10.0, 3.0, 30.0, 5.0, 50.0]);
    let inputs = [zeros(), zeros(), values, None, None, None, lengths];
    let y = run(&node("Attention", &attributes), &inputs).unwrap();
    assert_eq!(y.shape, [1, 1, 3, 2]);
    y.numbers().unwrap().floats()
}

#[test]
fn windows_lengths_and_wider_values() {
    assert_eq!(means(&[], None), [3.0, 30.0, 3.0, 30.0, 3.0, 30.0]);
    let last_two = means(&[("is_causal", 1), ("left_window_size", 1)], None);
    assert_eq!(last_two, [1.0, 10.0, 2.0, 20.0, 4.0, 40.0]);
    let next = means(&[("right_window_size", 1)], None);
    assert_eq!(next, [2.0, 20.0, 3.0, 30.0, 3.0, 30.0]);
    let both = means(&[("left_window_size", 0), ("right_window_size", 1)], None);
    assert_eq!(both, [2.0, 20.0, 4.0, 40.0, 5.0, 50.0]);
    assert_eq!(means(&[], ints(Kind::I64, &[2])), [2.0, 20.0, 2.0, 20.0, 2.0, 20.0]);
    let causal = means(&[("is_causal", 1)], ints(Kind::I64, &[2]));
    assert_eq!(causal, [0.0, 0.0, 1.0, 10.0, 2.0, 20.0], "the last query stands at the last real key");
}

#[test]
fn a_cache_has_keys_and_values_of_one_width() {
    let mut projection = node("Attention", &[("qkv_hidden_sizes", Attribute::Ints(vec![8, 8, 6]))]);
    projection.domain = MICROSOFT.to_owned();
    projection.inputs = vec!["x".to_owned(), "w".to_owned()];
    let known = |rank| ValueType { kind: Some(Kind::F32), shape: Some(vec![None; rank]) };
    let types = [("x".to_owned(), known(3)), ("w".to_owned(), known(2))];
    let graph = Graph { types: types.into(), ..Graph::default() };
    let is_taken = |node: &Node| (find(node).unwrap().check)(&graph, node).is_ok();
    assert!(is_taken(&projection));
    projection.outputs.push("present".to_owned());
    assert!(!is_taken(&projection));
    projection.attributes.insert("qkv_hidden_sizes".to_owned(), Attribute::Ints(vec![8; 3]));
    assert!(is_taken(&projection));
}
