//! Layer and root-mean-square normalisation of rows.

use backend_api::desc::{LayerNormDesc, RmsNormDesc};
use backend_api::{BackendResult, DType};

use super::teams::{Block, Teams};
use crate::context::{Context, dim};
use crate::kernels::{KernelSource, Variant, kernel, params};
use crate::memory::DeviceSlice;
use crate::recorder::Window;

static LAYER_NORM: KernelSource = kernel!(
    "norm/layer_norm",
    libs: [GRID, SPECIAL, REDUCE, WORKGROUP, NORM_ROW],
    types: ["T"],
    constants: ["INPUT", "RESIDUAL", "BLOCK", "WHOLE", "HAS_WEIGHT", "HAS_BIAS"],
    reads: 4,
    writes: 1,
    params: LayerNormParams,
);

static RMS_NORM: KernelSource = kernel!(
    "norm/rms_norm",
    libs: [GRID, SPECIAL, REDUCE, WORKGROUP, NORM_ROW],
    types: ["T"],
    constants: ["INPUT", "RESIDUAL", "BLOCK", "WHOLE", "HAS_WEIGHT"],
    reads: 3,
    writes: 1,
    params: RmsNormParams,
);

params! {
    struct LayerNormParams {
        rows: u32,
        columns: u32,
        team: u32,
        eps: f32,
        x_offset: u32,
        residual_offset: u32,
        weight_offset: u32,
        bias_offset: u32,
        y_offset: u32,
    }
}

params! {
    struct RmsNormParams {
        rows: u32,
        columns: u32,
        team: u32,
        eps: f32,
        x_offset: u32,
        residual_offset: u32,
        weight_offset: u32,
        y_offset: u32,
    }
}

/// The fewest numbers of an invocation in a small team.
const LEAST: usize = 4;

/// Where a kernel finds an operand of the output's shape, as shaders/lib/norm_row.wgsl numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Absent = 0,
    Bound = 1,
    Output = 2,
}

/// What both kernels are specialised by.
#[derive(Clone, Copy, Debug)]
struct Rows {
    dtype: DType,
    input: Place,
    residual: Place,
    block: Block,
}

impl Rows {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for dtype in [DType::F32, DType::F16] {
            for input in [Place::Bound, Place::Output] {
                for residual in [Place::Absent, Place::Bound, Place::Output] {
                    all.extend(Block::ALL.map(|block| Self { dtype, input, residual, block }));
                }
            }
        }
        all
    }

    fn constants(self) -> [u32; 4] {
        let [size, whole] = self.block.constants();
        [self.input as u32, self.residual as u32, size, whole]
    }

    fn layer_norm(self, weight: bool, bias: bool) -> Variant {
        let [input, residual, block, whole] = self.constants();
        let constants = [input, residual, block, whole, u32::from(weight), u32::from(bias)];
        Variant::new(&LAYER_NORM, [self.dtype], constants)
    }

    fn rms_norm(self, weight: bool) -> Variant {
        let [input, residual, block, whole] = self.constants();
        Variant::new(&RMS_NORM, [self.dtype], [input, residual, block, whole, u32::from(weight)])
    }
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for rows in Rows::all() {
        for weight in [false, true] {
            variants.extend([false, true].map(|bias| rows.layer_norm(weight, bias)));
            variants.push(rows.rms_norm(weight));
        }
    }
    variants
}

/// `output = (v − mean) / √(var + eps) · weight + bias` for each row v = input + residual.
pub(crate) fn layer_norm(ctx: &Context, op: &'static str, desc: &LayerNormDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [Some(x), Some(y), weight, bias, residual] = ctx.resolve(op, &operands)? else {
        return Ok(());
    };
    let dtype = desc.dtype;
    ctx.require_dtype(op, dtype)?;
    let output = ctx.output(op, &y, dtype)?;
    let target = Target { ctx, op, dtype, slice: &y, output: &output };
    let (input_place, input) = target.operand(Some(&x))?;
    let (residual_place, residual) = target.operand(residual.as_ref())?;
    let weights = ctx.optional_input(op, weight.as_ref(), dtype, &output)?;
    let biases = ctx.optional_input(op, bias.as_ref(), dtype, &output)?;
    let teams = Teams::new(desc.columns, 1, LEAST);
    let params = LayerNormParams {
        rows: dim(op, "rows", desc.rows)?,
        columns: dim(op, "columns", desc.columns)?,
        team: teams.size,
        eps: desc.eps as f32,
        x_offset: input.offset,
        residual_offset: residual.offset,
        weight_offset: weights.offset,
        bias_offset: biases.offset,
        y_offset: output.offset,
    };
    let block = Block::of(teams.share(desc.columns));
    let variant = Rows { dtype, input: input_place, residual: residual_place, block }
        .layer_norm(weight.is_some(), bias.is_some());
    let reads = [&input, &residual, &weights, &biases];
    ctx.launch(op, &variant, &reads, &output, &params, teams.grid(op, desc.rows)?)
}

/// `output = v / √(mean(v²) + eps) · weight` for each row v = input + residual.
pub(crate) fn rms_norm(ctx: &Context, op: &'static str, desc: &RmsNormDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [Some(x), Some(y), weight, residual] = ctx.resolve(op, &operands)? else {
        return Ok(());
    };
    let dtype = desc.dtype;
    ctx.require_dtype(op, dtype)?;
    let output = ctx.output(op, &y, dtype)?;
    let target = Target { ctx, op, dtype, slice: &y, output: &output };
    let (input_place, input) = target.operand(Some(&x))?;
    let (residual_place, residual) = target.operand(residual.as_ref())?;
    let weights = ctx.optional_input(op, weight.as_ref(), dtype, &output)?;
    let teams = Teams::new(desc.columns, 1, LEAST);
    let params = RmsNormParams {
        rows: dim(op, "rows", desc.rows)?,
        columns: dim(op, "columns", desc.columns)?,
        team: teams.size,
        eps: desc.eps as f32,
        x_offset: input.offset,
        residual_offset: residual.offset,
        weight_offset: weights.offset,
        y_offset: output.offset,
    };
    let block = Block::of(teams.share(desc.columns));
    let variant =
        Rows { dtype, input: input_place, residual: residual_place, block }.rms_norm(weight.is_some());
    ctx.launch(op, &variant, &[&input, &residual, &weights], &output, &params, teams.grid(op, desc.rows)?)
}

/// The output that operands of its shape may be.
struct Target<'a> {
    ctx: &'a Context,
    op: &'static str,
    dtype: DType,
    slice: &'a DeviceSlice,
    output: &'a Window,
}

impl Target<'_> {
    /// Where the kernel finds an operand, and what is bound for it.
    fn operand(&self, slice: Option<&DeviceSlice>) -> BackendResult<(Place, Window)> {
        match slice {
            None => Ok((Place::Absent, self.ctx.null())),
            Some(slice) if slice.region() == self.slice.region() => Ok((Place::Output, self.ctx.null())),
            Some(slice) => Ok((Place::Bound, self.ctx.input(self.op, slice, self.dtype, self.output)?)),
        }
    }
}
