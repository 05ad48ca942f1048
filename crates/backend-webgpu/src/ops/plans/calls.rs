//! Random calls of what the [shapes](super::shapes) leave out: masks, tables, biases, other layouts, and the operations
//! that have no plan in words.

use backend_api::desc::{
    AttentionAlignment, AttentionDesc, AttentionMask, AttentionShape, Bias, BiasAxis, BinaryDesc, BlockTable,
    ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvShape, ConvTransposeDesc, CopyDesc,
    CumSumDesc, HeadLayout, ImageLayout, ImageShape, LayerNormDesc, MatmulDesc, Matrix, ReduceDesc,
    RmsNormDesc, SoftmaxBackwardDesc, SoftmaxDesc, TensorDesc, Window,
};
use backend_api::kv::KvFormat;
use backend_api::{
    Activation, BackendResult, BackendTranspose, BinaryOp, ComputeBackend as _, DType, MathMode, ReduceOp,
};

use super::expert_calls::experts;
use super::shapes::Shapes;
use crate::WebGpuBackend;
use crate::ops::tune_matmul;

/// A call, and what is said of it: its arguments, and its plan where there are words for that.
pub(super) type Call = Box<dyn Fn(&WebGpuBackend) -> BackendResult<String>>;

/// Handles of the operands of a call. The last is the second half of the buffer of `[4]`.
pub(super) type Ptrs = [u64; 8];

/// The calls of a family of operations.
#[derive(Clone, Copy)]
pub(super) struct Family {
    pub(super) name: &'static str,
    /// A random call.
    pub(super) call: fn(&mut Shapes, Ptrs) -> Call,
    /// How many calls of the others there are for each.
    pub(super) rarity: usize,
}

impl Family {
    const fn of(name: &'static str, call: fn(&mut Shapes, Ptrs) -> Call) -> Self {
        Self { name, call, rarity: 1 }
    }
}

/// Products, attention, convolutions, reductions, rows, strided tensors, tuned products, of which each makes many
/// others, and products with experts. Of the first three, kernels can be asked for.
pub(super) const FAMILIES: [Family; 8] = [
    Family::of("products", product),
    Family::of("attention", attention),
    Family::of("convolutions", convolution),
    Family::of("reductions", reduction),
    Family::of("rows", rows),
    Family::of("strided tensors", strided),
    Family { name: "tuned products", call: tuned, rarity: 30 },
    Family::of("products with experts", experts),
];

/// Bytes of each operand.
pub(super) const BYTES: usize = 1 << 27;

fn product(shapes: &mut Shapes, p: Ptrs) -> Call {
    let [m, n, k] = [(); 3].map(|()| shapes.extent(1500));
    let [m, n, k] = match shapes.below(20) {
        0 => [m, n, 0],
        3..=5 => [m, m, k],
        // Long sums of few.
        1 | 2 => [m.min(64), n.min(64), shapes.extent(1 << 17)],
        // Whole tiles, or little more.
        6..=9 => {
            let [m, n] = [(); 2].map(|()| 128 * shapes.extent(8) + shapes.pick(&[0, 1, 8, 16]));
            [m, n, 64 * shapes.extent(16)]
        }
        _ => [m, n, k],
    };
    let batch = shapes.pick(&[1, 1, 3]);
    let [ta, tb] = [(); 2].map(|()| shapes.pick(&[BackendTranspose::NoTrans, BackendTranspose::Trans]));
    let of = |t: BackendTranspose, rows, columns| {
        if t.is_transposed() { [columns, rows] } else { [rows, columns] }
    };
    let types = shapes.pick(&[
        [DType::F32; 3],
        [DType::F32; 3],
        [DType::F16; 3],
        [DType::F16, DType::F16, DType::F32],
        [DType::F32, DType::F16, DType::F32],
        [DType::F16, DType::F32, DType::F32],
    ]);
    let mut matrix = |ptr, dtype, [rows, columns]: [usize; 2]| {
        let ld = columns + shapes.pick(&[0, 0, 1, 8]);
        let matrix = Matrix::new(ptr, dtype, ld).with_offset(shapes.pick(&[0, 0, 1, 4]));
        // One operand for the whole batch, or one for each product, with a gap or none between them.
        let stride = shapes.pick(&[0, 1, 1]) * (rows * ld + shapes.pick(&[0, 0, 3, 16]));
        let matrix = matrix.with_batch_stride(stride);
        if shapes.below(6) > 0 {
            return matrix;
        }
        // Up to the end of its buffer.
        let elements = (batch - 1) * stride + rows.saturating_sub(1) * ld + columns;
        matrix.with_offset(BYTES / dtype.size() - elements)
    };
    let a = matrix(p[0], types[0], of(ta, m, k));
    let b = matrix(p[1], types[1], of(tb, k, n));
    let c = matrix(p[2], types[2], [m, n]);
    let c = c.with_batch_stride(m * c.ld + shapes.pick(&[0, 0, 5]));
    let mut desc = MatmulDesc::new(m, n, k, a, b, c).with_transpose(ta, tb).with_batch(batch);
    if shapes.below(2) == 0 {
        desc = desc.with_bias(Bias { ptr: p[3], axis: shapes.pick(&[BiasAxis::Column, BiasAxis::Row]) });
    }
    if shapes.below(3) == 0 {
        desc = desc.with_scale(2.0, shapes.pick(&[0.0, 1.0]));
    }
    if shapes.below(3) == 0 {
        desc = desc.with_activation(Activation::ALL[shapes.below(Activation::ALL.len())]);
    }
    if types[2] == DType::F32 && shapes.below(2) == 0 {
        desc = desc.with_math(MathMode::EmulatedF32);
    }
    Box::new(move |backend| {
        let words = backend.explain_matmul(&desc)?;
        backend.matmul(&desc)?;
        Ok(format!("{desc:?} {words}"))
    })
}

/// Has a product's kernels measured; what is chosen then.
fn tuned(shapes: &mut Shapes, [a, b, c, ..]: Ptrs) -> Call {
    let [m, n, k] = [shapes.extent(300), shapes.extent(300), shapes.extent(3000)];
    let dtype = shapes.pick(&[DType::F32, DType::F16]);
    let [ta, tb] = [(); 2].map(|()| shapes.pick(&[BackendTranspose::NoTrans, BackendTranspose::Trans]));
    let spare = shapes.pick(&[0, 1, 8]);
    let matrix = |ptr, rows, columns, trans: BackendTranspose| {
        Matrix::new(ptr, dtype, if trans.is_transposed() { rows } else { columns } + spare)
    };
    let operands = [matrix(a, m, k, ta), matrix(b, k, n, tb), matrix(c, m, n, BackendTranspose::NoTrans)];
    let desc = MatmulDesc::new(m, n, k, operands[0], operands[1], operands[2]).with_transpose(ta, tb);
    Box::new(move |backend| {
        let call = backend.context("tuned")?;
        let mut measured = 0;
        tune_matmul(&call.context, "tuned", &desc, |work| {
            work()?;
            measured += 1;
            // Any time that isn't the order in which kernels are measured.
            Ok(Some((measured * 7919 % 101) as f64))
        })?;
        drop(call);
        Ok(format!("{desc:?} of {measured}: {}", backend.explain_matmul(&desc)?))
    })
}

fn attention(shapes: &mut Shapes, p: Ptrs) -> Call {
    let dtype = shapes.pick(&[DType::F32, DType::F16, DType::F16]);
    let [batch, groups, kv_heads] = [shapes.extent(4), shapes.pick(&[1, 2, 4, 8]), shapes.extent(4)];
    let [seq_q, seq_kv] = [shapes.pick(&[1, 1, 3, 8, 9, 16, 17, 64, 200]), shapes.extent(3000)];
    let seq_kv = if shapes.below(20) == 0 { 0 } else { seq_kv };
    let head_dim = 32 * shapes.pick(&[1, 2, 2, 3, 4, 4, 8]);
    let heads = groups * kv_heads;
    let shape = AttentionShape { batch, heads, seq_q, seq_kv, head_dim };
    let mut desc = AttentionDesc::new(dtype, p[0], p[1], p[2], p[3], shape).with_kv_heads(kv_heads);
    desc = desc.with_causal(shapes.below(2) == 0);
    desc = match shapes.below(5) {
        0 => desc.with_kv_format(KvFormat::Q8_0),
        1 => desc.with_kv_format(KvFormat::Float(DType::F16)),
        _ => desc,
    };
    if shapes.below(5) == 0 {
        desc = desc.with_v_head_dim(32 * shapes.pick(&[1, 2, 4]));
    }
    if shapes.below(4) == 0 {
        desc = desc.with_window(shapes.pick(&[16, 300]));
    }
    if shapes.below(5) == 0 {
        desc = desc.with_softcap(shapes.pick(&[30.0, 30.0, 1e16, 1e-40]));
    }
    if shapes.below(5) == 0 {
        desc = desc.with_scale(shapes.pick(&[2.0, -0.5, 1e16, 1e-31]));
    }
    if shapes.below(3) == 0 && batch * heads * seq_q * seq_kv * size_of::<u32>() <= BYTES / 2 {
        let [head_stride, query_stride] = [seq_q * seq_kv, seq_kv];
        let batch_stride = shapes.pick(&[0, 1]) * heads * head_stride;
        desc = desc.with_mask(AttentionMask { ptr: p[4], batch_stride, head_stride, query_stride });
        desc = desc.with_mask_dtype(shapes.pick(&[dtype, DType::U32]));
    }
    if shapes.below(3) == 0 {
        desc = desc.with_key_lengths(p[5]);
        desc = desc.with_alignment(AttentionAlignment::ALL[shapes.below(3)]);
    } else if shapes.below(3) == 0 {
        desc = desc.with_alignment(AttentionAlignment::ALL[shapes.below(2)]);
    }
    let v_head_dim = desc.v_head_dim;
    match shapes.below(4) {
        0 => {
            let block_size = shapes.pick(&[16, 64]);
            let max_blocks = seq_kv.div_ceil(block_size);
            desc = desc.with_block_table(BlockTable::new(p[6], max_blocks, block_size, max_blocks * batch));
        }
        1 => {
            // Tokens outside of heads.
            let of = |heads: usize, seq: usize, dim: usize| {
                let token = heads * dim;
                HeadLayout { offset: 0, batch: seq * token, head: dim, token }
            };
            desc = desc.with_q_layout(of(heads, seq_q, head_dim)).with_o_layout(of(heads, seq_q, v_head_dim));
            desc = desc.with_k_layout(of(kv_heads, seq_kv, head_dim));
            desc = desc.with_v_layout(of(kv_heads, seq_kv, v_head_dim));
        }
        _ => {}
    }
    if shapes.below(4) == 0 {
        desc = desc.with_lse(p[7]);
    }
    if shapes.below(4) == 0 {
        desc = desc.with_sinks(p[5]);
    }
    Box::new(move |backend| {
        let words = backend.explain_attention(&desc)?;
        backend.attention_ext(&desc)?;
        Ok(format!("{desc:?} {words}"))
    })
}

fn conv_shape(shapes: &mut Shapes) -> ConvShape {
    if shapes.below(8) == 0 {
        // The first of a network for images.
        let channels = shapes.pick(&[0, 1, 2, 3, 4]);
        let side = shapes.pick(&[3, 4, 7, 8]);
        let [stride, height] = [shapes.pick(&[2, 4, 8]), 50 + shapes.extent(64)];
        let image = ImageShape { batch: 2, channels, height, width: 200 + shapes.pick(&[0, 1, 24]) };
        let window = Window::new([side; 2]).with_stride([stride; 2]).with_padding([side / 2; 2]);
        let layout = shapes.pick(&[ImageLayout::Nchw, ImageLayout::Nhwc]);
        return ConvShape::new(image, shapes.extent(128), window).with_layout(layout);
    }
    if shapes.below(4) == 0 {
        // Of one in the middle of a network, as tensor cores have them.
        let [channels, filters] = [64 * shapes.extent(8), 8 * shapes.extent(40)];
        let [height, width] = [(); 2].map(|()| shapes.pick(&[7, 14, 16, 28, 56, 64, 65, 72]));
        let image = ImageShape { batch: shapes.extent(4), channels, height, width };
        let layout = shapes.pick(&[ImageLayout::Nchw, ImageLayout::Nhwc]);
        let window = Window::new([3; 2]).with_padding([1; 2]);
        return ConvShape::new(image, filters, window).with_layout(layout);
    }
    let groups = shapes.pick(&[1, 1, 1, 2, 16]);
    let of_group = if groups == 16 { 2 } else { 128 };
    let [channels, filters] = [(); 2].map(|()| groups * shapes.extent(of_group));
    let [batch, height, width] = [shapes.extent(4), 8 + shapes.extent(60), 8 + shapes.extent(60)];
    let window = if shapes.below(8) == 0 {
        let sides = shapes.pick(&[[13, 11], [33, 31], [65, 63]]);
        Window::new(sides).with_padding(sides.map(|side| side / 2))
    } else if shapes.below(3) == 0 {
        let side = shapes.pick(&[3, 5]);
        Window::new([side; 2]).with_padding([side / 2; 2])
    } else {
        Window::new([shapes.pick(&[1, 2, 3, 4]), shapes.pick(&[1, 3, 5])])
            .with_stride([shapes.pick(&[1, 1, 2]), shapes.pick(&[1, 1, 2, 3])])
            .with_dilation([shapes.pick(&[1, 1, 2]), shapes.pick(&[1, 1, 1, 2])])
            .with_asymmetric_padding([shapes.below(2), shapes.below(3)], [shapes.below(2), shapes.below(3)])
    };
    ConvShape::new(ImageShape { batch, channels, height, width }, filters, window)
        .with_groups(groups)
        .with_layout(shapes.pick(&[ImageLayout::Nchw, ImageLayout::Nhwc]))
}

fn convolution(shapes: &mut Shapes, [input, filter, output, bias, ..]: Ptrs) -> Call {
    let (dtype, shape) = (shapes.pick(&[DType::F32, DType::F16]), conv_shape(shapes));
    match shapes.below(5) {
        0 | 4 => {
            let desc = ConvDesc::new(dtype, input, filter, output, shape).with_bias(bias);
            Box::new(move |backend| {
                let words = backend.explain_conv(&desc)?;
                backend.conv2d(&desc)?;
                Ok(format!("{desc:?} {words}"))
            })
        }
        1 => {
            let desc = ConvTransposeDesc::new(dtype, input, filter, output, shape).with_bias(bias);
            Box::new(move |backend| backend.conv_transpose2d(&desc).map(|()| format!("{desc:?}")))
        }
        2 => {
            let desc = ConvBackwardDataDesc::new(dtype, filter, input, output, shape);
            Box::new(move |backend| backend.conv2d_backward_data(&desc).map(|()| format!("{desc:?}")))
        }
        _ => {
            let desc = ConvBackwardFilterDesc::new(dtype, input, filter, output, shape);
            Box::new(move |backend| backend.conv2d_backward_filter(&desc).map(|()| format!("{desc:?}")))
        }
    }
}

/// Extents of up to four dimensions with at most `most` elements.
fn extents(shapes: &mut Shapes, most: usize) -> Vec<usize> {
    let extents: Vec<usize> = (0..=shapes.below(4)).map(|_| shapes.extent(300)).collect();
    if extents.iter().product::<usize>() > most { vec![shapes.extent(most)] } else { extents }
}

fn reduction(shapes: &mut Shapes, [input, output, ..]: Ptrs) -> Call {
    let extents = extents(shapes, 1 << 24);
    let axes: Vec<usize> = (0..extents.len()).filter(|_| shapes.below(2) == 0).collect();
    let op = shapes.pick(&[ReduceOp::Sum, ReduceOp::Max, ReduceOp::ArgMax, ReduceOp::LogSumExp]);
    let dtype = shapes.pick(&[DType::F32, DType::F16]);
    let offset = shapes.pick(&[0, 0, 1, 8]);
    Box::new(move |backend| {
        let tensor = TensorDesc::packed(input, dtype, &extents).with_offset(offset);
        backend.reduce_ext(&ReduceDesc::new(op, tensor, &axes, output))?;
        Ok(format!("{op:?} {dtype} {extents:?} {axes:?} {offset}"))
    })
}

fn rows(shapes: &mut Shapes, [input, output, weight, other, ..]: Ptrs) -> Call {
    let dtype = shapes.pick(&[DType::F32, DType::F16]);
    let length = shapes.extent(1 << 16);
    let outer = shapes.extent((1 << 22) / length);
    let inner = shapes.pick(&[1, 1, 1, 4, 7]);
    let what = format!("{dtype} {outer}x{length}x{inner}");
    let softmax = move || SoftmaxDesc::along(dtype, input, output, &[outer, length, inner], 1);
    match shapes.below(5) {
        0 => Box::new(move |backend| backend.softmax(&softmax()?).map(|()| format!("softmax {what}"))),
        1 => Box::new(move |backend| {
            backend.softmax_backward(&SoftmaxBackwardDesc::of(&softmax()?, other, input))?;
            Ok(format!("softmax_backward {what}"))
        }),
        2 => {
            let desc = LayerNormDesc::new(dtype, input, output, outer, length).with_weight(weight);
            let desc = if shapes.below(2) == 0 { desc.with_residual(other) } else { desc };
            Box::new(move |backend| backend.layer_norm(&desc).map(|()| format!("{desc:?}")))
        }
        3 => {
            let desc = RmsNormDesc::new(dtype, input, output, outer, length).with_weight(weight);
            Box::new(move |backend| backend.rms_norm(&desc).map(|()| format!("{desc:?}")))
        }
        _ => Box::new(move |backend| {
            let desc = CumSumDesc::along(dtype, input, output, &[outer, length, inner], 1)?;
            backend.cumsum(&desc).map(|()| format!("cumsum {what}"))
        }),
    }
}

fn strided(shapes: &mut Shapes, [a, b, output, ..]: Ptrs) -> Call {
    let dtype = shapes.pick(&[DType::F32, DType::F16]);
    let extents = extents(shapes, 1 << 23);
    let (rank, offset) = (extents.len(), shapes.pick(&[0, 0, 1, 4]));
    // Packed in another order, or repeated along some dimensions.
    let (first, repeated) = (shapes.below(rank), shapes.below(1 << rank));
    let mut strides = vec![0; rank];
    let mut stride = 1;
    for axis in (0..rank).rev().map(|axis| (axis + first) % rank) {
        strides[axis] = stride;
        stride *= extents[axis];
    }
    if shapes.below(2) == 0 {
        return Box::new(move |backend| {
            let src = TensorDesc::strided(a, dtype, &extents, &strides).with_offset(offset);
            let dst = TensorDesc::packed(output, DType::F32, &extents);
            backend.copy(&CopyDesc::new(src, dst))?;
            Ok(format!("copy {dtype} {extents:?} {strides:?} {offset}"))
        });
    }
    (0..rank).filter(|axis| repeated >> axis & 1 == 1).for_each(|axis| strides[axis] = 0);
    Box::new(move |backend| {
        let whole = |ptr| TensorDesc::packed(ptr, dtype, &extents).with_offset(offset);
        let repeated = TensorDesc::strided(b, dtype, &extents, &strides);
        backend.binary_ext(&BinaryDesc::new(BinaryOp::Add, whole(a), repeated, whole(output)))?;
        Ok(format!("add {dtype} {extents:?} {strides:?} {offset}"))
    })
}
