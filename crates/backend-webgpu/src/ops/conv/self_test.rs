//! What the self tests of kernels on tensor cores share.

use backend_api::desc::{ConvShape, ImageLayout};
use backend_api::support::ConvGather;
use backend_api::{Activation, BackendResult, DType};

use super::Job;
use crate::ops::op_context::OpContext;
use crate::ops::shared::self_test::{OP, SelfTest, compare, numbers};

/// Convolves images of integers by what `launch` records and compares the result with the host's.
/// The layouts are those of the images and of the results, which are of `dtype`. `weight_at` says where the
/// kernel reads the weight of a filter, for one of its places and a channel.
pub(super) fn check_numbers(
    ctx: &OpContext,
    (shape, [source, layout], dtype): (&ConvShape, [ImageLayout; 2], DType),
    weight_at: impl Fn(usize, usize, usize) -> usize,
    launch: impl FnOnce(&mut SelfTest<'_>, &Job) -> BackendResult<()>,
) -> BackendResult<()> {
    let mut gather = ConvGather::forward(OP, shape)?;
    gather.layout = source;
    let ConvGather { batch, channels, filters, source: [height, width], result, .. } = gather;
    let places = gather.filter[0] * gather.filter[1];
    let taps = channels * places;
    let images = numbers(1, batch * channels * height * width, taps);
    // Weights that the kernel reads beyond the last filter are numbers, too.
    let last = weight_at(filters - 1, places - 1, channels - 1);
    let weights = numbers(2, (last + 1).next_multiple_of(1 << 12), taps);

    let mut test = SelfTest::new(ctx);
    let total = batch * filters * gather.pixels();
    let results = test.results(total, dtype)?;
    let job = Job {
        first_row: 0,
        gather,
        dtype: DType::F16,
        transposed: false,
        biased: false,
        activation: Activation::Identity,
        input: test.halves(&images)?,
        filter: test.halves(&weights)?,
        bias: ctx.null(),
        output: results.window.clone(),
    };
    launch(&mut test, &job)?;
    let found = test.whole_numbers(results)?;

    // The element of a channel at a place of an image.
    let element =
        |layout: ImageLayout, [all, height, width]: [usize; 3], [image, channel, y, x]: [usize; 4]| {
            match layout {
                ImageLayout::Nhwc => ((image * height + y) * width + x) * all + channel,
                _ => ((image * all + channel) * height + y) * width + x,
            }
        };
    let sum = |image: usize, filter: usize, y: usize, x: usize| -> i32 {
        let product = |(place, channel): (usize, usize)| {
            let row = gather.axes[0].source(y, place / gather.filter[1], height)?;
            let column = gather.axes[1].source(x, place % gather.filter[1], width)?;
            let image = images[element(source, [channels, height, width], [image, channel, row, column])];
            Some(image * weights[weight_at(filter, place, channel)])
        };
        let taps = (0..places).flat_map(|place| (0..channels).map(move |channel| (place, channel)));
        taps.filter_map(product).sum()
    };
    let mut wanted = vec![None; total];
    for at in 0..total {
        let (x, y) = (at % result[1], at / result[1] % result[0]);
        let (filter, image) = (at / gather.pixels() % filters, at / gather.pixels() / filters);
        let to = element(layout, [filters, result[0], result[1]], [image, filter, y, x]);
        wanted[to] = Some(sum(image, filter, y, x));
    }
    compare(&found, &wanted)
}
