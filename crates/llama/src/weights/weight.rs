//! A matrix on the device: products with it, and its rows by index.

use backend_api::desc::{
    Bias, BiasAxis, CopyDesc, GatherDesc, IndexShape, MatmulDesc, Matrix, QuantGatherDesc, QuantMatmulDesc,
    QuantMatrix, RmsNorm, TensorDesc,
};
use backend_api::owned::Buffer;
use backend_api::quant::QuantFormat;
use backend_api::{BackendResult, BackendTranspose, ComputeBackend, DType, MathMode};

use crate::layer::Pass;
use crate::linear::Into;
use crate::precision::RESIDUAL;

/// A matrix on the device, row-major.
#[derive(Debug)]
pub(crate) struct Weight {
    buffer: Buffer,
    pub(crate) storage: Storage,
    rows: usize,
    columns: usize,
    /// The arithmetic of products with quants.
    pub(crate) math: MathMode,
    /// Factor of products; rows that are looked up are without it.
    pub(crate) scale: f64,
}

/// How a matrix is stored on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// Plain numbers.
    Dense(DType),
    /// Planes of quants and scales.
    Quant(QuantFormat),
}

impl Weight {
    /// A matrix of `rows × columns` in memory.
    pub(super) const fn new(buffer: Buffer, storage: Storage, [rows, columns]: [usize; 2]) -> Self {
        Self { buffer, storage, rows, columns, math: MathMode::Standard, scale: 1.0 }
    }

    pub(crate) const fn rows(&self) -> usize {
        self.rows
    }

    /// `y = s · rms_norm(x) · Wᵀ + b` of packed rows of the hidden size; `None` if the weights aren't quantised, or the
    /// architecture has layer norms.
    pub(crate) fn normed(
        &self,
        pass: &Pass<'_>,
        rows: usize,
        x: &Buffer,
        norm: &Buffer,
        y: Matrix,
        bias: Option<&Buffer>,
    ) -> Option<QuantMatmulDesc> {
        let Storage::Quant(format) = self.storage else { return None };
        if pass.config.architecture.has_layer_norms() {
            return None;
        }
        let a = pass.activations;
        let x = Matrix::new(x.ptr(), RESIDUAL, pass.config.hidden);
        let desc = self.quantised(format, rows, x, y, bias);
        let mut norm = RmsNorm::new(norm.ptr(), pass.config.norm_eps);
        norm.output_dtype = (a.dtype != RESIDUAL).then_some(a.dtype);
        Some(desc.with_norm(norm))
    }

    /// `y = s · x · Wᵀ + b` with weights of a quantised format.
    pub(crate) fn quantised(
        &self,
        format: QuantFormat,
        rows: usize,
        x: Matrix,
        y: Matrix,
        bias: Option<&Buffer>,
    ) -> QuantMatmulDesc {
        let weight = QuantMatrix::new(self.buffer.ptr(), format, self.rows, self.columns);
        let mut desc = QuantMatmulDesc::new(rows, x, weight, y).with_math(self.math).with_alpha(self.scale);
        desc.bias = bias.map(Buffer::ptr);
        desc
    }

    /// `y = s · x · Wᵀ + b`, or `y += s · x · Wᵀ + b`.
    pub(crate) fn product(
        &self,
        backend: &dyn ComputeBackend,
        rows: usize,
        x: Matrix,
        y: Matrix,
        bias: Option<&Buffer>,
        into: Into,
    ) -> BackendResult<()> {
        let dtype = match self.storage {
            Storage::Dense(dtype) => dtype,
            Storage::Quant(format) => {
                let mut desc = self.quantised(format, rows, x, y, bias);
                desc.residual = (into == Into::Add).then_some(y);
                return backend.quant_matmul(&desc);
            }
        };
        let weight = Matrix::new(self.buffer.ptr(), dtype, self.columns);
        let beta = if into == Into::Add { 1.0 } else { 0.0 };
        let mut desc = MatmulDesc::new(rows, self.rows, self.columns, x, weight, y)
            .with_transpose(BackendTranspose::NoTrans, BackendTranspose::Trans)
            .with_scale(self.scale, beta);
        desc.bias = bias.map(|bias| Bias { ptr: bias.ptr(), axis: BiasAxis::Column });
        backend.matmul(&desc)
    }

    /// The type of rows as they are stored, if [`lookup`](Self::lookup) needs room for them to make `dtype` of
    /// them.
    pub(crate) fn stored_rows(&self, dtype: DType) -> Option<DType> {
        match self.storage {
            Storage::Dense(stored) if stored != dtype => Some(stored),
            Storage::Dense(_) | Storage::Quant(_) => None,
        }
    }

    /// Row `ids[i]` as the packed row `i` of `output`; `stored` is room for as many rows as they are stored.
    pub(crate) fn lookup(
        &self,
        backend: &dyn ComputeBackend,
        count: usize,
        ids: &Buffer,
        stored: Option<&Buffer>,
        (output, output_dtype): (&Buffer, DType),
    ) -> BackendResult<()> {
        let shape = IndexShape { rows: self.rows, columns: self.columns, count };
        let dtype = match self.storage {
            Storage::Dense(dtype) => dtype,
            Storage::Quant(format) => {
                let table = QuantMatrix::new(self.buffer.ptr(), format, self.rows, self.columns);
                let desc = QuantGatherDesc::new(output_dtype, table, ids.ptr(), output.ptr(), count);
                return backend.quant_gather(&desc);
            }
        };
        let target = stored.unwrap_or(output);
        backend.gather(&GatherDesc::new(dtype, self.buffer.ptr(), ids.ptr(), target.ptr(), shape))?;
        if stored.is_none() {
            return Ok(());
        }
        let shape = [count, self.columns];
        let from = TensorDesc::packed(target.ptr(), dtype, &shape);
        backend.copy(&CopyDesc::new(from, TensorDesc::packed(output.ptr(), output_dtype, &shape)))
    }
}
