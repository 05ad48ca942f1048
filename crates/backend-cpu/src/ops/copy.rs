//! Copies that convert, and constants.

use backend_api::desc::CopyDesc;
use backend_api::support::{Access, Loop, Operand, round_to_odd};
use backend_api::{BackendResult, DType};
use bytemuck::{Pod, cast_slice_mut};
use half::f16;

use crate::access::{Call, Input};
use crate::ops::pointwise::each;
use crate::parallel::Cores;
use crate::strided::runs;

/// Elements in the share of one thread.
const GRAIN: usize = 1 << 14;

/// `dst = src`, converted.
pub(crate) fn copy(call: Call<'_>, desc: &CopyDesc<'_>) -> BackendResult<()> {
    let (operands, loops) = desc.operands(call.op)?;
    call.access(&operands, |[src, _], dst| {
        convert_part(loops, [desc.src.dtype, desc.dst.dtype], src, dst);
    })
}

/// `dst = src`, byte by byte.
pub(crate) fn copy_bytes(call: Call<'_>, dst: u64, src: u64, bytes: usize) -> BackendResult<()> {
    let operands =
        [Operand::bytes("dst", dst, bytes, Access::Write), Operand::bytes("src", src, bytes, Access::Read)];
    call.access(&operands, |[_, src], dst| dst.copy_from_slice(src.elements()))
}

/// Copies what `loops` walk, converted.
pub(super) fn convert_part(loops: Vec<Loop<2>>, types: [DType; 2], src: Input<'_>, dst: &mut [u8]) {
    let elements: usize = loops.iter().map(|&(extent, _)| extent).product();
    Cores::run(elements, |cores| match types.into() {
        // Bits are copied, so NaN keeps its payload.
        (from, to) if from == to && to.size() == 2 => walk::<u16, u16>(cores, loops, src, dst, |x| x),
        (from, to) if from == to => walk::<u32, u32>(cores, loops, src, dst, |x| x),
        (DType::F16, DType::F32) => walk(cores, loops, src, dst, f16::to_f32),
        (DType::F32, DType::F16) => walk(cores, loops, src, dst, f16::from_f32),
        (DType::F16, to) => convert::<f16>(cores, to, loops, src, dst),
        (DType::I32, to) => convert::<i32>(cores, to, loops, src, dst),
        (DType::U32, to) => convert::<u32>(cores, to, loops, src, dst),
        (_, to) => convert::<f32>(cores, to, loops, src, dst),
    });
}

/// Sets what `loops` walk to `value`, converted.
pub(super) fn fill_loops(loops: Vec<Loop<1>>, dtype: DType, value: f64, dst: &mut [u8]) {
    match dtype {
        DType::F16 => each(loops, dst, |_, y: &mut f16| *y = f16::from_f64_exact(value)),
        DType::I32 => each(loops, dst, |_, y: &mut i32| *y = i32::from_f64_exact(value)),
        DType::U32 => each(loops, dst, |_, y: &mut u32| *y = u32::from_f64_exact(value)),
        _ => each(loops, dst, |_, y: &mut f32| *y = f32::from_f64_exact(value)),
    }
}

/// Sets `n` elements to `value`, converted.
pub(crate) fn fill(call: Call<'_>, dst: u64, dtype: DType, n: usize, value: f64) -> BackendResult<()> {
    let operands = [Operand::new(call.op, "dst", dst, dtype, n, Access::Write)?];
    call.access(&operands, |_, dst| {
        Cores::run(n / 2, |cores| match dtype {
            DType::F16 => fill_all(cores, dst, f16::from_f64_exact(value)),
            DType::I32 => fill_all(cores, dst, i32::from_f64_exact(value)),
            DType::U32 => fill_all(cores, dst, u32::from_f64_exact(value)),
            _ => fill_all(cores, dst, f32::from_f64_exact(value)),
        });
    })
}

fn fill_all<T: Pod + Send + Sync>(cores: Cores, dst: &mut [u8], value: T) {
    cores.chunks(cast_slice_mut(dst), 1, 1 << 16, &|_, chunk: &mut [T]| {
        chunk.fill(value);
    });
}

/// A number that f64 holds exactly, so that every conversion through f64 rounds once.
pub(crate) trait Number: Pod + Send + Sync {
    /// The element as f64, exactly.
    fn to_f64_exact(self) -> f64;
    /// Rounded to the nearest for floats; without its fraction, clamped, 0 for NaN for integers.
    fn from_f64_exact(x: f64) -> Self;
}

macro_rules! number {
    ($($T:ty),+) => {
        $(impl Number for $T {
            fn to_f64_exact(self) -> f64 {
                self.into()
            }

            fn from_f64_exact(x: f64) -> Self {
                x as Self
            }
        })+
    };
}

number!(f32, i32, u32);

impl Number for f16 {
    fn to_f64_exact(self) -> f64 {
        self.to_f64()
    }

    fn from_f64_exact(x: f64) -> Self {
        Self::from_f32(round_to_odd(x))
    }
}

fn convert<S: Number>(cores: Cores, to: DType, loops: Vec<Loop<2>>, src: Input<'_>, dst: &mut [u8]) {
    match to {
        DType::F16 => convert_to::<S, f16>(cores, loops, src, dst),
        DType::I32 => convert_to::<S, i32>(cores, loops, src, dst),
        DType::U32 => convert_to::<S, u32>(cores, loops, src, dst),
        _ => convert_to::<S, f32>(cores, loops, src, dst),
    }
}

fn convert_to<S: Number, D: Number>(cores: Cores, loops: Vec<Loop<2>>, src: Input<'_>, dst: &mut [u8]) {
    walk(cores, loops, src, dst, |x: S| D::from_f64_exact(x.to_f64_exact()));
}

fn walk<S: Pod + Sync, D: Pod + Send>(
    cores: Cores,
    loops: Vec<Loop<2>>,
    src: Input<'_>,
    dst: &mut [u8],
    convert: impl Fn(S) -> D + Sync,
) {
    let src: &[S] = src.elements();
    runs(cores, loops, cast_slice_mut(dst), GRAIN, &|run, dst: &mut [D]| {
        let (from, to) = (&src[run.start[0]..], &mut dst[run.start[1]..]);
        let (from_stride, to_stride) = (run.stride[0], run.stride[1].max(1));
        match from_stride {
            0 => to.iter_mut().step_by(to_stride).take(run.len).for_each(|y| *y = convert(from[0])),
            1 if to_stride == 1 => to.iter_mut().zip(from).take(run.len).for_each(|(y, &x)| *y = convert(x)),
            _ => {
                let pairs = to.iter_mut().step_by(to_stride).zip(from.iter().step_by(from_stride));
                pairs.take(run.len).for_each(|(y, &x)| *y = convert(x));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f64_becomes_f16_in_one_rounding() {
        let half_unit = 2f64.powi(-11);
        let cases = [
            (1.0 + half_unit, 1.0),
            (1.0 + half_unit + 2f64.powi(-45), 1.0 + 2.0 * half_unit),
            (1.0 + 3.0 * half_unit - 2f64.powi(-45), 1.0 + 2.0 * half_unit),
            (65_519.999_999_999, 65_504.0),
            (65_520.0, f64::INFINITY),
            (1e300, f64::INFINITY),
            (-1e300, f64::NEG_INFINITY),
            (1e-300, 0.0),
        ];
        for (x, want) in cases {
            assert_eq!(f16::from_f64_exact(x).to_f64(), want, "{x:e}");
        }
        assert!(f16::from_f64_exact(f64::NAN).is_nan());
    }

    #[test]
    fn floats_become_integers_within_range() {
        assert_eq!(i32::from_f64_exact(-2.9), -2);
        assert_eq!(i32::from_f64_exact(1e10), i32::MAX);
        assert_eq!(u32::from_f64_exact(-1.0), 0);
        assert_eq!(u32::from_f64_exact(f64::NAN), 0);
    }
}
