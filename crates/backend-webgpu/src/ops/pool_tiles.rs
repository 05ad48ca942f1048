//! The gradient of poolings of maxima, by tiles of the input: a workgroup finds the maxima of its windows itself,
//! and no positions go through memory.

use backend_api::desc::ImageLayout;
use backend_api::{BackendResult, DType};

use super::pool::{Constants, Params, READ, params};
use super::pool_axes::Call;
use super::shared::long_work::{Run, in_parts};
use crate::kernels::{KernelSource, Variant, kernel};
use crate::ops::op_context::{WORKGROUP, dim, linear_grid};
use crate::recorder::Window;

static POOL_BACKWARD_TILES: KernelSource = kernel!(
    "conv/pool_backward_tiles", libs: [GRID, POOL, POOL_INPUT],
    types: ["T"], constants: Constants, params: Params,
    reads: ["input: T", "gradient: T"], writes: ["output: T"],
);

/// Columns of a tile.
const WIDTH: usize = 64;
/// Rows of a tile.
const HEIGHTS: [usize; 7] = [32, 28, 24, 20, 16, 12, 8];
/// Windows that a workgroup has room for.
const MOST_WINDOWS: usize = 1536;
/// Positions of a window from which on the search is better not repeated.
const LARGE_WINDOW: usize = 64;

fn variant(dtype: DType) -> Variant {
    Variant::new(&POOL_BACKWARD_TILES, [dtype], Constants { op: 0 })
}

pub(super) fn variants() -> Vec<Variant> {
    [DType::F32, DType::F16].map(variant).to_vec()
}

/// The tiles of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiles {
    height: usize,
    /// Tiles abreast, one below the other, and of all planes.
    across: usize,
    down: usize,
    count: usize,
}

impl Tiles {
    /// `None` for adjacent channels, large windows, and images that fill no tiles.
    pub(super) fn plan(call: &Call<'_>) -> Option<Self> {
        let shape = call.shape;
        let [rows, columns] = shape.input;
        let planes = shape.batch.checked_mul(shape.channels)?;
        let positions = shape.window.size[0].saturating_mul(shape.window.size[1]);
        if shape.layout == ImageLayout::Nhwc && shape.channels > 1 || positions > LARGE_WINDOW {
            return None;
        }
        // Positions that an invocation reads, and elements that it writes, for a column of tiles.
        let cost = |height: usize| {
            let searches = windows(call, [height, WIDTH]).div_ceil(WORKGROUP);
            rows.div_ceil(height) * (searches * positions + height * WIDTH / WORKGROUP)
        };
        let heights = HEIGHTS.into_iter().filter(|&height| windows(call, [height, WIDTH]) <= MOST_WINDOWS);
        let height = heights.min_by_key(|&height| cost(height))?;
        let (across, down) = (columns.div_ceil(WIDTH), rows.div_ceil(height));
        let count = planes.checked_mul(across)?.checked_mul(down)?;
        let fills = 2 * rows * columns >= across * down * height * WIDTH;
        fills.then_some(Self { height, across, down, count })
    }

    /// Launches the gradient of windows of the input into the output.
    pub(super) fn launch(
        self,
        call: &Call<'_>,
        input: &Window,
        gradient: &Window,
        output: &Window,
    ) -> BackendResult<()> {
        let &Call { ctx, op, dtype, shape, .. } = call;
        let offsets = [input.offset, gradient.offset, output.offset];
        let params = Params {
            tiles_x: dim(op, "columns", self.across)?,
            tiles_y: dim(op, "rows", self.down)?,
            tile_height: self.height as u32,
            // The kernel divides by the extents of what has windows.
            ..params(call, self.count, shape.output, offsets)?
        };
        let bytes = READ * (self.height * WIDTH) as f64 * (2.0 + shape.window_elements());
        let run = Run::of_bytes(self.count, bytes);
        in_parts(ctx, op, run, |run| {
            let [first, total] = [dim(op, "tiles", run.first)?, dim(op, "tiles", run.end)?];
            let params = Params { first, total, ..params };
            let grid = linear_grid(op, run.count())?;
            ctx.launch(op, &variant(dtype), &[input, gradient], output, &params, grid)
        })
    }
}

/// The most windows that cover a part of a tile.
fn windows(call: &Call<'_>, tile: [usize; 2]) -> usize {
    let window = &call.shape.window;
    let along = |axis: usize| {
        let span = (window.size[axis] - 1).saturating_mul(window.dilation[axis]);
        ((tile[axis] - 1).saturating_add(span) / window.stride[axis] + 1).min(call.shape.output[axis])
    };
    along(0).saturating_mul(along(1))
}
