//! unary_ext, clamp, affine and copy.

use backend_api::desc::{AffineDesc, ClampDesc, CopyDesc, TensorDesc, UnaryDesc};
use backend_api::{BackendResult, ComputeBackend, DType, UnaryOp};

use super::expect::{Expect, OVERFLOW, TOO_SMALL, dtype, overlap, shape, too_small};
use super::{Handles, Operation, Role, Slot};
use DType::{F16, F32, I32, U32};

const HUGE: usize = 1 << 40;
const HALF: usize = usize::MAX / 2 + 1;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        unary_ext(F32),
        unary_ext(F16),
        clamp(F32),
        clamp(I32),
        affine(F32),
        affine(F16),
        copy(F32, F32),
        copy(F32, F16),
        copy(F16, I32),
        copy(U32, U32),
    ]
}

/// A bad call of `unary_ext` and of `copy`: shape and strides of input and output.
type Pair = (&'static str, [&'static [usize]; 2], [Option<&'static [usize]>; 2]);

/// What is wrong with a pair of tensors, the error, and whether it names the output's overlap with itself.
fn bad_pairs(op: &'static str, output: &'static str) -> Vec<(Pair, Expect)> {
    let good: &[usize] = &[2, 5];
    let packed = [None, None];
    vec![
        (("rank 1 to rank 2", [&[10], good], packed), shape(op, "rank of the input", 2, 1)),
        (("rank 3 to rank 2", [&[1, 2, 5], good], packed), shape(op, "rank of the input", 2, 3)),
        (("rank 0 to rank 2", [&[], good], packed), shape(op, "rank of the input", 2, 0)),
        (("other rows", [&[1, 5], good], packed), shape(op, "extent of the input", 2, 1)),
        (("other columns", [&[2, 4], good], packed), shape(op, "extent of the input", 5, 4)),
        (("exchanged extents", [&[5, 2], good], packed), shape(op, "extent of the input", 2, 5)),
        (("one input stride", [good; 2], [Some(&[1]), None]), shape(op, "input strides", 2, 1)),
        (("no input stride", [good; 2], [Some(&[]), None]), shape(op, "input strides", 2, 0)),
        (("three input strides", [good; 2], [Some(&[5, 5, 1]), None]), shape(op, "input strides", 2, 3)),
        (("one output stride", [good; 2], [None, Some(&[1])]), shape(op, "output strides", 2, 1)),
        (("output rows at one place", [good; 2], [None, Some(&[0, 1])]), overlap(op, output, output)),
        (("output columns at one place", [good; 2], [None, Some(&[5, 0])]), overlap(op, output, output)),
        (("output rows overlapping", [good; 2], [None, Some(&[4, 1])]), overlap(op, output, output)),
        (("output strides equal", [good; 2], [None, Some(&[1, 1])]), overlap(op, output, output)),
        (("input beyond its end", [good; 2], [Some(&[6, 1]), None]), TOO_SMALL),
        (("output beyond its end", [good; 2], [None, Some(&[6, 1])]), TOO_SMALL),
        (("columns beyond the end", [good; 2], [Some(&[1, 3]), None]), TOO_SMALL),
        (("a larger shape", [&[3, 5]; 2], packed), TOO_SMALL),
        (("2^40 rows of 2^40", [&[HUGE, HUGE]; 2], packed), OVERFLOW),
        (("usize::MAX columns", [&[2, usize::MAX]; 2], packed), OVERFLOW),
        (("half of the range", [&[HALF, 2]; 2], packed), OVERFLOW),
        (("an input stride of usize::MAX", [good; 2], [Some(&[usize::MAX, 1]), None]), OVERFLOW),
        (("an output stride of usize::MAX", [good; 2], [None, Some(&[usize::MAX, 1])]), OVERFLOW),
        (("a stride whose bytes overflow", [good; 2], [Some(&[HALF, 1]), None]), OVERFLOW),
    ]
}

fn tensors<'a>(h: &Handles, dtypes: [DType; 2], (_, shapes, strides): &Pair) -> [TensorDesc<'a>; 2] {
    [0, 1].map(|i| TensorDesc::packed(h[i], dtypes[i], shapes[i]).with_strides(strides[i]))
}

const PACKED: Pair = ("", [&[2, 5], &[2, 5]], [None, None]);

/// A map of a tensor of the first type to one of the second, called with good tensors, which give `result`, and bad ones.
/// `input` and `output` are what errors call the two.
fn map(
    (op, [input, output], result): (&'static str, [(&'static str, Role); 2], f32),
    dtypes: [DType; 2],
    call: impl Fn(&dyn ComputeBackend, [TensorDesc<'_>; 2]) -> BackendResult<()> + Copy + Send + Sync + 'static,
) -> Operation {
    let slots =
        vec![Slot::new(input.0, input.1, dtypes[0], 10), Slot::new(output.0, output.1, dtypes[1], 10)];
    let mut operation = Operation::new(op, slots, result, move |b, h| call(b, tensors(h, dtypes, &PACKED)));
    for (pair, expect) in bad_pairs(op, output.0) {
        operation = operation.bad(pair.0, expect, move |b, h| call(b, tensors(h, dtypes, &pair)));
    }
    operation
}

/// The operands of a map that may be done in place.
const IN_PLACE: [(&str, Role); 2] = [("input", Role::InPlaceInput), ("output", Role::Output)];

fn unary_ext(element: DType) -> Operation {
    fn neg(b: &dyn ComputeBackend, [input, output]: [TensorDesc<'_>; 2]) -> BackendResult<()> {
        b.unary_ext(&UnaryDesc::new(UnaryOp::Neg, input, output))
    }
    let op = "unary_ext";
    let both = [element; 2];
    let other = if element == F32 { F16 } else { F32 };
    let mut operation = map((op, IN_PLACE, -1.0), both, neg).variant(element);
    let size = element.size();
    for (name, offsets, expect) in [
        ("an input offset past the end", [1, 0], too_small(op, "input", 10 * size, 11 * size)),
        ("an output offset past the end", [0, 3], too_small(op, "output", 10 * size, 13 * size)),
        ("an offset of usize::MAX", [usize::MAX, 0], OVERFLOW),
        ("an offset whose bytes overflow", [0, HALF], OVERFLOW),
    ] {
        operation = operation.bad(name, expect, move |b, h| {
            let [input, output] = tensors(h, both, &PACKED);
            neg(b, [input.with_offset(offsets[0]), output.with_offset(offsets[1])])
        });
    }
    operation
        .bad("offsets that overlap", overlap(op, "output", "input"), move |b, h| {
            let half = TensorDesc::packed(h[1], element, &[6]);
            neg(b, [half, half.with_offset(4)])
        })
        .bad("a root of i32", dtype(op, "input", I32), |b, h| {
            let [input, output] = tensors(h, [I32; 2], &PACKED);
            b.unary_ext(&UnaryDesc::new(UnaryOp::Sqrt, input, output))
        })
        .bad("of u32", dtype(op, "input", U32), |b, h| neg(b, tensors(h, [U32; 2], &PACKED)))
        .bad("output of another type", dtype(op, "output", other), move |b, h| {
            neg(b, tensors(h, [element, other], &PACKED))
        })
        .bad("in place with other strides", overlap(op, "output", "input"), move |b, h| {
            let transposed = TensorDesc::strided(h[1], element, &[2, 5], &[1, 2]);
            neg(b, [transposed, TensorDesc::packed(h[1], element, &[2, 5])])
        })
}

fn copy(from: DType, to: DType) -> Operation {
    let operands = [("src", Role::Input), ("dst", Role::Output)];
    map(("copy", operands, 1.0), [from, to], |b, [src, dst]| b.copy(&CopyDesc::new(src, dst)))
        .variant(format_args!("{from} to {to}"))
}

fn clamp(element: DType) -> Operation {
    let op = "clamp";
    let call = |b: &dyn ComputeBackend, [x, y]: [TensorDesc<'_>; 2]| b.clamp(&ClampDesc::new(x, y, 3.0, 4.0));
    map((op, IN_PLACE, 3.0), [element; 2], call).variant(element).bad(
        "output of another type",
        dtype(op, "output", U32),
        move |b, h| call(b, tensors(h, [element, U32], &PACKED)),
    )
}

fn affine(element: DType) -> Operation {
    let op = "affine";
    let call =
        |b: &dyn ComputeBackend, [x, y]: [TensorDesc<'_>; 2]| b.affine(&AffineDesc::new(x, y, 3.0, 4.0));
    let other = if element == F32 { U32 } else { F32 };
    map((op, IN_PLACE, 7.0), [element; 2], call)
        .variant(element)
        .bad("of i32", dtype(op, "input", I32), move |b, h| call(b, tensors(h, [I32; 2], &PACKED)))
        .bad("output of another type", dtype(op, "output", other), move |b, h| {
            call(b, tensors(h, [element, other], &PACKED))
        })
}
