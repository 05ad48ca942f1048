//! Copies between parts of tensors.

use backend_api::desc::{ConcatDesc, PadDesc, PermuteDesc, RepeatDesc, SliceDesc, TensorDesc};
use backend_api::support::{Access, Part};

use crate::judge::{
    Call, Dims, Named, OP, addresses, is_small, listed_twice, overflow, reach, shape, volume,
};
use crate::random::{Gen, Tensor};
use crate::walk::{loops_needed, visited, walks};

fn tensors(call: &mut Call, input: &Tensor, output: &Tensor, is_read: bool) {
    call.name(Named::tensor("input", input, Access::Read).only_if(is_read));
    call.name(Named::tensor("output", output, Access::Write));
}

/// The part must visit, in any order, these pairs of element indices.
#[track_caller]
fn copies(part: &Part, pairs: impl IntoIterator<Item = [usize; 2]>) {
    let at = |pair: [usize; 2]| [pair[0] + part.offsets[0], pair[1] + part.offsets[1]];
    let mut got: Vec<_> = visited(&part.loops).into_iter().map(at).collect();
    let mut expected: Vec<_> = pairs.into_iter().collect();
    got.sort_unstable();
    expected.sort_unstable();
    assert_eq!(got, expected, "{part:?}");
}

/// Every multi-index of a shape.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![vec![]], |all: Vec<Vec<usize>>, &extent| {
        let longer = |index: &Vec<usize>, i| index.iter().copied().chain([i]).collect();
        all.iter().flat_map(|index| (0..extent).map(move |i| longer(index, i))).collect()
    })
}

fn place(dims: &[(usize, usize)], index: impl IntoIterator<Item = usize>) -> usize {
    dims.iter().zip(index).map(|(&(_, stride), i)| i * stride).sum()
}

pub(crate) fn slice(g: &mut Gen) -> bool {
    let from = g.shape();
    let starts: Vec<usize> =
        from.iter().map(|&extent| if g.one_in(2) { 0 } else { g.below(extent.max(1)) }).collect();
    let steps: Option<Vec<usize>> = g.one_in(2).then(|| from.iter().map(|_| g.count()).collect());
    let step = |k: usize| steps.as_ref().map_or(1, |steps| steps[k]);
    let fitting = |k: usize| (from[k] - starts[k].min(from[k])).div_ceil(step(k).max(1));
    let fits: Vec<usize> = (0..from.len()).map(fitting).collect();
    let to: Vec<usize> =
        fits.into_iter().map(|count| if g.one_in(8) { g.about(count) } else { count }).collect();
    let (to, dtype) = (g.nearly(&to), g.dtype());
    let (input, output) = (g.tensor(1, dtype, &from), g.tensor(2, dtype, &to));

    let mut call = Call::default();
    [&input, &output].into_iter().for_each(|tensor| call.strides_of(tensor));
    call.require_eq(to.len(), from.len());
    call.require_eq(to.len(), starts.len());
    if let Some(steps) = &steps {
        call.require_eq(to.len(), steps.len());
    }
    for k in 0..from.len().min(to.len()) {
        call.require_at_least(1, step(k));
        let reach = if to[k] == 0 { 0 } else { (to[k] as u128 - 1) * step(k) as u128 + 1 };
        let end = starts[k] as u128 + reach;
        match usize::try_from(end) {
            Ok(end) => call.require_at_least(end, from[k]),
            Err(_) => call.fault_if(true, overflow()),
        }
    }
    let (from, to) = (input.dims(), output.dims());
    // An input that isn't read has to have a size of its own.
    if volume(&to) == 0 {
        call.tolerate(overflow());
    }
    let sliced = || -> Dims {
        from.iter()
            .zip(&to)
            .enumerate()
            .map(|(k, (&(_, stride), &(count, _)))| (count, stride.saturating_mul(step(k))))
            .collect()
    };
    if !call.is_refused() {
        call.limit_loops(loops_needed([&sliced(), &to]));
    }
    tensors(&mut call, &input, &output, volume(&to) > 0);
    let mut desc = SliceDesc::new(input.desc(), output.desc(), &starts);
    if let Some(steps) = &steps {
        desc = desc.with_steps(steps);
    }
    let Some(part) = call.judge(desc.operands(OP)) else { return false };
    walks(&part.loops, [&sliced(), &to]);
    if is_small(&from) && is_small(&to) {
        let source =
            |index: &[usize]| place(&from, index.iter().enumerate().map(|(k, i)| starts[k] + i * step(k)));
        copies(
            &part,
            indices(&output.shape).iter().map(|index| [source(index), place(&to, index.iter().copied())]),
        );
    }
    true
}

pub(crate) fn permute(g: &mut Gen) -> bool {
    let (from, dtype) = (g.shape(), g.dtype());
    let mut axes = g.permutation(from.len());
    let to: Vec<usize> = axes.iter().map(|&axis| from[axis]).collect();
    if g.one_in(12) && !axes.is_empty() {
        let k = g.below(axes.len());
        axes[k] = g.extent();
    }
    if g.one_in(20) {
        axes.push(0);
    }
    let to = g.nearly(&to);
    let (input, output) = (g.tensor(1, dtype, &from), g.tensor(2, dtype, &to));

    let mut call = Call::default();
    [&input, &output].into_iter().for_each(|tensor| call.strides_of(tensor));
    call.require_eq(to.len(), from.len());
    call.require_eq(to.len(), axes.len());
    let mut dims = Dims::new();
    for (k, &axis) in axes.iter().enumerate() {
        call.require_at_least(1, from.len());
        call.fault_if(axis >= from.len(), shape(from.len(), axis));
        call.fault_if(axes[..k].contains(&axis), listed_twice(axis));
        if let (Some(&extent), Some(&expected)) = (from.get(axis), to.get(k)) {
            call.require_eq(expected, extent);
        }
        dims.extend(input.dims().get(axis));
    }
    if !call.is_refused() {
        call.limit_loops(loops_needed([&dims, &output.dims()]));
    }
    tensors(&mut call, &input, &output, true);
    let Some(part) = call.judge(PermuteDesc::new(input.desc(), output.desc(), &axes).operands(OP)) else {
        return false;
    };
    assert_eq!(part.offsets, [0, 0]);
    walks(&part.loops, [&dims, &output.dims()]);
    true
}

pub(crate) fn repeat(g: &mut Gen) -> bool {
    let (from, dtype, interleaved) = (g.shape(), g.dtype(), g.one_in(2));
    let more = if from.len() < 4 { g.below(2) } else { 0 };
    let mut to: Vec<usize> = (0..more).map(|_| g.count()).collect();
    for &extent in &from {
        let whole = extent.saturating_mul(g.pick(&[1, 1, 2, 3, 0]));
        to.push(if g.one_in(8) { g.about(whole) } else { whole });
    }
    if g.one_in(20) {
        to.pop();
    }
    let (input, output) = (g.tensor(1, dtype, &from), g.tensor(2, dtype, &to));

    let mut call = Call::default();
    [&input, &output].into_iter().for_each(|tensor| call.strides_of(tensor));
    call.fault_if(from.len() > to.len(), shape(to.len(), from.len()));
    let missing = to.len().saturating_sub(from.len());
    let extent = |k: usize| if k < missing { 1 } else { from[k - missing] };
    let mut dims = [Dims::new(), Dims::new()];
    for (k, (whole, stride)) in
        output.dims().into_iter().enumerate().take(if from.len() > to.len() { 0 } else { to.len() })
    {
        let times = if extent(k) == 0 { 0 } else { whole / extent(k) };
        call.require_eq(times * extent(k), whole);
        let step = if k < missing { 0 } else { input.dims()[k - missing].1 };
        let (again, each) = ((times, 0), (extent(k), step));
        let far = |count: usize| stride.saturating_mul(count);
        dims[0].extend(if interleaved { [each, again] } else { [again, each] });
        let near = (if interleaved { times } else { extent(k) }, stride);
        let outer = if interleaved { (extent(k), far(times)) } else { (times, far(extent(k))) };
        dims[1].extend([outer, near]);
    }
    let is_read = volume(&output.dims()) > 0;
    if !is_read {
        call.tolerate(overflow());
    }
    if !call.is_refused() {
        call.limit_loops(loops_needed([&dims[0], &dims[1]]));
    }
    tensors(&mut call, &input, &output, is_read);
    let desc = RepeatDesc::new(input.desc(), output.desc());
    let desc = if interleaved { desc.with_interleaved() } else { desc };
    let Some(part) = call.judge(desc.operands(OP)) else { return false };
    assert_eq!(part.loops.len(), loops_needed([&dims[0], &dims[1]]));
    if is_small(&output.dims()) && is_small(&input.dims()) {
        let source = |index: &[usize]| {
            let of = |k: usize| {
                let times = output.shape[k] / extent(k).max(1);
                if interleaved { index[k] / times.max(1) } else { index[k] % extent(k) }
            };
            place(&input.dims(), (missing..index.len()).map(of))
        };
        let target = |index: &[usize]| place(&output.dims(), index.iter().copied());
        copies(&part, indices(&to).iter().map(|index| [source(index), target(index)]));
    }
    true
}

pub(crate) fn pad(g: &mut Gen) -> bool {
    let (from, dtype) = (g.shape(), g.dtype());
    let mut before: Vec<usize> = from.iter().map(|_| g.extent()).collect();
    let to: Vec<usize> = from.iter().zip(&before).map(|(n, b)| n.saturating_add(*b)).collect();
    let to: Vec<usize> =
        to.into_iter().map(|n| if g.one_in(6) { g.about(n) } else { n.saturating_add(g.below(2)) }).collect();
    let to = g.nearly(&to);
    if g.one_in(20) {
        before.push(0);
    }
    let (input, output) = (g.tensor(1, dtype, &from), g.tensor(2, dtype, &to));

    let mut call = Call::default();
    [&input, &output].into_iter().for_each(|tensor| call.strides_of(tensor));
    call.require_eq(to.len(), from.len());
    call.require_eq(to.len(), before.len());
    for ((&count, &before), &whole) in from.iter().zip(&before).zip(&to) {
        match before.checked_add(count) {
            Some(end) => call.require_at_least(end, whole),
            None => call.fault_if(true, overflow()),
        }
    }
    let (from, to) = (input.dims(), output.dims());
    let inner: Dims = from.iter().zip(&to).map(|(&(count, _), &(_, stride))| (count, stride)).collect();
    call.limit_loops(loops_needed([&to]));
    if !call.is_refused() {
        call.limit_loops(loops_needed([&from, &inner]));
    }
    tensors(&mut call, &input, &output, true);
    let desc = PadDesc::new(input.desc(), output.desc(), &before, 0.0);
    let got = desc.operands(OP).map(|(operands, part, whole)| (operands, (part, whole)));
    let Some((part, whole)) = call.judge(got) else { return false };
    walks(&whole, [&to]);
    // The place of an empty input, too.
    assert!(part.offsets[1] as u128 <= reach(&to), "it starts behind the output");
    if is_small(&to) && is_small(&from) {
        let target = |index: &[usize]| place(&to, index.iter().zip(&before).map(|(i, before)| i + before));
        copies(
            &part,
            indices(&input.shape).iter().map(|index| [place(&from, index.iter().copied()), target(index)]),
        );
    }
    true
}

pub(crate) fn concat(g: &mut Gen) -> bool {
    let (whole, dtype) = (g.shape(), g.dtype());
    let usual = g.below(whole.len().max(1));
    let axis = g.about(usual);
    let mut inputs = Vec::new();
    let mut along = 0usize;
    for ptr in 0..g.below(4) {
        let mut of = g.nearly(&whole);
        if let Some(extent) = of.get_mut(axis) {
            *extent = g.count();
            along = along.saturating_add(*extent);
        }
        inputs.push(g.tensor(ptr as u64 + 2, dtype, &of));
    }
    let mut to = whole;
    if let Some(extent) = to.get_mut(axis) {
        *extent = if g.one_in(8) { g.about(along) } else { along };
    }
    let output = g.tensor(1, dtype, &to);

    let mut call = Call::default();
    call.strides_of(&output);
    call.require_at_least(1, to.len());
    call.fault_if(axis >= to.len(), shape(to.len(), axis));
    call.name(Named::tensor("output", &output, Access::Write));
    let mut end = 0usize;
    for input in &inputs {
        call.strides_of(input);
        call.require_eq(to.len(), input.shape.len());
        for (k, (&expected, &got)) in to.iter().zip(&input.shape).enumerate() {
            call.fault_if(k != axis && expected != got, shape(expected, got));
        }
        let Some(&extent) = input.shape.get(axis) else { continue };
        match end.checked_add(extent) {
            Some(sum) => end = sum,
            None => call.fault_if(true, overflow()),
        }
        call.require_at_least(end, to.get(axis).copied().unwrap_or(end));
    }
    call.require_eq(end, to.get(axis).copied().unwrap_or(end));
    let mut calls = Vec::new();
    let is_sound = !call.is_refused();
    for input in &inputs {
        call.name(Named::tensor("input", input, Access::Read));
        let mut dims = output.dims();
        if dims.len() == input.dims().len() && axis < dims.len() {
            dims[axis].0 = input.shape[axis];
            call.limit_loops(loops_needed([&input.dims(), &dims]));
        }
        if is_sound {
            let mut each = Call::default();
            tensors(&mut each, input, &output, true);
            calls.push((each, dims));
        }
    }
    let descs: Vec<TensorDesc<'_>> = inputs.iter().map(Tensor::desc).collect();
    let Some(parts) = call.answer(ConcatDesc::new(&descs, output.desc(), axis).operands(OP)) else {
        return false;
    };
    assert_eq!(parts.len(), inputs.len());
    let mut start = 0;
    for (((operands, part), (call, dims)), input) in parts.iter().zip(&calls).zip(&inputs) {
        call.operands(operands);
        walks(&part.loops, [&input.dims(), dims]);
        assert!(part.offsets[1] as u128 <= reach(&output.dims()), "it starts behind the output");
        if is_small(&output.dims()) && is_small(&input.dims()) {
            let shifted = start * dims[axis].1;
            let targets = addresses(dims).into_iter().map(|to| to + shifted);
            copies(part, addresses(&input.dims()).into_iter().zip(targets).map(|(from, to)| [from, to]));
        }
        start += input.shape[axis];
    }
    true
}
