//! Reductions over any axes, accumulated in f64, or modulo 2³² for sums and products of integers.

use backend_api::desc::ReduceDesc;
use backend_api::support::ReduceLoops;
use backend_api::{BackendResult, DType, ReduceOp};
use bytemuck::{Pod, cast_slice_mut};
use half::f16;

use crate::access::Call;
use crate::bound::require_end;
use crate::ops::fold::{Rule, Walk};
use crate::parallel::Cores;

/// `output = op over axes of input`.
pub(crate) fn reduce(call: Call<'_>, desc: &ReduceDesc<'_>) -> BackendResult<()> {
    let (operands, loops) = desc.operands(call.op)?;
    require_end(call.op, loops.reads())?;
    call.access(&operands, |[input, _], output| {
        let numbers = loops.outputs.saturating_mul(loops.length.max(1));
        Cores::run(numbers, |cores| match desc.input.dtype {
            DType::F16 => over::<f16>(cores, desc, loops, input.elements(), output),
            DType::I32 => over::<i32>(cores, desc, loops, input.elements(), output),
            DType::U32 => over::<u32>(cores, desc, loops, input.elements(), output),
            _ => over::<f32>(cores, desc, loops, input.elements(), output),
        });
    })
}

/// An element type that can be reduced.
trait Number: Pod + Send + Sync {
    /// The bounds of the type, which are what an empty axis has as its maximum and minimum.
    const LEAST: f64;
    const LARGEST: f64;
    /// Whether sums and products are taken modulo 2³².
    const WRAPS: bool;
    fn to_f64(self) -> f64;
    /// The nearest number.
    fn from_f64(x: f64) -> Self;
    fn bits(self) -> u32;
    fn from_bits(bits: u32) -> Self;
}

macro_rules! number {
    ($type:ty, $least:expr, $largest:expr, $wraps:expr, $from:expr, $bits:expr, $from_bits:expr) => {
        impl Number for $type {
            const LEAST: f64 = $least;
            const LARGEST: f64 = $largest;
            const WRAPS: bool = $wraps;

            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            fn from_f64(x: f64) -> Self {
                $from(x)
            }

            fn bits(self) -> u32 {
                $bits(self)
            }

            fn from_bits(bits: u32) -> Self {
                $from_bits(bits)
            }
        }
    };
}

number!(f32, f64::NEG_INFINITY, f64::INFINITY, false, |x| x as Self, Self::to_bits, Self::from_bits);
number!(f16, f64::NEG_INFINITY, f64::INFINITY, false, Self::from_f64, |x: Self| x.to_bits().into(), |bits| {
    Self::from_bits(bits as u16)
});
number!(i32, Self::MIN as f64, Self::MAX as f64, true, |x| x as Self, Self::cast_unsigned, u32::cast_signed);
number!(u32, 0.0, Self::MAX as f64, true, |x| x as Self, |x| x, |bits| bits);

fn over<T: Number>(cores: Cores, desc: &ReduceDesc<'_>, loops: ReduceLoops, input: &[T], output: &mut [u8]) {
    match desc.output_dtype {
        DType::F32 if desc.input.dtype == DType::F16 => {
            into::<T, f32>(cores, desc.op, loops, input, cast_slice_mut(output));
        }
        _ if desc.op.is_index() => index(cores, desc.op, loops, input, cast_slice_mut(output)),
        _ => into::<T, T>(cores, desc.op, loops, input, cast_slice_mut(output)),
    }
}

fn into<T: Number, U: Number>(cores: Cores, op: ReduceOp, loops: ReduceLoops, input: &[T], output: &mut [U]) {
    let length = loops.length as f64;
    let walk = Walk { cores, loops, input };
    let is_set = |x: T, _| f64::from(x.to_f64() != 0.0);
    let wrapped = |x: T, _| x.bits();
    let number = |x: T, _| x.to_f64();
    match op {
        ReduceOp::Sum if T::WRAPS => {
            walk.run(output, Rule { identity: 0, take: wrapped, join: u32::wrapping_add }, U::from_bits);
        }
        ReduceOp::Prod if T::WRAPS => {
            walk.run(output, Rule { identity: 1, take: wrapped, join: u32::wrapping_mul }, U::from_bits);
        }
        ReduceOp::Max => {
            walk.run(output, Rule { identity: T::LEAST, take: number, join: larger }, U::from_f64);
        }
        ReduceOp::Min => {
            walk.run(output, Rule { identity: T::LARGEST, take: number, join: smaller }, U::from_f64);
        }
        ReduceOp::Any => walk.run(output, Rule { identity: 0.0, take: is_set, join: larger }, U::from_f64),
        ReduceOp::All => walk.run(output, Rule { identity: 1.0, take: is_set, join: smaller }, U::from_f64),
        ReduceOp::Prod => {
            walk.run(output, Rule { identity: 1.0, take: number, join: |a, b| a * b }, U::from_f64);
        }
        ReduceOp::NormL1 => {
            let rule = Rule { identity: 0.0, take: |x: T, _| x.to_f64().abs(), join: |a, b| a + b };
            walk.run(output, rule, U::from_f64);
        }
        ReduceOp::NormL2 => {
            let rule = Rule { identity: 0.0, take: |x: T, _| x.to_f64().powi(2), join: |a, b| a + b };
            walk.run(output, rule, |sum: f64| U::from_f64(sum.sqrt()));
        }
        ReduceOp::LogSumExp => {
            let rule =
                Rule { identity: Exponentials::NONE, take: Exponentials::of, join: Exponentials::join };
            walk.run(output, rule, |sum: Exponentials| U::from_f64(sum.log()));
        }
        // The mean over an empty axis is 0/0.
        ReduceOp::Mean => {
            let rule = Rule { identity: 0.0, take: number, join: |a, b| a + b };
            walk.run(output, rule, |sum: f64| U::from_f64(sum / length));
        }
        _ => walk.run(output, Rule { identity: 0.0, take: number, join: |a, b| a + b }, U::from_f64),
    }
}

fn larger(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

fn smaller(a: f64, b: f64) -> f64 {
    if b < a || b.is_nan() { b } else { a }
}

/// Σ exp(x − max) beside max.
#[derive(Clone, Copy)]
struct Exponentials {
    max: f64,
    sum: f64,
}

impl Exponentials {
    const NONE: Self = Self { max: f64::NEG_INFINITY, sum: 0.0 };

    fn of<T: Number>(x: T, _: usize) -> Self {
        Self { max: x.to_f64(), sum: 1.0 }
    }

    fn join(self, other: Self) -> Self {
        let (low, high) = if other.max >= self.max { (self, other) } else { (other, self) };
        if low.max.is_nan() || high.max.is_nan() {
            return Self { max: f64::NAN, sum: f64::NAN };
        }
        // Also where both are infinite, whose difference would be NaN.
        if low.max == f64::NEG_INFINITY || high.max == f64::INFINITY {
            return high;
        }
        Self { max: high.max, sum: high.sum + low.sum * (low.max - high.max).exp() }
    }

    fn log(self) -> f64 {
        if self.max.is_infinite() { self.max } else { self.max + self.sum.ln() }
    }
}

/// A number and where it was.
type Place = (f64, usize);

fn index<T: Number>(cores: Cores, op: ReduceOp, loops: ReduceLoops, input: &[T], output: &mut [i32]) {
    let walk = Walk { cores, loops, input };
    let nowhere = usize::MAX;
    let place = |(_, at): Place| i32::try_from(at).unwrap_or(-1);
    if op == ReduceOp::ArgMax {
        let rule = Rule {
            identity: (f64::NEG_INFINITY, nowhere),
            take: |x: T, at| (x.to_f64(), at),
            join: |a, b| first(a, b, b.0 > a.0),
        };
        walk.run(output, rule, place);
    } else {
        let rule = Rule {
            identity: (f64::INFINITY, nowhere),
            take: |x: T, at| (x.to_f64(), at),
            join: |a, b| first(a, b, b.0 < a.0),
        };
        walk.run(output, rule, place);
    }
}

/// The better of two, `second_wins` saying whether b is: NaN is better than any number, an earlier one than a
/// later.
fn first(a: Place, b: Place, second_wins: bool) -> Place {
    match (a.0.is_nan(), b.0.is_nan()) {
        (true, false) => a,
        (false, true) => b,
        (false, false) if second_wins => b,
        (false, false) if a.0 != b.0 => a,
        _ if b.1 < a.1 => b,
        _ => a,
    }
}
