//! Element-wise operations without a fast path of their own: comparisons, choices, bounds, and integers.

use backend_api::desc::{AffineDesc, BinaryDesc, ClampDesc, CompareDesc, UnaryDesc, Value, WhereDesc};
use backend_api::support::Loop;
use backend_api::{BackendResult, BinaryOp, DType, UnaryOp};
use bytemuck::{Pod, cast_slice_mut};
use half::f16;

use crate::access::{Call, Input};
use crate::element::{Element, with_float};
use crate::math::{maximum, minimum};
use crate::ops::copy::Number;
use crate::parallel::Cores;
use crate::strided::runs;

/// Elements in the share of one thread.
const GRAIN: usize = 1 << 14;

/// Where an input of an element-wise operation comes from: elements of `T`, or a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a, T, N = T> {
    /// A tensor.
    Elements(&'a [T]),
    /// The output, not yet overwritten.
    InPlace,
    /// A scalar for every element.
    Number(N),
}

impl<'a, T: Pod, N> Source<'a, T, N> {
    /// `input` is looked at where `value` is a tensor.
    pub(crate) fn new(input: Input<'a>, value: Value<'_>, number: impl Fn(f64) -> N) -> Self {
        match value {
            Value::Scalar(x) => Self::Number(number(x)),
            Value::Tensor(_) => input.separate().map_or(Self::InPlace, Self::Elements),
        }
    }
}

impl<T: Copy> Source<'_, T> {
    /// Element `i`, `output` being the element that will be overwritten.
    fn get(self, i: usize, output: T) -> T {
        match self {
            Self::Elements(elements) => elements[i],
            Self::InPlace => output,
            Self::Number(number) => number,
        }
    }
}

impl<T: Ordered> Source<'_, T, T::Key> {
    /// Element `i` of an input that isn't the output.
    fn key(self, i: usize) -> T::Key {
        match self {
            Self::Elements(elements) => elements[i].key(),
            Self::Number(number) => number,
            Self::InPlace => T::Key::from_f64_exact(f64::NAN),
        }
    }
}

/// Calls `f` with the indices of each element in every tensor and with the output's element.
pub(super) fn each<T: Pod + Send, const N: usize>(
    loops: Vec<Loop<N>>,
    output: &mut [u8],
    f: impl Fn([usize; N], &mut T) + Sync,
) {
    let elements: usize = loops.iter().map(|&(extent, _)| extent).product();
    Cores::run(elements.saturating_mul(2), |cores| {
        runs(cores, loops, cast_slice_mut(output), GRAIN, &|run, output: &mut [T]| {
            for i in 0..run.len {
                let at = run.at(i);
                f(at, &mut output[at[N - 1]]);
            }
        });
    });
}

/// Runs a block with `$T` as the Rust type of an element type.
macro_rules! with_type {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            DType::I32 => {
                type $T = i32;
                $body
            }
            DType::U32 => {
                type $T = u32;
                $body
            }
            other => with_float!(other, $T => $body),
        }
    };
}

/// An element type with an order.
pub(crate) trait Ordered: Number {
    /// What it is compared as.
    type Key: Number + PartialOrd;
    fn key(self) -> Self::Key;
    fn clamped(self, min: Self, max: Self) -> Self;
}

macro_rules! ordered {
    ($($T:ty as $Key:ty: $clamped:expr),+) => {
        $(impl Ordered for $T {
            type Key = $Key;

            fn key(self) -> $Key {
                self.into()
            }

            fn clamped(self, min: Self, max: Self) -> Self {
                let clamped: fn(Self, Self, Self) -> Self = $clamped;
                clamped(self, min, max)
            }
        })+
    };
}

ordered! {
    i32 as i32: |x, min, max| x.max(min).min(max),
    u32 as u32: |x, min, max| x.max(min).min(max),
    f32 as f32: |x, min, max| minimum(maximum(x, min), max),
    f16 as f32: |x, min, max| Self::from_f32(x.to_f32().clamped(min.to_f32(), max.to_f32()))
}

/// `output = a op b`.
pub(crate) fn compare(call: Call<'_>, desc: &CompareDesc<'_>) -> BackendResult<()> {
    let (operands, loops) = desc.operands(call.op)?;
    call.access(&operands, |[a, b, _], output| {
        with_type!(desc.dtype(), T => {
            let [a, b] = [(a, desc.a), (b, desc.b)].map(|(input, value)| Source::<T, _>::new(input, value, Number::from_f64_exact));
            each(loops, output, |at, y: &mut u32| {
                *y = u32::from(desc.op.holds(a.key(at[0]), b.key(at[1])));
            });
        });
    })
}

/// `output = condition ≠ 0 ? a : b`.
pub(crate) fn where_cond(call: Call<'_>, desc: &WhereDesc<'_>) -> BackendResult<()> {
    let (operands, loops) = desc.operands(call.op)?;
    call.access(&operands, |[condition, a, b, _], output| {
        let condition: &[u32] = condition.elements();
        with_type!(desc.output.dtype, T => {
            let [a, b] = [(a, desc.a), (b, desc.b)].map(|(input, value)| Source::new(input, value, T::from_f64_exact));
            each(loops, output, |at, y: &mut T| {
                *y = if condition[at[0]] != 0 { a.get(at[1], *y) } else { b.get(at[2], *y) };
            });
        });
    })
}

/// `output = min(max(input, min), max)`.
pub(crate) fn clamp(call: Call<'_>, desc: &ClampDesc<'_>) -> BackendResult<()> {
    let (operands, loops) = desc.operands(call.op)?;
    call.access(&operands, |[input, _], output| {
        with_type!(desc.output.dtype, T => {
            let input = Source::new(input, desc.input.into(), T::from_f64_exact);
            let [min, max] = [desc.min, desc.max].map(T::from_f64_exact);
            each(loops, output, |at, y: &mut T| *y = input.get(at[0], *y).clamped(min, max));
        });
    })
}

/// `output = scale · input + bias`.
pub(crate) fn affine(call: Call<'_>, desc: &AffineDesc<'_>) -> BackendResult<()> {
    let (operands, loops) = desc.operands(call.op)?;
    let (scale, bias) = (desc.scale as f32, desc.bias as f32);
    call.access(&operands, |[input, _], output| {
        with_float!(desc.output.dtype, T => {
            let input = Source::new(input, desc.input.into(), T::from_f64_exact);
            each(loops, output, |at, y: &mut T| {
                *y = Element::from_f32(scale * Element::to_f32(input.get(at[0], *y)) + bias);
            });
        });
    })
}

/// A function of each i32 or u32.
pub(super) fn unary_integer(call: Call<'_>, desc: &UnaryDesc<'_>) -> BackendResult<()> {
    let function: fn(i32) -> i32 = match desc.op {
        UnaryOp::Relu => |x| x.max(0),
        UnaryOp::Abs => i32::wrapping_abs,
        UnaryOp::Neg => i32::wrapping_neg,
        UnaryOp::Square => |x| x.wrapping_mul(x),
        // Of the bits of an u32 too.
        UnaryOp::BitNot => |x| !x,
        // The only other one that descriptors accept.
        _ => i32::signum,
    };
    let (operands, loops) = desc.operands(call.op)?;
    call.access(&operands, |[input, _], output| {
        let input = Source::new(input, desc.input.into(), i32::from_f64_exact);
        each(loops, output, |at, y: &mut i32| *y = function(input.get(at[0], *y)));
    })
}

/// A function of pairs of i32 or u32.
pub(super) fn binary_integer(call: Call<'_>, desc: &BinaryDesc<'_>) -> BackendResult<()> {
    macro_rules! function {
        ($T:ty) => {{
            let function: fn($T, $T) -> $T = match desc.op {
                BinaryOp::Add => <$T>::wrapping_add,
                BinaryOp::Sub => <$T>::wrapping_sub,
                BinaryOp::Mul => <$T>::wrapping_mul,
                BinaryOp::Div => |a, b| if b == 0 { 0 } else { a.wrapping_div(b) },
                BinaryOp::Rem => |a, b| if b == 0 { 0 } else { a.wrapping_rem(b) },
                BinaryOp::Mod => |a, b| if b == 0 { 0 } else { modulo(i64::from(a), i64::from(b)) as $T },
                BinaryOp::BitAnd => |a, b| a & b,
                BinaryOp::BitOr => |a, b| a | b,
                BinaryOp::BitXor => |a, b| a ^ b,
                BinaryOp::Shl => |a, b| (i64::from(a) << u32::try_from(b).unwrap_or(32).min(32)) as $T,
                BinaryOp::Shr => |a, b| (i64::from(a) >> u32::try_from(b).unwrap_or(32).min(32)) as $T,
                BinaryOp::Max => |a, b| a.max(b),
                // The only other one that descriptors accept.
                _ => |a, b| a.min(b),
            };
            binary_of(call, desc, function)
        }};
    }
    if desc.output.dtype == DType::I32 { function!(i32) } else { function!(u32) }
}

/// The remainder with the sign of b, which isn't 0.
const fn modulo(a: i64, b: i64) -> i64 {
    let rest = a % b;
    if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
}

fn binary_of<T: Number>(call: Call<'_>, desc: &BinaryDesc<'_>, function: fn(T, T) -> T) -> BackendResult<()> {
    let (operands, loops) = desc.operands(call.op)?;
    call.access(&operands, |[a, b, _], output| {
        let [a, b] =
            [(a, desc.a), (b, desc.b)].map(|(input, value)| Source::new(input, value, T::from_f64_exact));
        each(loops, output, |at, y: &mut T| *y = function(a.get(at[0], *y), b.get(at[1], *y)));
    })
}
