//! What a shape calls, on operands that all shapes share.

use std::fmt;

use backend_api::desc::{
    AttentionDesc, AttentionShape, BinaryDesc, ConvDesc, CopyDesc, LayerNormDesc, MatmulDesc, Matrix,
    PermuteDesc, ReduceDesc, RmsNormDesc, SoftmaxDesc, TensorDesc, UnaryDesc,
};
use backend_api::{BackendResult, BackendTranspose, BinaryOp, ComputeBackend, DType, ReduceOp, UnaryOp};
use backend_webgpu::WebGpuBackend;

use super::family::Family;
use super::shape::Shape;
use crate::Subject;

/// A closure that records a call.
pub type Recorded = Box<dyn Fn(&dyn ComputeBackend) -> BackendResult<()>>;

/// What a shape calls.
pub enum Call {
    /// [`matmul`](ComputeBackend::matmul).
    Product(MatmulDesc),
    /// [`conv2d`](ComputeBackend::conv2d).
    Conv(ConvDesc),
    /// [`attention_ext`](ComputeBackend::attention_ext).
    Attention(Box<AttentionDesc>),
    /// What has one kernel for a shape.
    Other(Recorded),
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Product(desc) => desc.fmt(f),
            Self::Conv(desc) => desc.fmt(f),
            Self::Attention(desc) => desc.fmt(f),
            Self::Other(_) => f.write_str("Other"),
        }
    }
}

impl Call {
    fn other(call: impl Fn(&dyn ComputeBackend) -> BackendResult<()> + 'static) -> Self {
        Self::Other(Box::new(call))
    }

    /// Records the call.
    ///
    /// # Errors
    /// What the operation returns.
    pub fn record(&self, backend: &dyn ComputeBackend) -> BackendResult<()> {
        match self {
            Self::Product(desc) => backend.matmul(desc),
            Self::Conv(desc) => backend.conv2d(desc),
            Self::Attention(desc) => backend.attention_ext(desc),
            Self::Other(call) => call(backend),
        }
    }

    /// The kernel that the backend takes for it, in words; `None` if it has no choice.
    ///
    /// # Errors
    /// What the operation returns.
    pub fn kernel(&self, backend: &WebGpuBackend) -> BackendResult<Option<String>> {
        match self {
            Self::Product(desc) => backend.explain_matmul(desc).map(Some),
            Self::Conv(desc) => backend.explain_conv(desc).map(Some),
            Self::Attention(desc) => backend.explain_attention(desc).map(Some),
            Self::Other(_) => Ok(None),
        }
    }

    /// Makes the backend take a kernel for it wherever it can, or choose again.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`](backend_api::BackendError::Unsupported) if there is no such kernel.
    pub fn force(&self, backend: &WebGpuBackend, kernel: Option<&str>) -> BackendResult<()> {
        match self {
            Self::Product(_) => backend.force_matmul(kernel),
            Self::Conv(_) => backend.force_conv(kernel),
            Self::Attention(_) => backend.force_attention(kernel),
            Self::Other(_) => Ok(()),
        }
    }
}

/// Operands of both types, as large as the largest shape needs.
#[derive(Debug)]
pub struct Operands {
    f32: [u64; 4],
    f16: [u64; 4],
}

impl Operands {
    /// Allocates and fills what `shapes` need.
    pub fn for_shapes(subject: &Subject, shapes: &[Shape]) -> Result<Self, String> {
        let mut elements = [1; 4];
        for shape in shapes {
            let (needed, _) = shape.cost()?;
            for (each, needed) in elements.iter_mut().zip(needed) {
                *each = needed.max(*each);
            }
        }
        let of = |dtype| elements.map(|each| subject.operand(dtype, each));
        let f16 = if subject.supports(DType::F16) { of(DType::F16) } else { [0; 4] };
        Ok(Self { f32: of(DType::F32), f16 })
    }

    /// Gives the operands back.
    pub fn free(&self, subject: &Subject) {
        for operands in [self.f32, self.f16] {
            if operands[0] != 0 {
                subject.free(&operands);
            }
        }
    }

    /// The call of a shape.
    pub fn call(&self, shape: &Shape) -> Result<Call, String> {
        let dtype = shape.dtype;
        let pointers = if dtype == DType::F16 { self.f16 } else { self.f32 };
        let [x, y, z, w] = pointers;
        Ok(match shape.family {
            Family::Gemm | Family::FewRows | Family::Batched => product(shape, [x, y, z]),
            Family::Conv => Call::Conv(ConvDesc::new(dtype, x, y, z, shape.conv())),
            Family::Attention | Family::Decode => {
                let [batch, heads, kv_heads, seq_q, seq_kv, head_dim] = shape.sizes();
                let sizes = AttentionShape { batch, heads, seq_q, seq_kv, head_dim };
                let mut desc = AttentionDesc::new(dtype, x, y, w, z, sizes);
                (desc.kv_heads, desc.causal) = (kv_heads, shape.variant == "causal");
                Call::Attention(Box::new(desc))
            }
            Family::Rows => rows(shape, pointers),
            Family::Reduce => {
                let sizes: [usize; 2] = shape.sizes();
                let (op, axes): (_, &'static [usize]) = match shape.variant {
                    "sum_columns" => (ReduceOp::Sum, &[0]),
                    "max_rows" => (ReduceOp::Max, &[1]),
                    _ => (ReduceOp::Sum, &[1]),
                };
                Call::other(move |backend| {
                    backend.reduce_ext(&ReduceDesc::new(op, TensorDesc::packed(x, dtype, &sizes), axes, z))
                })
            }
            Family::Elementwise => {
                let other = if dtype == DType::F16 { self.f32[2] } else { self.f16[2] };
                elementwise(shape, pointers, other)
            }
        })
    }
}

fn product(shape: &Shape, [a, b, c]: [u64; 3]) -> Call {
    let [batch, m, n, k] = match shape.family {
        Family::Batched => shape.sizes(),
        _ => {
            let [m, n, k] = shape.sizes();
            [1, m, n, k]
        }
    };
    let trans = |transposed| if transposed { BackendTranspose::Trans } else { BackendTranspose::NoTrans };
    let [trans_a, trans_b] = [trans(shape.variant.starts_with('t')), trans(shape.variant.ends_with('t'))];
    let matrix = |ptr, rows: usize, columns: usize, trans: BackendTranspose| {
        let ld = if trans.is_transposed() { rows } else { columns };
        Matrix::new(ptr, shape.dtype, ld).with_batch_stride(rows * columns)
    };
    let (a, b) = (matrix(a, m, k, trans_a), matrix(b, k, n, trans_b));
    let desc = MatmulDesc::new(m, n, k, a, b, matrix(c, m, n, BackendTranspose::NoTrans))
        .with_transpose(trans_a, trans_b)
        .with_batch(batch);
    Call::Product(desc)
}

fn rows(shape: &Shape, [x, y, z, w]: [u64; 4]) -> Call {
    let [rows, columns] = shape.sizes();
    let dtype = shape.dtype;
    let softmax = SoftmaxDesc::rows(dtype, x, z, rows, columns);
    let layer = LayerNormDesc::new(dtype, x, z, rows, columns).with_weight(w).with_bias(y);
    let rms = RmsNormDesc::new(dtype, x, z, rows, columns).with_weight(w);
    match shape.variant {
        "log_softmax" => Call::other(move |backend| backend.softmax(&softmax.with_log())),
        "layer_norm" => Call::other(move |backend| backend.layer_norm(&layer)),
        "rms_norm" => Call::other(move |backend| backend.rms_norm(&rms)),
        _ => Call::other(move |backend| backend.softmax(&softmax)),
    }
}

/// `other` is an output of the other type, for casts; 0 if the device has none.
fn elementwise(shape: &Shape, [x, y, z, w]: [u64; 4], other: u64) -> Call {
    let sizes: [usize; 2] = shape.sizes();
    let turned = [sizes[1], sizes[0]];
    let (dtype, variant) = (shape.dtype, shape.variant);
    let (cast, casted) = match (dtype, other) {
        (DType::F32, 0) => (z, DType::I32),
        (DType::F32, other) => (other, DType::F16),
        (_, other) => (other, DType::F32),
    };
    Call::other(move |backend| {
        let tensor = |ptr| TensorDesc::packed(ptr, dtype, &sizes);
        let unary = |op| backend.unary_ext(&UnaryDesc::new(op, tensor(x), tensor(z)));
        let add = |other| backend.binary_ext(&BinaryDesc::new(BinaryOp::Add, tensor(x), other, tensor(z)));
        match variant {
            "gelu" => unary(UnaryOp::Gelu),
            "silu" => unary(UnaryOp::Silu),
            "copy" => backend.copy(&CopyDesc::new(tensor(x), tensor(z))),
            "cast" => backend.copy(&CopyDesc::new(tensor(x), TensorDesc::packed(cast, casted, &sizes))),
            "permute" => {
                let output = TensorDesc::packed(z, dtype, &turned);
                backend.permute(&PermuteDesc::new(tensor(x), output, &[1, 0]))
            }
            "add_row" => add(TensorDesc::packed(w, dtype, &sizes[1..])),
            _ => add(tensor(y)),
        }
    })
}
