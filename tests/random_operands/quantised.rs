//! Quantised matrices of every format, their products and rows, experts, and rows of a cache of Q8_0.

use backend_api::desc::{
    DequantizeDesc, ExpertMatmulDesc, QuantGatherDesc, QuantMatmulDesc, QuantMatrix, QuantizeRowsDesc,
};
use backend_api::kv::KvFormat;
use backend_api::quant::{GroupScales, MatMulNBits, QuantFormat, quantize, repack};
use backend_api::{Activation, BackendResult, Command, DType, Gate};
use half::f16;

use super::Run;
use super::draw::Draw;
use super::products::matrix;

/// Formats beside those of GGUF.
const U4: [QuantFormat; 2] =
    [QuantFormat::U4 { group: 32, zero_points: true }, QuantFormat::U4 { group: 128, zero_points: false }];

/// Scales of f16, small beside the integers that they multiply.
fn scales(draw: &mut Draw, count: usize) -> Vec<u8> {
    let scale = |draw: &mut Draw| f16::from_f32((1 + draw.below(255)) as f32 / 8192.0);
    (0..count).flat_map(|_| scale(draw).to_le_bytes()).collect()
}

/// The planes of a matrix of this format.
fn planes(draw: &mut Draw, format: QuantFormat, [rows, columns]: [usize; 2]) -> BackendResult<Vec<u8>> {
    let mut planes = vec![0; format.bytes(rows, columns)?];
    let (of, per_row) = (format.block_bytes().unwrap_or_default(), columns.div_ceil(format.block_elements()));
    let count = rows * per_row;
    let mut blocks = vec![0; count * of];
    // The f16 scales of a block.
    let scales_at: &[usize] = match format {
        QuantFormat::Q5_0 | QuantFormat::IQ4_NL | QuantFormat::IQ4_XS => &[0],
        QuantFormat::Q4_1 | QuantFormat::Q5_1 | QuantFormat::Q4_K | QuantFormat::Q5_K => &[0, 2],
        QuantFormat::Q2_K => &[80, 82],
        QuantFormat::Q3_K => &[108],
        QuantFormat::Q6_K => &[208],
        _ => &[],
    };
    match format {
        QuantFormat::U4 { group, zero_points } => {
            let (b, scales) = (draw.bytes(count * group / 2), scales(draw, count));
            let zeros = zero_points.then(|| draw.bytes(rows * per_row.div_ceil(2)));
            let (scales, zero_points) = (GroupScales::F16(&scales), zeros.as_deref());
            MatMulNBits { rows, columns, group, b: &b, scales, zero_points }.repack(&mut planes)?;
            return Ok(planes);
        }
        QuantFormat::Q8_0 | QuantFormat::Q4_0 | QuantFormat::Mxfp4 => {
            let weights: Vec<f32> =
                (0..rows * columns).map(|_| draw.below(255) as f32 / 64.0 - 2.0).collect();
            quantize(format, rows, columns, &weights, &mut blocks)?;
        }
        _ => {
            blocks = draw.bytes(count * of);
            for block in blocks.chunks_exact_mut(of) {
                for &at in scales_at {
                    block[at..at + 2].copy_from_slice(&scales(draw, 1));
                }
            }
        }
    }
    repack(format, rows, columns, &blocks, &mut planes)?;
    Ok(planes)
}

/// A quantised matrix of about this many elements, of a multiple of so many rows.
fn quantised(draw: &mut Draw, total: usize, stack: usize) -> QuantMatrix {
    let formats = [&QuantFormat::GGUF[..], &U4].concat();
    let format = draw.pick(&formats);
    let block = if let QuantFormat::U4 { .. } = format { 32 } else { format.block_elements() };
    let [rows, blocks] = draw.extents((total / block / stack).max(1));
    let (rows, columns) = (stack * rows, block * blocks);
    let planes = planes(draw, format, [rows, columns]).expect("a matrix of whole blocks");
    QuantMatrix::new(draw.insert(planes, 16), format, rows, columns)
}

pub(super) fn quant_matmul(draw: &mut Draw, run: Run<'_>) {
    let (a, c) = (draw.float(), draw.float());
    let total = 4 * draw.elements(DType::F32);
    let b = quantised(draw, total, 1);
    let m = draw.up_to((20_000_000 / total).clamp(1, 90));
    let of_a = matrix(draw, a, 1, [m, b.columns], false);
    let of_c = matrix(draw, c, 1, [m, b.rows], false);
    let mut desc = QuantMatmulDesc::new(m, of_a, b, of_c);
    desc.bias = draw.maybe(|draw| draw.memory(c, b.rows));
    desc.residual =
        draw.maybe(|draw| if draw.one_in(2) { of_c } else { matrix(draw, c, 1, [m, b.rows], false) });
    desc.activation = draw.pick(&[Activation::Identity, Activation::Relu]);
    run(draw, "quant_matmul", Command::QuantMatmul(&desc));
}

pub(super) fn quant_rows(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.float();
    let total = 2 * draw.elements(DType::F32);
    let table = quantised(draw, total, 1);
    if draw.one_in(2) {
        let output = matrix(draw, dtype, 1, [table.rows, table.columns], false);
        return run(draw, "dequantize", Command::Dequantize(&DequantizeDesc::new(table, output)));
    }
    let count = draw.up_to((100_000 / table.columns).max(1));
    let (indices, output) = (draw.indices(count, table.rows), draw.memory(dtype, count * table.columns));
    run(
        draw,
        "quant_gather",
        Command::QuantGather(&QuantGatherDesc::new(dtype, table, indices, output, count)),
    );
}

pub(super) fn expert_matmul(draw: &mut Draw, run: Run<'_>) {
    let (a, c) = (draw.float(), draw.float());
    let total = 4 * draw.elements(DType::F32);
    let experts = draw.up_to(20);
    let gate = if draw.one_in(3) { Some(draw.pick(Gate::ALL)) } else { None };
    let b = quantised(draw, total, if gate.is_some() { 2 * experts } else { experts });
    let used = draw.up_to(experts.min(5));
    let work = used * b.rows / experts * b.columns;
    let rows = draw.up_to((10_000_000 / work).clamp(1, 400));
    let (per_expert, is_sum) = (draw.one_in(3), draw.one_in(2));
    let each = |apart: bool| if apart { rows * used } else { rows };
    let n = b.rows / experts / if gate.is_some() { 2 } else { 1 };
    let of_a = matrix(draw, a, 1, [each(per_expert), b.columns], false);
    let of_c = matrix(draw, c, 1, [each(!is_sum), n], false);
    let indices = draw.indices(rows * used, experts);
    let mut desc = ExpertMatmulDesc::new([rows, used, experts], of_a, b, indices, of_c)
        .with_per_expert(per_expert)
        .with_accumulate(draw.one_in(3));
    desc.gate = gate;
    desc.bias = draw.maybe(|draw| draw.memory(DType::F32, b.rows));
    desc.weights = if is_sum { Some(draw.memory(DType::F32, rows * used)) } else { None };
    run(draw, "expert_matmul", Command::ExpertMatmul(&desc));
}

pub(super) fn quantize_rows(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.float();
    // The source or the cache is large.
    let (total, other) = (draw.elements(dtype), draw.elements(DType::F32));
    let most = if draw.one_in(4) { 70 } else { 6 };
    let blocks = draw.up_to(most);
    let columns = KvFormat::BLOCK * blocks;
    let count = (total / columns).clamp(1, 2000);
    let (gap, offset) = (KvFormat::BLOCK * draw.below(3), KvFormat::BLOCK * draw.below(3));
    let stride = columns + gap;
    let rows = count.max(4 * other / stride);
    let source = matrix(draw, dtype, 1, [count, columns], false);
    let cache = draw.blocks(offset + rows * stride);
    let mut desc =
        QuantizeRowsDesc::new(source, cache, rows, columns, count).with_offset(offset).with_stride(stride);
    desc.indices = draw.maybe(|draw| draw.indices(count, rows));
    run(draw, "quantize_rows", Command::QuantizeRows(&desc));
}
