//! Loops that are compiled for the widest vectors of the CPU they run on.
//!
//! A loop is compiled for vectors where everything in it is inlined, so each is a type with an
//! `inline(always)` method rather than a closure, which the compiler may leave as a function of its own.

use pulp::{Arch, Simd, WithSimd};

use super::scalar::exp;

/// How many numbers are worked on side by side: the widest vector's.
const LANES: usize = 16;

/// `x = f(x)` for each number.
pub(super) fn map(values: &mut [f32], f: impl Fn(f32) -> f32) {
    Arch::new().dispatch(Map { values, f });
}

struct Map<'a, F> {
    values: &'a mut [f32],
    f: F,
}

impl<F: Fn(f32) -> f32> WithSimd for Map<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for x in self.values {
            *x = (self.f)(*x);
        }
    }
}

/// `x = x · factor` for each number.
pub(crate) fn scale(values: &mut [f32], factor: f64) {
    map(values, |x| (f64::from(x) * factor) as f32);
}

/// Combines all `f(x)`, in interleaved parts.
pub(crate) fn fold(
    values: &[f32],
    identity: f64,
    f: impl Fn(f32) -> f64,
    combine: impl Fn(f64, f64) -> f64,
) -> f64 {
    Arch::new().dispatch(Fold { values, identity, f, combine })
}

struct Fold<'a, F, C> {
    values: &'a [f32],
    identity: f64,
    f: F,
    combine: C,
}

impl<F: Fn(f32) -> f64, C: Fn(f64, f64) -> f64> WithSimd for Fold<'_, F, C> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let (chunks, rest) = self.values.as_chunks::<LANES>();
        let mut parts = [self.identity; LANES];
        for chunk in chunks {
            for (part, &x) in parts.iter_mut().zip(chunk) {
                *part = (self.combine)(*part, (self.f)(x));
            }
        }
        for (part, &x) in parts.iter_mut().zip(rest) {
            *part = (self.combine)(*part, (self.f)(x));
        }
        let mut all = self.identity;
        for part in parts {
            all = (self.combine)(all, part);
        }
        all
    }
}

/// The largest number, −∞ of none; NaN if there is one.
pub(crate) fn largest(values: &[f32]) -> f32 {
    Arch::new().dispatch(Largest { values })
}

struct Largest<'a> {
    values: &'a [f32],
}

impl WithSimd for Largest<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f32 {
        let larger = |a: f32, b: f32| if b > a || b.is_nan() { b } else { a };
        let (chunks, rest) = self.values.as_chunks::<LANES>();
        let mut parts = [f32::NEG_INFINITY; LANES];
        for chunk in chunks {
            for (part, &x) in parts.iter_mut().zip(chunk) {
                *part = larger(*part, x);
            }
        }
        let mut all = f32::NEG_INFINITY;
        for &x in parts.iter().chain(rest) {
            all = larger(all, x);
        }
        all
    }
}

/// `x = exp(x − shift)` for each number, and their sum.
pub(crate) fn exponentials(values: &mut [f32], shift: f32) -> f64 {
    Arch::new().dispatch(Exponentials { values, shift })
}

struct Exponentials<'a> {
    values: &'a mut [f32],
    shift: f32,
}

impl WithSimd for Exponentials<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let (chunks, rest) = self.values.as_chunks_mut::<LANES>();
        let mut parts = [0.0; LANES];
        for chunk in chunks {
            for x in chunk.iter_mut() {
                *x = exp(*x - self.shift);
            }
            for (part, &x) in parts.iter_mut().zip(&*chunk) {
                *part += f64::from(x);
            }
        }
        let mut sum = 0.0;
        for x in rest {
            *x = exp(*x - self.shift);
            sum += f64::from(*x);
        }
        sum + parts.iter().sum::<f64>()
    }
}
