//! What the kernels for convolutions make.

use backend_api::support::ConvGather;
use backend_api::{Activation, DType};

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
