//! Bits, extremes, orders and scatters.

use super::*;

#[test]
fn bits_of_integers() {
    let of = |operator: &str, kind: Kind, a: i64, b: Option<i64>, direction: &str| {
        let mut results = Vec::new();
        for count in [1, MANY] {
            let list = |number: i64| ints(kind, &vec![number; count]);
            let node = node(operator, &[("direction", Attribute::Text(direction.to_owned()))]);
            let inputs: Vec<_> = [Some(a), b].into_iter().flatten().map(list).collect();
            results.push(run(&node, &inputs).unwrap().ints().unwrap());
        }
        assert_eq!(results[1], vec![results[0][0]; MANY], "{operator} on the device");
        results[0][0]
    };
    assert_eq!(of("BitwiseAnd", Kind::I32, -2, Some(7), ""), 6);
    assert_eq!(of("BitwiseOr", Kind::U32, 1 << 31, Some(1), ""), (1 << 31) + 1);
    assert_eq!(of("BitwiseXor", Kind::I64, 1 << 40, Some(1), ""), (1 << 40) + 1);
    assert_eq!(of("BitwiseNot", Kind::U32, 1, None, ""), (1 << 32) - 2);
    assert_eq!(of("BitwiseNot", Kind::I32, 5, None, ""), -6);
    let shift = |direction, a, b| of("BitShift", Kind::U32, a, Some(b), direction);
    assert_eq!(shift("LEFT", 3, 31), 1 << 31);
    assert_eq!((shift("RIGHT", 1 << 31, 31), shift("RIGHT", 1, 32), shift("LEFT", 1, 33)), (1, 0, 0));
}

#[test]
fn scatters_multiply() {
    let node = node("ScatterElements", &[("reduction", Attribute::Text("mul".to_owned()))]);
    let inputs =
        [floats(&[3], &[2.0, 3.0, 5.0]), ints(Kind::I64, &[2, 2, 0]), floats(&[3], &[7.0, 2.0, 4.0])];
    assert_eq!(run(&node, &inputs).unwrap().numbers().unwrap().floats(), [8.0, 3.0, 70.0]);
}

#[test]
fn updates_and_batches_that_dont_fit_are_errors() {
    let zeros = |shape: &[usize]| floats(shape, &vec![0.0; shape.iter().product()]);
    let tuples = |shape: &[usize]| {
        Some(ints(Kind::I64, &vec![0; shape.iter().product()]).unwrap().reshaped(shape.to_vec()).unwrap())
    };
    let scatters = |operator: &str, indices: &[usize], updates: &[usize]| {
        run(&node(operator, &[]), &[zeros(&[3, 5]), tuples(indices), zeros(updates)]).is_ok()
    };
    assert!(scatters("ScatterND", &[2, 1], &[2, 5]) && scatters("ScatterND", &[2, 2], &[2]));
    assert!(!scatters("ScatterND", &[2, 1], &[3, 5]) && !scatters("ScatterND", &[2, 1], &[5, 2]));
    assert!(scatters("ScatterElements", &[1, 5], &[1, 5]) && !scatters("ScatterElements", &[1, 5], &[2, 5]));
    let gather = node("GatherND", &[("batch_dims", Attribute::Int(1))]);
    let gathers = |indices: &[usize]| run(&gather, &[zeros(&[2, 3]), tuples(indices)]).is_ok();
    assert!(gathers(&[2, 4, 1]) && !gathers(&[1, 4, 1]) && !gathers(&[4, 1]) && !gathers(&[1]));
}

#[test]
fn the_first_in_order_and_their_places() {
    let backend: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
    // The rows 1, 5, 5 and 4, 2, 3.
    let numbers = [1, 5, 5, 4, 2, 3];
    let of_floats = || floats(&[2, 3], &numbers.map(|x| x as f64));
    let of_integers = || ints(Kind::I64, &numbers).map(|x| x.reshaped(vec![2, 3]).unwrap());
    let top = |x: Option<Tensor>, axis: i64, largest: i64, k: i64| {
        let node = node("TopK", &[("axis", Attribute::Int(axis)), ("largest", Attribute::Int(largest))]);
        let y = all_outputs(&backend, &node, &[x, ints(Kind::I64, &[k])])?;
        assert_eq!((y[1].kind, &y[0].shape), (Kind::I64, &y[1].shape));
        Ok::<_, crate::error::Error>((y[0].shape.clone(), y[0].ints()?, y[1].ints()?))
    };
    let both: [&dyn Fn() -> Option<Tensor>; 2] = [&of_floats, &of_integers];
    for x in both {
        assert_eq!(top(x(), -1, 1, 2).unwrap(), (vec![2, 2], vec![5, 5, 4, 3], vec![1, 2, 0, 2]));
        assert_eq!(top(x(), 1, 0, 1).unwrap(), (vec![2, 1], vec![1, 2], vec![0, 1]));
        assert_eq!(top(x(), 0, 1, 2).unwrap(), (vec![2, 3], vec![4, 5, 5, 1, 2, 3], vec![1, 0, 0, 0, 1, 1]));
        assert!(top(x(), 1, 1, 4).is_err());
    }
}

#[test]
fn extremes_of_64_bit_integers() {
    let first = |operator: &str, numbers: &[i64], last: i64| {
        let node = node(operator, &[("select_last_index", Attribute::Int(last))]);
        run(&node, &[ints(Kind::I64, numbers)]).unwrap().ints().unwrap()
    };
    assert_eq!(first("ArgMax", &[3_000_000_000, 5], 0), [0]);
    assert_eq!(first("ArgMin", &[i64::MAX, 3, 3], 0), [1]);
    assert_eq!(first("ArgMin", &[i64::MAX, 3, 3], 1), [2]);
}
