//! Convolutions with filters past the binding limit whose parts don't follow each other, and transposed ones whose phases
//! pass it. Images are ones, and all weights of a result's channel k are k mod 50 + 1.

use backend_api::desc::{
    ConvBackwardDataDesc, ConvDesc, ConvShape, ConvTransposeDesc, ImageLayout, ImageShape, Window,
};
use backend_api::{BackendResult, ComputeBackend, DType};
use backend_webgpu::WebGpuBackend;

use super::large_operands::{result, upload};
use super::{BINDING, text};

/// The three operations.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Forward,
    Transposed,
    BackwardData,
}

/// A convolution in which every result meets all of its window.
#[derive(Clone, Copy, Debug)]
struct Conv {
    kind: Kind,
    layout: ImageLayout,
    batch: usize,
    groups: usize,
    /// Channels of what is read, and of the result, in a group.
    channels: [usize; 2],
    /// Rows and columns of what is read.
    side: usize,
    /// Rows and columns of the filters, which for transposed convolutions are their stride too.
    taps: usize,
}

impl Conv {
    /// Rows and columns of the result.
    const fn result_side(&self) -> usize {
        match self.kind {
            Kind::Forward => self.side - self.taps + 1,
            _ => self.side * self.taps,
        }
    }

    /// The channel of a group's result to which a weight belongs.
    fn channel(&self, weight: usize) -> usize {
        let [read, written] = self.channels;
        let places = self.taps * self.taps;
        match (self.kind, self.layout) {
            (Kind::Forward, _) => weight / (places * read) % written,
            (_, ImageLayout::Nhwc) => weight % written,
            _ => weight / places % written,
        }
    }

    fn run(&self, backend: &WebGpuBackend) -> Result<(), String> {
        let &Self { kind, layout, batch, groups, channels: [read, written], side, taps } = self;
        let value = |channel: usize| (channel % 50 + 1) as f32;
        let weights = groups * read * written * taps * taps;
        let operands = || -> BackendResult<[u64; 2]> {
            let image = upload(backend, batch * groups * read * side * side, |_| 1.0)?;
            Ok([image, upload(backend, weights, |i| value(self.channel(i)))?])
        };
        let [image, filter] = operands().map_err(text)?;
        let mut told = false;
        let pixels = self.result_side() * self.result_side();
        let output = groups * written * pixels;
        let got = result(backend, batch * output, |output| {
            let window = Window::new([taps; 2]);
            let of = |[channels, side]: [usize; 2], filters: usize, window| {
                let image = ImageShape::nchw([batch, groups * channels, side, side]);
                ConvShape::new(image, groups * filters, window).with_groups(groups).with_layout(layout)
            };
            match kind {
                Kind::Forward => {
                    let shape = of([read, side], written, window);
                    let desc = ConvDesc::new(DType::F32, image, filter, output, shape);
                    let plan = backend.explain_conv(&desc)?;
                    told |= plan.ends_with("filters at a time") || plan.ends_with("groups at a time");
                    backend.conv2d(&desc)
                }
                Kind::Transposed => {
                    let shape = of([read, side], written, window.with_stride([taps; 2]));
                    let desc = ConvTransposeDesc::new(DType::F32, image, filter, output, shape);
                    backend.conv_transpose2d(&desc)
                }
                Kind::BackwardData => {
                    let shape = of([written, self.result_side()], read, window.with_stride([taps; 2]));
                    let desc = ConvBackwardDataDesc::new(DType::F32, filter, image, output, shape);
                    backend.conv2d_backward_data(&desc)
                }
            }
        })?;
        // Filters whose channels are adjacent are divided before a kernel is chosen.
        if kind == Kind::Forward && layout == ImageLayout::Nhwc && !told {
            return Err(format!("the plan of {self:?} doesn't tell of parts"));
        }
        let sum = if kind == Kind::Forward { read * taps * taps } else { read };
        for (i, &x) in got.iter().enumerate() {
            let place = if layout == ImageLayout::Nhwc { i } else { i / pixels };
            let want = sum as f32 * value(place % (groups * written) % written);
            if x != want {
                return Err(format!("number {i} of {self:?} is {x}, expected {want}"));
            }
        }
        [image, filter].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)
    }
}

/// Each operation in both layouts, with filters of three bindings and more.
pub(super) fn wide_filters(backend: &WebGpuBackend) -> Result<(), String> {
    for layout in [ImageLayout::Nhwc, ImageLayout::Nchw] {
        for kind in [Kind::Forward, Kind::Transposed, Kind::BackwardData] {
            let conv = Conv { kind, layout, batch: 2, groups: 1, channels: [50, 110], side: 3, taps: 3 };
            const { assert!(4 * 50 * 110 * 9 > 3 * BINDING) };
            conv.run(backend)?;
            Conv { batch: 1, groups: 5, channels: [30, 44], ..conv }.run(backend)?;
            // Of one filter each.
            Conv { groups: 700, channels: [5, 1], ..conv }.run(backend)?;
        }
    }
    Ok(())
}

/// Results whose phases pass the limit: of all images, of one, and of one channel.
pub(super) fn wide_phases(backend: &WebGpuBackend) -> Result<(), String> {
    for layout in [ImageLayout::Nhwc, ImageLayout::Nchw] {
        for (batch, channels, side) in [(5, [3, 4], 20), (2, [3, 9], 40), (1, [2, 2], 70)] {
            let conv = Conv { kind: Kind::Transposed, layout, batch, groups: 1, channels, side, taps: 2 };
            conv.run(backend)?;
        }
    }
    Ok(())
}
