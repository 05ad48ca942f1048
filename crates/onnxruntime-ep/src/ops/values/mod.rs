//! Results of single nodes on the CPU backend, where ONNX's own node models have no case.

mod attention;
mod layers;
mod norm;
mod selection;
mod views;

use std::sync::Arc;

use backend_api::ComputeBackend;
use backend_cpu::CpuBackend;

use super::{Call, find};
use crate::error::Result;
use crate::kind::Kind;
use crate::model::{Attribute, Graph, Node};
use crate::numbers::Numbers;
use crate::tensor::Tensor;
use crate::workspace::Workspace;

fn node(operator: &str, attributes: &[(&str, Attribute)]) -> Node {
    let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    Node {
        operator: operator.to_owned(),
        attributes: attributes.collect(),
        outputs: vec!["y".to_owned()],
        since: 13,
        ..Node::default()
    }
}

fn run(node: &Node, inputs: &[Option<Tensor>]) -> Result<Tensor> {
    let backend: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
    run_on(&backend, node, inputs)
}

fn run_on(backend: &Arc<dyn ComputeBackend>, node: &Node, inputs: &[Option<Tensor>]) -> Result<Tensor> {
    Ok(all_outputs(backend, node, inputs)?.into_iter().next().unwrap())
}

fn all_outputs(
    backend: &Arc<dyn ComputeBackend>,
    node: &Node,
    inputs: &[Option<Tensor>],
) -> Result<Vec<Tensor>> {
    let memory = Workspace::new(backend);
    let call = Call { node, memory, backend: &**backend, inputs };
    (find(node).unwrap().run)(&call)
}

fn floats(shape: &[usize], numbers: &[f64]) -> Option<Tensor> {
    Some(Tensor::host(Kind::F32, shape.to_vec(), Numbers::Float(numbers.to_vec())).unwrap())
}

fn ints(kind: Kind, numbers: &[i64]) -> Option<Tensor> {
    Some(Tensor::host(kind, vec![numbers.len()], Numbers::Int(numbers.to_vec())).unwrap())
}

fn long(shape: &[usize]) -> Option<Tensor> {
    Some(Tensor::vector(vec![1; shape.iter().product()]).reshaped(shape.to_vec()).unwrap())
}

/// Tensors of so many numbers are computed on the device.
const MANY: usize = 300;

#[test]
fn clip_bounds_by_attributes_on_host_and_device() {
    let clip = node("Clip", &[("min", Attribute::Float(-1.0)), ("max", Attribute::Float(2.0))]);
    for times in [1, MANY] {
        let x = floats(&[3 * times], &[-5.0, 0.5, 5.0].repeat(times));
        let y = run(&clip, &[x]).unwrap();
        assert_eq!(y.numbers().unwrap().floats(), [-1.0, 0.5, 2.0].repeat(times));
    }
}

#[test]
fn the_image_of_a_whole_output_shape_is_its_end() {
    let x = || floats(&[1, 1, 3, 3], &[1.0; 9]);
    let filter = || floats(&[1, 1, 2, 2], &[1.0; 4]);
    for shape in [vec![1, 1, 4, 4], vec![4, 4]] {
        let transposed = node("ConvTranspose", &[("output_shape", Attribute::Ints(shape))]);
        assert_eq!(run(&transposed, &[x(), filter()]).unwrap().shape, [1, 1, 4, 4]);
    }
    let wrong = node("ConvTranspose", &[("output_shape", Attribute::Ints(vec![1, 4, 4]))]);
    assert!(run(&wrong, &[x(), filter()]).is_err());
}

#[test]
fn a_remainder_has_no_products_that_overflow() {
    let numbers = |number: i64| ints(Kind::I32, &[number; MANY]);
    for (fmod, a, b, expected) in
        [(0, 130_000, 100_000, 30_000), (0, -130_000, 100_000, 70_000), (1, -130_000, 100_000, -30_000)]
    {
        let y = run(&node("Mod", &[("fmod", Attribute::Int(fmod))]), &[numbers(a), numbers(b)]).unwrap();
        assert_eq!(y.ints().unwrap(), [expected; MANY]);
    }
}

#[test]
fn hyperbolic_functions_keep_their_digits() {
    let x = [-80.0, -12.0, 1e-4, 12.0, 20.0];
    let cases = [("Sinh", f64::sinh as fn(f64) -> f64), ("Cosh", f64::cosh), ("Asinh", f64::asinh)];
    for (operator, function) in cases {
        let y = run(&node(operator, &[]), &[floats(&[5], &x)]).unwrap();
        for (y, x) in y.numbers().unwrap().floats().into_iter().zip(x) {
            let expected = function(f64::from(x as f32));
            assert!((y - expected).abs() <= 1e-5 * expected.abs(), "{operator}({x}) = {y}, not {expected}");
        }
    }
}

#[test]
fn a_factor_of_another_precision_gives_the_result_its_own() {
    let x = Tensor::host(Kind::F16, vec![1, 2], Numbers::Float(vec![1.0, -1.0])).unwrap();
    let y = run(&node("RMSNormalization", &[]), &[Some(x), floats(&[2], &[2.0, 3.0])]).unwrap();
    assert_eq!(y.kind, Kind::F32);
    for (y, expected) in y.numbers().unwrap().floats().into_iter().zip([2.0, -3.0]) {
        assert!((y - expected).abs() < 1e-4, "{y}");
    }
}

#[test]
fn products_of_empty_matrices() {
    for (operator, k, n) in [("MatMul", 0, 3), ("Gemm", 0, 3), ("MatMul", 2, 0), ("Gemm", 2, 0)] {
        let [a, b] = [floats(&[2, k], &vec![1.0; 2 * k]), floats(&[k, n], &vec![1.0; k * n])];
        let y = run(&node(operator, &[]), &[a, b]).unwrap();
        assert_eq!((y.shape.as_slice(), y.numbers().unwrap().floats()), (&[2, n][..], vec![0.0; 2 * n]));
    }
}

#[test]
fn a_reflected_element_is_repeated() {
    let pad = node("Pad", &[("mode", Attribute::Text("reflect".to_owned()))]);
    let y = run(&pad, &[floats(&[1], &[7.0]), ints(Kind::I64, &[2, 1])]).unwrap();
    assert_eq!(y.numbers().unwrap().floats(), [7.0; 4]);
}

#[test]
fn functions_by_comparisons_make_nan_0() {
    for (operator, expected) in [("ThresholdedRelu", [0.0, 2.0, 0.0]), ("Shrink", [0.0, 2.0, -3.0])] {
        let y = run(&node(operator, &[]), &[floats(&[3], &[f64::NAN, 2.0, -3.0])]).unwrap();
        assert_eq!(y.numbers().unwrap().floats(), expected, "{operator}");
    }
}

#[test]
fn pads_that_cut_more_than_the_input_leave_padding() {
    let pad = |pads: &[i64]| {
        let inputs = [floats(&[1, 3], &[5.0, 6.0, 7.0]), ints(Kind::I64, pads), floats(&[], &[9.0])];
        let y = run(&node("Pad", &[]), &inputs).unwrap();
        (y.shape.clone(), y.numbers().unwrap().floats())
    };
    assert_eq!(pad(&[2, 0, -2, 0]), (vec![1, 3], vec![9.0; 3]));
    assert_eq!(pad(&[-2, 0, 2, 0]), (vec![1, 3], vec![9.0; 3]));
    assert_eq!(pad(&[1, 0, -2, 0]), (vec![0, 3], vec![]));
    assert_eq!(pad(&[0, 4, 0, -5]), (vec![1, 2], vec![9.0; 2]));
    assert_eq!(pad(&[0, 2, 0, -2]), (vec![1, 3], vec![9.0, 9.0, 5.0]));
}

#[test]
fn what_pads_cut_is_not_repeated() {
    let pad = |mode: &str, pads: &[i64]| {
        let pad = node("Pad", &[("mode", Attribute::Text(mode.to_owned()))]);
        let x = floats(&[5], &[0.0, 1.0, 2.0, 3.0, 4.0]);
        run(&pad, &[x, ints(Kind::I64, pads)]).map(|y| y.numbers().unwrap().floats())
    };
    assert_eq!(pad("wrap", &[-2, 1]).unwrap(), [2.0, 3.0, 4.0, 2.0]);
    assert_eq!(pad("wrap", &[1, -3]).unwrap(), [1.0, 0.0, 1.0]);
    assert_eq!(pad("reflect", &[-1, 1]).unwrap(), [1.0, 2.0, 3.0, 4.0, 3.0]);
    assert_eq!(pad("edge", &[-1, 2]).unwrap(), [1.0, 2.0, 3.0, 4.0, 4.0, 4.0]);
    assert_eq!(pad("edge", &[-6, 0]).unwrap(), [0.0; 0]);
    assert!(pad("edge", &[-5, 1]).is_err(), "nothing is left to be repeated");
}

#[test]
fn the_middle_between_two_elements_is_exact() {
    let resize = node("Resize", &[]);
    let x: Vec<f64> = (0..30).map(f64::from).collect();
    let mut resize = Node { since: 19, ..resize };
    resize.attributes.insert("mode".to_owned(), Attribute::Text("nearest".to_owned()));
    let inputs = [floats(&[30], &x), None, None, ints(Kind::I64, &[11])];
    // The sixth is at 5.5 · 30 / 11 − 0.5, which is 14.5, and the lower neighbour is preferred.
    let y = run(&resize, &inputs).unwrap().numbers().unwrap().floats();
    assert_eq!(y, [1.0, 4.0, 6.0, 9.0, 12.0, 14.0, 17.0, 20.0, 23.0, 25.0, 28.0]);
}

#[test]
fn ranges_of_all_integers() {
    let range = |start: i64, limit: i64, step: i64| {
        let inputs = [start, limit, step].map(|number| ints(Kind::I64, &[number]));
        run(&node("Range", &[]), &inputs).map(|y| y.ints().unwrap())
    };
    assert_eq!(range(i64::MIN, i64::MAX, 1 << 62).unwrap(), [i64::MIN, -1 << 62, 0, 1 << 62]);
    assert_eq!(range(i64::MAX, i64::MIN, i64::MIN).unwrap(), [i64::MAX, -1]);
    assert!(range(0, 1, 0).is_err());
}

#[test]
fn shapes_that_dont_fit_are_errors() {
    let fails = |operator: &str, shape: &[usize], numbers: &[i64]| {
        assert!(
            run(&node(operator, &[]), &[long(shape), ints(Kind::I64, numbers)]).is_err(),
            "{operator} {shape:?}"
        );
    };
    fails("Reshape", &[2], &[-1, 1 << 40, 1 << 40]);
    fails("Squeeze", &[0, 3], &[1]);
    fails("Tile", &[2, 3], &[2]);
    fails("Tile", &[2, 3], &[1, -1]);
    // Three steps of two sequences.
    fails("ReverseSequence", &[3, 2], &[1, 4]);
    fails("ReverseSequence", &[3, 2], &[1, -1]);
    fails("ReverseSequence", &[3, 2], &[1]);
}

#[test]
fn positions_are_within_the_tables() {
    let tables = |rows: usize| floats(&[rows, 2], &vec![0.5; 2 * rows]);
    let mut check = node("Indices", &[("from_start", Attribute::Int(1))]);
    check.domain = crate::ops::OWN.to_owned();
    let checks = |position: i64| run(&check, &[ints(Kind::I64, &[0, position]), tables(3)]);
    assert_eq!(checks(2).unwrap().ints().unwrap(), [0, 2]);
    assert!(checks(3).is_err() && checks(-1).is_err());
    let mut rotation = node("RotaryEmbedding", &[]);
    rotation.domain = crate::ops::MICROSOFT.to_owned();
    let rotated = |sines: usize| {
        run(&rotation, &[floats(&[1, 1, 4], &[1.0; 4]), ints(Kind::I64, &[0]), tables(3), tables(sines)])
    };
    assert!(rotated(3).is_ok() && rotated(2).is_err());
}

#[test]
fn the_nearest_elements_before_operator_set_11() {
    let resize = |operator: &str, scale: f64, count: usize| {
        let x: Vec<f64> = (0..count).map(|i| i as f64).collect();
        let mut node = node(operator, &[]);
        node.since = 10;
        let y = run(&node, &[floats(&[count], &x), floats(&[1], &[scale])]).unwrap();
        y.numbers().unwrap().floats()
    };
    // As ONNX Runtime's CPU provider has them.
    assert_eq!(resize("Resize", 0.6, 5), [0.0, 2.0, 4.0]);
    assert_eq!(resize("Resize", 1.5, 4), [0.0, 0.0, 1.0, 2.0, 2.0, 3.0]);
}

#[test]
fn a_list_that_no_host_has_room_for_is_an_error() {
    let huge = || ints(Kind::I64, &[1 << 40]);
    assert!(run(&node("Tile", &[]), &[floats(&[1], &[7.0]), huge()]).is_err());
    assert!(run(&node("ConstantOfShape", &[]), &[huge()]).is_err());
    let pad = node("Pad", &[("mode", Attribute::Text("edge".to_owned()))]);
    assert!(run(&pad, &[floats(&[1], &[7.0]), ints(Kind::I64, &[i64::MIN, i64::MAX])]).is_err());
    assert!(run(&node("Expand", &[]), &[long(&[1]), huge()]).is_err());
    let uncountable = ints(Kind::I64, &[1 << 62, 4]);
    assert!(run(&node("Expand", &[]), &[floats(&[1, 1], &[7.0]), uncountable]).is_err());
    assert!(run(&node("Tile", &[]), &[long(&[1, 1]), ints(Kind::I64, &[1 << 20, 1 << 20])]).is_err());
    let values = || ints(Kind::I64, &[0, 1]);
    assert!(run(&node("OneHot", &[]), &[long(&[1]), huge(), values()]).is_err());
    assert!(run(&node("OneHot", &[]), &[long(&[1 << 10]), ints(Kind::I64, &[1 << 54]), values()]).is_err());
    let [column, row] = [long(&[1 << 15, 1]), long(&[1, 1 << 15])];
    for operator in ["Add", "Less"] {
        assert!(run(&node(operator, &[]), &[column.clone(), row.clone()]).is_err());
    }
    let condition = Some(Tensor::host(Kind::Bool, vec![], Numbers::Int(vec![1])).unwrap());
    assert!(run(&node("Where", &[]), &[condition, column, row]).is_err());
}

#[test]
fn powers_of_integers_are_exact_however_many() {
    let pow = |kind, base, exponent| {
        let y = run(&node("Pow", &[]), &[ints(kind, &[base; MANY]), ints(Kind::I32, &[exponent])]);
        y.unwrap().ints().unwrap()
    };
    assert_eq!(pow(Kind::I32, 12345, 2), [152_399_025; MANY]);
    assert_eq!(pow(Kind::I32, (1 << 24) + 1, 1), [(1 << 24) + 1; MANY]);
    assert_eq!(pow(Kind::U32, 65535, 2), [4_294_836_225; MANY]);
    assert_eq!(pow(Kind::I32, 2, -1), [0; MANY]);
    assert_eq!(pow(Kind::I32, -1, -3), [-1; MANY]);
}

#[test]
fn conversions_between_signed_and_unsigned_keep_the_bits() {
    let cases = [(Kind::I32, -1, 12, u32::MAX.into()), (Kind::U32, u32::MAX.into(), 6, -1)];
    for (from, number, to, expected) in cases {
        for count in [1, MANY] {
            let cast = node("Cast", &[("to", Attribute::Int(to))]);
            let y = run(&cast, &[ints(from, &vec![number; count])]).unwrap();
            assert_eq!(y.ints().unwrap(), vec![expected; count]);
        }
    }
}

#[test]
fn operands_that_dont_fit_are_errors() {
    let numbers = |shape: &[usize]| floats(shape, &vec![1.0; shape.iter().product()]);
    let fails = |operator: &str, shapes: &[&[usize]]| {
        let inputs: Vec<_> = shapes.iter().map(|shape| numbers(shape)).collect();
        assert!(run(&node(operator, &[]), &inputs).is_err(), "{operator} {shapes:?}");
    };
    fails("Gemm", &[&[2, 3], &[4, 5], &[2, 5]]);
    fails("Gemm", &[&[2, 3], &[4, 5]]);
    fails("Conv", &[&[1, 2, 3, 3], &[1, 3, 2, 2]]);
    fails("Conv", &[&[1, 2, 3, 3], &[1, 2, 2, 2], &[2]]);
    fails("ConvTranspose", &[&[1, 2, 3, 3], &[3, 1, 2, 2]]);
    fails("InstanceNormalization", &[&[1, 2, 3], &[3], &[2]]);
    fails("BatchNormalization", &[&[1, 2, 3], &[2], &[2], &[2], &[6]]);
}

#[test]
fn concatenated_lists_have_the_same_other_extents() {
    let concat = |axis: i64, shapes: [&[usize]; 2]| {
        run(&node("Concat", &[("axis", Attribute::Int(axis))]), &shapes.map(long))
    };
    assert!(concat(1, [&[2, 2], &[3, 2]]).is_err());
    assert!(concat(1, [&[2, 1], &[2, 3, 2]]).is_err());
    assert!(concat(1, [&[2, 1], &[2]]).is_err());
    assert_eq!(concat(1, [&[2, 1], &[2, 3]]).unwrap().shape, [2, 4]);
}

#[test]
fn statistics_for_each_position_are_not_taken() {
    for (since, spatial, taken) in [(7, 0, false), (7, 1, true), (9, 0, true)] {
        let mut node = node("BatchNormalization", &[("spatial", Attribute::Int(spatial))]);
        node.since = since;
        assert_eq!((find(&node).unwrap().check)(&Graph::default(), &node).is_ok(), taken);
    }
}

#[test]
fn an_empty_list_of_axes_squeezes_all_ones() {
    let squeeze =
        |axes: &[i64]| run(&node("Squeeze", &[]), &[long(&[1, 3, 1]), ints(Kind::I64, axes)]).unwrap().shape;
    assert_eq!((squeeze(&[]), squeeze(&[0])), (vec![3], vec![3, 1]));
}
