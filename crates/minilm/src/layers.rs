//! The two layers that BERT is made of, with their weights on the device.

use backend_api::desc::{Bias, BiasAxis, LayerNormDesc, MatmulDesc, Matrix};
use backend_api::{Activation, BackendResult, BackendTranspose, ComputeBackend, DType};

use crate::checkpoint::Checkpoint;
use crate::{Buffer, Result};

/// How many rows a layer has, and where they are computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) backend: &'a dyn ComputeBackend,
    pub(crate) count: usize,
}

/// `y = activation(x · Wᵀ + b)` for each row of x.
#[derive(Debug)]
pub(crate) struct Linear {
    /// `[outputs, inputs]`, as PyTorch stores it: read transposed, never rewritten.
    weight: Buffer,
    /// `[outputs]`.
    bias: Buffer,
    inputs: usize,
    outputs: usize,
    dtype: DType,
}

impl Linear {
    /// The layer called `name` in the checkpoint.
    pub(crate) fn load(
        checkpoint: &mut Checkpoint<'_>,
        name: &str,
        inputs: usize,
        outputs: usize,
    ) -> Result<Self> {
        Self::load_stacked(checkpoint, [name], inputs, outputs)
    }

    /// Layers that read the same input, as one whose outputs are theirs side by side: one large product in
    /// place of several small ones. Each has `outputs` outputs.
    pub(crate) fn load_stacked<const N: usize>(
        checkpoint: &mut Checkpoint<'_>,
        names: [&str; N],
        inputs: usize,
        outputs: usize,
    ) -> Result<Self> {
        let weights = names.map(|name| format!("{name}.weight"));
        let biases = names.map(|name| format!("{name}.bias"));
        Ok(Self {
            weight: checkpoint.stack(&weights.each_ref().map(String::as_str), &[outputs, inputs])?,
            bias: checkpoint.stack(&biases.each_ref().map(String::as_str), &[outputs])?,
            inputs,
            outputs: N * outputs,
            dtype: checkpoint.dtype,
        })
    }

    /// `x` is `[rows, inputs]`, `y` `[rows, outputs]`.
    pub(crate) fn forward(
        &self,
        rows: Rows<'_>,
        x: &Buffer,
        y: &Buffer,
        activation: Activation,
    ) -> BackendResult<()> {
        let x = Matrix::new(x.ptr(), self.dtype, self.inputs);
        let weight = Matrix::new(self.weight.ptr(), self.dtype, self.inputs);
        let y = Matrix::new(y.ptr(), self.dtype, self.outputs);
        let bias = Bias { ptr: self.bias.ptr(), axis: BiasAxis::Column };
        rows.backend.matmul(
            &MatmulDesc::new(rows.count, self.outputs, self.inputs, x, weight, y)
                .with_transpose(BackendTranspose::NoTrans, BackendTranspose::Trans)
                .with_bias(bias)
                .with_activation(activation),
        )
    }
}

/// Layer normalisation of rows.
#[derive(Debug)]
pub(crate) struct LayerNorm {
    /// `[columns]`.
    weight: Buffer,
    /// `[columns]`.
    bias: Buffer,
    columns: usize,
    eps: f64,
    dtype: DType,
}

impl LayerNorm {
    /// The layer called `name` in the checkpoint.
    pub(crate) fn load(
        checkpoint: &mut Checkpoint<'_>,
        name: &str,
        columns: usize,
        eps: f64,
    ) -> Result<Self> {
        Ok(Self {
            weight: checkpoint.tensor(&format!("{name}.weight"), &[columns])?,
            bias: checkpoint.tensor(&format!("{name}.bias"), &[columns])?,
            columns,
            eps,
            dtype: checkpoint.dtype,
        })
    }

    /// `x = norm(x + residual)` for `[rows, columns]`; without a residual, `x = norm(x)`.
    pub(crate) fn forward(&self, rows: Rows<'_>, x: &Buffer, residual: Option<&Buffer>) -> BackendResult<()> {
        let mut desc = LayerNormDesc::new(self.dtype, x.ptr(), x.ptr(), rows.count, self.columns);
        desc.eps = self.eps;
        desc.weight = Some(self.weight.ptr());
        desc.bias = Some(self.bias.ptr());
        desc.residual = residual.map(Buffer::ptr);
        rows.backend.layer_norm(&desc)
    }
}
