//! Which kernels make an operation: explained, and forced for tests and measurements.

use backend_api::BackendResult;
use backend_api::desc::{AttentionDesc, ConvDesc, MatmulDesc, QuantMatmulDesc};

use crate::ops::{KernelOverride, OpContext};
use crate::{WebGpuBackend, ops};

impl WebGpuBackend {
    /// What an operation's planner says of a call, of which nothing is launched.
    fn explain<D>(
        &self,
        op: &'static str,
        desc: &D,
        explain: fn(&OpContext, &'static str, &D) -> BackendResult<String>,
    ) -> BackendResult<String> {
        explain(&self.context(op)?.context.dry_run(), op, desc)
    }

    /// Makes the operations whose override it is use a kernel.
    fn force<K: KernelOverride>(&self, op: &'static str, kernel: Option<&str>) -> BackendResult<()> {
        let kernel = kernel.map(|name| K::parse(op, name)).transpose()?;
        self.context(op)?.context.state.force(kernel);
        Ok(())
    }

    /// How a product would be made: the kernel and its tile, the pieces into which k is split, what is copied
    /// first. Such as `cooperative/128x128x32+split4, packs A`. Of a product that takes long, it is that of
    /// the first part, with how many there are: `direct/32x128x4, in 8 parts`.
    ///
    /// # Errors
    /// What [`matmul`](backend_api::ComputeBackend::matmul) returns.
    pub fn explain_matmul(&self, desc: &MatmulDesc) -> BackendResult<String> {
        self.explain("explain_matmul", desc, ops::explain_matmul)
    }

    /// Makes products use one kernel wherever it can make them, for tests and measurements: one of
    /// [`matmul_kernels`](Self::matmul_kernels), with `+split4` or the like to split k into pieces of one length, or `+k448`
    /// or the like into pieces of this length, of which the last may be shorter. `None` lets the backend choose again.
    ///
    /// # Errors
    /// [`Unsupported`](backend_api::BackendError::Unsupported) if there is no such kernel.
    pub fn force_matmul(&self, kernel: Option<&str>) -> BackendResult<()> {
        self.force::<ops::MatmulOverride>("force_matmul", kernel)
    }

    /// Every kernel for matrix products, with its tile.
    #[must_use]
    pub fn matmul_kernels() -> Vec<String> {
        ops::MatmulOverride::names()
    }

    /// How a product with a quantised matrix would be made: the kernels that it launches, such as
    /// `quant/quantize_rows, quant/decode` where activations are rounded to 8 bits.
    ///
    /// # Errors
    /// What [`quant_matmul`](backend_api::ComputeBackend::quant_matmul) returns.
    pub fn explain_quant_matmul(&self, desc: &QuantMatmulDesc) -> BackendResult<String> {
        self.explain("explain_quant_matmul", desc, ops::explain_quant_matmul)
    }

    /// [`force_matmul`](Self::force_matmul) for products with quantised matrices: one of
    /// [`quant_matmul_kernels`](Self::quant_matmul_kernels), of which those with `+int8` are for
    /// [`MathMode::Int8`](backend_api::MathMode::Int8). Norms and gates that the kernel doesn't know are operations of
    /// their own.
    ///
    /// # Errors
    /// [`Unsupported`](backend_api::BackendError::Unsupported) if there is no such kernel.
    pub fn force_quant_matmul(&self, kernel: Option<&str>) -> BackendResult<()> {
        self.force::<ops::QuantMatmulOverride>("force_quant_matmul", kernel)
    }

    /// Every kernel for products with quantised matrices.
    #[must_use]
    pub fn quant_matmul_kernels() -> Vec<String> {
        ops::QuantMatmulOverride::names()
    }

    /// How attention would be computed: the kernel and its tile, the pieces of the keys. Such as
    /// `flash/64x64x64r8, element by element`, or where that takes long, `flash/64x64x64r8, in 8 parts`.
    ///
    /// # Errors
    /// What [`attention_ext`](backend_api::ComputeBackend::attention_ext) returns.
    pub fn explain_attention(&self, desc: &AttentionDesc) -> BackendResult<String> {
        self.explain("explain_attention", desc, ops::explain_attention)
    }

    /// Makes attention use one kernel wherever it can, for tests and measurements: one of
    /// [`attention_kernels`](Self::attention_kernels), with `+split4` or the like for the number of pieces
    /// into which kernels that can split the keys cut them, and `+fixup` behind it where the last workgroup puts them together;
    /// or, behind one that begins with `flash/`, with `+blocks7` or the like for as many of its blocks of keys in each piece
    /// but the last.
    /// `None` lets the backend choose again.
    ///
    /// # Errors
    /// [`Unsupported`](backend_api::BackendError::Unsupported) if there is no such kernel.
    pub fn force_attention(&self, kernel: Option<&str>) -> BackendResult<()> {
        self.force::<ops::AttentionOverride>("force_attention", kernel)
    }

    /// Every kernel for attention, with its tile.
    #[must_use]
    pub fn attention_kernels() -> Vec<String> {
        ops::AttentionOverride::names()
    }

    /// How a convolution would be computed: the kernel and its tile, the slices into which its sums are split. Such as
    /// `tiled/64x64x32+split3`, or of single pixels, which are a matrix product, `product, tiled/32x128x8`.
    ///
    /// # Errors
    /// What [`conv2d`](backend_api::ComputeBackend::conv2d) returns.
    pub fn explain_conv(&self, desc: &ConvDesc) -> BackendResult<String> {
        self.explain("explain_conv", desc, ops::explain_conv)
    }

    /// [`force_matmul`](Self::force_matmul) for convolutions, transposed ones and the gradients of inputs:
    /// one of [`conv_kernels`](Self::conv_kernels).
    ///
    /// # Errors
    /// [`Unsupported`](backend_api::BackendError::Unsupported) if there is no such kernel.
    pub fn force_conv(&self, kernel: Option<&str>) -> BackendResult<()> {
        self.force::<ops::ConvOverride>("force_conv", kernel)
    }

    /// Every kernel for convolutions, with its tile.
    #[must_use]
    pub fn conv_kernels() -> Vec<String> {
        ops::ConvOverride::names()
    }
}
