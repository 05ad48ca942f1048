//! Poolings of windows that take an invocation more iterations than the device's loops may have (see
//! [`iterations`]): first along rows, then along columns, with f32 in between.
//!
//! Either order of taking maxima finds the same number, and the first row that has it, with the first column
//! there, is where it is first. Averages divide by the rows and by the columns that count.

use backend_api::desc::{ImageLayout, PoolOp, PoolShape, Window as PoolWindow};
use backend_api::support::checked_product;
use backend_api::{BackendError, BackendResult, DType};

use super::copy::copy_windows;
use super::pool::{backward, forward};
use super::shared::iterations;
use crate::ops::op_context::OpContext;
use crate::recorder::Window;

/// The operation on operands that are checked.
pub(super) struct Call<'a> {
    pub(super) ctx: &'a OpContext,
    pub(super) op: &'static str,
    pub(super) pool: PoolOp,
    pub(super) dtype: DType,
    pub(super) shape: &'a PoolShape,
}

/// The most iterations for one result: the positions of a window that may lie in the image.
fn iterations_forward(shape: &PoolShape) -> usize {
    if shape.input.contains(&0) {
        return 0;
    }
    let [rows, columns] = [0, 1].map(|axis| shape.window.size[axis].min(shape.input[axis]));
    rows.saturating_mul(columns.saturating_add(1))
}

/// The most for the gradient of one element, the windows that may cover it, or for finding the maximum of a
/// window.
fn iterations_backward(pool: PoolOp, shape: &PoolShape) -> usize {
    let PoolWindow { size, stride, dilation, .. } = shape.window;
    let windows = |axis: usize| {
        let span = (size[axis] - 1).saturating_mul(dilation[axis]);
        (span / stride[axis] + 1).min(shape.output[axis])
    };
    let search = if pool == PoolOp::Max { iterations_forward(shape) } else { 0 };
    windows(0).saturating_mul(windows(1).saturating_add(1)).max(search)
}

impl Call<'_> {
    /// Whether a pooling takes two passes here.
    pub(super) fn is_long(&self) -> BackendResult<bool> {
        self.check(iterations_forward(self.shape), || self.passes().map(|pass| iterations_forward(&pass)))
    }

    /// Whether the gradient of a pooling takes two passes here.
    pub(super) fn gradient_is_long(&self) -> BackendResult<bool> {
        let of = |shape: &PoolShape| iterations_backward(self.pool, shape);
        self.check(of(self.shape), || self.passes().map(|pass| of(&pass)))
    }

    fn check(&self, at_once: usize, in_passes: impl FnOnce() -> [usize; 2]) -> BackendResult<bool> {
        let Some(max) = iterations::exceeded(self.ctx, at_once) else { return Ok(false) };
        let requested = in_passes().into_iter().max().unwrap_or_default();
        if requested > max {
            return Err(BackendError::Limit { op: self.op, what: "positions of a window", requested, max });
        }
        Ok(true)
    }

    /// Along rows, and along columns of the result of that.
    fn passes(&self) -> [PoolShape; 2] {
        let only = |kept: usize| {
            let along = |values: [usize; 2], other: usize| {
                let mut values = values;
                values[1 - kept] = other;
                values
            };
            let PoolWindow { size, stride, before, after, dilation, .. } = self.shape.window;
            PoolWindow::new(along(size, 1))
                .with_stride(along(stride, 1))
                .with_asymmetric_padding(along(before, 0), along(after, 0))
                .with_dilation(along(dilation, 1))
        };
        let PoolShape { input, output, .. } = *self.shape;
        let [mut rows, mut columns] = [*self.shape; 2];
        (rows.output, rows.window) = ([input[0], output[1]], only(1));
        (columns.input, columns.window) = ([input[0], output[1]], only(0));
        [rows, columns]
    }

    fn pass<'a>(&'a self, shape: &'a PoolShape) -> Call<'a> {
        Call { shape, dtype: DType::F32, ..*self }
    }

    pub(super) fn forward_in_passes(&self, input: &Window, output: &Window) -> BackendResult<()> {
        let [rows, columns] = self.passes();
        let input = self.as_f32(input, self.elements(self.shape.input)?)?;
        let between = self.scratch(self.elements(rows.output)?, DType::F32)?;
        forward(&self.pass(&rows), &input, &between)?;
        self.rounded(output, self.elements(self.shape.output)?, |result| {
            forward(&self.pass(&columns), &between, result)
        })
    }

    pub(super) fn backward_in_passes(
        &self,
        input: &Window,
        gradient: &Window,
        output: &Window,
    ) -> BackendResult<()> {
        let [rows, columns] = self.passes();
        let between = self.elements(rows.output)?;
        let (mut input, mut maxima) = (input.clone(), self.ctx.null());
        if self.pool == PoolOp::Max {
            input = self.as_f32(&input, self.elements(self.shape.input)?)?;
            maxima = self.scratch(between, DType::F32)?;
            forward(&self.pass(&rows), &input, &maxima)?;
        }
        let gradient = self.as_f32(gradient, self.elements(self.shape.output)?)?;
        let passed = self.scratch(between, DType::F32)?;
        backward(&self.pass(&columns), &maxima, &gradient, &passed)?;
        self.rounded(output, self.elements(self.shape.input)?, |result| {
            backward(&self.pass(&rows), &input, &passed, result)
        })
    }

    /// Elements of images of this height and width.
    pub(super) fn elements(&self, [height, width]: [usize; 2]) -> BackendResult<usize> {
        let PoolShape { batch, channels, .. } = *self.shape;
        checked_product(self.op, "elements", &[batch, channels, height, width])
    }

    /// Packed elements as f32, copied unless they are.
    fn as_f32(&self, window: &Window, elements: usize) -> BackendResult<Window> {
        if self.dtype == DType::F32 {
            return Ok(window.clone());
        }
        let copy = self.scratch(elements, DType::F32)?;
        self.copy([self.dtype, DType::F32], elements, [window, &copy])?;
        Ok(copy)
    }

    /// Lets f32 be written to the output, or to where it is rounded from.
    fn rounded(
        &self,
        output: &Window,
        elements: usize,
        write: impl FnOnce(&Window) -> BackendResult<()>,
    ) -> BackendResult<()> {
        if self.dtype == DType::F32 {
            return write(output);
        }
        let copy = self.scratch(elements, DType::F32)?;
        write(&copy)?;
        self.copy([DType::F32, self.dtype], elements, [&copy, output])
    }

    fn copy(&self, types: [DType; 2], elements: usize, windows: [&Window; 2]) -> BackendResult<()> {
        copy_windows(self.ctx, self.op, types, vec![(elements, [1; 2])], windows)
    }

    /// Memory for so many elements.
    pub(super) fn scratch(&self, elements: usize, dtype: DType) -> BackendResult<Window> {
        let bytes = checked_product(self.op, "scratch", &[elements, dtype.size()])?;
        let slice = self.ctx.scratch(self.op, bytes.next_multiple_of(16))?;
        Ok(self.ctx.output(&slice, dtype))
    }

    /// Channels that are adjacent.
    pub(super) fn inner(&self) -> usize {
        if self.shape.layout == ImageLayout::Nhwc { self.shape.channels } else { 1 }
    }
}
