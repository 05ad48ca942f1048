//! Names of kernels and texts of tuning, and what is computed under them.

use backend_api::desc::{
    AttentionDesc, AttentionShape, ConvDesc, ConvShape, ImageShape, MatmulDesc, Matrix, Window,
};
use backend_api::{BackendError, BackendResult, ComputeBackend, DType, ErrorKind};
use backend_webgpu::WebGpuBackend;

/// Elements of each buffer.
const N: usize = 1024;

/// A backend, and buffers of ones.
pub(super) struct Kernels {
    backend: WebGpuBackend,
    ptrs: [u64; 4],
}

impl Kernels {
    pub(super) fn open(adapter: &str) -> BackendResult<Self> {
        let mut backend = WebGpuBackend::select(adapter);
        backend.init()?;
        let mut ptrs = [0; 4];
        for ptr in &mut ptrs {
            *ptr = backend.alloc(4 * N)?;
            backend.fill(*ptr, DType::F32, N, 1.0)?;
        }
        let kernels = Self { backend, ptrs };
        kernels.product()?;
        Ok(kernels)
    }

    /// Texts that are right, for the mutation to begin with.
    pub(super) fn texts(&self) -> BackendResult<Vec<String>> {
        let mut texts = WebGpuBackend::matmul_kernels();
        texts.extend(WebGpuBackend::attention_kernels());
        texts.extend(WebGpuBackend::conv_kernels());
        texts.extend(texts.clone().into_iter().map(|name| name + "+split2"));
        let flash = WebGpuBackend::attention_kernels().into_iter().filter(|name| name.starts_with("flash/"));
        texts.extend(flash.map(|name| name + "+blocks2"));
        let line = format!("{M}x{M}x{M}x1 f32-f32-f32 nn aligned = tiled/64x64x16+split2\n");
        let header = self.backend.tuning()?;
        texts.extend([header.clone(), format!("{header}{line}"), format!("{header}{line}{line}")]);
        Ok(texts)
    }

    /// Sets all that takes such a text, and computes with what was accepted.
    pub(super) fn use_text(&self, text: &str) -> Result<(), String> {
        let backend = &self.backend;
        let accepted = |result: BackendResult<()>| match result {
            Ok(()) => Ok(true),
            Err(BackendError::Unsupported { .. }) => Ok(false),
            Err(error) => Err(format!("a name gave {error:?}")),
        };
        let results = [
            (accepted(backend.force_matmul(Some(text)))?, self.product()),
            (accepted(backend.force_attention(Some(text)))?, self.attention()),
            (accepted(backend.force_conv(Some(text)))?, self.convolution()),
            (backend.set_tuning(text).map_err(|error| format!("set_tuning: {error:?}"))? > 0, self.product()),
        ];
        let told = |error: BackendError| format!("{error:?}");
        backend.force_matmul(None).map_err(told)?;
        backend.force_attention(None).map_err(told)?;
        backend.force_conv(None).map_err(told)?;
        for (_, result) in results.into_iter().filter(|(accepted, _)| *accepted) {
            match result {
                Ok(()) => {}
                // Where the device lacks what the kernel needs.
                Err(error) if [ErrorKind::Unsupported, ErrorKind::Limit].contains(&error.kind()) => {}
                Err(error) => return Err(format!("under it: {error:?}")),
            }
        }
        self.settle()
    }

    /// Whether what was computed is there, and right.
    fn settle(&self) -> Result<(), String> {
        let mut got = [0f32; N];
        let [_, _, product, _] = self.ptrs;
        self.product().map_err(|error| format!("a product after it: {error:?}"))?;
        let read = self.backend.copy_dtoh(bytemuck::cast_slice_mut(&mut got), product);
        read.map_err(|error| format!("reading the product after it: {error:?}"))?;
        if got[..M * M].iter().any(|&x| x != M as f32) {
            return Err(format!("the product after it has {}", got[0]));
        }
        Ok(())
    }

    fn product(&self) -> BackendResult<()> {
        let [a, b, c, _] = self.ptrs.map(|ptr| Matrix::new(ptr, DType::F32, M));
        self.backend.matmul(&MatmulDesc::new(M, M, M, a, b, c))
    }

    fn attention(&self) -> BackendResult<()> {
        let [q, k, _, o] = self.ptrs;
        self.backend.attention_ext(&AttentionDesc::new(
            DType::F32,
            q,
            k,
            q,
            o,
            AttentionShape { batch: 1, heads: 2, seq_q: 4, seq_kv: 16, head_dim: 8 },
        ))
    }

    fn convolution(&self) -> BackendResult<()> {
        let [input, filter, _, output] = self.ptrs;
        let shape = ConvShape::new(ImageShape::nchw([1, 2, 8, 8]), 4, Window::new([3, 3]));
        self.backend.conv2d(&ConvDesc::new(DType::F32, input, filter, output, shape))
    }
}

/// Rows and columns of the product.
const M: usize = 16;
