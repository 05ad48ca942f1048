//! Tensors on a backend, and its operations as functions of them.

use std::cell::RefCell;

use backend_api::desc::{
    AffineDesc, BinaryDesc, ClampDesc, CompareDesc, CopyDesc, GatherDesc, IndexShape, PermuteDesc,
    ReduceDesc, SliceDesc, TensorDesc, UnaryDesc, Value, WhereDesc,
};
use backend_api::{BackendResult, BinaryOp, CompareOp, ComputeBackend, DType, ReduceOp, UnaryOp};
use half::f16;
use libtest_mimic::Failed;

pub(crate) type Outcome<T> = Result<T, Failed>;

/// A packed tensor on the device.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) ptr: u64,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
}

impl Tensor {
    pub(crate) fn desc(&self) -> TensorDesc<'_> {
        TensorDesc::packed(self.ptr, self.dtype, &self.shape)
    }

    pub(crate) fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// The tensor in another shape.
    pub(crate) fn reshaped(&self, shape: &[usize]) -> Self {
        Self { shape: shape.to_vec(), ..*self }
    }

    /// The products of the extents before and behind an axis.
    pub(crate) fn around(&self, axis: usize) -> [usize; 2] {
        [self.shape[..axis].iter().product(), self.shape[axis + 1..].iter().product()]
    }
}

impl<'a> From<&'a Tensor> for Value<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        tensor.desc().into()
    }
}

/// The shape of what an element-wise operation takes.
fn shape_of<'a>(value: Value<'a>) -> &'a [usize] {
    match value {
        Value::Tensor(tensor) => tensor.shape,
        Value::Scalar(_) => &[],
    }
}

/// The shape that both are broadcast to.
pub(crate) fn common_shape(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let at = |shape: &[usize], k: usize| (k + shape.len()).checked_sub(rank).map_or(1, |k| shape[k]);
    (0..rank).map(|k| if at(a, k) == 1 { at(b, k) } else { at(a, k) }).collect()
}

/// A backend and what was allocated on it for a case, which is freed with it.
#[derive(Debug)]
pub(crate) struct Device<'a> {
    pub(crate) backend: &'a dyn ComputeBackend,
    allocated: RefCell<Vec<u64>>,
}

impl Drop for Device<'_> {
    fn drop(&mut self) {
        for &ptr in self.allocated.borrow().iter() {
            if let Err(error) = self.backend.free(ptr) {
                eprintln!("{error}");
            }
        }
    }
}

impl<'a> Device<'a> {
    pub(crate) fn new(backend: &'a dyn ComputeBackend) -> Self {
        Self { backend, allocated: RefCell::default() }
    }

    pub(crate) fn empty(&self, dtype: DType, shape: &[usize]) -> BackendResult<Tensor> {
        let bytes = shape.iter().product::<usize>() * dtype.size();
        let ptr = self.backend.alloc(bytes.next_multiple_of(4).max(4))?;
        self.allocated.borrow_mut().push(ptr);
        Ok(Tensor { ptr, dtype, shape: shape.to_vec() })
    }

    pub(crate) fn upload(&self, dtype: DType, shape: &[usize], numbers: &[f64]) -> BackendResult<Tensor> {
        let tensor = self.empty(dtype, shape)?;
        let mut bytes: Vec<u8> = match dtype {
            DType::F16 => numbers.iter().flat_map(|&x| f16::from_f64(x).to_le_bytes()).collect(),
            DType::I32 => numbers.iter().flat_map(|&x| (x as i32).to_le_bytes()).collect(),
            DType::U32 => numbers.iter().flat_map(|&x| (x as u32).to_le_bytes()).collect(),
            _ => numbers.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect(),
        };
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        self.backend.copy_htod(tensor.ptr, &bytes)?;
        Ok(tensor)
    }

    pub(crate) fn download(&self, tensor: &Tensor) -> BackendResult<Vec<f64>> {
        let mut bytes = vec![0u8; (tensor.count() * tensor.dtype.size()).next_multiple_of(4)];
        self.backend.copy_dtoh(&mut bytes, tensor.ptr)?;
        let element = |bytes: &[u8]| match *bytes {
            [a, b] => f64::from(f16::from_le_bytes([a, b])),
            [a, b, c, d] => match tensor.dtype {
                DType::I32 => f64::from(i32::from_le_bytes([a, b, c, d])),
                DType::U32 => f64::from(u32::from_le_bytes([a, b, c, d])),
                _ => f64::from(f32::from_le_bytes([a, b, c, d])),
            },
            _ => f64::NAN,
        };
        Ok(bytes.chunks_exact(tensor.dtype.size()).take(tensor.count()).map(element).collect())
    }

    pub(crate) fn unary(&self, op: UnaryOp, x: &Tensor) -> BackendResult<Tensor> {
        let y = self.empty(x.dtype, &x.shape)?;
        self.backend.unary_ext(&UnaryDesc::new(op, x.desc(), y.desc()))?;
        Ok(y)
    }

    /// A function with parameters α and β.
    pub(crate) fn unary_with(&self, op: UnaryOp, parameters: [f64; 2], x: &Tensor) -> BackendResult<Tensor> {
        let y = self.empty(x.dtype, &x.shape)?;
        let [alpha, beta] = parameters;
        self.backend.unary_ext(&UnaryDesc::new(op, x.desc(), y.desc()).with_alpha(alpha).with_beta(beta))?;
        Ok(y)
    }

    pub(crate) fn binary<'t>(
        &self,
        op: BinaryOp,
        a: impl Into<Value<'t>>,
        b: impl Into<Value<'t>>,
    ) -> BackendResult<Tensor> {
        let (a, b) = (a.into(), b.into());
        let dtype = a.dtype().or(b.dtype()).unwrap_or(DType::F32);
        let y = self.empty(dtype, &common_shape(shape_of(a), shape_of(b)))?;
        self.backend.binary_ext(&BinaryDesc::new(op, a, b, y.desc()))?;
        Ok(y)
    }

    /// 1 where it holds, else 0.
    pub(crate) fn compare<'t>(
        &self,
        op: CompareOp,
        a: impl Into<Value<'t>>,
        b: impl Into<Value<'t>>,
    ) -> BackendResult<Tensor> {
        let (a, b) = (a.into(), b.into());
        let y = self.empty(DType::U32, &common_shape(shape_of(a), shape_of(b)))?;
        self.backend.compare(&CompareDesc::new(op, a, b, y.desc()))?;
        Ok(y)
    }

    pub(crate) fn choose<'t>(
        &self,
        condition: &Tensor,
        a: impl Into<Value<'t>>,
        b: impl Into<Value<'t>>,
    ) -> BackendResult<Tensor> {
        let (a, b) = (a.into(), b.into());
        let dtype = a.dtype().or(b.dtype()).unwrap_or(DType::F32);
        let shape = common_shape(&condition.shape, &common_shape(shape_of(a), shape_of(b)));
        let y = self.empty(dtype, &shape)?;
        self.backend.where_cond(&WhereDesc::new(condition.desc(), a, b, y.desc()))?;
        Ok(y)
    }

    pub(crate) fn clamp(&self, x: &Tensor, min: f64, max: f64) -> BackendResult<Tensor> {
        let y = self.empty(x.dtype, &x.shape)?;
        self.backend.clamp(&ClampDesc::new(x.desc(), y.desc(), min, max))?;
        Ok(y)
    }

    pub(crate) fn affine(&self, x: &Tensor, scale: f64, bias: f64) -> BackendResult<Tensor> {
        let y = self.empty(x.dtype, &x.shape)?;
        self.backend.affine(&AffineDesc::new(x.desc(), y.desc(), scale, bias))?;
        Ok(y)
    }

    pub(crate) fn convert(&self, x: &Tensor, dtype: DType) -> BackendResult<Tensor> {
        let y = self.empty(dtype, &x.shape)?;
        self.backend.copy(&CopyDesc::new(x.desc(), y.desc()))?;
        Ok(y)
    }

    /// Repeats dimensions of extent 1, and those that are missing in front.
    pub(crate) fn expand(&self, x: &Tensor, shape: &[usize]) -> BackendResult<Tensor> {
        let y = self.empty(x.dtype, shape)?;
        let missing = shape.len().saturating_sub(x.shape.len());
        let mut strides = vec![0; shape.len()];
        let mut stride = 1;
        for (k, &extent) in x.shape.iter().enumerate().rev() {
            strides[missing + k] = if extent == 1 { 0 } else { stride };
            stride *= extent;
        }
        let source = TensorDesc::strided(x.ptr, x.dtype, shape, &strides);
        self.backend.copy(&CopyDesc::new(source, y.desc()))?;
        Ok(y)
    }

    pub(crate) fn permute(&self, x: &Tensor, axes: &[usize]) -> BackendResult<Tensor> {
        let shape: Vec<usize> = axes.iter().map(|&axis| x.shape[axis]).collect();
        let y = self.empty(x.dtype, &shape)?;
        self.backend.permute(&PermuteDesc::new(x.desc(), y.desc(), axes))?;
        Ok(y)
    }

    /// `count` neighbours from `start` on along an axis.
    pub(crate) fn narrow(
        &self,
        x: &Tensor,
        axis: usize,
        start: usize,
        count: usize,
    ) -> BackendResult<Tensor> {
        let mut shape = x.shape.clone();
        shape[axis] = count;
        let mut starts = vec![0; shape.len()];
        starts[axis] = start;
        let y = self.empty(x.dtype, &shape)?;
        self.backend.slice(&SliceDesc::new(x.desc(), y.desc(), &starts))?;
        Ok(y)
    }

    /// The slices of the given indices along an axis.
    pub(crate) fn select(&self, x: &Tensor, axis: usize, indices: &Tensor) -> BackendResult<Tensor> {
        let mut shape = x.shape.clone();
        shape.splice(axis..=axis, indices.shape.iter().copied());
        let y = self.empty(x.dtype, &shape)?;
        let [outer, columns] = x.around(axis);
        let desc = GatherDesc::new(
            x.dtype,
            x.ptr,
            indices.ptr,
            y.ptr,
            IndexShape { rows: x.shape[axis], columns, count: indices.count() },
        );
        self.backend.gather(&desc.with_outer(outer))?;
        Ok(y)
    }

    /// The reduced dimensions stay as ones.
    pub(crate) fn reduce(&self, op: ReduceOp, x: &Tensor, axes: &[usize]) -> BackendResult<Tensor> {
        let mut shape = x.shape.clone();
        axes.iter().for_each(|&axis| shape[axis] = 1);
        let y = self.empty(if op.is_index() { DType::I32 } else { x.dtype }, &shape)?;
        self.backend.reduce_ext(&ReduceDesc::new(op, x.desc(), axes, y.ptr))?;
        Ok(y)
    }
}
