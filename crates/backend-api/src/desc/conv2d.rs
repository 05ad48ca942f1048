//! Two-dimensional convolution.

use crate::operand::{Access, Operand};
use crate::{BackendError, BackendResult, DType, checked_add, checked_product};

use super::{require_at_least, require_eq};

/// `output[n, k, y, x] = Σ input[n, c, y·stride₀ + r − padding₀, x·stride₁ + s − padding₁] · filter[k, c, r, s]`,
/// where positions outside the input count as 0: a cross-correlation, as in every ML framework.
///
/// f32, packed: input `[N, C, H, W]`, filter `[K, C, R, S]`, output `[N, K, P, Q]` with
/// `P = (H + 2·padding₀ − R) / stride₀ + 1` and Q likewise.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Conv2dDesc {
    /// Handle of the input.
    pub input: u64,
    /// `[N, C, H, W]`.
    pub input_shape: [usize; 4],
    /// Handle of the filter.
    pub filter: u64,
    /// `[K, C, R, S]`.
    pub filter_shape: [usize; 4],
    /// Handle of the output.
    pub output: u64,
    /// `[N, K, P, Q]`.
    pub output_shape: [usize; 4],
    /// Vertical and horizontal step, at least 1.
    pub stride: [usize; 2],
    /// Zeros above and below, and left and right.
    pub padding: [usize; 2],
}

impl Conv2dDesc {
    /// From the slices of the positional method, checking their lengths.
    #[expect(clippy::too_many_arguments, reason = "the positional form of the contract")]
    pub fn from_slices(
        op: &'static str,
        input: u64,
        input_shape: &[usize],
        filter: u64,
        filter_shape: &[usize],
        output: u64,
        output_shape: &[usize],
        stride: &[usize],
        padding: &[usize],
    ) -> BackendResult<Self> {
        Ok(Self {
            input,
            input_shape: sized(op, "rank of the input", input_shape)?,
            filter,
            filter_shape: sized(op, "rank of the filter", filter_shape)?,
            output,
            output_shape: sized(op, "rank of the output", output_shape)?,
            stride: sized(op, "number of strides", stride)?,
            padding: sized(op, "number of paddings", padding)?,
        })
    }

    /// Checks the shapes. Returns input, filter and output.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 3]> {
        let [n, c, h, w] = self.input_shape;
        let [k, filter_c, r, s] = self.filter_shape;
        require_eq(op, "input channels of the filter", c, filter_c)?;
        require_eq(op, "batch of the output", n, self.output_shape[0])?;
        require_eq(op, "channels of the output", k, self.output_shape[1])?;
        for (axis, (size, filter)) in [(h, r), (w, s)].into_iter().enumerate() {
            let (stride, padding) = (self.stride[axis], self.padding[axis]);
            require_at_least(op, "stride (at least)", 1, stride)?;
            require_at_least(op, "extent of the filter (at least)", 1, filter)?;
            let padded =
                checked_add(op, "padded input", size, checked_product(op, "padding", &[2, padding])?)?;
            require_at_least(op, "padded input (at least)", filter, padded)?;
            let what = ["height of the output", "width of the output"][axis];
            require_eq(op, what, (padded - filter) / stride + 1, self.output_shape[2 + axis])?;
        }
        let output = checked_product(op, "output", &self.output_shape)?;
        let input = if output == 0 { 0 } else { checked_product(op, "input", &self.input_shape)? };
        let filter = if output == 0 { 0 } else { checked_product(op, "filter", &self.filter_shape)? };
        Ok([
            Operand::new(op, "input", self.input, DType::F32, input, Access::Read)?,
            Operand::new(op, "filter", self.filter, DType::F32, filter, Access::Read)?,
            Operand::new(op, "output", self.output, DType::F32, output, Access::Write)?,
        ])
    }
}

fn sized<const N: usize>(
    op: &'static str,
    what: &'static str,
    values: &[usize],
) -> BackendResult<[usize; N]> {
    values.try_into().map_err(|_| BackendError::Shape { op, what, expected: N, got: values.len() })
}
