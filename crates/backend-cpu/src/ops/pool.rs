//! Pooling.

use backend_api::BackendResult;
use backend_api::desc::{ImageLayout, PoolBackwardDesc, PoolDesc, PoolOp, PoolShape};
use bytemuck::cast_slice_mut;

use crate::access::Call;
use crate::bound::require_end;
use crate::element::{Element, with_float};
use crate::parallel::Cores;

/// Elements that one thread works on at once.
const GRAIN: usize = 1 << 12;

/// Images of `inner` interleaved channels.
struct Images<'a> {
    shape: &'a PoolShape,
    op: PoolOp,
    inner: usize,
}

/// What a window covers of an image: where each of its positions lies, row by row.
type Positions = Vec<usize>;

/// `output = op over the windows of input`.
pub(crate) fn pool2d(call: Call<'_>, desc: &PoolDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    require_end(call.op, desc.shape.reads())?;
    call.access(&operands, |[input, _], output| {
        with_float!(desc.dtype, T => {
            let (input, images) = (input.elements::<T>(), Images::new(desc.op, &desc.shape));
            let output = cast_slice_mut::<u8, T>(output);
            let steps = images.steps(output.len());
            Cores::run(steps, |cores| {
                cores.chunks(output, 1, GRAIN, &|first, chunk: &mut [T]| {
                    for (i, to) in chunk.iter_mut().enumerate() {
                        *to = T::from_f32(images.result(input, first + i));
                    }
                });
            });
        });
    })
}

/// The gradient of the input, of each image by itself.
pub(crate) fn pool2d_backward(call: Call<'_>, desc: &PoolBackwardDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    require_end(call.op, desc.shape.reads())?;
    call.access(&operands, |[input, grad_output, _], grad_input| {
        with_float!(desc.dtype, T => {
            let (input, gradient) = (input.elements::<T>(), grad_output.elements::<T>());
            let images = Images::new(desc.op, &desc.shape);
            let grad_input = cast_slice_mut::<u8, T>(grad_input);
            let [height, width] = desc.shape.input;
            let image = height * width * images.inner;
            let steps = images.steps(gradient.len());
            Cores::run(steps, |cores| {
                cores.chunks(grad_input, image, image.max(GRAIN), &|first, chunk: &mut [T]| {
                    for (n, to) in (first / image..).zip(chunk.chunks_exact_mut(image)) {
                        T::store(&images.spread(input, gradient, n), to);
                    }
                });
            });
        });
    })
}

impl<'a> Images<'a> {
    fn new(op: PoolOp, shape: &'a PoolShape) -> Self {
        let inner = if shape.layout == ImageLayout::Nhwc { shape.channels } else { 1 };
        Self { shape, op, inner }
    }

    /// Steps that so many windows take.
    fn steps(&self, windows: usize) -> usize {
        self.shape.window.size.into_iter().fold(windows, usize::saturating_mul)
    }

    /// Image, row, column and channel of the output's element.
    fn place(&self, at: usize) -> [usize; 4] {
        let [height, width] = self.shape.output;
        let (channel, pixel) = (at % self.inner, at / self.inner);
        [pixel / width / height, pixel / width % height, pixel % width, channel]
    }

    /// What the window covers, and by how much an average divides.
    fn window(&self, [n, y, x, channel]: [usize; 4]) -> (Positions, usize) {
        let [height, width] = self.shape.input;
        let ((rows, counted), (columns, across)) = (self.axis(0, y), self.axis(1, x));
        // Rows without columns would be walked for nothing.
        let columns: Vec<usize> = if height == 0 { Vec::new() } else { columns.collect() };
        let rows = rows.take_while(|_| !columns.is_empty());
        let at = |y: usize, x: usize| ((n * height + y) * width + x) * self.inner + channel;
        let positions: Positions = rows.flat_map(|y| columns.iter().map(move |&x| at(y, x))).collect();
        let count = if self.op == PoolOp::AverageWithPadding {
            counted.saturating_mul(across)
        } else {
            positions.len()
        };
        (positions, count)
    }

    /// The positions in the image along an axis, and how many there are with padding.
    fn axis(&self, axis: usize, at: usize) -> (impl Iterator<Item = usize> + use<>, usize) {
        let (window, extent) = (&self.shape.window, self.shape.input[axis]);
        let (before, dilation, start) =
            (window.before[axis], window.dilation[axis], at * window.stride[axis]);
        // How many of the window's positions lie before one of the padded image.
        let up_to = |end: usize| end.saturating_sub(start).div_ceil(dilation).min(window.size[axis]);
        let inside = (up_to(before)..up_to(before + extent)).map(move |tap| start + tap * dilation - before);
        (inside, up_to(before + extent + window.after[axis]))
    }

    fn result<T: Element>(&self, input: &[T], at: usize) -> f32 {
        let (positions, count) = self.window(self.place(at));
        match self.op {
            PoolOp::Max => match first_largest(input, &positions) {
                Some(at) => input[at].to_f32(),
                None => f32::NEG_INFINITY,
            },
            _ => positions.iter().map(|&at| input[at].to_f32()).sum::<f32>() / count as f32,
        }
    }

    /// What the gradients of an image's results give to its numbers.
    fn spread<T: Element>(&self, input: &[T], gradient: &[T], n: usize) -> Vec<f32> {
        let [height, width] = self.shape.input;
        let image = height * width * self.inner;
        let results = self.shape.output[0] * self.shape.output[1] * self.inner;
        let mut sums = vec![0.0; image];
        for at in n * results..(n + 1) * results {
            let (positions, count) = self.window(self.place(at));
            let gradient = gradient[at].to_f32();
            if self.op == PoolOp::Max {
                if let Some(at) = first_largest(input, &positions) {
                    sums[at - n * image] += gradient;
                }
            } else {
                let share = gradient / count as f32;
                positions.iter().for_each(|&at| sums[at - n * image] += share);
            }
        }
        sums
    }
}

/// Where the first of the largest numbers is, or the first NaN.
fn first_largest<T: Element>(input: &[T], positions: &[usize]) -> Option<usize> {
    positions.iter().copied().reduce(|best, at| {
        let (x, largest) = (input[at].to_f32(), input[best].to_f32());
        if !largest.is_nan() && (x > largest || x.is_nan()) { at } else { best }
    })
}
