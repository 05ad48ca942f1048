//! Factors and summands of normalisations, and where they differ from row to row.

use super::*;

/// Layer normalisation of the dimensions from an axis on, in f64, whose factor and summand are functions of an
/// element's place.
fn normal(x: &[f64], inner: usize, affine: impl Fn(usize) -> (f64, f64)) -> Vec<f64> {
    let mut normal = Vec::new();
    for row in x.chunks(inner) {
        let mean = row.iter().sum::<f64>() / inner as f64;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / inner as f64;
        for x in row {
            let (factor, summand) = affine(normal.len());
            normal.push(factor * (x - mean) / (variance + 1e-5).sqrt() + summand);
        }
    }
    normal
}

fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 37 + 11) % 29) as f64 / 8.0 - 1.0).collect()
}

/// The element of a broadcast tensor of `shape` at a place of `[2, 3, 4]`.
fn at(shape: &[usize], place: usize) -> f64 {
    let mut index = 0;
    let places = [place / 12, place / 4 % 3, place % 4];
    for (&extent, &place) in shape.iter().zip(&places[3 - shape.len()..]) {
        index = index * extent + if extent == 1 { 0 } else { place };
    }
    numbers(shape.iter().product())[index]
}

#[test]
fn factors_are_broadcast_as_onnx_has_it() {
    let x = numbers(24);
    let shapes: [&[usize]; 9] =
        [&[4], &[1], &[], &[3, 1], &[3, 4], &[1, 1, 4], &[2, 1, 4], &[2, 1, 1], &[2, 3, 4]];
    for axis in [-1, 1] {
        let inner = if axis == -1 { 4 } else { 12 };
        let node = node("LayerNormalization", &[("axis", Attribute::Int(axis))]);
        for (weight, bias) in shapes.iter().flat_map(|weight| shapes.map(|bias| (weight, bias))) {
            let inputs = [weight, bias].map(|shape| floats(shape, &numbers(shape.iter().product())));
            let [factor, summand] = inputs;
            let y = run(&node, &[floats(&[2, 3, 4], &x), factor, summand]).unwrap();
            let expected = normal(&x, inner, |place| (at(weight, place), at(bias, place)));
            assert_eq!(y.shape, [2, 3, 4]);
            for (y, expected) in y.numbers().unwrap().floats().into_iter().zip(expected) {
                assert!((y - expected).abs() < 1e-5, "{axis}, {weight:?}, {bias:?}: {y}, not {expected}");
            }
        }
    }
}

#[test]
fn a_factor_for_each_row_of_a_square_is_no_row() {
    let x = numbers(16);
    let factor = [1.0, 2.0, 3.0, 4.0];
    let root = |place: usize| {
        let row = &x[place / 4 * 4..][..4];
        (row.iter().map(|x| x * x).sum::<f64>() / 4.0 + 1e-5).sqrt()
    };
    let y = run(&node("RMSNormalization", &[]), &[floats(&[4, 4], &x), floats(&[4, 1], &factor)]).unwrap();
    for (i, y) in y.numbers().unwrap().floats().into_iter().enumerate() {
        let expected = factor[i / 4] * x[i] / root(i);
        assert!((y - expected).abs() < 1e-5, "{i}: {y}, not {expected}");
    }
}

#[test]
fn a_longer_factor_makes_rows_longer() {
    // What a fusion makes of a normalisation that was taken apart.
    let inputs = [floats(&[2, 1], &[2.0, -3.0]), floats(&[3], &[1.0, 2.0, 3.0])];
    let y = run(&node("SimplifiedLayerNormalization", &[]), &inputs).unwrap();
    assert_eq!(y.shape, [2, 3]);
    for (y, expected) in y.numbers().unwrap().floats().into_iter().zip([1.0, 2.0, 3.0, -1.0, -2.0, -3.0]) {
        assert!((y - expected).abs() < 1e-4, "{y}, not {expected}");
    }
}
