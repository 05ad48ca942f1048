//! Factors that padding must not meet. The matrix of shifted copies has zeros where a tap lies beside the image, and zero
//! times an infinity or NaN is NaN, though the sum has no such term.

use backend_api::desc::ImageLayout;
use backend_api::support::ConvGather;

/// An infinity or NaN at a row and a column of a matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unbounded {
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) value: f32,
}

/// Puts zeros in place of what isn't finite in a matrix of `columns` columns, and returns that.
pub(super) fn take_unbounded(matrix: &mut [f32], columns: usize) -> Vec<Unbounded> {
    let mut taken = Vec::new();
    for (row, numbers) in matrix.chunks_exact_mut(columns.max(1)).enumerate() {
        for (column, number) in numbers.iter_mut().enumerate().filter(|(_, number)| !number.is_finite()) {
            taken.push(Unbounded { row, column, value: std::mem::take(number) });
        }
    }
    taken
}

/// The number of the source that a tap of a group meets at a pixel, unless it lies beside the image.
pub(super) fn met(
    gather: &ConvGather,
    source: &[f32],
    [image, group]: [usize; 2],
    tap: usize,
    pixel: usize,
) -> Option<f32> {
    let &ConvGather { groups, channels, source: [height, width], filter: [r, s], axes, layout, .. } = gather;
    let all = groups * channels;
    let [_, columns] = gather.result;
    let (channel, dy, dx) = match layout {
        ImageLayout::Nhwc => (tap % channels, tap / channels / s, tap / channels % s),
        _ => (tap / (r * s), tap / s % r, tap % s),
    };
    let y = axes[0].source(pixel / columns, dy, height)?;
    let x = axes[1].source(pixel % columns, dx, width)?;
    let channel = group * channels + channel;
    let at = match layout {
        ImageLayout::Nhwc => ((image * height + y) * width + x) * all + channel,
        _ => ((image * all + channel) * height + y) * width + x,
    };
    source.get(at).copied()
}

#[cfg(test)]
mod tests {
    use backend_api::desc::{ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvShape, ImageShape, Window};
    use backend_api::{BackendResult, ComputeBackend, DType};

    use super::*;
    use crate::CpuBackend;

    /// The gradients of one image of 3×3 pixels with respect to its pixels and to a filter of 3×3 taps, where the first
    /// weight and the first gradient are infinite and all else is 1.
    fn gradients(stride: usize) -> BackendResult<[Vec<f32>; 2]> {
        let backend = CpuBackend::new();
        let window = Window::new([3, 3]).with_padding([1, 1]).with_stride([stride; 2]);
        let shape = ConvShape::new(ImageShape::nchw([1, 1, 3, 3]), 1, window);
        let [of_input, of_filter, ones, unbounded] = [0f32, 0.0, 1.0, 1.0].map(|value| [value; 9]);
        let mut unbounded = unbounded;
        unbounded[0] = f32::INFINITY;
        let upload = |numbers: &[f32; 9]| -> BackendResult<u64> {
            let ptr = backend.alloc(36)?;
            backend.copy_htod(ptr, bytemuck::cast_slice(numbers))?;
            Ok(ptr)
        };
        let [input, filter, one, infinite] =
            [upload(&of_input)?, upload(&of_filter)?, upload(&ones)?, upload(&unbounded)?];
        backend.conv2d_backward_data(&ConvBackwardDataDesc::new(DType::F32, infinite, one, input, shape))?;
        backend.conv2d_backward_filter(&ConvBackwardFilterDesc::new(
            DType::F32,
            one,
            infinite,
            filter,
            shape,
        ))?;
        let read = |ptr: u64| -> BackendResult<Vec<f32>> {
            let mut numbers = vec![0f32; 9];
            backend.copy_dtoh(bytemuck::cast_slice_mut(&mut numbers), ptr)?;
            Ok(numbers)
        };
        Ok([read(input)?, read(filter)?])
    }

    #[test]
    fn infinities_reach_what_they_are_multiplied_with() {
        const INF: f32 = f32::INFINITY;
        // Pixel (y, x) meets the first weight by output (y + 1, x + 1), which the last row and column lack; the first
        // output meets no pixel by the taps of the first row and column.
        let [input, filter] = gradients(1).unwrap();
        assert_eq!(input, [INF, INF, 4.0, INF, INF, 6.0, 4.0, 6.0, 4.0]);
        assert_eq!(filter, [4.0, 6.0, 4.0, 6.0, INF, INF, 4.0, INF, INF]);
        // With a stride of two there are 2×2 outputs, and pixel (1, 1) alone meets the first weight.
        let [input, filter] = gradients(2).unwrap();
        assert_eq!(input, [1.0, 2.0, 1.0, 2.0, INF, 2.0, 1.0, 2.0, 1.0]);
        assert_eq!(filter, [1.0, 2.0, 1.0, 2.0, INF, INF, 1.0, INF, INF]);
    }

    #[test]
    fn what_is_finite_stays() {
        let mut matrix = [1.0, f32::INFINITY, 3.0, 4.0, 5.0, f32::NEG_INFINITY];
        let taken = take_unbounded(&mut matrix, 3);
        assert_eq!(matrix, [1.0, 0.0, 3.0, 4.0, 5.0, 0.0]);
        let of = |row, column, value| Unbounded { row, column, value };
        assert_eq!(taken, [of(0, 1, f32::INFINITY), of(1, 2, f32::NEG_INFINITY)]);
        assert!(take_unbounded(&mut matrix, 3).is_empty());
    }
}
