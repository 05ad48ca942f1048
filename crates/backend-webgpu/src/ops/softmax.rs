//! Softmax along an axis, and its logarithm.

use backend_api::desc::SoftmaxDesc;
use backend_api::support::ReduceLoops;
use backend_api::{BackendResult, DType};

use super::elementwise::in_output;
use super::reduce::exponentials;
use super::shared::long_work::in_parts_of_slices;
use super::shared::row_groups::{DeviceSize, SliceParams};
use super::shared::rows::{Rows, Slices};
use super::shared::vec_width::VecWidth;
use super::softmax_long::LongRows;
use crate::kernels::{KernelSource, Variant, constants, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::recorder::Window;

constants! { pub(super) struct Constants { log: bool, in_place: bool } }
constants! { struct RowConstants { all: Constants, block: u32 } }

const SOFTMAX_ROWS: KernelSource = kernel!(
    "norm/softmax", libs: [GRID, SPECIAL, REDUCE, EXP_BELOW, SOFTMAX_SCALE],
    types: ["T"], constants: RowConstants, params: Params, reads: ["x: V"], writes: ["y: V"],
);

static SOFTMAX: KernelSource = SOFTMAX_ROWS;

/// The file for rows of which each is shared within a subgroup.
static SOFTMAX_SHUFFLED: KernelSource = KernelSource { subgroups: true, ..SOFTMAX_ROWS };

static SOFTMAX_APPLY: KernelSource = kernel!(
    "norm/softmax_apply", libs: [GRID, VECTORS_AHEAD, EXP_BELOW, EXPONENTIALS, SOFTMAX_SCALE],
    types: ["T"], constants: Constants, params: ApplyParams,
    reads: ["x: V", "sums: vec2<f32>"], writes: ["y: V"],
);

params! {
    struct Params {
        slices: SliceParams,
        // In vectors.
        x_offset: u32,
        y_offset: u32,
        // Of rows that share words.
        rows_per_group: u32,
        rows_before: u32,
    }
}

params! {
    struct ApplyParams {
        // Vectors of the tensor.
        vectors: u32,
        // Vectors of a slice, and between neighbours in it.
        length: u32,
        inner: u32,
        parts: u32,
        // Slices.
        outputs: u32,
        x_offset: u32,
        sums_offset: u32,
        y_offset: u32,
    }
}

impl Constants {
    /// What the kernels of softmax, and of its gradient, have variants for.
    pub(super) fn all() -> [Self; 4] {
        [(false, false), (false, true), (true, false), (true, true)]
            .map(|(log, in_place)| Self { log, in_place })
    }
}

/// Vectors of a workgroup of `softmax_apply`.
const APPLY_GROUP: usize = 4 * 256;

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        for constants in Constants::all() {
            for shuffled in [false, true] {
                let rows = Rows::shapes(dtype);
                variants.extend(rows.map(|shape| rows_variant(dtype, constants, shape, shuffled)));
            }
            variants.extend([VecWidth::One, VecWidth::Four].map(|vec_width| {
                Variant::new(&SOFTMAX_APPLY, [dtype], constants).with_libs(vec_width.libs())
            }));
        }
    }
    variants
}

/// The variant of slices in registers, in blocks of so many vectors.
fn rows_variant(
    dtype: DType,
    all: Constants,
    (vec_width, block): (VecWidth, u32),
    shuffled: bool,
) -> Variant {
    let source = if shuffled { &SOFTMAX_SHUFFLED } else { &SOFTMAX };
    Variant::new(source, [dtype], RowConstants { all, block }).with_libs(vec_width.joined_row_libs(shuffled))
}

/// `output = softmax(input)` along the axis.
pub(crate) fn softmax(ctx: &OpContext, op: &'static str, desc: &SoftmaxDesc) -> BackendResult<()> {
    let [Some(x), Some(y)] = ctx.resolve(op, &desc.operands(op)?)? else {
        return Ok(());
    };
    ctx.require_dtype(op, desc.dtype)?;
    softmax_slices(ctx, op, desc, [&x, &y])
}

/// [`softmax`] of checked operands.
pub(super) fn softmax_slices(
    ctx: &OpContext,
    op: &'static str,
    desc: &SoftmaxDesc,
    operands: [&DeviceSlice; 2],
) -> BackendResult<()> {
    let item = desc.length * desc.inner * desc.dtype.size();
    in_parts_of_slices(ctx, op, [desc.outer, item, PASSES], operands, |outer, slices| {
        let mut desc = *desc;
        desc.outer = outer;
        softmax_part(ctx, op, &desc, slices.each_ref())
    })
}

/// Times that memory is read or written.
const PASSES: usize = 3;

fn softmax_part(
    ctx: &OpContext,
    op: &'static str,
    desc: &SoftmaxDesc,
    [x, y]: [&DeviceSlice; 2],
) -> BackendResult<()> {
    let dtype = desc.dtype;
    let output = ctx.output(y, dtype);
    let in_place = x.region() == y.region();
    let input = if in_place { in_output(ctx, &output) } else { ctx.input(op, x, dtype, &output)? };
    let call = Call { ctx, op, desc, x, input, output, in_place };
    let windows = [&call.input, &call.output];
    let &SoftmaxDesc { outer, length, inner, .. } = desc;
    let slices = Slices { dtype, length, inner, count: outer * inner };
    if let Some(rows) = Rows::new(slices, &windows, DeviceSize::of(ctx)) {
        return call.whole(rows);
    }
    match LongRows::plan(ctx, desc, windows) {
        Some(rows) => rows.launch(ctx, op, desc, windows, in_place),
        None => call.in_two_steps(),
    }
}

struct Call<'a> {
    ctx: &'a OpContext,
    op: &'static str,
    desc: &'a SoftmaxDesc,
    x: &'a DeviceSlice,
    input: Window,
    output: Window,
    in_place: bool,
}

impl Call<'_> {
    /// The offsets of input and output in vectors.
    fn offsets(&self, vec_width: VecWidth) -> [u32; 2] {
        [&self.input, &self.output].map(|window| window.offset / vec_width.width() as u32)
    }

    fn constants(&self) -> Constants {
        Constants { log: self.desc.log, in_place: self.in_place }
    }

    /// One launch, with each slice in the registers of a row group.
    fn whole(&self, rows: Rows) -> BackendResult<()> {
        let (op, desc) = (self.op, self.desc);
        // The product is one of the tensor's size, which has been checked.
        let slices = desc.outer * desc.inner;
        let [x_offset, y_offset] = self.offsets(rows.vec_width);
        let params = Params {
            slices: SliceParams::new(op, rows.row_groups, [slices, desc.length, desc.inner])?,
            x_offset,
            y_offset,
            rows_per_group: rows.seams.rows_per_group,
            rows_before: rows.seams.rows_before,
        };
        let shape = (rows.vec_width, rows.block);
        let variant = rows_variant(desc.dtype, self.constants(), shape, rows.shuffled);
        self.ctx.launch(op, &variant, &[&self.input], &self.output, &params, rows.grid(op, slices)?)
    }

    /// First each slice's maximum and sum, by as many workgroups as it takes, then every number.
    fn in_two_steps(&self) -> BackendResult<()> {
        let (op, &SoftmaxDesc { outer, length, inner, dtype, .. }) = (self.op, self.desc);
        let outputs = outer * inner;
        let kept = [(outer, [length * inner, inner]), (inner, [1, 1])];
        let kept = kept.into_iter().filter(|&(extent, _)| extent > 1).collect();
        let loops = ReduceLoops { kept, reduced: vec![(length, [inner])], outputs, length };
        let sums = exponentials(self.ctx, op, self.x, dtype, loops)?;
        let nearest = if inner == 1 { length } else { inner };
        // The kernel takes neighbouring vectors for those of one slice where there is one beside each other.
        let vec_width = match VecWidth::four_if_fitting(&[&self.input, &self.output], &[nearest]) {
            vec_width if inner == vec_width.width() => VecWidth::One,
            vec_width => vec_width,
        };
        let width = vec_width.width();
        let [x_offset, y_offset] = self.offsets(vec_width);
        let vectors = outer * length * inner / width;
        let params = ApplyParams {
            vectors: dim(op, "elements", vectors)?,
            length: dim(op, "axis", if inner == 1 { length / width } else { length })?,
            inner: dim(op, "inner", if inner == 1 { 1 } else { inner / width })?,
            parts: dim(op, "slices", sums.parts)?,
            outputs: dim(op, "slices", outputs)?,
            x_offset,
            sums_offset: sums.sums.offset / 2,
            y_offset,
        };
        let variant = Variant::new(&SOFTMAX_APPLY, [dtype], self.constants()).with_libs(vec_width.libs());
        let grid = linear_grid(op, vectors.div_ceil(APPLY_GROUP))?;
        self.ctx.launch(op, &variant, &[&self.input, &sums.sums], &self.output, &params, grid)
    }
}
