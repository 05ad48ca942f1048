//! Copies between tensors whose elements lie side by side along different dimensions.

use backend_api::support::{Loop, checked_product};
use backend_api::{BackendResult, DType};

use crate::kernels::libs::{BLOCK_4, BLOCK_8};
use crate::kernels::{KernelSource, Lib, Variant, kernel, params};
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::recorder::Window;

static TRANSPOSE: KernelSource = kernel!(
    "memory/transpose", libs: [GRID, TRANSPOSE],
    types: ["T"], constants: [], params: Params, reads: ["src: T"], writes: ["dst: T"],
);

static TRANSPOSE_BLOCKS: KernelSource = kernel!(
    "memory/transpose_blocks", libs: [GRID, TRANSPOSE],
    types: [], constants: [], params: Params, reads: ["src: vec4<u32>"], writes: ["dst: vec4<u32>"],
);

/// Loops besides rows and columns that the parameters have room for: all that a copy may have.
const MAX_OTHERS: usize = 4;

/// Rows and columns of a tile.
const TILE: usize = 64;
/// Invocations of memory/transpose_blocks along a tile's rows, and along its columns.
const ACROSS: usize = 8;

/// Fewer rows or columns than this leave most of a tile empty.
const WORTH_TILES: usize = 16;

params! {
    struct Params {
        rows: u32,
        columns: u32,
        // Elements from one row of src to the next, and from one column of dst to the next.
        src_row: u32,
        dst_column: u32,
        src: u32,
        dst: u32,
        batch: u32,
        rank: u32,
        // The other loops, outermost first: extent, stride of src, stride of dst. All counted in numbers.
        loops: [[u32; 4]; MAX_OTHERS],
    }
}

pub(super) fn variants() -> Vec<Variant> {
    [DType::U32, DType::F16].into_iter().flat_map(|dtype| [one_by_one(dtype), in_blocks(dtype)]).collect()
}

fn one_by_one(dtype: DType) -> Variant {
    Variant::new(&TRANSPOSE, [dtype], [])
}

fn in_blocks(dtype: DType) -> Variant {
    let block: &[Lib] = if dtype.size() == 2 { &[BLOCK_8] } else { &[BLOCK_4] };
    Variant::new(&TRANSPOSE_BLOCKS, [], []).with_libs(block)
}

/// Rows and columns of the squares that invocations of memory/transpose_blocks transpose.
const fn block_of(dtype: DType) -> usize {
    16 / dtype.size()
}

/// The loops of a copy, if it goes by tiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transpose {
    /// Extent, and stride in the source.
    rows: (usize, usize),
    /// Extent, and stride in the destination.
    columns: (usize, usize),
    others: Vec<Loop<2>>,
}

impl Transpose {
    /// `loops` are over (source, destination).
    pub(super) fn plan(loops: &[Loop<2>]) -> Option<Self> {
        let row = loops.iter().position(|l| l.1[1] == 1 && l.1[0] > 1 && l.0 >= WORTH_TILES)?;
        let column = loops.iter().position(|l| l.1[0] == 1 && l.1[1] > 1 && l.0 >= WORTH_TILES)?;
        let (rows, columns) = ((loops[row].0, loops[row].1[0]), (loops[column].0, loops[column].1[1]));
        let others: Vec<_> =
            loops.iter().enumerate().filter(|&(i, _)| i != row && i != column).map(|(_, &l)| l).collect();
        (others.len() <= MAX_OTHERS).then_some(Self { rows, columns, others })
    }

    /// Whether every run starts and ends at a multiple of `width` elements.
    fn goes_in_vectors(&self, width: usize, windows: [&Window; 2]) -> bool {
        let sizes = [self.rows.0, self.rows.1, self.columns.0, self.columns.1];
        let starts = windows.map(|window| window.offset as usize);
        let strides = self.others.iter().flat_map(|l| l.1);
        sizes.into_iter().chain(starts).chain(strides).all(|size| size.is_multiple_of(width))
    }

    /// Whether tiles are faster than elements one by one. Those that pass through workgroup memory are so where there
    /// is one for each compute unit.
    pub(super) fn is_worthwhile(&self, ctx: &OpContext, dtype: DType, windows: [&Window; 2]) -> bool {
        let tiles = self.rows.0.div_ceil(TILE).saturating_mul(self.columns.0.div_ceil(TILE));
        let tiles = self.others.iter().map(|l| l.0).fold(tiles, usize::saturating_mul);
        tiles >= ctx.profile().compute_units || self.goes_in_vectors(block_of(dtype), windows)
    }

    /// Records the copy.
    pub(super) fn launch(
        &self,
        ctx: &OpContext,
        op: &'static str,
        dtype: DType,
        [input, output]: [&Window; 2],
    ) -> BackendResult<()> {
        let extents: Vec<usize> = self.others.iter().map(|l| l.0).collect();
        let batch = checked_product(op, "elements", &extents)?;
        let mut loops = [[0; 4]; MAX_OTHERS];
        for (slot, &(extent, [src, dst])) in loops.iter_mut().zip(&self.others) {
            *slot = [dim(op, "extent", extent)?, dim(op, "stride", src)?, dim(op, "stride", dst)?, 0];
        }
        let params = Params {
            rows: dim(op, "extent", self.rows.0)?,
            columns: dim(op, "extent", self.columns.0)?,
            src_row: dim(op, "stride", self.rows.1)?,
            dst_column: dim(op, "stride", self.columns.1)?,
            src: input.offset,
            dst: output.offset,
            batch: dim(op, "elements", batch)?,
            rank: self.others.len() as u32,
            loops,
        };
        let width = block_of(dtype);
        let (variant, tile) = if self.goes_in_vectors(width, [input, output]) {
            (in_blocks(dtype), ACROSS * width)
        } else {
            (one_by_one(dtype), TILE)
        };
        let tiles = [self.rows.0.div_ceil(tile), self.columns.0.div_ceil(tile), batch];
        let grid = linear_grid(op, checked_product(op, "workgroups", &tiles)?)?;
        ctx.launch(op, &variant, &[input], output, &params, grid)
    }
}
