//! A safetensors checkpoint on its way to the device.

use std::sync::Arc;

use backend_api::desc::{CopyDesc, TensorDesc};
use backend_api::{BackendResult, ComputeBackend, DType};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::{Buffer, Error, Result};

/// The tensors of a checkpoint and the device that they go to.
pub(crate) struct Checkpoint<'a> {
    pub(crate) backend: &'a Arc<dyn ComputeBackend>,
    /// The type in which tensors are kept on the device.
    pub(crate) dtype: DType,
    tensors: SafeTensors<'a>,
    uploaded: usize,
    total: usize,
    progress: &'a mut dyn FnMut(usize, usize),
}

impl<'a> Checkpoint<'a> {
    /// Parses the file. `progress` hears of the bytes uploaded so far and of those in the file.
    pub(crate) fn new(
        backend: &'a Arc<dyn ComputeBackend>,
        dtype: DType,
        file: &'a [u8],
        progress: &'a mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        let tensors =
            SafeTensors::deserialize(file).map_err(|source| Error::Checkpoint { tensor: None, source })?;
        Ok(Self { backend, dtype, tensors, uploaded: 0, total: file.len(), progress })
    }

    /// Uploads the f32 tensor `name`, which must have `shape`.
    pub(crate) fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Buffer> {
        self.stack(&[name], shape)
    }

    /// Uploads f32 tensors of one `shape` into one buffer, one after the other: matrices stacked by their
    /// rows.
    pub(crate) fn stack(&mut self, names: &[&str], shape: &[usize]) -> Result<Buffer> {
        let parts = names.iter().map(|name| self.find(name, shape)).collect::<Result<Vec<_>>>()?;
        let buffer = self.upload(&parts)?;
        self.uploaded += buffer.bytes();
        (self.progress)(self.uploaded, self.total);
        Ok(if self.dtype == DType::F32 { buffer } else { self.converted(&buffer)? })
    }

    fn find(&self, name: &str, shape: &[usize]) -> Result<TensorView<'a>> {
        let tensor = self
            .tensors
            .tensor(name)
            .map_err(|source| Error::Checkpoint { tensor: Some(name.to_owned()), source })?;
        if tensor.dtype() == Dtype::F32 && tensor.shape() == shape {
            return Ok(tensor);
        }
        Err(Error::Tensor {
            tensor: name.to_owned(),
            expected: format!("{:?} {shape:?}", Dtype::F32),
            got: format!("{:?} {:?}", tensor.dtype(), tensor.shape()),
        })
    }

    /// A copy of f32 numbers in the type in which they are kept.
    fn converted(&self, buffer: &Buffer) -> BackendResult<Buffer> {
        let shape = [buffer.bytes() / size_of::<f32>()];
        let copy = Buffer::of(self.backend, self.dtype, &shape)?;
        let from = TensorDesc::packed(buffer.ptr(), DType::F32, &shape);
        let to = TensorDesc::packed(copy.ptr(), self.dtype, &shape);
        self.backend.copy(&CopyDesc::new(from, to))?;
        Ok(copy)
    }

    fn upload(&self, parts: &[TensorView<'_>]) -> BackendResult<Buffer> {
        let bytes = parts.iter().map(|part| part.data().len()).sum();
        let buffer = Buffer::new::<u8>(self.backend, &[bytes])?;
        let mut offset = 0;
        for part in parts {
            let data = part.data();
            let slot = buffer.view(offset, data.len())?;
            self.backend.copy_htod(slot.ptr(), data)?;
            offset += data.len();
        }
        Ok(buffer)
    }
}
