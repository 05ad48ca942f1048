//! Pooling.

use crate::operand::{Access, Operand};
use crate::{BackendError, BackendResult, Bound, DType, checked_add, checked_product};

use super::image::{ImageLayout, ImageShape};
use super::window::Window;
use super::{require_at_least, require_float};

/// How the elements of a window are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PoolOp {
    /// The largest; NaN if there is one. Of a window in the padding alone −∞.
    Max,
    /// The sum over the number of positions of the window that lie in the image; 0 / 0 if there is none.
    Average,
    /// The sum over the number of positions of the window that lie in the image or its padding.
    AverageWithPadding,
}

impl PoolOp {
    /// Every operation.
    pub const ALL: [Self; 3] = [Self::Max, Self::Average, Self::AverageWithPadding];

    /// The lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::Average => "average",
            Self::AverageWithPadding => "average_with_padding",
        }
    }
}

/// The extents of a pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolShape {
    /// Images.
    pub batch: usize,
    /// Channels, each pooled by itself.
    pub channels: usize,
    /// Height and width of the input.
    pub input: [usize; 2],
    /// Height and width of the output: how often the window fits into the padded input, or once more for a
    /// last window that begins inside of the input or the padding before it and passes the end (known as ceil
    /// mode). What passes the padding's end counts as nothing, in averages too.
    pub output: [usize; 2],
    /// The window.
    pub window: Window,
    /// The order of the elements of input and output.
    pub layout: ImageLayout,
}

impl PoolShape {
    /// Windows over `input`, and the height and width of what they give. Elements are NCHW.
    #[must_use]
    pub const fn new(input: ImageShape, output: [usize; 2], window: Window) -> Self {
        let ImageShape { batch, channels, height, width } = input;
        let layout = ImageLayout::Nchw;
        Self { batch, channels, input: [height, width], output, window, layout }
    }

    setters! {
        /// Takes elements in another order.
        pub fn with_layout(layout: ImageLayout);
    }

    /// Elements of input and output, once everything is checked.
    fn elements(&self, op: &'static str) -> BackendResult<[usize; 2]> {
        let &Self { batch, channels, input, output, window, .. } = self;
        for axis in 0..2 {
            let fits = window.places(op, axis, input[axis])?;
            let stride = window.stride[axis];
            let whole = (window.padded(op, axis, input[axis])? - window.span(op, axis)?) % stride == 0;
            let next = fits.saturating_mul(stride);
            let begins_inside = next < checked_add(op, "padded input", input[axis], window.before[axis])?;
            let most = fits + usize::from(!whole && begins_inside);
            let what = ["height of the output", "width of the output"][axis];
            require_at_least(op, what, fits, output[axis])?;
            if output[axis] > most {
                let expected = Bound::AtMost(most);
                return Err(BackendError::Shape { op, what, expected, got: output[axis] });
            }
        }
        Ok([
            checked_product(op, "input", &[batch, channels, input[0], input[1]])?,
            checked_product(op, "output", &[batch, channels, output[0], output[1]])?,
        ])
    }
}

/// `output[n, c, y, x] = op over (r, s) of input[n, c, y·stride₀ + r·dilation₀ − before₀, x·stride₁ + s·dilation₁ − before₁]`.
/// Padding is no element: a maximum leaves it out, an average counts it or not.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PoolDesc {
    /// The operation.
    pub op: PoolOp,
    /// Element type of both operands: f32 or f16.
    pub dtype: DType,
    /// Handle of the input.
    pub input: u64,
    /// Handle of the output.
    pub output: u64,
    /// The extents.
    pub shape: PoolShape,
}

handles!(PoolDesc: input, output);

impl PoolDesc {
    /// The operation over every window of the shape.
    #[must_use]
    pub const fn new(op: PoolOp, dtype: DType, input: u64, output: u64, shape: PoolShape) -> Self {
        Self { op, dtype, input, output, shape }
    }

    /// Checks the shapes. Returns input and output.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 2]> {
        require_float(op, "dtype", self.dtype)?;
        let [input, output] = self.shape.elements(op)?;
        let read = if output == 0 { 0 } else { input };
        Ok([
            Operand::new(op, "input", self.input, self.dtype, read, Access::Read)?,
            Operand::new(op, "output", self.output, self.dtype, output, Access::Write)?,
        ])
    }
}

/// The gradient of a pooling with respect to its input: what each output's gradient gives to the elements of
/// its window.
///
/// For [`Max`](PoolOp::Max), all of it goes to the first of the largest, in the order of rows and columns, or
/// to the first NaN; for averages, each position gets its share. The sums are formed in a fixed order.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PoolBackwardDesc {
    /// The operation.
    pub op: PoolOp,
    /// Element type of every operand: f32 or f16.
    pub dtype: DType,
    /// Handle of the pooling's input; looked at for [`Max`](PoolOp::Max) only.
    pub input: u64,
    /// Handle of the gradient with respect to the pooling's output.
    pub grad_output: u64,
    /// Handle of the gradient with respect to its input, which is written.
    pub grad_input: u64,
    /// The pooling's extents.
    pub shape: PoolShape,
}

handles!(PoolBackwardDesc: input, grad_output, grad_input);

impl PoolBackwardDesc {
    /// The gradient of `forward`.
    #[must_use]
    pub const fn of(forward: &PoolDesc, grad_output: u64, grad_input: u64) -> Self {
        let &PoolDesc { op, dtype, input, shape, .. } = forward;
        Self { op, dtype, input, grad_output, grad_input, shape }
    }

    /// Checks the shapes. Returns input, `grad_output` and `grad_input`.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 3]> {
        require_float(op, "dtype", self.dtype)?;
        let [input, output] = self.shape.elements(op)?;
        let output = if input == 0 { 0 } else { output };
        let looked_at = if self.op == PoolOp::Max { input } else { 0 };
        Ok([
            Operand::new(op, "input", self.input, self.dtype, looked_at, Access::Read)?,
            Operand::new(op, "grad_output", self.grad_output, self.dtype, output, Access::Read)?,
            Operand::new(op, "grad_input", self.grad_input, self.dtype, input, Access::Write)?,
        ])
    }
}
