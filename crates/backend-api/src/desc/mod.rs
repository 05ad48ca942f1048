//! Descriptors: what an operation works on, with named fields.
//!
//! A descriptor is made with its `new`, which takes what is required, and refined with its `with_…` methods;
//! options that a later version adds have a default. `operands(op)` checks the shapes and returns the memory that the
//! operation touches, for [`support::check`](crate::support::check); `op` is the name that errors carry.

#[macro_use]
pub(crate) mod handles;
#[macro_use]
mod setters;

mod attention;
mod backward;
mod block_table;
mod channel_norm;
mod conv;
mod conv_backward;
pub(crate) mod conv_gather;
mod copy;
mod cumsum;
mod elementwise;
mod expert;
mod gather;
mod heads;
mod image;
mod matmul;
pub(crate) mod movement;
mod norm;
mod pool;
mod quant;
mod quantize_rows;
mod random;
pub(crate) mod reduce;
mod rope;
mod rope_append;
mod sample;
mod scatter;
pub(crate) mod tensor;
mod top_k;
mod value;
mod window;
mod work;

pub use attention::AttentionDesc;
pub use backward::{NormBackwardDesc, NormBackwardWeightDesc, SoftmaxBackwardDesc};
pub use block_table::BlockTable;
pub use channel_norm::{BatchNormDesc, ChannelShape, GroupNormDesc};
pub use conv::{ConvDesc, ConvShape};
pub use conv_backward::{ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvTransposeDesc};
use conv_gather::ConvGather;
pub use copy::CopyDesc;
pub use cumsum::CumSumDesc;
pub use elementwise::{AffineDesc, BinaryDesc, ClampDesc, CompareDesc, UnaryDesc, WhereDesc};
pub use expert::ExpertMatmulDesc;
pub use gather::{GatherDesc, IndexShape};
pub use heads::{AttentionAlignment, AttentionMask, AttentionShape, HeadLayout};
pub use image::{ImageLayout, ImageShape};
pub use matmul::{Bias, BiasAxis, MatmulDesc, Matrix};
pub use movement::{ConcatDesc, PadDesc, PermuteDesc, RepeatDesc, SliceDesc};
pub use norm::{LayerNormDesc, RmsNormDesc, SoftmaxDesc};
pub use pool::{PoolBackwardDesc, PoolDesc, PoolOp, PoolShape};
pub use quant::{DequantizeDesc, QuantGatherDesc, QuantMatmulDesc, QuantMatrix, RmsNorm};
pub use quantize_rows::QuantizeRowsDesc;
pub use random::{Distribution, RandomDesc};
pub use reduce::ReduceDesc;
use reduce::ReduceLoops;
pub use rope::{RopeDesc, RopeShape, RopeStyle, RopeTables, rope_tables};
pub use rope_append::{QkNorm, RopeAppendDesc, RopeAppendShape};
pub use sample::{RepetitionPenalty, SampleDesc};
pub use scatter::ScatterDesc;
pub use tensor::{MAX_RANK, TensorDesc};
pub use top_k::{SoftmaxOver, TopKDesc};
pub use value::Value;
pub use window::Window;

use crate::{BackendError, BackendResult, Bound, DType};

/// The rule of operations that compute: floating-point only.
pub(crate) fn require_float(op: &'static str, arg: &'static str, got: DType) -> BackendResult<()> {
    if got.is_float() { Ok(()) } else { Err(BackendError::Dtype { op, arg, got }) }
}

/// `axis` must be less than `rank`, the number of dimensions.
pub(crate) fn require_axis(op: &'static str, rank: usize, axis: usize) -> BackendResult<()> {
    require_at_least(op, "number of dimensions", 1, rank)?;
    require(op, "axis", Bound::LessThan(rank), axis, axis < rank)
}

/// `got` must be exactly `expected`.
pub(crate) fn require_eq(
    op: &'static str,
    what: &'static str,
    expected: usize,
    got: usize,
) -> BackendResult<()> {
    require(op, what, Bound::Exactly(expected), got, got == expected)
}

/// `got` must be `least` or more.
pub(crate) fn require_at_least(
    op: &'static str,
    what: &'static str,
    least: usize,
    got: usize,
) -> BackendResult<()> {
    require(op, what, Bound::AtLeast(least), got, got >= least)
}

/// `got` must be `most` or less.
pub(crate) fn require_at_most(
    op: &'static str,
    what: &'static str,
    most: usize,
    got: usize,
) -> BackendResult<()> {
    require(op, what, Bound::AtMost(most), got, got <= most)
}

/// `got` must be a multiple of `divisor`, which isn't 0.
pub(crate) fn require_multiple(
    op: &'static str,
    what: &'static str,
    divisor: usize,
    got: usize,
) -> BackendResult<()> {
    require(op, what, Bound::MultipleOf(divisor), got, got.is_multiple_of(divisor))
}

fn require(
    op: &'static str,
    what: &'static str,
    expected: Bound,
    got: usize,
    fits: bool,
) -> BackendResult<()> {
    if fits { Ok(()) } else { Err(BackendError::Shape { op, what, expected, got }) }
}
