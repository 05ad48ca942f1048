//! Parts of tensors.

use super::*;

/// The first `end` columns of a row, and the row itself: what is read of one must not pass for the other.
fn row_and_prefix(backend: &Arc<dyn ComputeBackend>, x: Tensor, end: i64) -> [Tensor; 2] {
    let list = |number: i64| ints(Kind::I64, &[number]);
    let prefix = run_on(backend, &node("Slice", &[]), &[Some(x.clone()), list(0), list(end), list(1)]);
    [x, prefix.unwrap()]
}

#[test]
fn a_prefix_has_its_own_length_on_the_host() {
    let backend: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
    let numbers: Vec<i64> = (1..=512).collect();
    let on_host = || Tensor::host(Kind::I32, vec![1, 512], Numbers::Int(numbers.clone())).unwrap();
    let bytes: Vec<u8> = numbers.iter().flat_map(|&x| (x as i32).to_le_bytes()).collect();
    let on_device = || Tensor::upload(&backend, Kind::I32, vec![1, 512], &bytes).unwrap();
    let sum =
        |x: &Tensor| run_on(&backend, &node("ReduceSum", &[]), &[Some(x.clone())]).unwrap().ints().unwrap();
    for (x, reads_prefix_first) in
        [(on_host(), true), (on_host(), false), (on_device(), true), (on_device(), false)]
    {
        let [x, prefix] = row_and_prefix(&backend, x, 300);
        let (first, second) = if reads_prefix_first { (&prefix, &x) } else { (&x, &prefix) };
        for tensor in [first, second] {
            assert_eq!(tensor.ints().unwrap(), numbers[..tensor.count()]);
            let mut bytes = vec![0; 4 * tensor.count()];
            tensor.read(&mut bytes).unwrap();
            let count = tensor.count() as i64;
            let sum_of =
                tensor.packed(|| Tensor::host(Kind::I32, tensor.shape.clone(), tensor.numbers()?.clone()));
            assert_eq!(sum(&sum_of.unwrap()), [count * (count + 1) / 2]);
        }
        let cast = node("Cast", &[("to", Attribute::Int(7))]);
        let wide = run_on(&backend, &cast, &[Some(prefix)]).unwrap();
        assert_eq!((wide.shape.as_slice(), wide.ints().unwrap()), (&[1, 300][..], numbers[..300].to_vec()));
    }
}

#[test]
fn an_empty_slice_of_many_has_no_numbers() {
    let backend: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
    let x = Tensor::host(Kind::I32, vec![1, 512], Numbers::Int(vec![7; 512])).unwrap();
    let [_, none] = row_and_prefix(&backend, x, 0);
    assert_eq!((none.shape.as_slice(), none.ints().unwrap()), (&[1, 0][..], Vec::<i64>::new()));
}

#[test]
fn a_prefix_is_reversed() {
    let backend: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
    let bytes: Vec<u8> = (0..512).flat_map(|x| (x as f32).to_le_bytes()).collect();
    let x = Tensor::upload(&backend, Kind::F32, vec![1, 512], &bytes).unwrap();
    let [_, prefix] = row_and_prefix(&backend, x, 300);
    let list = |number: i64| ints(Kind::I64, &[number]);
    let inputs = [Some(prefix), list(-1), list(-1000), list(1), list(-1)];
    let y = run_on(&backend, &node("Slice", &[]), &inputs).unwrap();
    assert_eq!(y.numbers().unwrap().floats(), (0..300).rev().map(f64::from).collect::<Vec<_>>());
}

#[test]
fn slices_backwards_begin_within_the_tensor() {
    let list = |number: i64| ints(Kind::I64, &[number]);
    let slice = |count: usize, start, end, step| {
        let x = floats(&[count], &(0..count).map(|i| i as f64).collect::<Vec<_>>());
        let y = run(&node("Slice", &[]), &[x, list(start), list(end), list(0), list(step)]).unwrap();
        y.numbers().unwrap().floats()
    };
    assert_eq!(slice(5, -100, -1000, -1), [0.0]);
    assert_eq!(slice(5, 100, -1000, -2), [4.0, 2.0, 0.0]);
    assert_eq!(slice(5, 4, -1000, i64::MIN), [4.0]);
    assert_eq!(slice(0, 4, -1000, -1), [0.0; 0]);
    let uneven = [floats(&[2], &[1.0, 2.0]), list(0), ints(Kind::I64, &[1, 1])];
    assert!(run(&node("Slice", &[]), &uneven).is_err());
}

#[test]
fn few_numbers_on_the_host_expand_to_many() {
    let y = run(&node("Expand", &[]), &[floats(&[1, 2], &[1.0, 2.0]), ints(Kind::I64, &[300, 2])]).unwrap();
    assert_eq!((y.shape.as_slice(), y.numbers().unwrap().floats()), (&[300, 2][..], [1.0, 2.0].repeat(300)));
}
