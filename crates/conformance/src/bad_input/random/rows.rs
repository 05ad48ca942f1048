//! Random reductions, normalisations, rotations and gathers.

use backend_api::desc::{
    BatchNormDesc, ChannelShape, CumSumDesc, Distribution, GatherDesc, GroupNormDesc, HeadLayout, IndexShape,
    LayerNormDesc, Matrix, NormBackwardDesc, NormBackwardWeightDesc, QkNorm, RandomDesc, ReduceDesc,
    RepetitionPenalty, RmsNormDesc, RopeAppendDesc, RopeAppendShape, RopeDesc, RopeShape, RopeStyle,
    RopeTables, SampleDesc, ScatterDesc, SoftmaxBackwardDesc, SoftmaxDesc, SoftmaxOver, TensorDesc, TopKDesc,
};
use backend_api::{BackendResult, DType, ReduceOp, ScatterOp};

use super::Call;
use super::calls::{Method, call};
use super::draw::{dtype, factor, maybe, shape, size, sizes};
use super::pool::Pool;
use crate::rng::Rng;

pub(super) const METHODS: &[Method] = &[
    reduce,
    reduce_ext,
    softmax,
    norm,
    group_norm,
    batch_norm,
    cumsum,
    backward,
    rope,
    rope_append,
    gather,
    top_k,
    sample,
    random,
];

fn reduce<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (op, shape, axis) = (rng.pick(ReduceOp::ALL), shape(rng), size(rng));
    let (input, output) = (pool.pick(rng), pool.pick(rng));
    let axes = [axis];
    let desc = ReduceDesc::new(op, TensorDesc::packed(input, DType::F32, &shape), &axes, output);
    let verdict = pool.check("reduce", desc.operands("reduce").map(|(operands, _)| operands));
    let label = format!("reduce {op:?} {input:#x} {output:#x} {shape:?} {axis}");
    call(label, verdict, move |b| b.reduce(op, input, output, &shape, axis))
}

fn reduce_ext<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (op, from, shape) = (rng.pick(ReduceOp::ALL), dtype(rng), shape(rng));
    let axes: Vec<usize> =
        (0..rng.below(4)).map(|_| if rng.one_in(9) { size(rng) } else { rng.below(4) }).collect();
    // Many elements at a stride of 0 fit in any memory and take for ever.
    let stride = |extent: usize, stride: usize| if extent < 1000 { stride } else { stride.max(1) };
    let strides: Vec<usize> = shape.iter().map(|&extent| stride(extent, size(rng))).collect();
    let strides = maybe(rng, strides);
    let output_strides: Vec<usize> = (0..rng.below(4)).map(|_| size(rng)).collect();
    let (output_strides, to) =
        (maybe(rng, output_strides), if rng.one_in(4) { Some(dtype(rng)) } else { None });
    let [input, output] = std::array::from_fn(|_| pool.pick(rng));
    let label = format!(
        "reduce_ext {op:?} {from} {input:#x} {shape:?} {strides:?} over {axes:?} to {to:?} {output:#x} {output_strides:?}"
    );
    let with_desc = move |f: &mut dyn FnMut(&ReduceDesc<'_>) -> BackendResult<()>| {
        let tensor = TensorDesc::packed(input, from, &shape).with_strides(strides.as_deref());
        let mut desc = ReduceDesc::new(op, tensor, &axes, output);
        desc.output_dtype = to.unwrap_or(desc.output_dtype);
        desc.output_strides = output_strides.as_deref();
        f(&desc)
    };
    let verdict = with_desc(&mut |desc| {
        pool.check("reduce_ext", desc.operands("reduce_ext").map(|(operands, _)| operands))
    });
    call(label, verdict, move |b| with_desc(&mut |desc| b.reduce_ext(desc)))
}

fn softmax<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let mut d = SoftmaxDesc::rows(dtype(rng), pool.pick(rng), pool.pick(rng), size(rng), size(rng));
    (d.inner, d.log) = (size(rng), rng.one_in(2));
    let verdict = pool.check("softmax", d.operands("softmax"));
    call(format!("{d:?}"), verdict, move |b| b.softmax(&d))
}

/// Mostly `of`, as which the call may be good.
fn other_dtype(rng: &mut Rng, of: DType) -> DType {
    if rng.one_in(4) { dtype(rng) } else { of }
}

fn norm<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (dtype, input, output, [rows, columns]) = (dtype(rng), pool.pick(rng), pool.pick(rng), sizes(rng));
    let [weight, bias, residual, sum] = std::array::from_fn(|_| {
        let ptr = pool.pick(rng);
        maybe(rng, ptr)
    });
    let weight_dtype = other_dtype(rng, dtype);
    if rng.one_in(2) {
        let mut d = LayerNormDesc::new(dtype, input, output, rows, columns);
        (d.weight, d.bias, d.weight_dtype) = (weight, bias, weight_dtype);
        (d.residual, d.sum, d.eps) = (residual, sum, factor(rng));
        d.output_dtype = other_dtype(rng, dtype);
        let verdict = pool.check("layer_norm", d.operands("layer_norm"));
        call(format!("{d:?}"), verdict, move |b| b.layer_norm(&d))
    } else {
        let mut d = RmsNormDesc::new(dtype, input, output, rows, columns);
        (d.weight, d.weight_dtype, d.residual, d.sum) = (weight, weight_dtype, residual, sum);
        (d.eps, d.output_dtype) = (factor(rng), other_dtype(rng, dtype));
        let verdict = pool.check("rms_norm", d.operands("rms_norm"));
        call(format!("{d:?}"), verdict, move |b| b.rms_norm(&d))
    }
}

fn group_norm<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let [input, output, weight, bias] = std::array::from_fn(|_| pool.pick(rng));
    let [batch, channels, spatial] = sizes(rng);
    let shape = ChannelShape { batch, channels, spatial };
    let mut d = GroupNormDesc::new(dtype(rng), input, output, shape, size(rng));
    d.weight_dtype = other_dtype(rng, d.dtype);
    (d.weight, d.bias, d.eps) = (maybe(rng, weight), maybe(rng, bias), factor(rng));
    let verdict = pool.check("group_norm", d.operands("group_norm"));
    call(format!("{d:?}"), verdict, move |b| b.group_norm(&d))
}

fn batch_norm<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (of, [input, output, mean, variance]) = (dtype(rng), std::array::from_fn(|_| pool.pick(rng)));
    let [batch, channels, spatial] = sizes(rng);
    let shape = ChannelShape { batch, channels, spatial };
    let mut d = BatchNormDesc::new(of, input, output, mean, variance, shape);
    d.weight_dtype = other_dtype(rng, d.dtype);
    let [weight, bias] = std::array::from_fn(|_| pool.pick(rng));
    (d.weight, d.bias, d.eps) = (maybe(rng, weight), maybe(rng, bias), factor(rng));
    let verdict = pool.check("batch_norm", d.operands("batch_norm"));
    call(format!("{d:?}"), verdict, move |b| b.batch_norm(&d))
}

fn cumsum<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (dtype, input, output, shape, axis) =
        (dtype(rng), pool.pick(rng), pool.pick(rng), shape(rng), size(rng));
    let (exclusive, reverse) = (rng.one_in(2), rng.one_in(2));
    let desc = move || -> BackendResult<CumSumDesc> {
        let mut desc = CumSumDesc::along(dtype, input, output, &shape, axis)?;
        (desc.exclusive, desc.reverse) = (exclusive, reverse);
        Ok(desc)
    };
    let verdict = desc().and_then(|desc| pool.check("cumsum", desc.operands("cumsum")));
    call(format!("{:?}", desc()), verdict, move |b| b.cumsum(&desc()?))
}

fn backward<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (dtype, [rows, columns]) = (dtype(rng), sizes(rng));
    let [x, y, z, weight]: [u64; 4] = std::array::from_fn(|_| pool.pick(rng));
    let mut input = NormBackwardDesc::layer_norm(dtype, x, y, z, rows, columns);
    (input.centred, input.eps, input.weight) = (rng.one_in(2), factor(rng), maybe(rng, weight));
    match rng.below(3) {
        0 => {
            let mut d = SoftmaxBackwardDesc::of(&SoftmaxDesc::rows(dtype, 0, x, rows, columns), y, z);
            (d.inner, d.log) = (size(rng), rng.one_in(2));
            let verdict = pool.check("softmax_backward", d.operands("softmax_backward"));
            call(format!("{d:?}"), verdict, move |b| b.softmax_backward(&d))
        }
        1 => {
            let verdict = pool.check("norm_backward", input.operands("norm_backward"));
            call(format!("{input:?}"), verdict, move |b| b.norm_backward(&input))
        }
        _ => {
            let d = NormBackwardWeightDesc::of(&input, z);
            let verdict = pool.check("norm_backward_weight", d.operands("norm_backward_weight"));
            call(format!("{d:?}"), verdict, move |b| b.norm_backward_weight(&d))
        }
    }
}

fn rope<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let [input, output, cos, sin] = std::array::from_fn(|_| pool.pick(rng));
    let style = rng.pick(&[RopeStyle::Half, RopeStyle::Interleaved]);
    let [batch, heads, seq, head_dim] = sizes(rng);
    let shape = RopeShape { batch, heads, seq, head_dim };
    let mut d = RopeDesc::new(
        dtype(rng),
        input,
        output,
        RopeTables { cos, sin, max_position: size(rng) },
        shape,
        style,
    );
    let (rotary, start, positions) = (size(rng), size(rng), pool.pick(rng));
    d.rotary_dim = maybe(rng, rotary).unwrap_or(d.head_dim & !1);
    d.start = maybe(rng, start).unwrap_or(0);
    d.positions = maybe(rng, positions);
    for strides in [&mut d.input_layout, &mut d.output_layout] {
        let [offset, batch, head, token] = sizes(rng);
        let offset = maybe(rng, offset).unwrap_or(0);
        *strides = maybe(rng, HeadLayout { offset, batch, head, token });
    }
    let verdict = pool.check("rope", d.operands("rope"));
    call(format!("{d:?}"), verdict, move |b| b.rope(&d))
}

fn rope_append<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let [qkv, cache, cos, sin, positions, indices] = std::array::from_fn(|_| pool.pick(rng));
    let [rows, heads, kv_heads, head_dim, cache_rows] = sizes(rng);
    let shape = RopeAppendShape { rows, heads, kv_heads, head_dim, cache_rows };
    let tables = RopeTables { cos, sin, max_position: size(rng) };
    let [qkv, cache] = [qkv, cache].map(|ptr| Matrix::new(ptr, dtype(rng), size(rng)));
    let mut d = RopeAppendDesc::new(qkv, cache, tables, shape, positions, indices);
    d.style = rng.pick(&[RopeStyle::Half, RopeStyle::Interleaved]);
    let rotary = size(rng);
    d.rotary_dim = maybe(rng, rotary).unwrap_or(d.head_dim & !1);
    let [query_norm, key_norm] = std::array::from_fn(|_| pool.pick(rng));
    d.norm = maybe(rng, QkNorm::new(query_norm, key_norm, 1e-5));
    if rng.one_in(2) {
        // Rows long enough.
        let [width, cached] = d.widths();
        (d.qkv.ld, d.cache.ld) = (width.max(1), cached.max(1));
    }
    let verdict = pool.check("rope_append", d.operands("rope_append"));
    call(format!("{d:?}"), verdict, move |b| b.rope_append(&d))
}

fn gather<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let ([table, indices, moved], [rows, columns, count]) =
        (std::array::from_fn(|_| pool.pick(rng)), sizes(rng));
    let shape = IndexShape { rows, columns, count };
    let (dtype, outer, per_element) = (dtype(rng), if rng.one_in(3) { size(rng) } else { 1 }, rng.one_in(3));
    if rng.one_in(2) {
        let mut d = GatherDesc::new(dtype, table, indices, moved, shape).with_outer(outer);
        d.per_element = per_element;
        let verdict = pool.check("gather", d.operands("gather"));
        call(format!("{d:?}"), verdict, move |b| b.gather(&d))
    } else {
        let mut d =
            ScatterDesc::new(rng.pick(ScatterOp::ALL), dtype, table, indices, moved, shape).with_outer(outer);
        d.per_element = per_element;
        if rng.one_in(3) {
            d.source_dtype = super::draw::dtype(rng);
        }
        let verdict = pool.check("scatter", d.operands("scatter"));
        call(format!("{d:?}"), verdict, move |b| b.scatter(&d))
    }
}

fn top_k<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let ([input, indices, values], [rows, columns, k]) =
        (std::array::from_fn(|_| pool.pick(rng)), sizes(rng));
    let mut d = TopKDesc::new(dtype(rng), input, indices, rows, columns, k);
    (d.values, d.largest) = (maybe(rng, values), rng.one_in(2));
    let over = rng.pick(&[SoftmaxOver::Found, SoftmaxOver::Row]);
    d.softmax = maybe(rng, over);
    let verdict = pool.check("top_k", d.operands("top_k"));
    call(format!("{d:?}"), verdict, move |b| b.top_k(&d))
}

fn sample<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let ([logits, tokens, window, offset], [rows, columns, len]) =
        (std::array::from_fn(|_| pool.pick(rng)), sizes(rng));
    let mut d = SampleDesc::new(dtype(rng), logits, tokens, rows, columns, rng.next_u64())
        .with_temperature(factor(rng))
        .with_top_k(size(rng))
        .with_top_p(factor(rng))
        .with_min_p(factor(rng))
        .with_offset(rng.next_u64());
    let repetition = RepetitionPenalty { window, len, penalty: factor(rng) };
    (d.repetition, d.offset_ptr) = (maybe(rng, repetition), maybe(rng, offset));
    let verdict = pool.check("sample", d.operands("sample"));
    call(format!("{d:?}"), verdict, move |b| b.sample(&d))
}

fn random<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let [first, second] = [factor(rng), factor(rng)];
    let distribution = if rng.one_in(2) {
        Distribution::Uniform { low: first, high: second }
    } else {
        Distribution::Normal { mean: first, std: second }
    };
    let mut d = RandomDesc::new(pool.pick(rng), dtype(rng), size(rng), rng.next_u64(), distribution)
        .with_offset(rng.next_u64() >> rng.below(64));
    let offset = pool.pick(rng);
    d.offset_ptr = maybe(rng, offset);
    let verdict = pool.check("random", d.operands("random"));
    call(format!("{d:?}"), verdict, move |b| b.random(&d))
}
