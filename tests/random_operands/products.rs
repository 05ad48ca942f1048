//! Matrix products and attention.

use backend_api::desc::{
    AttentionAlignment, AttentionDesc, AttentionMask, AttentionShape, Bias, BiasAxis, BlockTable, HeadLayout,
    MatmulDesc, Matrix,
};
use backend_api::kv::KvFormat;
use backend_api::{Activation, BackendTranspose, Command, DType};

use super::Run;
use super::draw::Draw;
use super::tables::head_layout;

/// A matrix of a batch in memory of its own: `stored` are its rows and columns in memory.
pub(super) fn matrix(
    draw: &mut Draw,
    dtype: DType,
    batch: usize,
    stored: [usize; 2],
    shared: bool,
) -> Matrix {
    let [rows, columns] = stored;
    let ld = columns + if draw.one_in(4) { draw.below(9) } else { 0 };
    let stride = if shared { 0 } else { rows * ld + if draw.one_in(4) { draw.below(9) } else { 0 } };
    let offset = if draw.one_in(3) { draw.below(9) } else { 0 };
    let ptr = draw.memory(dtype, offset + (batch - 1) * stride + rows * ld);
    Matrix::new(ptr, dtype, ld).with_batch_stride(stride).with_offset(offset)
}

pub(super) fn matmul(draw: &mut Draw, run: Run<'_>) {
    let (a, b) = (draw.float(), draw.float());
    let c = if a == DType::F16 && b == DType::F16 { draw.float() } else { DType::F32 };
    let batch = if draw.one_in(3) { draw.up_to(5) } else { 1 };
    // One operand is large, and the third extent short enough that the product isn't long.
    let total = draw.elements(DType::F32) / batch;
    let [long, short] = draw.extents(total);
    let third = draw.up_to((20_000_000 / (long * short * batch)).clamp(1, 300));
    let [m, n, k] =
        draw.pick(&[[long, short, third], [long, third, short], [third, long, short], [short, third, long]]);
    let trans = [(); 2].map(|()| draw.one_in(2));
    let shared = [(); 2].map(|()| draw.one_in(3));
    let turned =
        |[rows, columns]: [usize; 2], trans: bool| if trans { [columns, rows] } else { [rows, columns] };
    let of_a = matrix(draw, a, batch, turned([m, k], trans[0]), shared[0]);
    let of_b = matrix(draw, b, batch, turned([k, n], trans[1]), shared[1]);
    let of_c = matrix(draw, c, batch, [m, n], false);
    let [trans_a, trans_b] =
        trans.map(|yes| if yes { BackendTranspose::Trans } else { BackendTranspose::NoTrans });
    let mut desc =
        MatmulDesc::new(m, n, k, of_a, of_b, of_c).with_batch(batch).with_transpose(trans_a, trans_b);
    desc.alpha = draw.pick(&[1.0, 1.0, -0.5]);
    desc.beta = draw.pick(&[0.0, 0.0, 1.0, -2.0]);
    desc.activation = draw.pick(&[Activation::Identity, Activation::Identity, Activation::Relu]);
    desc.bias = draw.maybe(|draw| {
        let axis = draw.pick(&[BiasAxis::Row, BiasAxis::Column]);
        Bias { ptr: draw.memory(c, if axis == BiasAxis::Row { m } else { n }), axis }
    });
    run(draw, "matmul", Command::Matmul(&desc));
}

pub(super) fn attention(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.float();
    let kv_format = match draw.below(5) {
        0 => KvFormat::Q8_0,
        1 => DType::F16.into(),
        _ => dtype.into(),
    };
    // Blocks of Q8_0 are never parted.
    let unit = if kv_format == KvFormat::Q8_0 { KvFormat::BLOCK } else { 1 };
    let [head_dim, v_head_dim] = [(); 2].map(|()| draw.up_to(48).next_multiple_of(unit));
    let total = draw.elements(dtype) / head_dim;
    let [batch, kv_heads, seq_kv] = draw.extents(total);
    let (group, most) = (draw.up_to(3), 400_000 / (batch * kv_heads * seq_kv * 3));
    let (heads, seq_q) = (kv_heads * group, draw.up_to(most.clamp(1, 200)));
    let shape = AttentionShape { batch, heads, seq_q, seq_kv, head_dim };
    let queries = |dim| [batch, heads, seq_q, dim];
    let paging = draw.maybe(|draw| (16 << draw.below(3), draw.up_to(seq_kv.div_ceil(16) + 3)));
    // Blocks of a pool, or all of a sequence.
    let paging = paging.filter(|_| kv_heads <= 8);
    let [blocks, positions] = match paging {
        Some((block_size, pool_blocks)) => [pool_blocks, block_size],
        None => [batch, seq_kv],
    };
    let keys = |dim| [blocks, kv_heads, positions, dim];
    let mut operand = |format: KvFormat, extents: [usize; 4], unit: usize| {
        let layout = head_layout(draw, extents);
        let elements = extents.iter().product::<usize>() + 9 * unit;
        let memory = match format {
            KvFormat::Float(dtype) => draw.memory(dtype, elements),
            _ => draw.blocks(elements),
        };
        (memory, HeadLayout { offset: unit * layout.offset, ..layout })
    };
    let (q, k) = (operand(dtype.into(), queries(head_dim), 1), operand(kv_format, keys(head_dim), unit));
    let (v, o) = (operand(kv_format, keys(v_head_dim), unit), operand(dtype.into(), queries(v_head_dim), 1));
    let mut desc = AttentionDesc::new(dtype, q.0, k.0, v.0, o.0, shape)
        .with_kv_format(kv_format)
        .with_kv_heads(kv_heads)
        .with_v_head_dim(v_head_dim)
        .with_q_layout(q.1)
        .with_k_layout(k.1)
        .with_v_layout(v.1)
        .with_o_layout(o.1)
        .with_causal(draw.one_in(2));
    desc.window = draw.maybe(|draw| draw.up_to(seq_kv));
    desc.key_lengths = draw.maybe(|draw| draw.indices(batch, seq_kv));
    desc.block_table = paging.map(|(block_size, pool_blocks)| {
        let max_blocks = seq_kv.div_ceil(block_size) + draw.below(2);
        BlockTable::new(draw.indices(batch * max_blocks, pool_blocks), max_blocks, block_size, pool_blocks)
    });
    let alignments =
        [AttentionAlignment::BottomRight, AttentionAlignment::TopLeft, AttentionAlignment::KeyLengths];
    desc.alignment = draw.pick(&alignments);
    desc.lse = draw.maybe(|draw| draw.memory(DType::F32, batch * heads * seq_q));
    desc.sinks = draw.maybe(|draw| draw.memory(DType::F32, heads));
    if draw.one_in(3) {
        let mask_dtype = if draw.one_in(4) { DType::U32 } else { dtype };
        let [of_batch, of_head, of_query] =
            [batch, heads, seq_q].map(|extent| if draw.one_in(3) { 1 } else { extent });
        let stride = |extent: usize, stride: usize| if extent > 1 { stride } else { 0 };
        desc.mask = Some(AttentionMask {
            ptr: draw.memory(mask_dtype, of_batch * of_head * of_query * seq_kv),
            batch_stride: stride(of_batch, of_head * of_query * seq_kv),
            head_stride: stride(of_head, of_query * seq_kv),
            query_stride: stride(of_query, seq_kv),
        });
        desc.mask_dtype = mask_dtype;
    }
    run(draw, "attention_ext", Command::Attention(&desc));
}
