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
    use super::*;

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
