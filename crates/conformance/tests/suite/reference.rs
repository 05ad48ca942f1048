//! Results that the judge of two backends takes for different.

use backend_api::desc::{MatmulDesc, Matrix, SoftmaxDesc, TensorDesc, UnaryDesc};
use backend_api::{Command, DType, Difference, UnaryOp};

use conformance::reference::{Bytes, compare};

/// The bytes of f32 numbers.
fn encode(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect()
}

/// The element that two results of one call differ in.
fn differing(
    command: &Command<'_>,
    inputs: &[(u64, &[f64])],
    output: u64,
    results: [&[f64]; 2],
) -> Option<usize> {
    let mut before = Bytes::default();
    for &(ptr, numbers) in inputs {
        before.insert(ptr, encode(numbers));
    }
    let [a, b] = results.map(|numbers| {
        let mut after = Bytes::default();
        after.insert(output, encode(numbers));
        after
    });
    match compare("t", command, &before, [&a, &b]).unwrap()? {
        Difference::Elements { index, .. } => Some(index),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_rounding_explains_is_no_difference() {
    let row = |ptr| TensorDesc::packed(ptr, DType::F32, &[3]);
    let tanh = UnaryDesc::new(UnaryOp::Tanh, row(1), row(2));
    let (command, x) = (Command::Unary(&tanh), [0.5, 1.0, -2.0]);
    let exact = x.map(f64::tanh);
    let near = exact.map(|y| y * (1.0 + 1e-7));
    assert_eq!(differing(&command, &[(1, &x)], 2, [&exact, &near]), None);
    assert_eq!(differing(&command, &[(1, &x)], 2, [&exact, &[exact[0], 0.76, exact[2]]]), Some(1));
    assert_eq!(differing(&command, &[(1, &x)], 2, [&exact, &[exact[0], exact[1], f64::NAN]]), Some(2));
}

#[test]
fn of_products_a_missing_term_is_a_difference() {
    let matrix = |ptr, ld| Matrix::new(ptr, DType::F32, ld);
    let product = MatmulDesc::new(1, 2, 3, matrix(1, 3), matrix(2, 2), matrix(3, 2));
    let (a, b) = ([1.0, 1e-3, 3.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let c = [1.0 + 3e-3 + 15.0, 2.0 + 4e-3 + 18.0];
    let inputs: [(u64, &[f64]); 3] = [(1, &a), (2, &b), (3, &[0.0; 2])];
    let command = Command::Matmul(&product);
    assert_eq!(differing(&command, &inputs, 3, [&c, &[c[0] * (1.0 + 2e-7), c[1]]]), None);
    assert_eq!(differing(&command, &inputs, 3, [&c, &[c[0], c[1] - 4e-3]]), Some(1));
}

#[test]
fn the_worst_of_several_is_told() {
    let softmax = SoftmaxDesc::rows(DType::F32, 1, 2, 1, 4);
    let quarter = [0.25; 4];
    let found =
        differing(&Command::Softmax(&softmax), &[(1, &[1.0; 4])], 2, [&quarter, &[0.25, 0.26, 0.5, 0.25]]);
    assert_eq!(found, Some(2));
}

#[test]
fn what_is_moved_has_the_same_bits() {
    let copy = Command::CopyBytes { dst: 2, src: 1, bytes: 8 };
    assert_eq!(differing(&copy, &[(1, &[1.0, 0.0])], 2, [&[1.0, 0.0], &[1.0, 0.0]]), None);
    assert_eq!(differing(&copy, &[(1, &[1.0, 0.0])], 2, [&[1.0, 0.0], &[1.0, -0.0]]), Some(1));
}
