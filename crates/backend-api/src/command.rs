//! The operations of the contract as data, and the table that they come from.

use crate::DType;
use crate::desc::*;

/// The table of operations that take a descriptor: documentation and signature of the method of
/// [`ComputeBackend`](crate::ComputeBackend), and the variant of [`Command`] that it becomes. What has to be
/// there for every operation is made from these rows, by a macro that is called with all of them.
macro_rules! for_each_operation {
    ($callback:ident) => {
        $callback! {
            /// A matrix product with element types, strides, a batch, a bias and an activation.
            fn matmul(&MatmulDesc) => Matmul(&'a MatmulDesc);

            /// A product with a quantised matrix: a linear layer with an optional bias, activation and residual.
            #[doc(alias = "matmul_nbits")]
            #[doc(alias = "linear")]
            fn quant_matmul(&QuantMatmulDesc) => QuantMatmul(&'a QuantMatmulDesc);

            /// Products of rows with the quantised matrices that indices choose for them: a layer of experts.
            #[doc(alias = "mul_mat_id")]
            #[doc(alias = "grouped_gemm")]
            #[doc(alias = "moe")]
            #[doc(alias = "mixture_of_experts")]
            fn expert_matmul(&ExpertMatmulDesc) => ExpertMatmul(&'a ExpertMatmulDesc);

            /// Rows of a quantised table by index: the embedding lookup.
            #[doc(alias = "embedding")]
            fn quant_gather(&QuantGatherDesc) => QuantGather(&'a QuantGatherDesc);

            /// The weights of a quantised matrix as f32 or f16.
            fn dequantize(&DequantizeDesc) => Dequantize(&'a DequantizeDesc);

            /// Rows into a cache of keys and values, quantised.
            #[doc(alias = "append")]
            fn quantize_rows(&QuantizeRowsDesc) => QuantizeRows(&'a QuantizeRowsDesc);

            /// [`attention`](Self::attention) with element types, strides, a mask, key lengths, grouped
            /// heads, a window, bounded scores, and their log-sum-exp.
            fn attention_ext(&AttentionDesc) => Attention(&'a AttentionDesc);

            /// [`unary`](Self::unary) over strided tensors.
            fn unary_ext(&UnaryDesc<'_>) => Unary(&'a UnaryDesc<'a>);

            /// [`binary`](Self::binary) over strided tensors and numbers with broadcasting: adds a bias,
            /// scales by a vector, gates by [`Swiglu`](BinaryOp::Swiglu).
            #[doc(alias = "swiglu")]
            #[doc(alias = "geglu")]
            #[doc(alias = "glu")]
            fn binary_ext(&BinaryDesc<'_>) => Binary(&'a BinaryDesc<'a>);

            /// Compares strided tensors and numbers with broadcasting; 1 where it holds, 0 where it doesn't.
            fn compare(&CompareDesc<'_>) => Compare(&'a CompareDesc<'a>);

            /// Takes each element from one of two strided tensors or numbers, by a condition.
            #[doc(alias = "where")]
            #[doc(alias = "select")]
            #[doc(alias = "masked_fill")]
            fn where_cond(&WhereDesc<'_>) => Where(&'a WhereDesc<'a>);

            /// Bounds each element from below and above.
            #[doc(alias = "clip")]
            fn clamp(&ClampDesc<'_>) => Clamp(&'a ClampDesc<'a>);

            /// Scales each element and adds a number.
            fn affine(&AffineDesc<'_>) => Affine(&'a AffineDesc<'a>);

            /// Copies a strided tensor, converting the element type.
            #[doc(alias = "cast")]
            #[doc(alias = "contiguous")]
            #[doc(alias = "transpose")]
            fn copy(&CopyDesc<'_>) => Copy(&'a CopyDesc<'a>);

            /// Puts the dimensions of a tensor in another order.
            #[doc(alias = "transpose")]
            fn permute(&PermuteDesc<'_>) => Permute(&'a PermuteDesc<'a>);

            /// Takes a box out of a tensor, or every n-th element of it.
            #[doc(alias = "narrow")]
            #[doc(alias = "split")]
            fn slice(&SliceDesc<'_>) => Slice(&'a SliceDesc<'a>);

            /// Puts tensors after each other along an axis.
            #[doc(alias = "cat")]
            #[doc(alias = "stack")]
            fn concat(&ConcatDesc<'_>) => Concat(&'a ConcatDesc<'a>);

            /// Puts a value around a tensor.
            fn pad(&PadDesc<'_>) => Pad(&'a PadDesc<'a>);

            /// Repeats a tensor along its dimensions.
            #[doc(alias = "tile")]
            #[doc(alias = "expand")]
            #[doc(alias = "repeat_interleave")]
            fn repeat(&RepeatDesc<'_>) => Repeat(&'a RepeatDesc<'a>);

            /// [`reduce`](Self::reduce) over any axes of a strided tensor of any element type.
            fn reduce_ext(&ReduceDesc<'_>) => Reduce(&'a ReduceDesc<'a>);

            /// Softmax along an axis, or its logarithm.
            fn softmax(&SoftmaxDesc) => Softmax(&'a SoftmaxDesc);

            /// Layer normalisation of rows, with an optional residual.
            fn layer_norm(&LayerNormDesc) => LayerNorm(&'a LayerNormDesc);

            /// Root-mean-square normalisation of rows, with an optional residual.
            fn rms_norm(&RmsNormDesc) => RmsNorm(&'a RmsNormDesc);

            /// Normalisation of groups of channels.
            fn group_norm(&GroupNormDesc) => GroupNorm(&'a GroupNormDesc);

            /// Normalisation of channels by given statistics.
            fn batch_norm(&BatchNormDesc) => BatchNorm(&'a BatchNormDesc);

            /// Cumulative sum along an axis.
            fn cumsum(&CumSumDesc) => CumSum(&'a CumSumDesc);

            /// The gradient of [`softmax`](Self::softmax).
            fn softmax_backward(&SoftmaxBackwardDesc) => SoftmaxBackward(&'a SoftmaxBackwardDesc);

            /// The gradient of [`layer_norm`](Self::layer_norm) or [`rms_norm`](Self::rms_norm) with respect
            /// to the rows.
            fn norm_backward(&NormBackwardDesc) => NormBackward(&'a NormBackwardDesc);

            /// The gradient of [`layer_norm`](Self::layer_norm) or [`rms_norm`](Self::rms_norm) with respect
            /// to the weight.
            fn norm_backward_weight(&NormBackwardWeightDesc) => NormBackwardWeight(&'a NormBackwardWeightDesc);

            /// [`conv2d_forward`](Self::conv2d_forward) with element types, groups, dilation, padding of each
            /// side, a bias and an activation, of images in either layout.
            #[doc(alias = "conv1d")]
            #[doc(alias = "depthwise")]
            fn conv2d(&ConvDesc) => Conv(&'a ConvDesc);

            /// Transposed convolution.
            #[doc(alias = "conv_transpose1d")]
            #[doc(alias = "deconvolution")]
            fn conv_transpose2d(&ConvTransposeDesc) => ConvTranspose(&'a ConvTransposeDesc);

            /// The gradient of [`conv2d`](Self::conv2d) with respect to its input.
            fn conv2d_backward_data(&ConvBackwardDataDesc) => ConvBackwardData(&'a ConvBackwardDataDesc);

            /// The gradient of [`conv2d`](Self::conv2d) with respect to its filters.
            fn conv2d_backward_filter(&ConvBackwardFilterDesc) => ConvBackwardFilter(&'a ConvBackwardFilterDesc);

            /// The largest or the mean of each window of an image.
            #[doc(alias = "max_pool2d")]
            #[doc(alias = "avg_pool2d")]
            fn pool2d(&PoolDesc) => Pool(&'a PoolDesc);

            /// The gradient of [`pool2d`](Self::pool2d).
            fn pool2d_backward(&PoolBackwardDesc) => PoolBackward(&'a PoolBackwardDesc);

            /// Rotary position embedding.
            fn rope(&RopeDesc) => Rope(&'a RopeDesc);

            /// Rotary position embedding of queries and keys, and keys and values into a cache.
            #[doc(alias = "reshape_and_cache")]
            fn rope_append(&RopeAppendDesc) => RopeAppend(&'a RopeAppendDesc);

            /// Rows or elements of a table by index, along any axis: the embedding lookup.
            #[doc(alias = "index_select")]
            #[doc(alias = "take")]
            #[doc(alias = "take_along_axis")]
            #[doc(alias = "embedding")]
            fn gather(&GatherDesc) => Gather(&'a GatherDesc);

            /// Puts, adds or compares rows or elements into a table by index, along any axis. Deterministic.
            #[doc(alias = "scatter_add")]
            #[doc(alias = "index_add")]
            #[doc(alias = "index_put")]
            fn scatter(&ScatterDesc) => Scatter(&'a ScatterDesc);

            /// The largest or smallest numbers of rows, in order, with their places; a stable sort.
            #[doc(alias = "sort")]
            #[doc(alias = "argsort")]
            fn top_k(&TopKDesc) => TopK(&'a TopKDesc);

            /// Tokens drawn at random from rows of logits, by temperature, top-k, top-p, min-p and a repetition
            /// penalty.
            #[doc(alias = "multinomial")]
            fn sample(&SampleDesc) => Sample(&'a SampleDesc);

            /// Random numbers, uniform or normal, the same on every device.
            #[doc(alias = "rand")]
            #[doc(alias = "randn")]
            #[doc(alias = "uniform")]
            #[doc(alias = "normal")]
            fn random(&RandomDesc) => Random(&'a RandomDesc);
        }
    };
}

pub(crate) use for_each_operation;

macro_rules! command {
    ($($(#[$meta:meta])* fn $method:ident($desc:ty) => $variant:ident($held:ty);)*) => {
        /// An operation with its descriptor: what a backend is asked to do.
        ///
        /// Each operation of [`ComputeBackend`](crate::ComputeBackend) becomes one of these, the positional
        /// ones too: `gemm` is a [`Matmul`](Self::Matmul), `unary` a [`Unary`](Self::Unary) of packed
        /// vectors.
        #[derive(Clone, Copy, Debug)]
        #[non_exhaustive]
        pub enum Command<'a> {
            $(
                #[doc = concat!(
                    "[`", stringify!($method), "`](crate::ComputeBackend::", stringify!($method), ")"
                )]
                $variant($held),
            )*
            /// [`fill`](crate::ComputeBackend::fill)
            Fill {
                /// Handle of the elements.
                dst: u64,
                /// Their type.
                dtype: DType,
                /// How many.
                n: usize,
                /// What they become.
                value: f64,
            },
            /// [`copy_dtod`](crate::ComputeBackend::copy_dtod)
            CopyBytes {
                /// Handle of what is written.
                dst: u64,
                /// Handle of what is read.
                src: u64,
                /// How many bytes.
                bytes: usize,
            },
        }

        impl Command<'_> {
            /// The names of all operations, which are the methods of
            /// [`ComputeBackend`](crate::ComputeBackend) that become commands.
            pub const OPERATIONS: &'static [&'static str] = &[
                "gemm",
                "batched_gemm",
                "conv2d_forward",
                "attention",
                "reduce",
                "unary",
                "binary",
                "fill",
                "copy_dtod",
                $(stringify!($method),)*
            ];
        }
    };
}

for_each_operation!(command);
