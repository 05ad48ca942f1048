//! Matrix products, attention and rotary embedding.

use backend_api::desc::{
    AttentionDesc, AttentionMask, AttentionShape, Bias, BiasAxis, HeadLayout, MatmulDesc, Matrix, QkNorm,
    RopeAppendDesc, RopeAppendShape, RopeDesc, RopeShape, RopeStyle, RopeTables,
};
use backend_api::kv::KvFormat;
use backend_api::support::Access::{Read, ReadInPlace, Write};
use backend_api::{Activation, BackendTranspose, DType, MathMode};

use crate::judge::{Call, Dims, Named, OP, dtype, overflow, packed_dims, shape, volume};
use crate::random::Gen;

fn matrix(g: &mut Gen, ptr: u64, of: DType, rows: usize, columns: usize) -> Matrix {
    let usual = columns.max(1).saturating_add(g.below(2));
    let ld = g.about(usual);
    let apart = ld.saturating_mul(rows);
    let stride = if g.one_in(5) { g.extent() } else { g.about(apart) };
    let matrix = Matrix::new(ptr, of, ld).with_batch_stride(stride);
    assert_eq!((matrix.ptr, matrix.dtype, matrix.ld, matrix.batch_stride), (ptr, of, ld, stride));
    matrix
}

pub(crate) fn matmul(g: &mut Gen) -> bool {
    use DType::{F16, F32};
    const TYPES: [[DType; 3]; 5] =
        [[F32, F32, F32], [F16, F16, F16], [F16, F16, F32], [F32, F16, F32], [F16, F32, F32]];
    let types = if g.one_in(8) { [g.dtype(), g.dtype(), g.dtype()] } else { g.pick(&TYPES) };
    let [m, n, k, batch] = g.extents();
    let trans = [g.pick(BackendTranspose::ALL), g.pick(BackendTranspose::ALL)];
    let stored = |[rows, columns]: [usize; 2], trans| match trans {
        BackendTranspose::NoTrans => [rows, columns],
        _ => [columns, rows],
    };
    let extents = [stored([m, k], trans[0]), stored([k, n], trans[1]), [m, n]];
    let [a, b, c] = std::array::from_fn(|i| matrix(g, i as u64 + 1, types[i], extents[i][0], extents[i][1]));
    let axis = if g.one_in(2) { BiasAxis::Row } else { BiasAxis::Column };
    let bias = g.maybe(4).map(|ptr| Bias { ptr, axis });
    let mut desc = MatmulDesc::new(m, n, k, a, b, c)
        .with_transpose(trans[0], trans[1])
        .with_batch(batch)
        .with_scale(2.0, 0.5)
        .with_activation(Activation::Relu)
        .with_math(MathMode::EmulatedF32);
    if let Some(bias) = bias {
        desc = desc.with_bias(bias);
    }
    let last = (desc.alpha, desc.beta, desc.activation, desc.math);
    assert_eq!(last, (2.0, 0.5, Activation::Relu, MathMode::EmulatedF32));
    assert_eq!(desc.flops(), 2.0 * m as f64 * n as f64 * k as f64 * batch as f64);

    let mut call = Call::default();
    for (arg, of) in ["a", "b", "c"].into_iter().zip(types) {
        call.require_float(arg, of);
    }
    call.fault_if(!call.is_refused() && !TYPES.contains(&types), dtype("c", types[2]));
    let empty = [batch, m, n].contains(&0);
    let dims = |matrix: Matrix, [rows, columns]: [usize; 2]| {
        [(batch, matrix.batch_stride), (rows, matrix.ld), (columns, 1)]
    };
    for ((arg, matrix), extents) in [("a", a), ("b", b), ("c", c)].into_iter().zip(extents) {
        call.require_at_least(extents[1].max(1), matrix.ld);
        let access = if arg == "c" { Write } else { Read };
        let named = Named::new(arg, matrix.ptr, matrix.dtype, access, dims(matrix, extents));
        if empty {
            call.tolerate(overflow());
        }
        call.name(named.only_if(!empty));
    }
    let length = if axis == BiasAxis::Row { m } else { n };
    call.name(Named::packed("bias", 4, types[2], Read, &[length]).only_if(bias.is_some() && !empty));
    call.judge_operands(desc.operands(OP))
}

/// Strides of `[batch, heads, seq, head_dim]`, or of `[batch, seq, heads, head_dim]`, or any.
fn head_strides(g: &mut Gen, [batch, heads, seq, dim]: [usize; 4]) -> Option<HeadLayout> {
    if g.one_in(2) {
        return None;
    }
    let strides = g.strides(&[batch, heads, seq]);
    let wide = dim.saturating_add(g.below(2));
    let apart = |stride: usize| if g.one_in(12) { stride } else { stride.saturating_mul(wide) };
    let [batch, head, token]: [usize; 3] =
        strides[..3].iter().copied().map(apart).collect::<Vec<_>>().try_into().ok()?;
    Some(HeadLayout { offset: 0, batch, head, token })
}

fn heads(shape: [usize; 4], strides: Option<HeadLayout>) -> Dims {
    let mut dims = packed_dims(&shape);
    if let Some(HeadLayout { batch, head, token, .. }) = strides {
        (dims[0].1, dims[1].1, dims[2].1) = (batch, head, token);
    }
    dims
}

pub(crate) fn attention(g: &mut Gen) -> bool {
    let [batch, n, seq_q, seq_kv, dim] = g.extents();
    let of = g.float();
    let mut desc =
        AttentionDesc::new(of, 1, 2, 3, 4, AttentionShape { batch, heads: n, seq_q, seq_kv, head_dim: dim });
    assert!((desc.scale * desc.scale * dim.max(1) as f64 - 1.0).abs() < 1e-12);
    let kv_heads = g.pick(&[n, n, 1, 2, 0]);
    desc.kv_heads = kv_heads;
    let kv_dtype = if g.one_in(4) { g.dtype() } else { of };
    desc.kv_format = KvFormat::Float(kv_dtype);
    let v_dim = if g.one_in(3) { g.extent() } else { dim };
    desc.v_head_dim = v_dim;
    desc.mask_dtype = if g.one_in(3) { g.dtype() } else { of };
    let (queries, outputs) = ([batch, n, seq_q, dim], [batch, n, seq_q, v_dim]);
    let (keys, values) = ([batch, kv_heads, seq_kv, dim], [batch, kv_heads, seq_kv, v_dim]);
    desc.q_layout = head_strides(g, queries);
    desc.k_layout = head_strides(g, keys);
    desc.v_layout = head_strides(g, values);
    desc.o_layout = head_strides(g, outputs);
    desc.mask = g.maybe(5).map(|ptr| {
        let [batch_stride, head_stride, query_stride] = [g.extent(), g.extent(), g.extent()];
        AttentionMask { ptr, batch_stride, head_stride, query_stride }
    });
    (desc.key_lengths, desc.lse, desc.sinks) = (g.maybe(6), g.maybe(7), g.maybe(8));

    let mut call = Call::default();
    call.require_float("dtype", of);
    let cached = (of, kv_dtype) == (DType::F32, DType::F16);
    call.fault_if(kv_dtype != of && !cached, dtype("kv_format", kv_dtype));
    let masks = [of, DType::U32].contains(&desc.mask_dtype);
    call.fault_if(!masks, dtype("mask_dtype", desc.mask_dtype));
    call.fault_if(n > 0 && kv_heads == 0, shape(1, 0));
    call.require_eq(0, n.checked_rem(kv_heads).unwrap_or(0));
    call.require_countable(&queries);
    call.require_countable(&outputs);
    let some = [queries, outputs].iter().all(|of| volume(&packed_dims(of)) > 0);
    if !some {
        call.tolerate(overflow());
    }
    if [keys, values].iter().any(|of| volume(&packed_dims(of)) > usize::MAX as u128) {
        call.fault_if(some, overflow());
    }
    for (arg, ptr, of, access, dims) in [
        ("q", 1, of, Read, heads(queries, desc.q_layout)),
        ("k", 2, kv_dtype, Read, heads(keys, desc.k_layout)),
        ("v", 3, kv_dtype, Read, heads(values, desc.v_layout)),
        ("o", 4, of, Write, heads(outputs, desc.o_layout)),
    ] {
        call.name(Named::new(arg, ptr, of, access, dims).only_if(some));
    }
    let mask = desc.mask.map(|mask| {
        let rows = [(batch, mask.batch_stride), (n, mask.head_stride), (seq_q, mask.query_stride)];
        Named::new("mask", 5, desc.mask_dtype, Read, rows.into_iter().chain([(seq_kv, 1)]))
    });
    call.name(mask.unwrap_or(Named::absent("mask")).only_if(some));
    let lengths = Named::packed("key_lengths", 6, DType::U32, Read, &[batch]);
    call.name(lengths.only_if(some && desc.key_lengths.is_some()));
    let lse = Named::packed("lse", 7, DType::F32, Write, &queries[..3]);
    call.name(lse.only_if(some && desc.lse.is_some()));
    let sinks = Named::packed("sinks", 8, DType::F32, Read, &[n]);
    call.name(sinks.only_if(some && desc.sinks.is_some()));
    call.name(Named::absent("block_table"));
    call.judge_operands(desc.operands(OP))
}

pub(crate) fn rope(g: &mut Gen) -> bool {
    let (of, extents @ [batch, _, seq, dim]) = (g.float(), g.extents());
    let rotary = if g.one_in(2) { dim / 2 * 2 } else { g.extent() };
    let start = if g.one_in(2) { 0 } else { g.extent() };
    let end = start.saturating_add(seq);
    let max_position = g.about(end);
    let shape = RopeShape { batch, heads: extents[1], seq, head_dim: dim };
    let mut desc =
        RopeDesc::new(of, 1, 2, RopeTables { cos: 3, sin: 4, max_position }, shape, RopeStyle::Half);
    assert_eq!((desc.rotary_dim, desc.start), (dim, 0));
    (desc.rotary_dim, desc.start, desc.positions) = (rotary, start, (!g.one_in(2)).then_some(5));
    desc.input_layout = head_strides(g, extents);
    desc.output_layout = if g.one_in(2) { desc.input_layout } else { head_strides(g, extents) };

    let mut call = Call::default();
    call.require_float("dtype", of);
    call.require_eq(0, rotary % 2);
    call.require_at_least(rotary, dim);
    call.require_countable(&extents);
    let some = volume(&packed_dims(&extents)) > 0;
    if some && rotary > 0 {
        match (desc.positions, start.checked_add(seq)) {
            (Some(_), _) => call.require_at_least(1, max_position),
            (None, Some(end)) => call.require_at_least(end, max_position),
            (None, None) => call.fault_if(true, overflow()),
        }
    }
    let [from, to] = [desc.input_layout, desc.output_layout].map(|strides| heads(extents, strides));
    let access = if from == to { ReadInPlace } else { Read };
    call.name(Named::new("input", 1, of, access, from));
    call.name(Named::new("output", 2, of, Write, to));
    for (arg, ptr) in [("cos", 3), ("sin", 4)] {
        call.name(Named::packed(arg, ptr, DType::F32, Read, &[max_position, rotary / 2]).only_if(some));
    }
    let positions = Named::packed("positions", 5, DType::U32, Read, &[batch, seq]);
    call.name(positions.only_if(some && desc.positions.is_some()));
    call.judge_operands(desc.operands(OP))
}

pub(crate) fn rope_append(g: &mut Gen) -> bool {
    let types = if g.one_in(8) { [g.dtype(), g.dtype()] } else { [g.float(), g.float()] };
    let ([rows, heads, kv_heads, dim], cache_rows) = (g.extents(), g.extent());
    let rotary = if g.one_in(2) { dim / 2 * 2 } else { g.extent() };
    let max_position = g.about(3);
    let exact = |heads: u128| heads * dim as u128;
    let [of_queries, of_cache] = [heads as u128, 2 * kv_heads as u128].map(exact);
    let saturated = |count: u128| usize::try_from(count).unwrap_or(usize::MAX);
    let [width, cached] = [of_queries + of_cache, of_cache].map(saturated);
    let [qkv, cache] = [matrix(g, 1, types[0], rows, width), matrix(g, 2, types[1], cache_rows, cached)];
    let tables = RopeTables { cos: 3, sin: 4, max_position };
    let shape = RopeAppendShape { rows, heads, kv_heads, head_dim: dim, cache_rows };
    let mut desc = RopeAppendDesc::new(qkv, cache, tables, shape, 5, 6);
    assert_eq!((desc.rotary_dim, desc.style, desc.widths()), (dim, RopeStyle::Half, [width, cached]));
    desc.rotary_dim = rotary;
    let normed = g.one_in(2);
    if normed {
        desc = desc.with_norm(QkNorm::new(7, 8, 1e-6));
    }

    let mut call = Call::default();
    call.require_float("qkv", types[0]);
    call.require_float("cache", types[1]);
    call.require_eq(0, rotary % 2);
    call.require_at_least(rotary, dim);
    call.fault_if(of_queries + of_cache > usize::MAX as u128, overflow());
    call.require_at_least(width.max(1), qkv.ld);
    call.require_at_least(cached.max(1), cache.ld);
    let appends = rows > 0 && cached > 0 && cache_rows > 0;
    let touches = appends || (rows > 0 && heads > 0 && dim > 0);
    if touches && rotary > 0 {
        call.require_at_least(1, max_position);
    }
    call.name(Named::new("qkv", 1, types[0], Write, [(rows, qkv.ld), (width, 1)]).only_if(touches));
    call.name(
        Named::new("cache", 2, types[1], Write, [(cache_rows, cache.ld), (cached, 1)]).only_if(appends),
    );
    let angles = if touches { [max_position, rotary / 2] } else { [0, 0] };
    call.name(Named::packed("cos", 3, DType::F32, Read, &angles));
    call.name(Named::packed("sin", 4, DType::F32, Read, &angles));
    let numbers = |arg, ptr| Named::packed(arg, ptr, DType::U32, Read, &[rows]);
    call.name(numbers("positions", 5).only_if(touches && rotary > 0));
    call.name(numbers("indices", 6).only_if(appends));
    let weight = |arg, ptr| Named::packed(arg, ptr, types[0], Read, &[dim]);
    let has_queries = rows > 0 && heads > 0 && dim > 0;
    call.name(weight("query norm", 7).only_if(normed && has_queries));
    call.name(weight("key norm", 8).only_if(normed && appends));
    call.judge_operands(desc.operands(OP))
}
