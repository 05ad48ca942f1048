//! permute, slice, repeat, pad and concat.

use backend_api::desc::{ConcatDesc, PadDesc, PermuteDesc, RepeatDesc, SliceDesc, TensorDesc};
use backend_api::{BackendResult, Bound, ComputeBackend, DType};

use super::expect::{Expect, OVERFLOW, TOO_SMALL, at_least, at_most, bound, less_than, overlap, shape};
use super::{Handles, Operation, Role, Slot};
use DType::{F16, F32};

pub(super) fn operations() -> Vec<Operation> {
    [F32, F16]
        .into_iter()
        .flat_map(|dtype| [permute, slice, repeat, pad, concat].map(|of| of(dtype)))
        .collect()
}

fn slots(element: DType, elements: [usize; 2]) -> Vec<Slot> {
    let [input, output] = elements;
    vec![Slot::new("input", Role::Input, element, input), Slot::new("output", Role::Output, element, output)]
}

/// A call with these shapes of input and output and this list of numbers.
type Call = fn(&dyn ComputeBackend, TensorDesc<'_>, TensorDesc<'_>, &[usize]) -> BackendResult<()>;
type Bad = (&'static str, [&'static [usize]; 2], &'static [usize], Expect);

fn operation(
    op: &'static str,
    element: DType,
    call: Call,
    result: f32,
    good: Bad,
    bad: Vec<Bad>,
) -> Operation {
    let make = move |b: &dyn ComputeBackend, h: &Handles, shapes: [&[usize]; 2], list: &[usize]| {
        let [input, output] = [0, 1].map(|i| TensorDesc::packed(h[i], element, shapes[i]));
        call(b, input, output, list)
    };
    let elements = good.1.map(|shape| shape.iter().product());
    let mut operation =
        Operation::new(op, slots(element, elements), result, move |b, h| make(b, h, good.1, good.2))
            .variant(element);
    for (name, shapes, list, expect) in bad {
        operation = operation.bad(name, expect, move |b, h| make(b, h, shapes, list));
    }
    let (shapes, list) = (good.1, good.2);
    operation
        .bad("one output stride", shape(op, "output strides", shapes[1].len(), 1), move |b, h| {
            let output = TensorDesc::strided(h[1], element, shapes[1], &[1]);
            call(b, TensorDesc::packed(h[0], element, shapes[0]), output, list)
        })
        .bad("outputs at one place", overlap(op, "output", "output"), move |b, h| {
            let strides = vec![0; shapes[1].len()];
            let output = TensorDesc::strided(h[1], element, shapes[1], &strides);
            call(b, TensorDesc::packed(h[0], element, shapes[0]), output, list)
        })
}

const HUGE: usize = 1 << 40;

fn permute(element: DType) -> Operation {
    let op = "permute";
    let good: [&[usize]; 2] = [&[2, 5], &[5, 2]];
    let bad: Vec<Bad> = vec![
        ("one axis", good, &[0], shape(op, "axes", 2, 1)),
        ("three axes", good, &[1, 0, 2], shape(op, "axes", 2, 3)),
        ("an axis that isn't there", good, &[1, 2], less_than(op, "axis", 2, 2)),
        ("axis usize::MAX", good, &[usize::MAX, 0], less_than(op, "axis", 2, usize::MAX)),
        ("an axis twice", [&[5, 5], &[5, 5]], &[1, 1], bound(op, "axis", Bound::Unlisted, 1)),
        ("the order of the input", good, &[0, 1], shape(op, "extent of the input", 5, 2)),
        ("another rank", [&[10], &[5, 2]], &[1, 0], shape(op, "rank of the input", 2, 1)),
        ("a larger shape", [&[3, 5], &[5, 3]], &[1, 0], TOO_SMALL),
        ("2^40 rows of 2^40", [&[HUGE, HUGE], &[HUGE, HUGE]], &[1, 0], OVERFLOW),
    ];
    let call: Call = |b, input, output, axes| b.permute(&PermuteDesc::new(input, output, axes));
    operation(op, element, call, 1.0, ("", good, &[1, 0], TOO_SMALL), bad)
}

fn slice(element: DType) -> Operation {
    let op = "slice";
    let good: [&[usize]; 2] = [&[4, 5], &[2, 3]];
    let bad: Vec<Bad> = vec![
        ("one start", good, &[0], shape(op, "starts", 2, 1)),
        ("beyond the last row", good, &[3, 2], at_least(op, "extent of the input", 5, 4)),
        ("beyond the last column", good, &[2, 3], at_least(op, "extent of the input", 6, 5)),
        ("a start of usize::MAX", good, &[usize::MAX, 0], OVERFLOW),
        ("another rank", [&[20], &[2, 3]], &[0, 0], shape(op, "rank of the input", 2, 1)),
        ("a larger input", [&[5, 5], &[2, 3]], &[0, 0], TOO_SMALL),
    ];
    let call: Call = |b, input, output, starts| b.slice(&SliceDesc::new(input, output, starts));
    let with_steps = |steps: &'static [usize]| {
        move |b: &dyn ComputeBackend, h: &Handles| {
            let input = TensorDesc::packed(h[0], element, &[4, 5]);
            let output = TensorDesc::packed(h[1], element, &[2, 3]);
            b.slice(&SliceDesc::new(input, output, &[0, 0]).with_steps(steps))
        }
    };
    operation(op, element, call, 1.0, ("", good, &[2, 2], TOO_SMALL), bad)
        .bad("one step", shape(op, "steps", 2, 1), with_steps(&[1]))
        .bad("a step of 0", at_least(op, "step", 1, 0), with_steps(&[1, 0]))
        .bad("steps beyond the end", at_least(op, "extent of the input", 7, 5), with_steps(&[1, 3]))
        .bad("a step of usize::MAX", OVERFLOW, with_steps(&[1, usize::MAX]))
}

fn repeat(element: DType) -> Operation {
    let op = "repeat";
    let good: [&[usize]; 2] = [&[2, 3], &[2, 6]];
    let bad: Vec<Bad> = vec![
        ("no multiple", [&[2, 3], &[2, 5]], &[], shape(op, "extent of the output", 3, 5)),
        ("an output of a lower rank", [&[2, 3], &[6]], &[], at_most(op, "rank of the input", 1, 2)),
        ("repetitions of nothing", [&[2, 0], &[2, 6]], &[], shape(op, "extent of the output", 0, 6)),
        ("a larger shape", [&[3, 3], &[3, 6]], &[], TOO_SMALL),
    ];
    let call: Call = |b, input, output, _| b.repeat(&RepeatDesc::new(input, output));
    operation(op, element, call, 1.0, ("", good, &[], TOO_SMALL), bad)
}

fn pad(element: DType) -> Operation {
    let op = "pad";
    let good: [&[usize]; 2] = [&[2, 3], &[3, 5]];
    let bad: Vec<Bad> = vec![
        ("one extent before", good, &[1], shape(op, "before", 2, 1)),
        ("no room for the rows", good, &[2, 1], at_least(op, "extent of the output", 4, 3)),
        ("no room for the columns", good, &[1, 3], at_least(op, "extent of the output", 6, 5)),
        ("usize::MAX before", good, &[1, usize::MAX], OVERFLOW),
        ("another rank", [&[6], &[3, 5]], &[0, 0], shape(op, "rank of the input", 2, 1)),
        ("a larger output", [&[2, 3], &[4, 5]], &[1, 1], TOO_SMALL),
    ];
    let call: Call = |b, input, output, before| b.pad(&PadDesc::new(input, output, before, 1.0));
    operation(op, element, call, 1.0, ("", good, &[1, 1], TOO_SMALL), bad)
}

/// Twice the same input.
fn concat(element: DType) -> Operation {
    let op = "concat";
    let good: [&[usize]; 2] = [&[2, 3], &[2, 6]];
    let along = "extent of the output along the axis";
    let bad: Vec<Bad> = vec![
        ("an axis that isn't there", good, &[2], less_than(op, "axis", 2, 2)),
        ("axis usize::MAX", good, &[usize::MAX], less_than(op, "axis", 2, usize::MAX)),
        ("along the other axis", good, &[0], shape(op, "extent of an input", 6, 3)),
        (
            "too little room",
            [&[2, 3], &[2, 5]],
            &[1],
            at_least(op, "extent of the output along the axis", 6, 5),
        ),
        ("too much room", [&[2, 2], &[2, 5]], &[1], shape(op, along, 4, 5)),
        ("another rank", [&[6], &[2, 6]], &[1], shape(op, "rank of an input", 2, 1)),
        ("larger inputs", [&[3, 3], &[3, 6]], &[1], TOO_SMALL),
    ];
    let call: Call = |b, input, output, axis| b.concat(&ConcatDesc::new(&[input, input], output, axis[0]));
    operation(op, element, call, 1.0, ("", good, &[1], TOO_SMALL), bad)
}
