//! Random movements of elements.

use backend_api::BackendResult;
use backend_api::desc::{ConcatDesc, PadDesc, PermuteDesc, RepeatDesc, SliceDesc};

use super::Call;
use super::calls::{Method, call, call_with};
use super::draw::{factor, maybe, size};
use super::elementwise::{Tensor, tensors};
use super::pool::Pool;
use crate::rng::Rng;

pub(super) const METHODS: &[Method] = &[permute, slice, repeat, pad, concat];

/// As many sizes as the tensor has extents, or one more or fewer now and then.
fn per_dimension(rng: &mut Rng, tensor: &Tensor) -> Vec<usize> {
    let rank = tensor.rank();
    let count = if rng.one_in(9) { rng.below(5) } else { rank };
    (0..count).map(|_| if rng.one_in(3) { size(rng) } else { rng.below(2) }).collect()
}

fn permute<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let [input, mut output] = tensors(rng, pool);
    let mut axes: Vec<usize> = (0..input.rank()).collect();
    for k in (1..axes.len()).rev() {
        axes.swap(k, rng.below(k + 1));
    }
    if rng.one_in(5) && !axes.is_empty() {
        let at = rng.below(axes.len());
        axes[at] = size(rng);
    } else {
        output.reorder(&input, &axes);
    }
    let label = format!("permute {input:?} {output:?} {axes:?}");
    call_with!(pool, permute, label, PermuteDesc::new(input.desc(), output.desc(), &axes))
}

fn slice<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let [input, output] = tensors(rng, pool);
    let starts = per_dimension(rng, &output);
    let steps = per_dimension(rng, &output).into_iter().map(|step| step.max(1)).collect::<Vec<_>>();
    let steps = maybe(rng, steps).filter(|steps| steps.len() == output.rank());
    let starts: Vec<usize> = if starts.len() == input.rank() { starts } else { vec![0; input.rank()] };
    let verdict = with_slice(&input, &output, &starts, steps.as_deref(), |desc| {
        pool.check("slice", desc.operands("slice").map(|(operands, _)| operands))
    });
    call(format!("slice {input:?} {output:?} {starts:?} {steps:?}"), verdict, move |b| {
        with_slice(&input, &output, &starts, steps.as_deref(), |desc| b.slice(desc))
    })
}

fn with_slice(
    input: &Tensor,
    output: &Tensor,
    starts: &[usize],
    steps: Option<&[usize]>,
    f: impl FnOnce(&SliceDesc<'_>) -> BackendResult<()>,
) -> BackendResult<()> {
    let desc = SliceDesc::new(input.desc(), output.desc(), starts);
    match steps {
        Some(steps) => f(&desc.with_steps(steps)),
        None => f(&desc),
    }
}

fn repeat<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let [input, output] = tensors(rng, pool);
    let interleaved = rng.one_in(2);
    let desc =
        move |input: &Tensor, output: &Tensor, f: &mut dyn FnMut(&RepeatDesc<'_>) -> BackendResult<()>| {
            let desc = RepeatDesc::new(input.desc(), output.desc());
            f(&if interleaved { desc.with_interleaved() } else { desc })
        };
    let verdict = desc(&input, &output, &mut |desc| {
        pool.check("repeat", desc.operands("repeat").map(|(operands, _)| operands))
    });
    call(format!("repeat {input:?} {output:?} interleaved {interleaved}"), verdict, move |b| {
        desc(&input, &output, &mut |desc| b.repeat(desc))
    })
}

fn pad<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let ([input, output], value) = (tensors(rng, pool), factor(rng));
    let before = per_dimension(rng, &output);
    let label = format!("pad {input:?} {output:?} {before:?} {value}");
    call_with!(pool, pad, label, PadDesc::new(input.desc(), output.desc(), &before, value))
}

fn concat<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let ([first, second, mut output], axis) = (tensors(rng, pool), rng.below(4));
    if !rng.one_in(4) {
        output.lengthen(axis, &[&first, &second]);
    }
    let inputs = [first.desc(), second.desc()];
    let parts = ConcatDesc::new(&inputs, output.desc(), axis).operands("concat");
    let verdict = parts
        .and_then(|parts| parts.into_iter().try_for_each(|(operands, _)| pool.check("concat", Ok(operands))));
    call(format!("concat {first:?} {second:?} {output:?} {axis}"), verdict, move |b| {
        b.concat(&ConcatDesc::new(&[first.desc(), second.desc()], output.desc(), axis))
    })
}
