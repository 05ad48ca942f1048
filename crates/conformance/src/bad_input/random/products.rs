//! Random matrix products, convolutions and attention.

use backend_api::desc::{
    AttentionAlignment, AttentionDesc, AttentionMask, AttentionShape, Bias, BiasAxis, BlockTable, ConvDesc,
    HeadLayout, MatmulDesc, Matrix,
};
use backend_api::kv::KvFormat;
use backend_api::{Activation, BackendTranspose, DType, MathMode};

use super::Call;
use super::calls::{Method, call};
use super::draw::{dtype, factor, maybe, size, sizes};
use super::pool::Pool;
use crate::rng::Rng;

pub(super) const METHODS: &[Method] = &[gemm, batched_gemm, conv2d, attention, matmul, attention_ext];

fn product(rng: &mut Rng, pool: &Pool<'_>, dtypes: [DType; 3]) -> MatmulDesc {
    let [m, n, k] = sizes(rng);
    // Leading dimensions that fit most of the time.
    let mut ld = |columns: usize| match rng.below(4) {
        0 => size(rng),
        slack => columns.max(1).saturating_add(slack - 1),
    };
    let lds = [ld(k.max(m)), ld(n.max(k)), ld(n)];
    let [a, b, c] = std::array::from_fn(|i| Matrix::new(pool.pick(rng), dtypes[i], lds[i]));
    let trans = |rng: &mut Rng| {
        rng.pick(&[BackendTranspose::NoTrans, BackendTranspose::Trans, BackendTranspose::ConjTrans])
    };
    MatmulDesc::new(m, n, k, a, b, c)
        .with_transpose(trans(rng), trans(rng))
        .with_scale(factor(rng), factor(rng))
}

fn with_batch(rng: &mut Rng, desc: MatmulDesc) -> MatmulDesc {
    let mut desc = desc.with_batch(size(rng));
    desc.a.batch_stride = size(rng);
    desc.b.batch_stride = size(rng);
    desc.c.batch_stride = if rng.one_in(2) { size(rng) } else { desc.c.ld.saturating_mul(desc.m) };
    desc
}

fn gemm<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let d = product(rng, pool, [DType::F32; 3]);
    let verdict = pool.check("gemm", d.operands("gemm"));
    call(format!("gemm {d:?}"), verdict, move |b| {
        b.gemm(
            d.trans_a, d.trans_b, d.m, d.n, d.k, d.alpha, d.a.ptr, d.a.ld, d.b.ptr, d.b.ld, d.beta, d.c.ptr,
            d.c.ld,
        )
    })
}

fn batched_gemm<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let d = product(rng, pool, [DType::F32; 3]);
    let d = with_batch(rng, d);
    let verdict = pool.check("batched_gemm", d.operands("batched_gemm"));
    call(format!("batched_gemm {d:?}"), verdict, move |b| {
        b.batched_gemm(
            d.trans_a,
            d.trans_b,
            d.m,
            d.n,
            d.k,
            d.alpha,
            d.a.ptr,
            d.a.ld,
            d.a.batch_stride,
            d.b.ptr,
            d.b.ld,
            d.b.batch_stride,
            d.beta,
            d.c.ptr,
            d.c.ld,
            d.c.batch_stride,
            d.batch,
        )
    })
}

fn matmul<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let dtypes = std::array::from_fn(|_| dtype(rng));
    let mut d = product(rng, pool, dtypes);
    if rng.one_in(2) {
        d = with_batch(rng, d);
    }
    let axis = rng.pick(&[BiasAxis::Row, BiasAxis::Column]);
    let ptr = pool.pick(rng);
    d.bias = maybe(rng, Bias { ptr, axis });
    d.activation = rng.pick(Activation::ALL);
    d.math = rng.pick(MathMode::ALL);
    for matrix in [&mut d.a, &mut d.b, &mut d.c] {
        let offset = size(rng);
        matrix.offset = maybe(rng, offset).unwrap_or(0);
    }
    let verdict = pool.check("matmul", d.operands("matmul"));
    call(format!("{d:?}"), verdict, move |b| b.matmul(&d))
}

fn conv2d<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let op = "conv2d_forward";
    let mut input: Vec<usize> = sizes::<4>(rng).into();
    let mut filter: Vec<usize> = sizes::<4>(rng).into();
    let stride: Vec<usize> =
        std::array::from_fn::<_, 2, _>(|_| size(rng).max(usize::from(!rng.one_in(9)))).into();
    let padding: Vec<usize> = sizes::<2>(rng).into();
    filter[1] = input[1];
    let extent = |i: usize| {
        let padded = padding[i].saturating_mul(2).saturating_add(input[2 + i]);
        (padded.saturating_sub(filter[2 + i]) / stride[i].max(1)).saturating_add(1)
    };
    let mut output = vec![input[0], filter[0], extent(0), extent(1)];
    if rng.one_in(4) {
        let spoiled = rng.pick(&[0usize, 1, 2]);
        let list = [&mut input, &mut filter, &mut output];
        let at = rng.below(4);
        for (i, values) in list.into_iter().enumerate() {
            if i == spoiled {
                values[at] = size(rng);
            }
        }
    }
    let h: [u64; 3] = std::array::from_fn(|_| pool.pick(rng));
    let desc = ConvDesc::from_slices(op, h[0], &input, h[1], &filter, h[2], &output, &stride, &padding);
    let label = format!("{desc:?}");
    let verdict = desc.and_then(|desc| pool.check(op, desc.operands(op)));
    call(label, verdict, move |b| {
        b.conv2d_forward(h[0], &input, h[1], &filter, h[2], &output, &stride, &padding)
    })
}

fn attention<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let [q, k, v, o] = std::array::from_fn(|_| pool.pick(rng));
    let [batch, heads, seq_q, seq_kv, head_dim] = sizes(rng);
    let shape = AttentionShape { batch, heads, seq_q, seq_kv, head_dim };
    let mut d = AttentionDesc::new(DType::F32, q, k, v, o, shape);
    d.causal = rng.one_in(2);
    d.scale = factor(rng);
    let verdict = pool.check("attention", d.operands("attention"));
    call(format!("attention {d:?}"), verdict, move |b| {
        b.attention(d.q, d.k, d.v, d.o, d.batch, d.heads, d.seq_q, d.seq_kv, d.head_dim, d.scale, d.causal)
    })
}

fn attention_ext<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let [q, k, v, o] = std::array::from_fn(|_| pool.pick(rng));
    let [batch, heads, seq_q, seq_kv, head_dim] = sizes(rng);
    let shape = AttentionShape { batch, heads, seq_q, seq_kv, head_dim };
    let mut d = AttentionDesc::new(dtype(rng), q, k, v, o, shape);
    let kv_heads = size(rng);
    d.kv_heads = maybe(rng, kv_heads).unwrap_or(d.heads);
    d.scale = factor(rng);
    let [batch_stride, head_stride, query_stride] = sizes(rng);
    let mask = AttentionMask { ptr: pool.pick(rng), batch_stride, head_stride, query_stride };
    d.mask = maybe(rng, mask);
    let (lengths, lse) = (pool.pick(rng), pool.pick(rng));
    d.key_lengths = maybe(rng, lengths);
    d.lse = maybe(rng, lse);
    let [max_blocks, block_size, pool_blocks] = sizes(rng);
    let block_size = if rng.one_in(4) { block_size } else { 16 << rng.below(3) };
    let table = BlockTable::new(pool.pick(rng), max_blocks, block_size, pool_blocks);
    d.block_table = maybe(rng, table);
    let sinks = pool.pick(rng);
    d.sinks = maybe(rng, sinks);
    let (kv_dtype, window) = (dtype(rng), size(rng));
    let kv_format = if rng.one_in(4) { KvFormat::Q8_0 } else { kv_dtype.into() };
    d.kv_format = maybe(rng, kv_format).unwrap_or(d.dtype.into());
    d.window = maybe(rng, window);
    d.alignment = rng.pick(&AttentionAlignment::ALL);
    let (mask_dtype, v_head_dim) = (dtype(rng), size(rng));
    d.mask_dtype = maybe(rng, mask_dtype).unwrap_or(d.dtype);
    d.v_head_dim = maybe(rng, v_head_dim).unwrap_or(d.head_dim);
    d.softcap = factor(rng);
    let strides = |rng: &mut Rng| {
        let [offset, batch, head, token] = sizes(rng);
        let offset = maybe(rng, offset).unwrap_or(0);
        maybe(rng, HeadLayout { offset, batch, head, token })
    };
    d.q_layout = strides(rng);
    d.o_layout = strides(rng);
    // Keys at a stride of 0 fit in no time and take for ever: only where there are few.
    if d.seq_kv < 1000 {
        d.k_layout = strides(rng);
        d.v_layout = strides(rng);
    }
    let verdict = pool.check("attention_ext", d.operands("attention_ext"));
    call(format!("{d:?}"), verdict, move |b| b.attention_ext(&d))
}
