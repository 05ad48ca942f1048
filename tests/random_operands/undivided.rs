//! What a device binds at once of each operation: where all of that fits into a binding, nothing may be refused.

use backend_api::desc::{
    AttentionDesc, ConvShape, ExpertMatmulDesc, QuantMatmulDesc, ReduceDesc, ScatterDesc,
};
use backend_api::kv::KvFormat;
use backend_api::quant::QuantLayout;
use backend_api::{Command, DType, ScatterOp};

use super::Buffer;
use crate::BINDING;

/// Bytes that a binding may begin before an operand and end behind it.
const AROUND: usize = 256 + 16;

/// Bytes of a number in the memory between two launches.
const SUM: usize = 4;

/// Bytes of a number with its index, as sorts have them.
const ENTRY: usize = 8;

/// Whether a device may refuse the call: what it doesn't divide may pass a binding.
pub(super) fn may_be_refused(command: &Command<'_>, buffers: &[Buffer]) -> bool {
    // Every operand, as numbers of f32.
    let all = || 2 * buffers.iter().map(|buffer| buffer.bytes.len()).max().unwrap_or(0);
    let bytes = match command {
        // A slice along the axis, a row or a group, and its weights.
        Command::Softmax(d) => d.length * d.inner * d.dtype.size(),
        Command::SoftmaxBackward(d) => d.length * d.inner * d.dtype.size(),
        Command::CumSum(d) => d.length * d.inner * d.dtype.size(),
        Command::LayerNorm(d) => d.columns * d.dtype.size().max(d.weight_dtype.size()),
        Command::RmsNorm(d) => d.columns * d.dtype.size().max(d.weight_dtype.size()),
        Command::GroupNorm(d) => {
            let group = d.channels / d.groups * d.spatial * d.dtype.size();
            group.max(d.channels * d.weight_dtype.size())
        }
        Command::NormBackward(d) => d.columns * d.dtype.size(),
        // All rows, three moments of each, and the sums.
        Command::NormBackwardWeight(d) => {
            (d.rows * d.columns * d.dtype.size()).max(d.rows * 3 * SUM).max(d.columns * SUM)
        }
        Command::Reduce(d) => reduced(d),
        Command::Gather(d) => d.columns * d.dtype.size().max(DType::U32.size()),
        Command::Scatter(d) => scattered(d),
        // The entries of a row.
        Command::TopK(d) => d.columns * ENTRY,
        Command::Sample(d) => d.columns * ENTRY,
        Command::QuantGather(d) => d.table.columns * d.dtype.size(),
        Command::Dequantize(d) => d.output.ld * d.output.dtype.size(),
        Command::QuantMatmul(d) => quant_product(d),
        Command::ExpertMatmul(d) => expert_product(d),
        Command::Attention(d) => attention(d),
        Command::QuantizeRows(d) => d.source.ld * d.source.dtype.size(),
        // An image that is read, and the taps of one result.
        Command::Conv(d) => {
            let [height, width] = d.shape.input;
            d.dtype.size() * (d.shape.channels * height * width).max(taps(&d.shape, d.shape.channels))
        }
        Command::ConvTranspose(d) => {
            let [height, width] = d.shape.input;
            d.dtype.size() * (d.shape.channels * height * width).max(taps(&d.shape, d.shape.channels))
        }
        Command::ConvBackwardData(d) => {
            let [height, width] = d.shape.output("conv2d").unwrap_or_default();
            d.dtype.size() * (d.shape.filters * height * width).max(taps(&d.shape, d.shape.filters))
        }
        // Sums in pieces, of each weight.
        Command::ConvBackwardFilter(_) | Command::Pool(_) | Command::PoolBackward(_) => all(),
        _ => 0,
    };
    bytes + AROUND > BINDING
}

/// Weights of one channel of a result, with channels of what is read filled up to a multiple of eight.
fn taps(shape: &ConvShape, channels: usize) -> usize {
    (channels / shape.groups).next_multiple_of(8) * shape.window.size[0] * shape.window.size[1]
}

/// What a result of several axes with others between them is made of, or the index that an axis has.
fn reduced(desc: &ReduceDesc<'_>) -> usize {
    let shape = desc.input.shape;
    let is_reduced = |d: usize| desc.axes.contains(&d) && shape[d] > 1;
    let walked: Vec<bool> = (0..shape.len()).filter(|&d| shape[d] > 1).map(is_reduced).collect();
    let runs = walked.chunk_by(|a, b| a == b).filter(|run| run[0]).count();
    if runs < 2 && !desc.op.is_index() {
        return 0;
    }
    // Packed, from the first axis on.
    let first = (0..shape.len()).find(|&d| is_reduced(d)).unwrap_or(shape.len());
    shape[first..].iter().product::<usize>() * desc.input.dtype.size()
}

/// The indices of each element of few rows, and what is rounded with every term.
fn scattered(desc: &ScatterDesc) -> usize {
    let arriving = desc.count * desc.columns;
    let indices = if desc.per_element { arriving } else { desc.count } * DType::U32.size();
    let few = desc.op == ScatterOp::Assign && desc.count <= (desc.rows / 16).clamp(32, 4096);
    let rounds = desc.dtype == DType::F16 && matches!(desc.op, ScatterOp::Add | ScatterOp::Mul);
    match (few, rounds) {
        (true, _) => indices,
        (_, true) => indices.max(arriving * desc.dtype.size()),
        _ => desc.columns * DType::U32.size(),
    }
}

/// Bytes of the widest row of a matrix's planes.
fn plane_row(layout: Option<QuantLayout>) -> usize {
    let planes = |layout: QuantLayout| [layout.quants, layout.high, layout.scales, layout.extra];
    layout.map(planes).into_iter().flatten().map(|plane| plane.row_bytes).max().unwrap_or(0)
}

/// A, C and the residual, and a row of B.
fn quant_product(desc: &QuantMatmulDesc) -> usize {
    let matrices = [Some(desc.a), Some(desc.c), desc.residual].into_iter().flatten();
    let rows = matrices.map(|matrix| desc.m * matrix.ld * matrix.dtype.size());
    rows.max().unwrap_or(0).max(plane_row(desc.b.layout("quant_matmul").ok()))
}

/// The rows of a token, with its products, and the matrix of an expert.
fn expert_product(desc: &ExpertMatmulDesc) -> usize {
    let of_a = if desc.per_expert { desc.used } else { 1 } * desc.a.ld * desc.a.dtype.size();
    let of_c = if desc.weights.is_some() { 1 } else { desc.used } * desc.c.ld * desc.c.dtype.size();
    let products = desc.used * desc.n() * SUM;
    let matrix = desc.b.rows / desc.experts * plane_row(desc.b.layout("expert_matmul").ok());
    of_a.max(of_c).max(products).max(matrix)
}

/// Keys, values and the mask of one head, the pool, and what is gathered of it for one sequence.
fn attention(desc: &AttentionDesc) -> usize {
    let [q, k, v, o] = desc.layouts();
    let [blocks, positions] = desc.kv_extents();
    let bytes = |elements: usize| match desc.kv_format {
        KvFormat::Float(dtype) => elements * dtype.size(),
        // Blocks become elements of the queries' type.
        _ => elements * DType::F32.size(),
    };
    let longest = desc.head_dim.max(desc.v_head_dim);
    let keys = if desc.block_table.is_some() {
        let pool = [k, v].map(|layout| {
            (blocks - 1) * layout.batch + (desc.kv_heads - 1) * layout.head + (positions - 1) * layout.token
        });
        (pool[0].max(pool[1]) + longest).max(desc.kv_heads * desc.seq_kv * longest)
    } else {
        desc.seq_kv * k.token.max(v.token).max(longest)
    };
    let queries = desc.seq_q * q.token.max(o.token).max(longest) * desc.dtype.size();
    let mask = desc.mask.map_or(0, |mask| {
        let rows = [(desc.batch, mask.batch_stride), (desc.heads, mask.head_stride)];
        let heads: usize = rows.into_iter().map(|(extent, stride)| (extent - 1) * stride).sum();
        let whole = if desc.mask_dtype == DType::U32 { heads } else { 0 };
        (whole + (desc.seq_q - 1) * mask.query_stride + desc.seq_kv) * DType::F32.size()
    });
    bytes(keys).max(queries).max(mask)
}
