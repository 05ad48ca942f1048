//! binary_ext, compare and where_cond.

use backend_api::desc::{BinaryDesc, CompareDesc, MAX_RANK, TensorDesc, WhereDesc};
use backend_api::{BackendResult, BinaryOp, CompareOp, ComputeBackend, DType, ErrorKind};

use super::expect::{Expect, OVERFLOW, TOO_SMALL, at_most, dtype, overlap, shape, too_small};
use super::{Handles, Operation, Role, Slot};
use DType::{F16, F32, I32, U32};

const HUGE: usize = 1 << 40;
const HALF: usize = usize::MAX / 2 + 1;

pub(super) fn operations() -> Vec<Operation> {
    vec![binary_ext(F32), binary_ext(F16), compare(F32), compare(F16), where_cond(F32), where_cond(F16)]
}

/// Three tensors of `binary_ext`: shapes and strides of a, b and output.
type Triple = ([&'static [usize]; 3], [Option<&'static [usize]>; 3]);

const BROADCAST: Triple = ([&[2, 5], &[5], &[2, 5]], [None; 3]);

fn tensors<'a>(h: &Handles, dtypes: [DType; 3], (shapes, strides): Triple) -> [TensorDesc<'a>; 3] {
    [0, 1, 2].map(|i| TensorDesc::packed(h[i], dtypes[i], shapes[i]).with_strides(strides[i]))
}

/// A function of two tensors, called with good ones of these types, which give `result`, and with bad ones.
fn function(
    (op, a, result): (&'static str, Role, f32),
    dtypes: [DType; 3],
    call: impl Fn(&dyn ComputeBackend, [TensorDesc<'_>; 3]) -> BackendResult<()> + Copy + Send + Sync + 'static,
) -> Operation {
    let slots = vec![
        Slot::new("a", a, dtypes[0], 10),
        Slot::new("b", Role::Input, dtypes[1], 5),
        Slot::new("output", Role::Output, dtypes[2], 10),
    ];
    let mut operation = Operation::new(op, slots, result, move |b, h| call(b, tensors(h, dtypes, BROADCAST)));
    for (name, triple, expect) in bad_triples(op) {
        operation = operation.bad(name, expect, move |b, h| call(b, tensors(h, dtypes, triple)));
    }
    operation
}

fn add(b: &dyn ComputeBackend, [x, y, output]: [TensorDesc<'_>; 3]) -> BackendResult<()> {
    b.binary_ext(&BinaryDesc::new(BinaryOp::Add, x, y, output))
}

fn bad_triples(op: &'static str) -> Vec<(&'static str, Triple, Expect)> {
    let (good, row): (&[usize], &[usize]) = (&[2, 5], &[5]);
    let packed = [None; 3];
    vec![
        ("a of other columns", ([&[2, 4], row, good], packed), shape(op, "a", 5, 4)),
        ("a of other rows", ([&[3, 5], row, good], packed), shape(op, "a", 2, 3)),
        ("b of other columns", ([good, &[4], good], packed), shape(op, "b", 5, 4)),
        ("b along the wrong dimension", ([good, &[2], good], packed), shape(op, "b", 5, 2)),
        ("a of a higher rank", ([&[1, 2, 5], row, good], packed), at_most(op, "a", 2, 3)),
        ("b of a higher rank", ([good, &[1, 1, 5], good], packed), at_most(op, "b", 2, 3)),
        ("output of a lower rank", ([good, row, row], packed), at_most(op, "a", 1, 2)),
        ("output to be broadcast", ([good, row, &[1, 5]], packed), shape(op, "a", 1, 2)),
        ("one stride for a", ([good, row, good], [Some(&[1]), None, None]), shape(op, "a strides", 2, 1)),
        ("two strides for b", ([good, row, good], [None, Some(&[5, 1]), None]), shape(op, "b strides", 1, 2)),
        (
            "no stride for output",
            ([good, row, good], [None, None, Some(&[])]),
            shape(op, "output strides", 2, 0),
        ),
        (
            "output rows at one place",
            ([good, row, good], [None, None, Some(&[0, 1])]),
            overlap(op, "output", "output"),
        ),
        (
            "output strides equal",
            ([good, row, good], [None, None, Some(&[1, 1])]),
            overlap(op, "output", "output"),
        ),
        ("a beyond its end", ([good, row, good], [Some(&[6, 1]), None, None]), TOO_SMALL),
        ("b beyond its end", ([good, row, good], [None, Some(&[2]), None]), TOO_SMALL),
        ("output beyond its end", ([good, row, good], [None, None, Some(&[6, 1])]), TOO_SMALL),
        ("a larger shape", ([&[3, 5], row, &[3, 5]], packed), TOO_SMALL),
        ("2^40 rows of 2^40", ([&[HUGE, HUGE], row, &[HUGE, HUGE]], packed), OVERFLOW),
        ("usize::MAX columns", ([&[2, usize::MAX], &[1], &[2, usize::MAX]], packed), OVERFLOW),
        ("a's stride usize::MAX", ([good, row, good], [Some(&[usize::MAX, 1]), None, None]), OVERFLOW),
        ("b's stride half of the range", ([good, row, good], [None, Some(&[HALF]), None]), OVERFLOW),
        ("output's stride usize::MAX", ([good, row, good], [None, None, Some(&[usize::MAX, 1])]), OVERFLOW),
    ]
}

fn binary_ext(element: DType) -> Operation {
    let op = "binary_ext";
    let other = if element == F32 { F16 } else { F32 };
    function((op, Role::InPlaceInput, 2.0), [element; 3], add)
        .variant(element)
        .bad("a power of i32", dtype(op, "a", I32), |b, h| {
            let tensor = |i: usize| TensorDesc::packed(h[i], I32, &[5]);
            b.binary_ext(&BinaryDesc::new(BinaryOp::Pow, tensor(0), tensor(1), tensor(2)))
        })
        .bad("a power of numbers into i32", dtype(op, "output", I32), |b, h| {
            let output = TensorDesc::packed(h[2], I32, &[5]);
            b.binary_ext(&BinaryDesc::new(BinaryOp::Pow, 2.0, 2.0, output))
        })
        .bad("b of another type", dtype(op, "b", other), move |b, h| {
            add(b, tensors(h, [element, other, element], BROADCAST))
        })
        .bad("output of another type", dtype(op, "output", other), move |b, h| {
            add(b, tensors(h, [element, element, other], BROADCAST))
        })
        .bad("output of u32", dtype(op, "output", U32), move |b, h| {
            add(b, tensors(h, [element, element, U32], BROADCAST))
        })
        .bad("in place over a broadcast input", overlap(op, "output", "b"), move |b, h| {
            let (full, row) = ([2, 5], [5]);
            let output = TensorDesc::packed(h[2], element, &full);
            let a = TensorDesc::packed(h[0], element, &full);
            b.binary_ext(&BinaryDesc::new(BinaryOp::Add, a, TensorDesc::packed(h[2], element, &row), output))
        })
        .bad("more loops than MAX_RANK", Expect::Kind(ErrorKind::Limit), move |b, h| {
            // Strides in this order leave no two dimensions to be walked as one.
            let (shape, strides) = ([2; MAX_RANK + 1], [64, 1, 32, 2, 16, 4, 8]);
            let wide = b.alloc(128 * element.size())?;
            let input = TensorDesc::strided(h[0], element, &shape, &[0; MAX_RANK + 1]);
            let output = TensorDesc::strided(wide, element, &shape, &strides);
            let result = b.binary_ext(&BinaryDesc::new(BinaryOp::Add, input, input, output));
            b.free(wide)?;
            result
        })
}

fn compare(element: DType) -> Operation {
    let op = "compare";
    let call = |b: &dyn ComputeBackend, [x, y, output]: [TensorDesc<'_>; 3]| {
        b.compare(&CompareDesc::new(CompareOp::Eq, x, y, output))
    };
    function((op, Role::Input, 1.0), [element, element, U32], call)
        .variant(element)
        .bad("b of another type", dtype(op, "b", I32), move |b, h| {
            call(b, tensors(h, [element, I32, U32], BROADCAST))
        })
        .bad("output of i32", dtype(op, "output", I32), move |b, h| {
            call(b, tensors(h, [element, element, I32], BROADCAST))
        })
        .bad("output of numbers in f32", dtype(op, "output", F32), move |b, h| {
            let output = TensorDesc::packed(h[2], F32, &[10]);
            b.compare(&CompareDesc::new(CompareOp::Lt, 1.0, 2.0, output))
        })
}

fn where_cond(element: DType) -> Operation {
    let op = "where_cond";
    let slots = vec![
        Slot::new("condition", Role::Input, U32, 5),
        Slot::new("a", Role::InPlaceInput, element, 10),
        Slot::new("b", Role::Input, element, 5),
        Slot::new("output", Role::Output, element, 10),
    ];
    let call = |b: &dyn ComputeBackend, h: &Handles, condition: DType, types: [DType; 3], shape: &[usize]| {
        let [x, y, output] = [0, 1, 2].map(|i| TensorDesc::packed(h[i + 1], types[i], BROADCAST.0[i]));
        b.where_cond(&WhereDesc::new(TensorDesc::packed(h[0], condition, shape), x, y, output))
    };
    let types = [element; 3];
    Operation::new(op, slots, 1.0, move |b, h| call(b, h, U32, types, &[5]))
        .variant(element)
        .bad("a condition of i32", dtype(op, "condition", I32), move |b, h| call(b, h, I32, types, &[5]))
        .bad("a condition of f32", dtype(op, "condition", F32), move |b, h| call(b, h, F32, types, &[5]))
        .bad("b of another type", dtype(op, "b", U32), move |b, h| {
            call(b, h, U32, [element, U32, element], &[5])
        })
        .bad("output of another type", dtype(op, "output", I32), move |b, h| {
            call(b, h, U32, [element, element, I32], &[5])
        })
        .bad("other columns", shape(op, "condition", 5, 4), move |b, h| call(b, h, U32, types, &[4]))
        .bad("a condition of a higher rank", at_most(op, "condition", 2, 3), move |b, h| {
            call(b, h, U32, types, &[1, 2, 5])
        })
        .bad("a condition of two rows", too_small(op, "condition", 20, 40), move |b, h| {
            call(b, h, U32, types, &[2, 5])
        })
}
