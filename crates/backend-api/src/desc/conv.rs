//! Convolution.

use crate::operand::{Access, Operand};
use crate::{Activation, BackendError, BackendResult, Bound, DType, checked_product};

use super::image::{ImageLayout, ImageShape};
use super::window::{Window, require_extents};
use super::{require_at_least, require_eq, require_float, require_multiple};

/// The extents of a convolution: what it reads, its filters, and how they move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConvShape {
    /// Images, N.
    pub batch: usize,
    /// Channels of the input, C; a multiple of `groups`.
    pub channels: usize,
    /// Height and width of the input, H and W.
    pub input: [usize; 2],
    /// Filters, which are the channels of the output, K; a multiple of `groups`.
    pub filters: usize,
    /// Into how many groups the channels and the filters are divided; a filter sees the channels of its
    /// group. With as many groups as channels, the convolution is called depthwise.
    pub groups: usize,
    /// Height and width of the filters, R and S, and how they move.
    pub window: Window,
    /// The order of the elements of input, filter and output.
    pub layout: ImageLayout,
}

impl ConvShape {
    /// `filters` filters over `input`, in one group. Elements are NCHW. A one-dimensional convolution is one
    /// of images of height 1, its window a [`line`](Window::line).
    #[must_use]
    pub const fn new(input: ImageShape, filters: usize, window: Window) -> Self {
        let ImageShape { batch, channels, height, width } = input;
        let layout = ImageLayout::Nchw;
        Self { batch, channels, input: [height, width], filters, groups: 1, window, layout }
    }

    setters! {
        /// Divides channels and filters.
        pub fn with_groups(groups: usize);

        /// Takes elements in another order.
        pub fn with_layout(layout: ImageLayout);
    }

    /// Height and width of the output: `⌊(H + before + after − dilation·(R − 1) − 1) / stride⌋ + 1`.
    ///
    /// # Errors
    /// [`Shape`](BackendError::Shape) if an extent, a stride or a dilation is 0 or the dilated filter is
    /// larger than the padded input; [`Overflow`](BackendError::Overflow).
    pub fn output(&self, op: &'static str) -> BackendResult<[usize; 2]> {
        let [height, width] = self.input;
        Ok([self.window.places(op, 0, height)?, self.window.places(op, 1, width)?])
    }

    /// Elements of input, filter and output, once everything is checked.
    pub(super) fn elements(&self, op: &'static str) -> BackendResult<[usize; 3]> {
        let &Self { batch, channels, input, filters, groups, window, .. } = self;
        require_at_least(op, "groups", 1, groups)?;
        require_multiple(op, "number of channels", groups, channels)?;
        require_multiple(op, "number of filters", groups, filters)?;
        let output = self.output(op)?;
        let filter = [filters, channels / groups, window.size[0], window.size[1]];
        Ok([
            checked_product(op, "input", &[batch, channels, input[0], input[1]])?,
            checked_product(op, "filter", &filter)?,
            checked_product(op, "output", &[batch, filters, output[0], output[1]])?,
        ])
    }
}

/// `output[n, k, y, x] = activation(Σ input[n, c, y·stride₀ + r·dilation₀ − before₀, x·stride₁ + s·dilation₁ − before₁] · filter[k, c, r, s] + bias[k])`,
/// summed over r, s and the channels c of the filter's group. Positions outside the input count as 0. This is
/// a cross-correlation, as in every ML framework. Sums are formed in f32.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConvDesc {
    /// Element type of every operand: f32 or f16.
    pub dtype: DType,
    /// Handle of the input.
    pub input: u64,
    /// Handle of the filters.
    pub filter: u64,
    /// Handle of the output: `[N, K, P, Q]` or `[N, P, Q, K]` with the extents of [`ConvShape::output`].
    pub output: u64,
    /// The extents.
    pub shape: ConvShape,
    /// Handle of the bias, one element for each filter; 0 if `None`.
    pub bias: Option<u64>,
    /// Applied last.
    pub activation: Activation,
}

handles!(ConvDesc: input, filter, output, bias);

impl ConvDesc {
    /// Without bias and activation.
    #[must_use]
    pub const fn new(dtype: DType, input: u64, filter: u64, output: u64, shape: ConvShape) -> Self {
        Self { dtype, input, filter, output, shape, bias: None, activation: Activation::Identity }
    }

    setters! {
        /// Adds a bias to each channel of the output.
        pub fn with_bias(Some(bias): u64);

        /// Applies `activation` last.
        pub fn with_activation(activation: Activation);
    }

    /// From the slices of the positional method: f32, NCHW, one group. Checks the slices' lengths and whether
    /// the shape of the output is what the others give.
    #[expect(clippy::too_many_arguments, reason = "the positional form of the contract")]
    pub fn from_slices(
        op: &'static str,
        input: u64,
        input_shape: &[usize],
        filter: u64,
        filter_shape: &[usize],
        output: u64,
        output_shape: &[usize],
        stride: &[usize],
        padding: &[usize],
    ) -> BackendResult<Self> {
        let input_shape = ImageShape::nchw(sized(op, "rank of the input", input_shape)?);
        let [k, filter_channels, r, s] = sized(op, "rank of the filter", filter_shape)?;
        let [n_out, k_out, p, q] = sized(op, "rank of the output", output_shape)?;
        let window = Window::new([r, s])
            .with_stride(sized(op, "number of strides", stride)?)
            .with_padding(sized(op, "number of paddings", padding)?);
        let shape = ConvShape::new(input_shape, k, window);
        require_eq(op, "input channels of the filter", shape.channels, filter_channels)?;
        require_eq(op, "batch of the output", shape.batch, n_out)?;
        require_eq(op, "channels of the output", k, k_out)?;
        require_extents(op, ["height of the output", "width of the output"], shape.output(op)?, [p, q])?;
        Ok(Self::new(DType::F32, input, filter, output, shape))
    }

    /// Checks the shapes. Returns input, filter, output and bias.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 4]> {
        let &Self { dtype, shape, .. } = self;
        require_float(op, "dtype", dtype)?;
        let [input, filter, output] = shape.elements(op)?;
        // Without results there is nothing to read.
        let read = |elements| if output == 0 { 0 } else { elements };
        Ok([
            Operand::new(op, "input", self.input, dtype, read(input), Access::Read)?,
            Operand::new(op, "filter", self.filter, dtype, read(filter), Access::Read)?,
            Operand::new(op, "output", self.output, dtype, output, Access::Write)?,
            Operand::optional(op, "bias", self.bias, dtype, read(shape.filters), Access::Read)?,
        ])
    }
}

fn sized<const N: usize>(
    op: &'static str,
    what: &'static str,
    values: &[usize],
) -> BackendResult<[usize; N]> {
    values.try_into().map_err(|_| BackendError::Shape {
        op,
        what,
        expected: Bound::Exactly(N),
        got: values.len(),
    })
}
