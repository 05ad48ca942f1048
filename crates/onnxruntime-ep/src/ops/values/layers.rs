//! Layers that consist of many operations.

use super::*;

fn text(text: &str) -> Attribute {
    Attribute::Text(text.to_owned())
}

/// A layer of one number that adds its input to its state, over sequences of three steps, of lengths if there
/// are some: outputs and the last state.
fn sums(direction: &str, sequences: &[[f64; 3]], lengths: Option<&[i64]>) -> [Vec<f64>; 2] {
    let count = if direction == "bidirectional" { 2 } else { 1 };
    let functions = Attribute::Texts(vec!["Relu".to_owned(); count]);
    let mut node = node("RNN", &[("direction", text(direction)), ("activations", functions)]);
    node.outputs = ["y", "h"].map(str::to_owned).to_vec();
    let x: Vec<f64> = (0..3).flat_map(|step| sequences.iter().map(move |x| x[step])).collect();
    let ones = || floats(&[count, 1, 1], &vec![1.0; count]);
    let lengths = lengths.and_then(|lengths| ints(Kind::I32, lengths));
    let inputs = [floats(&[3, sequences.len(), 1], &x), ones(), ones(), None, lengths];
    let backend: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
    let outputs = all_outputs(&backend, &node, &inputs).unwrap();
    let numbers = |i: usize| outputs[i].numbers().unwrap().floats();
    [numbers(0), numbers(1)]
}

#[test]
fn states_walk_in_both_directions() {
    let x = [[1.0, 2.0, 4.0]];
    assert_eq!(sums("forward", &x, None), [vec![1.0, 3.0, 7.0], vec![7.0]]);
    assert_eq!(sums("reverse", &x, None), [vec![7.0, 6.0, 4.0], vec![7.0]]);
    let [y, h] = sums("bidirectional", &[[1.0, 2.0, 4.0], [10.0, 20.0, 40.0]], None);
    assert_eq!(y, [1.0, 10.0, 7.0, 70.0, 3.0, 30.0, 6.0, 60.0, 7.0, 70.0, 4.0, 40.0]);
    assert_eq!(h, [7.0, 70.0, 7.0, 70.0]);
}

#[test]
fn a_sequence_that_ends_keeps_its_state() {
    let x = [[1.0, 2.0, 4.0], [10.0, 20.0, 40.0], [5.0, 5.0, 5.0]];
    let lengths = Some(&[3, 2, 0][..]);
    let [y, h] = sums("forward", &x, lengths);
    assert_eq!(y, [1.0, 10.0, 0.0, 3.0, 30.0, 0.0, 7.0, 0.0, 0.0]);
    assert_eq!(h, [7.0, 30.0, 0.0]);
    let [y, h] = sums("reverse", &x, lengths);
    assert_eq!(y, [7.0, 30.0, 0.0, 6.0, 20.0, 0.0, 4.0, 0.0, 0.0]);
    assert_eq!(h, [7.0, 30.0, 0.0]);
}

#[test]
fn layers_of_no_steps_give_their_first_state() {
    let mut gru = node("GRU", &[]);
    gru.outputs = ["y", "h"].map(str::to_owned).to_vec();
    let weights = |columns: usize| floats(&[1, 6, columns], &vec![0.5; 6 * columns]);
    let inputs =
        [floats(&[0, 1, 3], &[]), weights(3), weights(2), None, None, floats(&[1, 1, 2], &[3.0, 4.0])];
    let backend: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
    let outputs = all_outputs(&backend, &gru, &inputs).unwrap();
    assert_eq!(outputs[0].shape, [0, 1, 1, 2]);
    assert_eq!(outputs[1].numbers().unwrap().floats(), [3.0, 4.0]);
    let unfit = [floats(&[0, 1, 4], &[]), weights(3), weights(2)];
    assert!(all_outputs(&backend, &gru, &unfit).is_err());
}

#[test]
fn sums_whose_extents_differ_are_errors() {
    let sum = |equation: &str, shapes: [&[usize]; 2]| {
        let numbers = shapes.map(|shape| floats(shape, &vec![1.0; shape.iter().product()]));
        run(&node("Einsum", &[("equation", text(equation))]), &numbers)
    };
    assert!(sum("ij,jk->ik", [&[2, 3], &[4, 5]]).is_err());
    assert!(sum("ii,k->k", [&[2, 3], &[4]]).is_err());
    let y = sum("ij,jk->ik", [&[2, 3], &[1, 5]]).unwrap();
    assert_eq!((y.shape.as_slice(), y.numbers().unwrap().floats()), (&[2, 5][..], vec![3.0; 10]));
    assert_eq!(sum("ij,jk->ik", [&[2, 0], &[0, 5]]).unwrap().numbers().unwrap().floats(), [0.0; 10]);
}

#[test]
fn a_volume_of_ones_counts_what_the_filter_sees() {
    let conv = node("Conv", &[("pads", Attribute::Ints(vec![1; 6])), ("group", Attribute::Int(2))]);
    let [x, filter] = [floats(&[1, 4, 3, 3, 3], &[1.0; 108]), floats(&[2, 2, 3, 3, 3], &[1.0; 108])];
    let y = run(&conv, &[x, filter]).unwrap();
    let seen = |i: usize| if i % 3 == 1 { 3.0 } else { 2.0 };
    let counts = (0..54).map(|i| 2.0 * seen(i) * seen(i / 3) * seen(i / 9));
    assert_eq!((y.shape.as_slice(), y.numbers().unwrap().floats()), (&[1, 2, 3, 3, 3][..], counts.collect()));
}

#[test]
fn blocks_of_bytes_have_scales_of_their_own() {
    let attributes = [("axis", Attribute::Int(1)), ("block_size", Attribute::Int(2))];
    let x = Tensor::host(Kind::I8, vec![1, 4], Numbers::Int(vec![-128, 1, 2, 127])).unwrap();
    let scales = floats(&[1, 2], &[0.5, 2.0]);
    let y = run(&node("DequantizeLinear", &attributes), &[Some(x), scales]).unwrap();
    assert_eq!(y.numbers().unwrap().floats(), [-64.0, 0.5, 4.0, 254.0]);
}

#[test]
fn products_of_bytes_are_exact() {
    let matrix = |kind, shape: [usize; 2], byte: i64| {
        Some(Tensor::host(kind, shape.to_vec(), Numbers::Int(vec![byte; shape[0] * shape[1]])).unwrap())
    };
    let k = 4097;
    let inputs =
        [matrix(Kind::Raw, [1, k], 255), matrix(Kind::I8, [k, 1], -128), None, ints(Kind::I8, &[127])];
    let y = run(&node("MatMulInteger", &[]), &inputs).unwrap();
    assert_eq!((y.kind, y.ints().unwrap()), (Kind::I32, vec![-255 * 255 * 4097]));
}
