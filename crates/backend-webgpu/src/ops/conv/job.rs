//! What the kernels for convolutions make.

use backend_api::support::ConvGather;
use backend_api::{Activation, BackendResult, DType};

use super::params::Params;
use crate::kernels::Variant;
use crate::ops::op_context::{OpContext, linear_grid};
#[cfg(test)]
use crate::ops::shared::bound_windows;
use crate::recorder::Window;

/// A convolution or the transposition of one, with everything checked.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) gather: ConvGather,
    /// The row of the whole result that is the first one here.
    pub(super) first_row: usize,
    pub(super) dtype: DType,
    /// Whether it is the transposition of one, whose filters these are.
    pub(super) transposed: bool,
    pub(super) biased: bool,
    pub(super) activation: Activation,
    pub(super) input: Window,
    pub(super) filter: Window,
    pub(super) bias: Window,
    pub(super) output: Window,
}

/// Launches a kernel whose invocations each make results of their own, without workgroup memory.
pub(super) fn launch_unshared(
    ctx: &OpContext,
    op: &'static str,
    job: &Job,
    variant: &Variant,
    params: &Params,
    invocations: usize,
) -> BackendResult<()> {
    /// Invocations of a workgroup.
    const WORKGROUP: usize = 128;
    let reads = [&job.input, &job.filter, &job.bias];
    let grid = linear_grid(op, invocations.div_ceil(WORKGROUP))?;
    ctx.launch(op, variant, &reads, &job.output, params, grid)
}

#[cfg(test)]
impl Job {
    /// A convolution of f32 with biases and buffers of its own, of which a binding may show `max_bytes`.
    pub(super) fn of_buffers(
        device: &wgpu::Device,
        gather: ConvGather,
        transposed: bool,
        max_bytes: u64,
    ) -> Self {
        let [input, filter, bias, output] = bound_windows::windows(device, max_bytes);
        let (dtype, activation) = (DType::F32, Activation::Identity);
        Self {
            gather,
            first_row: 0,
            dtype,
            transposed,
            biased: true,
            activation,
            input,
            filter,
            bias,
            output,
        }
    }
}
