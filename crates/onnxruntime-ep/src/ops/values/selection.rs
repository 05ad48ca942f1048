//! Bits, extremes, orders and scatters.

use super::*;

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
