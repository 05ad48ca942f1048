//! Floating-point storage, computed on as f32.

use std::borrow::Cow;

use bytemuck::Pod;
use faer::prelude::ReborrowMut;
use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::access::Input;
use crate::ops::matrix::{RowMajor, for_each_row, row_major};
use crate::parallel::Cores;
use crate::room::{NoRoom, zeros};

/// An element type that operations compute with.
pub(crate) trait Element: Pod + Send + Sync {
    /// The element as f32, exactly.
    fn to_f32(self) -> f32;
    /// The nearest number.
    fn from_f32(x: f32) -> Self;
    /// Every number of a slice, converted to a slice of the same length.
    fn load(from: &[Self], to: &mut [f32]);
    /// Every number of a slice, converted from a slice of the same length.
    fn store(from: &[f32], to: &mut [Self]);
    /// A whole operand.
    fn widen(cores: Cores, from: &[Self]) -> Result<Cow<'_, [f32]>, NoRoom>;
    /// Lets `work` write a matrix, or with `update` change it.
    fn with_f32(matrix: RowMajor<'_, Self>, update: bool, work: impl FnOnce(RowMajor<'_, f32>));
}

impl Element for f32 {
    fn to_f32(self) -> f32 {
        self
    }

    fn from_f32(x: f32) -> Self {
        x
    }

    fn load(from: &[Self], to: &mut [f32]) {
        to.copy_from_slice(from);
    }

    fn store(from: &[f32], to: &mut [Self]) {
        to.copy_from_slice(from);
    }

    fn widen(_: Cores, from: &[Self]) -> Result<Cow<'_, [f32]>, NoRoom> {
        Ok(Cow::Borrowed(from))
    }

    fn with_f32(matrix: RowMajor<'_, Self>, _: bool, work: impl FnOnce(RowMajor<'_, Self>)) {
        work(matrix);
    }
}

impl Element for f16 {
    fn to_f32(self) -> f32 {
        Self::to_f32(self)
    }

    fn from_f32(x: f32) -> Self {
        Self::from_f32(x)
    }

    fn load(from: &[Self], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }

    fn store(from: &[f32], to: &mut [Self]) {
        to.convert_from_f32_slice(from);
    }

    fn widen(cores: Cores, from: &[Self]) -> Result<Cow<'_, [f32]>, NoRoom> {
        let mut wide = zeros(from.len())?;
        cores.chunks(&mut wide, 1, 1 << 15, &|first, chunk: &mut [f32]| {
            Self::load(&from[first..first + chunk.len()], chunk);
        });
        Ok(Cow::Owned(wide))
    }

    fn with_f32(mut matrix: RowMajor<'_, Self>, update: bool, work: impl FnOnce(RowMajor<'_, f32>)) {
        let (rows, columns) = (matrix.nrows(), matrix.ncols());
        let mut wide = vec![0.0; rows * columns];
        let row = |i: usize| i * columns..(i + 1) * columns;
        if update {
            for_each_row(matrix.rb_mut(), |i, from| Self::load(from, &mut wide[row(i)]));
        }
        work(row_major(&mut wide, rows, columns, columns));
        for_each_row(matrix, |i, to| Self::store(&wide[row(i)], to));
    }
}

/// An operand that can't be the output, as f32, where there is room for it.
pub(crate) fn widen<'a, T: Element>(cores: Cores, input: Input<'a>) -> Result<Cow<'a, [f32]>, NoRoom> {
    T::widen(cores, input.elements())
}

/// Runs a block with `$T` as the Rust type of a floating-point element type. Descriptors refuse the others.
macro_rules! with_float {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            backend_api::DType::F16 => {
                type $T = half::f16;
                $body
            }
            _ => {
                type $T = f32;
                $body
            }
        }
    };
}
pub(crate) use with_float;
