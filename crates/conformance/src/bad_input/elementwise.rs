//! unary and binary.

use backend_api::{BackendResult, BinaryOp, ComputeBackend, DType, UnaryOp};

use super::expect::{OVERFLOW, TOO_SMALL, too_small};
use super::{Handles, Operation, Role, Slot};
use DType::F32;

const HALF: usize = usize::MAX / 2 + 1;

pub(super) fn operations() -> Vec<Operation> {
    vec![unary(), binary()]
}

fn unary() -> Operation {
    fn neg(b: &dyn ComputeBackend, h: &Handles, n: usize) -> BackendResult<()> {
        b.unary(UnaryOp::Neg, h[0], h[1], n)
    }
    let op = "unary";
    let slots =
        vec![Slot::new("input", Role::InPlaceInput, F32, 10), Slot::new("output", Role::Output, F32, 10)];
    Operation::new(op, slots, -1.0, |b, h| neg(b, h, 10))
        .bad("a number too many", too_small(op, "input", 40, 44), |b, h| neg(b, h, 11))
        .bad("n larger than the output only", too_small(op, "output", 0, 40), |b, h| {
            let empty = b.view(h[1], 0, 0)?;
            let result = b.unary(UnaryOp::Neg, h[0], empty, 10);
            b.free(empty)?;
            result
        })
        .bad("n 65,535 · 256 + 1", TOO_SMALL, |b, h| neg(b, h, 65_535 * 256 + 1))
        .bad("n 2^31", TOO_SMALL, |b, h| neg(b, h, 1 << 31))
        .bad("n 2^32 − 1", TOO_SMALL, |b, h| neg(b, h, (1 << 32) - 1))
        .bad("n 2^32", TOO_SMALL, |b, h| neg(b, h, 1 << 32))
        .bad("n 2^32 + 1", TOO_SMALL, |b, h| neg(b, h, (1 << 32) + 1))
        .bad("n 2^30 + 10, whose bytes are 40 modulo 2^32", TOO_SMALL, |b, h| neg(b, h, (1 << 30) + 10))
        .bad("n usize::MAX", OVERFLOW, |b, h| neg(b, h, usize::MAX))
        .bad("n half of the range", OVERFLOW, |b, h| neg(b, h, HALF))
        .bad("n a quarter of the range", OVERFLOW, |b, h| neg(b, h, 1 << 62))
        .bad("n 2^62 + 10, whose bytes are 40 modulo 2^64", OVERFLOW, |b, h| neg(b, h, (1 << 62) + 10))
}

fn binary() -> Operation {
    fn add(b: &dyn ComputeBackend, h: &Handles, n: usize) -> BackendResult<()> {
        b.binary(BinaryOp::Add, h[0], h[1], h[2], n)
    }
    let op = "binary";
    let slots = vec![
        Slot::new("a", Role::InPlaceInput, F32, 10),
        Slot::new("b", Role::InPlaceInput, F32, 10),
        Slot::new("output", Role::Output, F32, 10),
    ];
    Operation::new(op, slots, 2.0, |b, h| add(b, h, 10))
        .bad("a number too many", too_small(op, "a", 40, 44), |b, h| add(b, h, 11))
        .bad("n 2^31", TOO_SMALL, |b, h| add(b, h, 1 << 31))
        .bad("n 2^32", TOO_SMALL, |b, h| add(b, h, 1 << 32))
        .bad("n 2^30 + 10, whose bytes are 40 modulo 2^32", TOO_SMALL, |b, h| add(b, h, (1 << 30) + 10))
        .bad("n usize::MAX", OVERFLOW, |b, h| add(b, h, usize::MAX))
        .bad("n half of the range", OVERFLOW, |b, h| add(b, h, HALF))
        .bad("n 2^62 + 10, whose bytes are 40 modulo 2^64", OVERFLOW, |b, h| add(b, h, (1 << 62) + 10))
}
