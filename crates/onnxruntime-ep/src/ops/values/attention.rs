//! Who sees whom.

use super::super::MICROSOFT;
use super::*;

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
fn causal_heads_begin_with_the_first_key() {
    let mut heads = node(
        "MultiHeadAttention",
        &[("unidirectional", Attribute::Int(1)), ("num_heads", Attribute::Int(1))],
    );
    heads.domain = MICROSOFT.to_owned();
    let [q, k] = [floats(&[1, 2, 1], &[0.0; 2]), floats(&[1, 4, 1], &[0.0; 4])];
    let v = floats(&[1, 4, 1], &[1.0, 3.0, 100.0, 100.0]);
    assert_eq!(run(&heads, &[q, k, v]).unwrap().numbers().unwrap().floats(), [1.0, 2.0]);
}
