//! What convolutions make of their operands before they multiply.

use std::ops::Range;

use backend_api::desc::ImageLayout;
use backend_api::support::{ConvGather, GatherAxis};

use crate::room::{NoRoom, with_room_for};

/// For each tap of a group's filters the numbers of the source that meet it at each of the pixels, 0 where
/// there is none: packed rows, in the order of the filters' elements.
pub(super) fn shifted(
    gather: &ConvGather,
    source: &[f32],
    image: usize,
    group: usize,
    pixels: Range<usize>,
) -> Vec<f32> {
    let &ConvGather { groups, channels, source: [height, width], filter: [r, s], axes, layout, .. } = gather;
    let all = groups * channels;
    let [_, columns] = gather.result;
    let image = source.get(image * all * height * width..).unwrap_or_default();
    let mut copies = vec![0.0; gather.taps() * pixels.len()];
    for (tap, row) in copies.chunks_exact_mut(pixels.len()).enumerate() {
        let (channel, dy, dx) = match layout {
            ImageLayout::Nhwc => (tap % channels, tap / channels / s, tap / channels % s),
            _ => (tap / (r * s), tap / s % r, tap % s),
        };
        let channel = group * channels + channel;
        let mut rest = row;
        let mut pixel = pixels.start;
        while !rest.is_empty() {
            let (y, x) = (pixel / columns, pixel % columns);
            let (line, after) = rest.split_at_mut(rest.len().min(columns - x));
            pixel += line.len();
            rest = after;
            if let Some(y) = axes[0].source(y, dy, height) {
                let (first, step) = match layout {
                    ImageLayout::Nhwc => (y * width * all + channel, all),
                    _ => ((channel * height + y) * width, 1),
                };
                shift(&image[first..], [width, step], &axes[1], [x, dx], line);
            }
        }
    }
    copies
}

/// `to[i]` = the element of a line, of which there are `width` at a distance of `step`, that meets the tap
/// `dx` at position `x + i`; the rest stays 0.
fn shift(from: &[f32], [width, step]: [usize; 2], axis: &GatherAxis, [x, dx]: [usize; 2], to: &mut [f32]) {
    if axis.transposed || step != 1 {
        for (i, to) in to.iter_mut().enumerate() {
            if let Some(at) = axis.source(x + i, dx, width) {
                *to = from[at * step];
            }
        }
        return;
    }
    let &GatherAxis { stride, dilation, before, .. } = axis;
    let first = x * stride + dx * dilation;
    let outside = before.saturating_sub(first).div_ceil(stride).min(to.len());
    let to = &mut to[outside..];
    if to.is_empty() {
        return;
    }
    let from = from[..width].get(first + outside * stride - before..).unwrap_or_default();
    for (y, &x) in to.iter_mut().zip(from.iter().step_by(stride)) {
        *y = x;
    }
}

/// A convolution's filters with the channels of what it reads and of what it gives exchanged, as its
/// transposition `gather` multiplies by.
pub(super) fn exchanged(gather: &ConvGather, filter: &[f32]) -> Result<Vec<f32>, NoRoom> {
    let &ConvGather { groups, channels, filters, filter: [r, s], layout, .. } = gather;
    let window = r * s;
    let mut factor = with_room_for(filter.len())?;
    for (group, to) in (0..groups).flat_map(|group| (0..filters).map(move |to| (group, to))) {
        for tap in 0..channels * window {
            let at = match layout {
                ImageLayout::Nhwc => {
                    ((group * channels + tap % channels) * window + tap / channels) * filters + to
                }
                _ => ((group * channels + tap / window) * filters + to) * window + tap % window,
            };
            factor.push(filter.get(at).copied().unwrap_or_default());
        }
    }
    Ok(factor)
}
