//! The window that convolutions and poolings move over an image.

use crate::{BackendResult, checked_add, checked_product};

use super::{require_at_least, require_eq};

/// A window of `size` positions, `dilation` apart, that moves over an image in steps of `stride`, the image
/// being surrounded by `before` and `after` positions of padding. All are vertical, then horizontal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Window {
    /// Rows and columns of the window, at least 1.
    pub size: [usize; 2],
    /// From one position of the window to the next, at least 1.
    pub stride: [usize; 2],
    /// Padding above and on the left.
    pub before: [usize; 2],
    /// Padding below and on the right.
    pub after: [usize; 2],
    /// From one row or column of the window to the next, at least 1.
    pub dilation: [usize; 2],
}

impl Window {
    /// A dense window that moves by single steps over an image without padding.
    #[must_use]
    pub const fn new(size: [usize; 2]) -> Self {
        Self { size, stride: [1; 2], before: [0; 2], after: [0; 2], dilation: [1; 2] }
    }

    /// A window of one row, for sequences: images of height 1.
    #[must_use]
    pub const fn line(size: usize) -> Self {
        Self::new([1, size])
    }

    setters! {
        /// Moves by `stride`.
        pub fn with_stride(stride: [usize; 2]);

        /// Spreads the window's positions.
        pub fn with_dilation(dilation: [usize; 2]);
    }

    /// Pads equally on opposite sides.
    #[must_use]
    pub const fn with_padding(mut self, padding: [usize; 2]) -> Self {
        self.before = padding;
        self.after = padding;
        self
    }

    /// Pads by `before` above and on the left, by `after` below and on the right.
    #[must_use]
    pub const fn with_asymmetric_padding(mut self, before: [usize; 2], after: [usize; 2]) -> Self {
        self.before = before;
        self.after = after;
        self
    }

    /// The image's extent along an axis with its padding.
    pub(super) fn padded(&self, op: &'static str, axis: usize, extent: usize) -> BackendResult<usize> {
        let padding = checked_add(op, "padding", self.before[axis], self.after[axis])?;
        checked_add(op, "padded input", extent, padding)
    }

    /// Positions from the window's first to its last.
    pub(super) fn span(&self, op: &'static str, axis: usize) -> BackendResult<usize> {
        require_at_least(op, "stride", 1, self.stride[axis])?;
        require_at_least(op, "extent of the filter", 1, self.size[axis])?;
        require_at_least(op, "dilation", 1, self.dilation[axis])?;
        let steps = checked_product(op, "dilated filter", &[self.size[axis] - 1, self.dilation[axis]])?;
        checked_add(op, "dilated filter", steps, 1)
    }

    /// How often the window fits into the padded image along an axis:
    /// `⌊(extent + before + after − span) / stride⌋ + 1`.
    pub(super) fn places(&self, op: &'static str, axis: usize, extent: usize) -> BackendResult<usize> {
        let (span, padded) = (self.span(op, axis)?, self.padded(op, axis, extent)?);
        require_at_least(op, "padded input", span, padded)?;
        Ok((padded - span) / self.stride[axis] + 1)
    }

    /// The extent of a transposed convolution's result:
    /// `(extent − 1) · stride + span + more − before − after`.
    pub(super) fn spread(
        &self,
        op: &'static str,
        axis: usize,
        extent: usize,
        more: usize,
    ) -> BackendResult<usize> {
        let span = self.span(op, axis)?;
        require_at_least(op, "extent of the input", 1, extent)?;
        require_at_least(op, "stride beyond the output padding", more.saturating_add(1), self.stride[axis])?;
        let what = "output before its padding is cut off";
        let steps = checked_product(op, what, &[extent - 1, self.stride[axis]])?;
        let full = checked_add(op, what, checked_add(op, what, steps, span)?, more)?;
        let padding = checked_add(op, "padding", self.before[axis], self.after[axis])?;
        let least = checked_add(op, "padding", padding, 1)?;
        require_at_least(op, "output before its padding is cut off", least, full)?;
        Ok(full - padding)
    }
}

/// `got` must be `expected` along each axis.
pub(super) fn require_extents(
    op: &'static str,
    what: [&'static str; 2],
    expected: [usize; 2],
    got: [usize; 2],
) -> BackendResult<()> {
    require_eq(op, what[0], expected[0], got[0])?;
    require_eq(op, what[1], expected[1], got[1])
}
