//! Functions of each element.

use backend_api::desc::{BinaryDesc, UnaryDesc};
use backend_api::support::Loop;
use backend_api::{BackendResult, BinaryOp, UnaryOp};
use bytemuck::cast_slice_mut;

use crate::access::{Call, Input};
use crate::element::{Element, with_float};
use crate::math::{apply_binary, apply_unary_with};
use crate::ops::pointwise::{self, Source};
use crate::parallel::Cores;
use crate::strided::runs;

/// Elements that are converted, computed and stored while they are in the first-level cache.
const BLOCK: usize = 1024;

/// Elements in the share of one thread.
const GRAIN: usize = 1 << 14;

/// `output = f(input)`.
pub(crate) fn unary(call: Call<'_>, desc: &UnaryDesc<'_>) -> BackendResult<()> {
    if !desc.output.dtype.is_float() {
        return pointwise::unary_integer(call, desc);
    }
    let (operands, loops) = desc.operands(call.op)?;
    call.access(&operands, |[input, _], output| {
        let steps = elements(&loops).saturating_mul(unary_steps(desc.op));
        Cores::run(steps, |cores| {
            with_float!(desc.output.dtype, T => {
                let parameters = [desc.alpha, desc.beta].map(|x| x as f32);
                map(cores, (desc.op, parameters), loops, input, cast_slice_mut::<u8, T>(output));
            });
        });
    })
}

/// `output = f(a, b)`.
pub(crate) fn binary(call: Call<'_>, desc: &BinaryDesc<'_>) -> BackendResult<()> {
    if !desc.output.dtype.is_float() {
        return pointwise::binary_integer(call, desc);
    }
    let (operands, loops) = desc.operands(call.op)?;
    call.access(&operands, |[a, b, _], output| {
        let steps = elements(&loops).saturating_mul(binary_steps(desc.op));
        Cores::run(steps, |cores| {
            with_float!(desc.output.dtype, T => {
                let inputs = [(a, desc.a), (b, desc.b)].map(|(input, value)| Source::new(input, value, |x| x as f32));
                zip(cores, desc.op, loops, inputs, cast_slice_mut::<u8, T>(output));
            });
        });
    })
}

fn map<T: Element>(
    cores: Cores,
    (op, parameters): (UnaryOp, [f32; 2]),
    loops: Vec<Loop<2>>,
    input: Input<'_>,
    output: &mut [T],
) {
    let input = input.separate::<T>();
    runs(cores, loops, output, GRAIN, &|run, output: &mut [T]| {
        let mut x = [0.0; BLOCK];
        for (first, len) in blocks(run.len) {
            let x = &mut x[..len];
            let [from, to] = [0, 1].map(|t| (run.start[t] + first * run.stride[t], run.stride[t]));
            match input {
                Some(input) => gather(input, from, x),
                None => gather(output, to, x),
            }
            apply_unary_with(op, parameters, x);
            scatter(x, output, to);
        }
    });
}

fn zip<T: Element>(
    cores: Cores,
    op: BinaryOp,
    loops: Vec<Loop<3>>,
    inputs: [Source<'_, T, f32>; 2],
    output: &mut [T],
) {
    runs(cores, loops, output, GRAIN, &|run, output: &mut [T]| {
        let mut values = [[0.0; BLOCK]; 2];
        for (first, len) in blocks(run.len) {
            let [a, b] = values.each_mut().map(|values| &mut values[..len]);
            let [from_a, from_b, to] =
                [0, 1, 2].map(|t| (run.start[t] + first * run.stride[t], run.stride[t]));
            for (input, from, x) in [(inputs[0], from_a, &mut *a), (inputs[1], from_b, &mut *b)] {
                match input {
                    Source::Elements(input) => gather(input, from, x),
                    Source::InPlace => gather(output, to, x),
                    Source::Number(number) => x.fill(number),
                }
            }
            apply_binary(op, a, b);
            scatter(a, output, to);
        }
    });
}

/// The first index and the length of each block of `len` elements.
fn blocks(len: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len).step_by(BLOCK).map(move |first| (first, BLOCK.min(len - first)))
}

fn gather<T: Element>(from: &[T], (start, stride): (usize, usize), to: &mut [f32]) {
    match stride {
        0 => to.fill(from[start].to_f32()),
        1 => T::load(&from[start..start + to.len()], to),
        _ => {
            for (x, &y) in to.iter_mut().zip(from[start..].iter().step_by(stride)) {
                *x = y.to_f32();
            }
        }
    }
}

fn scatter<T: Element>(from: &[f32], to: &mut [T], (start, stride): (usize, usize)) {
    if stride == 1 || from.len() == 1 {
        return T::store(from, &mut to[start..start + from.len()]);
    }
    for (&x, y) in from.iter().zip(to[start..].iter_mut().step_by(stride)) {
        *y = T::from_f32(x);
    }
}

fn elements<const N: usize>(loops: &[Loop<N>]) -> usize {
    loops.iter().map(|&(extent, _)| extent).product()
}

/// How much slower a function is than a sum.
const fn binary_steps(op: BinaryOp) -> usize {
    match op {
        BinaryOp::Pow | BinaryOp::Rem | BinaryOp::Mod => 64,
        BinaryOp::Swiglu | BinaryOp::Geglu | BinaryOp::GegluTanh | BinaryOp::SwigluOai => 8,
        _ => 1,
    }
}

/// How much slower a function is than a sum.
const fn unary_steps(op: UnaryOp) -> usize {
    match op {
        UnaryOp::Relu
        | UnaryOp::Sqrt
        | UnaryOp::Abs
        | UnaryOp::Neg
        | UnaryOp::Recip
        | UnaryOp::Square
        | UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::Round
        | UnaryOp::Trunc
        | UnaryOp::Sign
        | UnaryOp::LeakyRelu
        | UnaryOp::ThresholdedRelu
        | UnaryOp::Shrink
        | UnaryOp::HardSigmoid
        | UnaryOp::HardSwish => 1,
        UnaryOp::Tanh | UnaryOp::Gelu | UnaryOp::GeluTanh | UnaryOp::Silu => 8,
        UnaryOp::Sigmoid | UnaryOp::Exp | UnaryOp::Rsqrt => 4,
        // The standard library's.
        _ => 32,
    }
}
