//! Convolutions and their transpositions as gathers: each result sums elements of a source times taps of a filter.

use crate::BackendResult;

use super::conv::ConvShape;
use super::image::ImageLayout;

/// One axis of a gather: which position of the source meets a tap of the filter at a position of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GatherAxis {
    /// The convolution's stride; 1 where it is never taken.
    pub stride: usize,
    /// The convolution's dilation; 1 where it is never taken.
    pub dilation: usize,
    /// The convolution's padding before the image.
    pub before: usize,
    /// Whether results are at the convolution's input.
    pub transposed: bool,
}

impl GatherAxis {
    /// The position in a source of `extent` positions, if there is one: `x·stride + tap·dilation − before`,
    /// or transposed `(x + before − tap·dilation) / stride` if that is whole.
    #[must_use]
    pub fn source(&self, x: usize, tap: usize, extent: usize) -> Option<usize> {
        let &Self { stride, dilation, before, transposed } = self;
        let position = if transposed {
            let from = (x + before).checked_sub(tap * dilation)?;
            if from % stride != 0 {
                return None;
            }
            from / stride
        } else {
            (x * stride + tap * dilation).checked_sub(before)?
        };
        (position < extent).then_some(position)
    }
}

/// `result[n, g·filters + f, y, x] = Σ source[n, g·channels + c, y', x'] · filter[g, f, c, r, s]`: a
/// convolution, or a transposed one, whose filters have their channels exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConvGather {
    /// Images.
    pub batch: usize,
    /// Groups of channels.
    pub groups: usize,
    /// Channels of the source in a group.
    pub channels: usize,
    /// Channels of the result in a group.
    pub filters: usize,
    /// Height and width of the source.
    pub source: [usize; 2],
    /// Height and width of the result.
    pub result: [usize; 2],
    /// Height and width of the filters.
    pub filter: [usize; 2],
    /// Vertically and horizontally.
    pub axes: [GatherAxis; 2],
    /// The order of elements.
    pub layout: ImageLayout,
}

impl ConvGather {
    /// A convolution.
    ///
    /// # Errors
    /// As [`ConvShape::output`].
    pub fn forward(op: &'static str, shape: &ConvShape) -> BackendResult<Self> {
        Self::new(op, shape, false)
    }

    /// The transposition of a convolution, which is the gradient of its input.
    ///
    /// # Errors
    /// As [`ConvShape::output`].
    pub fn transposed(op: &'static str, shape: &ConvShape) -> BackendResult<Self> {
        Self::new(op, shape, true)
    }

    fn new(op: &'static str, shape: &ConvShape, transposed: bool) -> BackendResult<Self> {
        let &ConvShape { batch, channels, input, filters, groups, window, layout } = shape;
        let output = shape.output(op)?;
        let axis = |at: usize| GatherAxis {
            stride: if output[at] > 1 { window.stride[at] } else { 1 },
            dilation: if window.size[at] > 1 { window.dilation[at] } else { 1 },
            before: window.before[at],
            transposed,
        };
        let (channels, filters) = (channels / groups.max(1), filters / groups.max(1));
        let forward = Self {
            batch,
            groups,
            channels,
            filters,
            source: input,
            result: output,
            filter: window.size,
            axes: [axis(0), axis(1)],
            layout,
        };
        if !transposed {
            return Ok(forward);
        }
        Ok(Self { channels: filters, filters: channels, source: output, result: input, ..forward })
    }

    /// Products in a result. Where there is a result, this fits.
    #[must_use]
    pub const fn taps(&self) -> usize {
        self.channels.saturating_mul(self.filter[0]).saturating_mul(self.filter[1])
    }

    /// Positions of a result image. Where there is an image, this fits.
    #[must_use]
    pub const fn pixels(&self) -> usize {
        self.result[0].saturating_mul(self.result[1])
    }

    /// Whether each position of the result is made of the same position of the source.
    #[must_use]
    pub fn is_pointwise(&self) -> bool {
        let plain = |axis: GatherAxis| axis.stride == 1 && axis.before == 0;
        self.filter == [1, 1] && self.source == self.result && self.axes.into_iter().all(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desc::{ImageShape, Window};

    #[test]
    fn what_a_convolution_reads_is_what_its_transposition_writes() {
        let window = Window::new([2, 3])
            .with_stride([2, 3])
            .with_asymmetric_padding([1, 2], [0, 1])
            .with_dilation([3, 2]);
        let shape = ConvShape::new(ImageShape { batch: 1, channels: 1, height: 7, width: 11 }, 1, window);
        let forward = ConvGather::forward("t", &shape).unwrap();
        let transposed = ConvGather::transposed("t", &shape).unwrap();
        for axis in 0..2 {
            let (input, output) = (forward.source[axis], forward.result[axis]);
            for (x, tap) in (0..output).flat_map(|x| (0..window.size[axis]).map(move |tap| (x, tap))) {
                let read = forward.axes[axis].source(x, tap, input);
                for y in 0..input {
                    let written = transposed.axes[axis].source(y, tap, output);
                    assert_eq!(read == Some(y), written == Some(x), "output {x}, tap {tap}, input {y}");
                }
            }
        }
    }
}
