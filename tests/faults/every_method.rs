//! Each method of the contract that can fail, called with arguments that would be good.

use backend_api::desc::{
    AffineDesc, AttentionDesc, AttentionShape, BatchNormDesc, BinaryDesc, ChannelShape, ClampDesc,
    CompareDesc, ConcatDesc, ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvShape,
    ConvTransposeDesc, CopyDesc, CumSumDesc, DequantizeDesc, Distribution, GatherDesc, GroupNormDesc,
    ImageShape, IndexShape, LayerNormDesc, MatmulDesc, Matrix, NormBackwardDesc, NormBackwardWeightDesc,
    PadDesc, PermuteDesc, PoolBackwardDesc, PoolDesc, PoolOp, PoolShape, QuantGatherDesc, QuantMatmulDesc,
    QuantMatrix, QuantizeRowsDesc, RandomDesc, ReduceDesc, RepeatDesc, RmsNormDesc, RopeDesc, RopeShape,
    RopeStyle, RopeTables, SampleDesc, ScatterDesc, SliceDesc, SoftmaxBackwardDesc, SoftmaxDesc, TensorDesc,
    TopKDesc, UnaryDesc, WhereDesc, Window,
};
use backend_api::quant::QuantFormat;
use backend_api::{
    BackendResult, BackendTranspose, BinaryOp, Command, CompareOp, ComputeBackend, DType, ErrorKind,
    ReduceOp, UnaryOp,
};

type Call = fn(&dyn ComputeBackend, [u64; 4]) -> BackendResult<()>;

const NO: BackendTranspose = BackendTranspose::NoTrans;
const F32: DType = DType::F32;

/// The format whose planes take the least memory.
const U4: QuantFormat = QuantFormat::U4 { group: 16, zero_points: false };

/// Bytes that each of the four buffers has to have.
pub(crate) const BYTES: usize = 512;

/// A convolution and a pooling of two by two pixels, one by one.
const PIXELS: ConvShape = ConvShape::new(ImageShape::nchw([1, 1, 2, 2]), 1, Window::new([1, 1]));
const POOLED: PoolShape = PoolShape::new(ImageShape::nchw([1, 1, 2, 2]), [2, 2], Window::new([1, 1]));

/// Every method, over four buffers. `free` comes last.
const METHODS: &[(&str, Call)] = &[
    ("gemm", |b, [x, y, z, _]| b.gemm(NO, NO, 2, 2, 2, 1.0, x, 2, y, 2, 0.0, z, 2)),
    ("batched_gemm", |b, [x, y, z, _]| {
        b.batched_gemm(NO, NO, 2, 2, 2, 1.0, x, 2, 4, y, 2, 4, 0.0, z, 2, 4, 2)
    }),
    ("conv2d_forward", |b, [x, y, z, _]| {
        b.conv2d_forward(x, &[1, 1, 2, 2], y, &[1, 1, 1, 1], z, &[1, 1, 2, 2], &[1, 1], &[0, 0])
    }),
    ("attention", |b, [x, y, z, w]| b.attention(x, y, z, w, 1, 1, 2, 2, 2, 1.0, false)),
    ("reduce", |b, [x, y, ..]| b.reduce(ReduceOp::Sum, x, y, &[4], 0)),
    ("unary", |b, [x, y, ..]| b.unary(UnaryOp::Neg, x, y, 4)),
    ("binary", |b, [x, y, z, _]| b.binary(BinaryOp::Add, x, y, z, 4)),
    ("unary of nothing", |b, [x, y, ..]| b.unary(UnaryOp::Neg, x, y, 0)),
    ("synchronize", |b, _| b.synchronize()),
    ("alloc", |b, _| b.alloc(16).map(drop)),
    ("alloc_zeroed", |b, _| b.alloc_zeroed(18).map(drop)),
    ("alloc of nothing", |b, _| b.alloc(0).map(drop)),
    ("copy_htod", |b, [x, ..]| b.copy_htod(x, &[1; 16])),
    ("copy_htod of 3 bytes", |b, [x, ..]| b.copy_htod(x, &[1; 3])),
    ("copy_dtoh", |b, [x, ..]| b.copy_dtoh(&mut [0; 16], x)),
    ("copy_dtoh_async", |b, [x, ..]| pollster::block_on(b.copy_dtoh_async(&mut [0; 16], x))),
    ("synchronize_async", |b, _| pollster::block_on(b.synchronize_async())),
    ("warm_up_async", |b, _| pollster::block_on(b.warm_up_async(&[]))),
    ("view", |b, [x, ..]| b.view(x, 4, 4).map(drop)),
    ("copy_dtod", |b, [x, y, ..]| b.copy_dtod(x, y, 16)),
    ("fill", |b, [x, ..]| b.fill(x, F32, 4, 1.0)),
    ("matmul", |b, [x, y, z, _]| {
        let matrix = |ptr| Matrix::new(ptr, F32, 2);
        b.matmul(&MatmulDesc::new(2, 2, 2, matrix(x), matrix(y), matrix(z)))
    }),
    ("quant_matmul", |b, [x, y, z, _]| {
        let matrix = |ptr, ld| Matrix::new(ptr, F32, ld);
        b.quant_matmul(&QuantMatmulDesc::new(1, matrix(x, 16), QuantMatrix::new(y, U4, 1, 16), matrix(z, 1)))
    }),
    ("quant_gather", |b, [x, y, z, _]| {
        b.quant_gather(&QuantGatherDesc::new(F32, QuantMatrix::new(x, U4, 1, 16), y, z, 1))
    }),
    ("dequantize", |b, [x, y, ..]| {
        b.dequantize(&DequantizeDesc::new(QuantMatrix::new(x, U4, 1, 16), Matrix::new(y, F32, 16)))
    }),
    ("quantize_rows", |b, [x, y, ..]| {
        b.quantize_rows(&QuantizeRowsDesc::new(Matrix::new(x, F32, 32), y, 1, 32, 1))
    }),
    ("attention_ext", |b, ptrs| {
        b.attention_ext(&AttentionDesc::new(
            F32,
            ptrs[0],
            ptrs[1],
            ptrs[2],
            ptrs[3],
            AttentionShape { batch: 1, heads: 1, seq_q: 2, seq_kv: 2, head_dim: 2 },
        ))
    }),
    ("unary_ext", |b, [x, y, ..]| {
        let tensor = |ptr| TensorDesc::packed(ptr, F32, &[4]);
        b.unary_ext(&UnaryDesc::new(UnaryOp::Neg, tensor(x), tensor(y)))
    }),
    ("binary_ext", |b, [x, y, z, _]| {
        let tensor = |ptr| TensorDesc::packed(ptr, F32, &[4]);
        b.binary_ext(&BinaryDesc::new(BinaryOp::Add, tensor(x), tensor(y), tensor(z)))
    }),
    ("compare", |b, [x, y, z, _]| {
        let tensor = |ptr| TensorDesc::packed(ptr, F32, &[4]);
        b.compare(&CompareDesc::new(
            CompareOp::Lt,
            tensor(x),
            tensor(y),
            TensorDesc::packed(z, DType::U32, &[4]),
        ))
    }),
    ("where_cond", |b, [x, y, z, w]| {
        let tensor = |ptr| TensorDesc::packed(ptr, F32, &[4]);
        b.where_cond(&WhereDesc::new(
            TensorDesc::packed(x, DType::U32, &[4]),
            tensor(y),
            tensor(z),
            tensor(w),
        ))
    }),
    ("clamp", |b, [x, y, ..]| {
        let tensor = |ptr| TensorDesc::packed(ptr, F32, &[4]);
        b.clamp(&ClampDesc::new(tensor(x), tensor(y), 0.0, 1.0))
    }),
    ("affine", |b, [x, y, ..]| {
        let tensor = |ptr| TensorDesc::packed(ptr, F32, &[4]);
        b.affine(&AffineDesc::new(tensor(x), tensor(y), 2.0, 1.0))
    }),
    ("copy", |b, [x, y, ..]| {
        let tensor = |ptr| TensorDesc::packed(ptr, F32, &[4]);
        b.copy(&CopyDesc::new(tensor(x), tensor(y)))
    }),
    ("permute", |b, [x, y, ..]| {
        let tensor = |ptr| TensorDesc::packed(ptr, F32, &[2, 2]);
        b.permute(&PermuteDesc::new(tensor(x), tensor(y), &[1, 0]))
    }),
    ("slice", |b, [x, y, ..]| {
        let tensor = |ptr, shape| TensorDesc::packed(ptr, F32, shape);
        b.slice(&SliceDesc::new(tensor(x, &[4]), tensor(y, &[2]), &[1]))
    }),
    ("concat", |b, [x, y, z, _]| {
        let tensor = |ptr, shape| TensorDesc::packed(ptr, F32, shape);
        b.concat(&ConcatDesc::new(&[tensor(x, &[2]), tensor(y, &[2])], tensor(z, &[4]), 0))
    }),
    ("pad", |b, [x, y, ..]| {
        let tensor = |ptr, shape| TensorDesc::packed(ptr, F32, shape);
        b.pad(&PadDesc::new(tensor(x, &[2]), tensor(y, &[4]), &[1], 0.0))
    }),
    ("repeat", |b, [x, y, ..]| {
        let tensor = |ptr, shape| TensorDesc::packed(ptr, F32, shape);
        b.repeat(&RepeatDesc::new(tensor(x, &[2]), tensor(y, &[4])))
    }),
    ("reduce_ext", |b, [x, y, ..]| {
        b.reduce_ext(&ReduceDesc::new(ReduceOp::Max, TensorDesc::packed(x, F32, &[2, 2]), &[1], y))
    }),
    ("softmax", |b, [x, y, ..]| b.softmax(&SoftmaxDesc::rows(F32, x, y, 2, 2))),
    ("layer_norm", |b, [x, y, ..]| b.layer_norm(&LayerNormDesc::new(F32, x, y, 2, 2))),
    ("rms_norm", |b, [x, y, ..]| b.rms_norm(&RmsNormDesc::new(F32, x, y, 2, 2))),
    ("group_norm", |b, [x, y, ..]| {
        b.group_norm(&GroupNormDesc::new(F32, x, y, ChannelShape { batch: 1, channels: 2, spatial: 2 }, 2))
    }),
    ("batch_norm", |b, [x, y, z, w]| {
        b.batch_norm(&BatchNormDesc::new(F32, x, y, z, w, ChannelShape { batch: 1, channels: 2, spatial: 2 }))
    }),
    ("cumsum", |b, [x, y, ..]| b.cumsum(&CumSumDesc::along(F32, x, y, &[2, 2], 1)?)),
    ("softmax_backward", |b, [x, y, z, _]| {
        b.softmax_backward(&SoftmaxBackwardDesc::of(&SoftmaxDesc::rows(F32, 0, x, 2, 2), y, z))
    }),
    ("norm_backward", |b, [x, y, z, _]| b.norm_backward(&NormBackwardDesc::rms_norm(F32, x, y, z, 2, 2))),
    ("norm_backward_weight", |b, [x, y, z, _]| {
        let input = NormBackwardDesc::layer_norm(F32, x, y, 0, 2, 2);
        b.norm_backward_weight(&NormBackwardWeightDesc::of(&input, z))
    }),
    ("conv2d", |b, [x, y, z, _]| b.conv2d(&ConvDesc::new(F32, x, y, z, PIXELS))),
    ("conv_transpose2d", |b, [x, y, z, _]| b.conv_transpose2d(&ConvTransposeDesc::new(F32, x, y, z, PIXELS))),
    ("conv2d_backward_data", |b, [x, y, z, _]| {
        b.conv2d_backward_data(&ConvBackwardDataDesc::new(F32, x, y, z, PIXELS))
    }),
    ("conv2d_backward_filter", |b, [x, y, z, _]| {
        b.conv2d_backward_filter(&ConvBackwardFilterDesc::new(F32, x, y, z, PIXELS))
    }),
    ("pool2d", |b, [x, y, ..]| b.pool2d(&PoolDesc::new(PoolOp::Max, F32, x, y, POOLED))),
    ("pool2d_backward", |b, [x, y, z, _]| {
        let pooling = PoolDesc::new(PoolOp::Max, F32, x, 0, POOLED);
        b.pool2d_backward(&PoolBackwardDesc::of(&pooling, y, z))
    }),
    ("rope", |b, ptrs| {
        b.rope(&RopeDesc::new(
            F32,
            ptrs[0],
            ptrs[1],
            RopeTables { cos: ptrs[2], sin: ptrs[3], max_position: 2 },
            RopeShape { batch: 1, heads: 1, seq: 2, head_dim: 2 },
            RopeStyle::Half,
        ))
    }),
    ("gather", |b, [x, y, z, _]| {
        b.gather(&GatherDesc::new(F32, x, y, z, IndexShape { rows: 2, columns: 2, count: 2 }))
    }),
    ("scatter", |b, [x, y, z, _]| {
        b.scatter(&ScatterDesc::index_add(F32, x, y, z, IndexShape { rows: 2, columns: 2, count: 2 }))
    }),
    ("sample", |b, [x, y, ..]| b.sample(&SampleDesc::new(F32, x, y, 2, 2, 1))),
    ("top_k", |b, [x, y, ..]| b.top_k(&TopKDesc::new(F32, x, y, 2, 2, 1))),
    ("random", |b, [x, ..]| {
        b.random(&RandomDesc::new(x, F32, 4, 1, Distribution::Normal { mean: 0.0, std: 1.0 }))
    }),
    ("capture", |b, [x, y, ..]| {
        let graph = b.capture(&mut |b| b.unary(UnaryOp::Neg, x, y, 4))?;
        b.replay(graph).and(b.free_graph(graph))
    }),
    ("replay", |b, _| b.replay(1)),
    ("free_graph", |b, _| b.free_graph(1)),
    ("trim", |b, _| b.trim().map(drop)),
    ("set_memory_budget", |b, _| b.set_memory_budget(None)),
    ("free", |b, [x, ..]| b.free(x)),
];

/// Whether every operation of the contract is among the methods.
fn none_is_missing() -> Result<(), String> {
    let listed = |operation: &&str| METHODS.iter().any(|(name, _)| name == operation);
    match Command::OPERATIONS.iter().find(|operation| !listed(operation)) {
        Some(missing) => Err(format!("{missing} is missing in METHODS")),
        None => Ok(()),
    }
}

/// Whether every method works.
pub(crate) fn all_work(backend: &dyn ComputeBackend, ptrs: [u64; 4]) -> Result<(), String> {
    none_is_missing()?;
    let left_out = ["free", "alloc", "alloc_zeroed", "view", "replay", "free_graph"];
    for (name, call) in METHODS.iter().filter(|(name, _)| !left_out.contains(name)) {
        call(backend, ptrs).map_err(|error| format!("{name} failed: {error:?}"))?;
    }
    Ok(())
}

/// Whether every method fails with `kind`; `before` is told of each.
pub(crate) fn all_fail(
    backend: &dyn ComputeBackend,
    ptrs: [u64; 4],
    kind: ErrorKind,
    before: &dyn Fn(&str),
) -> Result<(), String> {
    for &(name, call) in METHODS {
        before(name);
        match call(backend, ptrs) {
            Err(error) if error.kind() == kind => {}
            other => return Err(format!("{name} gave {other:?}, expected {kind:?}")),
        }
    }
    for (name, result) in
        [("capabilities", backend.capabilities().map(drop)), ("device_info", backend.device_info().map(drop))]
    {
        match result {
            Err(error) if error.kind() == kind => {}
            // What is known of the device may still be told.
            Ok(()) if kind == ErrorKind::DeviceLost => {}
            other => return Err(format!("{name} gave {other:?}, expected {kind:?}")),
        }
    }
    if backend.is_initialized() {
        return Err("is_initialized() is true".to_owned());
    }
    Ok(())
}
