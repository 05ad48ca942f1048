//! Cumulative sums along an axis.

use backend_api::desc::CumSumDesc;
use backend_api::support::ReduceLoops;
use backend_api::{BackendResult, DType};

use super::reduce::slice_sums;
use super::shared::long_work::in_parts_of_slices;
use super::shared::row_groups::{BUSY, RowGroups};
use crate::kernels::{KernelSource, Variant, constants, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim};
use crate::recorder::Window;

constants! { struct Constants { in_place: bool } }

static CUMSUM: KernelSource = kernel!(
    "reduce/cumsum", libs: [GRID],
    types: ["T", "A"], constants: Constants, params: Params, reads: ["x: T", "carry: A"], writes: ["y: T"],
);

params! {
    struct Params {
        slices: u32,
        length: u32,
        inner: u32,
        chunk: u32,
        row_group: u32,
        stride: u32,
        exclusive: u32,
        reverse: u32,
        carried: u32,
        x_offset: u32,
        carry_offset: u32,
        y_offset: u32,
    }
}

/// Neighbours of an invocation, as in the kernel.
const SHARE: usize = 4;

pub(super) fn variants() -> Vec<Variant> {
    let both = |dtype: DType| [false, true].map(|in_place| variant(dtype, in_place));
    DType::ALL.into_iter().flat_map(both).collect()
}

fn variant(dtype: DType, in_place: bool) -> Variant {
    let sum = if dtype.is_float() { DType::F32 } else { dtype };
    Variant::new(&CUMSUM, [dtype, sum], Constants { in_place })
}

/// `output = cumulative sum of input` along the axis.
pub(crate) fn cumsum(ctx: &OpContext, op: &'static str, desc: &CumSumDesc) -> BackendResult<()> {
    let [Some(x), Some(y)] = ctx.resolve(op, &desc.operands(op)?)? else {
        return Ok(());
    };
    let &CumSumDesc { dtype, outer, length, inner, .. } = desc;
    ctx.require_dtype(op, dtype)?;
    let item = length * inner * dtype.size();
    in_parts_of_slices(ctx, op, [outer, item, PASSES], [&x, &y], |outer, slices| {
        cumsum_part(ctx, op, (desc, outer), slices.each_ref())
    })
}

/// Times that memory is read or written.
const PASSES: usize = 3;

/// The sums of so many of the outer slices.
fn cumsum_part(
    ctx: &OpContext,
    op: &'static str,
    (desc, outer): (&CumSumDesc, usize),
    [x, y]: [&DeviceSlice; 2],
) -> BackendResult<()> {
    // Elements of a chunk that are worth a workgroup of their own.
    const CHUNK: usize = 4096;
    let &CumSumDesc { dtype, length, inner, exclusive, reverse, .. } = desc;
    let output = ctx.output(y, dtype);
    let (input, in_place) = ctx.input_or_output(op, dtype, x, (y, &output))?;
    let scan = Scan { ctx, op, dtype, in_place, slices: outer * inner, length, inner, exclusive, reverse };

    let groups = scan.row_groups(length).groups(scan.slices);
    let chunks = (BUSY / groups.max(1)).min(length / CHUNK);
    if chunks <= 1 {
        return scan.launch(&input, None, &output, length);
    }
    let kept = [(outer, [length * inner, inner]), (inner, [1, 1])];
    let kept = kept.into_iter().filter(|&(extent, _)| extent > 1).collect();
    let loops = ReduceLoops { kept, reduced: vec![(length, [inner])], outputs: scan.slices, length };
    let sums = slice_sums(ctx, op, x, dtype, loops, chunks)?;
    let before = ctx.scratch(op, chunks * scan.slices * 4)?;
    let before = ctx.output(&before, sums.dtype);
    let carry = Scan {
        dtype: sums.dtype,
        in_place: false,
        length: chunks,
        inner: scan.slices,
        exclusive: true,
        ..scan
    };
    carry.launch(&sums.window, None, &before, chunks)?;
    scan.launch(&input, Some(&before), &output, sums.chunk)
}

/// Slices that are summed, packed around the axis.
#[derive(Clone, Copy)]
struct Scan<'a> {
    ctx: &'a OpContext,
    op: &'static str,
    dtype: DType,
    in_place: bool,
    slices: usize,
    length: usize,
    inner: usize,
    exclusive: bool,
    reverse: bool,
}

impl Scan<'_> {
    fn row_groups(&self, chunk: usize) -> RowGroups {
        RowGroups::new(chunk.div_ceil(SHARE), self.inner, 1)
    }

    /// Each chunk of each slice, on top of the sums before it.
    fn launch(
        &self,
        input: &Window,
        carry: Option<&Window>,
        output: &Window,
        chunk: usize,
    ) -> BackendResult<()> {
        let op = self.op;
        let row_groups = self.row_groups(chunk);
        let null = self.ctx.null();
        let before = carry.unwrap_or(&null);
        let params = Params {
            slices: dim(op, "slices", self.slices)?,
            length: dim(op, "axis", self.length)?,
            inner: dim(op, "inner", self.inner)?,
            chunk: dim(op, "axis", chunk)?,
            row_group: row_groups.size,
            stride: row_groups.stride,
            exclusive: u32::from(self.exclusive),
            reverse: u32::from(self.reverse),
            carried: u32::from(carry.is_some()),
            x_offset: input.offset,
            carry_offset: before.offset,
            y_offset: output.offset,
        };
        let [x, y, _] = row_groups.grid(op, self.slices)?;
        let chunks = dim(op, "axis", self.length.div_ceil(chunk))?;
        let variant = variant(self.dtype, self.in_place);
        self.ctx.launch(op, &variant, &[input, before], output, &params, [x, y, chunks])
    }
}
