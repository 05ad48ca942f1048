//! quant/quantize_rows: rows of A rounded to 8 bits for lib/quant_sums_int8, once for all of B.

use backend_api::desc::{Matrix, QuantMatmulDesc};
use backend_api::quant::{QuantFormat, UNIT};
use backend_api::support::checked_product;
use backend_api::{BackendResult, DType, DeviceKind, MathMode};

use super::operands::Operands;
use crate::device::h200;
use crate::kernels::libs::{QUANT_INPUT_1, QUANT_INPUT_4};
use crate::kernels::{KernelSource, Lib, Variant, constants, kernel, params};
use crate::ops::op_context::{OpContext, dim, linear_grid};

constants! { struct Constants { nibbles: bool } }

static QUANTIZE_ROWS: KernelSource = kernel!(
    "quant/quantize_rows", libs: [GRID],
    types: ["TA"], constants: Constants, params: Params, reads: ["a: AV"], writes: ["rounded: u32"],
);

params! {
    struct Params {
        m: u32,
        k: u32,
        // Units of 128 numbers in a row.
        units: u32,
        a: u32,
        a_ld: u32,
        // Words before the first unit.
        rounded: u32,
    }
}

/// Rows of A above which B would be read too often.
const MOST_ROWS: usize = 16;

/// Whether the activations may be rounded, and can be.
pub(super) fn is_possible(ctx: &OpContext, desc: &QuantMatmulDesc) -> bool {
    desc.math == MathMode::Int8
        && desc.b.format.takes_int8()
        && (1..=MOST_ROWS).contains(&desc.m)
        && desc.k() > 0
        && ctx.gpu().packed_dots
}

/// Whether a product of integers should take less than one of f32, together with the launch that rounds. On Apple's
/// devices, which multiply f32 as fast, it doesn't.
pub(super) fn is_faster(ctx: &OpContext, desc: &QuantMatmulDesc) -> bool {
    /// Products of an activation and a weight that an H200 makes sooner in a nanosecond of 8-bit activations: an estimate,
    /// see shaders/quant/notes.md.
    const SAVED_RATE: usize = 7000;
    let products = desc.m.saturating_mul(desc.b.rows).saturating_mul(desc.k());
    let saved = h200::partial_sums(products, SAVED_RATE, ctx.profile().compute_units);
    let info = &ctx.gpu().info;
    info.api != "Metal" && info.kind != DeviceKind::SoftwareAdapter && saved > h200::LAUNCH
}

/// The product with the rows of A rounded: what it is of, and its operands.
pub(super) fn rounded(
    ctx: &OpContext,
    op: &'static str,
    desc: &QuantMatmulDesc,
    operands: &Operands,
) -> BackendResult<(QuantMatmulDesc, Operands)> {
    /// Vectors of 16 bytes that a rounded unit takes.
    const UNIT_VECTORS: usize = 10;
    /// Numbers that a workgroup rounds.
    const WORKGROUP_NUMBERS: usize = 8 * 64;
    let (m, k) = (desc.m, desc.k());
    let units = k.div_ceil(UNIT);
    let vectors = checked_product(op, "A", &[units, UNIT_VECTORS])?;
    let scratch = ctx.scratch(op, checked_product(op, "A", &[m, vectors, 16])?)?;
    let output = ctx.output(&scratch, DType::U32);
    let params = Params {
        m: dim(op, "m", m)?,
        k: dim(op, "k", k)?,
        units: dim(op, "k", units)?,
        a: operands.product.a.offset,
        // A leading dimension that leads nowhere may be any number.
        a_ld: if m <= 1 { 0 } else { dim(op, "lda", desc.a.ld)? },
        rounded: output.offset,
    };
    let groups = checked_product(op, "A", &[m, units, UNIT])?.div_ceil(WORKGROUP_NUMBERS);
    let variant = variant(desc.b.format, desc.a.dtype, operands.has_vectors(desc));
    ctx.launch(op, &variant, &[&operands.product.a], &output, &params, linear_grid(op, groups)?)?;
    let mut product = *desc;
    product.a = Matrix::new(0, DType::U32, vectors);
    Ok((product, operands.with_a(output)))
}

/// The order of integers is that of the format's bytes.
fn variant(format: QuantFormat, dtype: DType, vectors: bool) -> Variant {
    const READERS: [&[Lib]; 2] = [&[QUANT_INPUT_1], &[QUANT_INPUT_4]];
    let nibbles = format != QuantFormat::Q8_0;
    Variant::new(&QUANTIZE_ROWS, [dtype], Constants { nibbles }).with_libs(READERS[usize::from(vectors)])
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for format in [QuantFormat::Q8_0, QuantFormat::Q4_0] {
        for dtype in [DType::F32, DType::F16] {
            variants.extend([false, true].map(|vectors| variant(format, dtype, vectors)));
        }
    }
    variants
}
