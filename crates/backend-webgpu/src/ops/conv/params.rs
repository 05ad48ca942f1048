//! The parameters of the kernels on lib/conv.

use backend_api::desc::ImageLayout;
use backend_api::support::{ConvGather, GatherAxis, checked_product};
use backend_api::{BackendError, BackendResult};

use super::Job;
use crate::kernels::params;
use crate::ops::op_context::dim;

params! {
    /// The output of a convolution, and the groups of what it is made of.
    pub(super) struct OutputParams {
        // Output pixels of all images, of one, and in a row.
        rows: u32,
        pixels: u32,
        out_width: u32,
        groups: u32,
        // Of a group.
        filters: u32,
        channels: u32,
    }
}

params! {
    /// Extents of filters and of the image that they meet, and where their taps lie.
    pub(super) struct TapParams {
        filter_height: u32,
        filter_width: u32,
        height: u32,
        width: u32,
        step_y: u32,
        step_x: u32,
        tap_y: i32,
        tap_x: i32,
        offset_y: i32,
        offset_x: i32,
    }
}

params! {
    /// Factors with which lib/quotient divides.
    pub(super) struct QuotientParams {
        // 1 / pixels, 1 / out_width, 1 / filter_width, and 1 over how many taps follow each other in what is
        // outermost.
        per_image: f32,
        per_row: f32,
        per_filter_row: f32,
        per_outer: f32,
    }
}

params! {
    pub(super) struct Params {
        output: OutputParams,
        tap_places: TapParams,
        divide_y: u32,
        divide_x: u32,
        // Of the source and of the result, 0: channels are planes. 1: the channels of a pixel are adjacent.
        interleaved: u32,
        // Whether there is a bias.
        biased: u32,
        // Taps in a slice of a sum: all of them, or a multiple of TILE_K.
        slice: u32,
        input_offset: u32,
        filter_offset: u32,
        bias_offset: u32,
        output_offset: u32,
        tiles_m: u32,
        tiles_n: u32,
        tiles: u32,
        quotients: QuotientParams,
    }
}

/// The most rows or columns of a filter of which a word has a bit for each.
const MAX_FILTER: usize = 31;

impl OutputParams {
    /// Of a convolution along these axes.
    pub(super) fn new(op: &'static str, gather: &ConvGather, [_, x]: &[Axis; 2]) -> BackendResult<Self> {
        let rows = checked_product(op, "pixels", &[gather.batch, gather.pixels()])?;
        Ok(Self {
            rows: dim(op, "pixels", rows)?,
            pixels: dim(op, "pixels", gather.pixels())?,
            out_width: x.result,
            groups: dim(op, "groups", gather.groups)?,
            filters: dim(op, "filters", gather.filters)?,
            channels: dim(op, "channels", gather.channels)?,
        })
    }
}

impl TapParams {
    /// Of a convolution along these axes.
    pub(super) const fn new([y, x]: &[Axis; 2]) -> Self {
        Self {
            filter_height: y.filter,
            filter_width: x.filter,
            height: y.source,
            width: x.source,
            step_y: y.step,
            step_x: x.step,
            tap_y: y.tap,
            tap_x: x.tap,
            offset_y: y.offset,
            offset_x: x.offset,
        }
    }
}

impl QuotientParams {
    /// Where channels are outermost, or in interleaved images the taps of one.
    pub(super) fn new(gather: &ConvGather) -> Self {
        let [filter_height, filter_width] = gather.filter;
        let outer = match gather.layout {
            ImageLayout::Nhwc => gather.channels,
            _ => filter_height * filter_width,
        };
        Self {
            per_image: inverse(gather.pixels()),
            per_row: inverse(gather.result[1]),
            per_filter_row: inverse(filter_width),
            per_outer: inverse(outer),
        }
    }
}

impl Params {
    /// All but the tiles, of sums in one slice.
    pub(super) fn new(op: &'static str, job: &Job) -> BackendResult<Self> {
        let gather = &job.gather;
        let y = Axis::new(op, gather, 0)?.starting_at(op, job.first_row)?;
        let axes = [y, Axis::new(op, gather, 1)?];
        Ok(Self {
            output: OutputParams::new(op, gather, &axes)?,
            tap_places: TapParams::new(&axes),
            divide_y: axes[0].divide,
            divide_x: axes[1].divide,
            interleaved: u32::from(gather.layout == ImageLayout::Nhwc),
            biased: u32::from(job.biased),
            slice: dim(op, "filter", gather.taps())?,
            input_offset: job.input.offset,
            filter_offset: job.filter.offset,
            bias_offset: job.bias.offset,
            output_offset: job.output.offset,
            quotients: QuotientParams::new(gather),
            ..Self::default()
        })
    }
}

/// As lib/quotient takes it.
pub(in crate::ops) fn inverse(x: usize) -> f32 {
    (1.0 / x.max(1) as f64) as f32
}

/// Images, rows of one, and channels, of which lib/quotient quickly finds the right one.
const MAX_QUOTIENT: usize = 1 << 22;

/// Whether all taps lie at whole positions, a word has a bit for each of them in a row or column, and there
/// are few enough images, rows and channels.
pub(super) fn is_regular(gather: &ConvGather) -> bool {
    let whole = |axis: &GatherAxis| !axis.transposed || axis.stride == 1;
    let &ConvGather { batch, channels, result, .. } = gather;
    gather.axes.iter().all(whole)
        && gather.filter.iter().all(|&extent| extent <= MAX_FILTER)
        && [batch, channels, result[0]].iter().all(|&count| count < MAX_QUOTIENT)
}

/// One axis, as a kernel takes it: `(x · step + t · tap + offset) / divide`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    source: u32,
    result: u32,
    filter: u32,
    step: u32,
    tap: i32,
    offset: i32,
    divide: u32,
}

impl Axis {
    pub(super) fn new(op: &'static str, gather: &ConvGather, at: usize) -> BackendResult<Self> {
        let GatherAxis { stride, dilation, before, transposed } = gather.axes[at];
        let source = signed(op, "extent of the input", gather.source[at])?.unsigned_abs();
        let result = signed(op, "extent of the output", gather.result[at])?.unsigned_abs();
        let filter = signed(op, "extent of the filter", gather.filter[at])?.unsigned_abs();
        let (stride, before) = (signed(op, "stride", stride)?, signed(op, "padding", before)?);
        let span = checked_product(op, "dilated filter", &[dilation, gather.filter[at] - 1])?;
        signed(op, "dilated filter", span)?;
        let tap = signed(op, "dilation", dilation)?;
        if !transposed {
            require_reach(op, gather.result[at], gather.axes[at].stride, span)?;
        }
        let axis = Self { source, result, filter, step: 1, tap, offset: 0, divide: 1 };
        Ok(if transposed {
            Self { tap: -tap, offset: before, divide: stride.unsigned_abs(), ..axis }
        } else {
            Self { step: stride.unsigned_abs(), offset: -before, ..axis }
        })
    }

    /// The axis of a result that starts at position `first`.
    fn starting_at(self, op: &'static str, first: usize) -> BackendResult<Self> {
        let max = i32::MAX as usize;
        let begin = first.saturating_mul(self.step as usize);
        let offset = i32::try_from(begin).ok().and_then(|begin| begin.checked_add(self.offset));
        let limit = BackendError::Limit { op, what: "position in the input", requested: begin, max };
        Ok(Self { offset: offset.ok_or(limit)?, ..self })
    }
}

/// The last position that a filter meets, counted from the padding's begin, must be one that kernels can tell
/// from those before the image: padding behind the image may be of any size.
fn require_reach(op: &'static str, results: usize, stride: usize, span: usize) -> BackendResult<()> {
    let max = (1 << 30) - 1;
    let reach = results.saturating_sub(1).saturating_mul(stride).saturating_add(span);
    if reach > max {
        let what = "last position of the padded input";
        return Err(BackendError::Limit { op, what, requested: reach, max });
    }
    Ok(())
}

/// A size that the kernels add and subtract as an i32.
fn signed(op: &'static str, what: &'static str, value: usize) -> BackendResult<i32> {
    let max = 1 << 29;
    i32::try_from(value).ok().filter(|&value| value <= max).ok_or(BackendError::Limit {
        op,
        what,
        requested: value,
        max: max as usize,
    })
}

#[cfg(test)]
mod tests {
    use backend_api::desc::{ConvShape, ImageShape, Window};

    use super::*;

    /// Positions are told from those before the image by their sign, with as much again to add.
    #[test]
    fn the_last_position_of_a_filter_stays_below_half_of_an_i32() {
        let reaches = |results, stride, span| require_reach("test", results, stride, span).is_ok();
        assert_eq!([(1 << 30) - 1, 1 << 30].map(|span| reaches(1, 5, span)), [true, false]);
        // The second result begins a stride further.
        assert_eq!([1, 2].map(|results| reaches(results, 4, (1 << 30) - 4)), [true, false]);
        assert!(reaches(0, 1 << 40, 7) && !reaches(3, 1 << 40, 0));
        assert_eq!([1 << 29, (1 << 29) + 1].map(|size| signed("test", "size", size).is_ok()), [true, false]);
    }

    #[test]
    fn an_axis_of_a_part_begins_at_its_first_position() {
        let axis = Axis { source: 9, result: 9, filter: 3, step: 2, tap: 1, offset: -1, divide: 1 };
        assert_eq!([0, 1, 7].map(|first| axis.starting_at("test", first).unwrap().offset), [-1, 1, 13]);
        let last = (1 << 30) - 1;
        assert_eq!(axis.starting_at("test", last).unwrap().offset, i32::MAX - 2);
        assert!(axis.starting_at("test", last + 1).is_err());
    }

    #[test]
    fn gathers_are_regular_within_the_bits_of_a_word_and_of_a_quotient() {
        let shape = ConvShape::new(ImageShape::nchw([2, 3, 40, 40]), 5, Window::new([3, 3]));
        let usual = ConvGather::forward("test", &shape).unwrap();
        let is_regular = |change: &dyn Fn(&mut ConvGather)| {
            let mut gather = usual;
            change(&mut gather);
            is_regular(&gather)
        };
        assert!(is_regular(&|_| ()));
        assert_eq!([31, 32].map(|side| is_regular(&|gather| gather.filter[1] = side)), [true, false]);
        let most = (1 << 22) - 1;
        for count in [most, most + 1] {
            let fits = count == most;
            assert_eq!(is_regular(&|gather| gather.batch = count), fits);
            assert_eq!(is_regular(&|gather| gather.channels = count), fits);
            assert_eq!(is_regular(&|gather| gather.result[0] = count), fits);
        }
        // Between the results of a stride, taps meet nothing.
        for (stride, transposed) in [(1, true), (2, false), (2, true)] {
            let change = |gather: &mut ConvGather| {
                (gather.axes[0].stride, gather.axes[0].transposed) = (stride, transposed);
            };
            assert_eq!(is_regular(&change), !(transposed && stride > 1));
        }
    }
}
