//! ONNX Runtime's tensors, on the host or at addresses of ours.

use std::ffi::c_void;
use std::ptr;
use std::slice;
use std::sync::Arc;

use backend_api::ComputeBackend;
use ort_sys::{OrtTensorTypeAndShapeInfo, OrtValue};

use super::api::{api, ep_api};
use super::status::check;
use super::tables::MemoryDevice;
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::memory::MEMORY;
use crate::numbers::Numbers;
use crate::tensor::{Tensor, elements};

/// The vendor id of the provider's memory, by which it knows its own.
pub(super) const VENDOR_ID: u32 = 0x5747;

/// `OrtMemoryInfoDeviceType_GPU`.
const GPU: i32 = 1;

/// Tensors of so few floating-point numbers are kept on the host until the device needs them.
const FEW: usize = 16;

/// A device of memory, as the ids that name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Host memory.
    Host,
    /// Memory of the device of ours with this id.
    Ours(u32),
    /// Memory of somebody else.
    Foreign,
}

/// # Safety
/// `device` must be null or valid.
pub(super) unsafe fn place(device: *const MemoryDevice) -> Result<Place> {
    let api = ep_api()?;
    if device.is_null() {
        return Ok(Place::Host);
    }
    // SAFETY: the device is valid.
    unsafe {
        Ok(match (api.MemoryDevice_GetDeviceType)(device) {
            0 => Place::Host,
            GPU if (api.MemoryDevice_GetVendorId)(device) == VENDOR_ID => {
                Place::Ours((api.MemoryDevice_GetDeviceId)(device))
            }
            _ => Place::Foreign,
        })
    }
}

/// A tensor of ONNX Runtime's, valid for the call.
#[derive(Debug)]
pub(super) struct Value {
    pub(super) place: Place,
    code: i32,
    shape: Vec<usize>,
    data: *mut c_void,
}

impl Value {
    /// # Safety
    /// `value` must be a valid tensor, and stay so as long as the result.
    pub(super) unsafe fn new(value: *const OrtValue) -> Result<Self> {
        let (api, ep_api) = (api()?, ep_api()?);
        if value.is_null() {
            return Err(Error::invalid("a tensor is missing"));
        }
        let mut info = ptr::null_mut();
        let mut data = ptr::null_mut();
        // SAFETY: the value is valid; the description that it gives is released below.
        let place = unsafe {
            check("GetTensorTypeAndShape", (api.GetTensorTypeAndShape)(value, &raw mut info))?;
            place((ep_api.Value_GetMemoryDevice)(value))?
        };
        // SAFETY: as before; the description lives until it is released.
        let described = unsafe { describe(info) };
        // SAFETY: it was given by the value, and is not used any more.
        unsafe { (api.ReleaseTensorTypeAndShapeInfo)(info) };
        let (code, shape) = described?;
        // SAFETY: reading the address of the elements changes nothing, whatever the function is called.
        unsafe {
            check("GetTensorMutableData", (api.GetTensorMutableData)(value.cast_mut(), &raw mut data))?;
        }
        Ok(Self { place, code, shape, data })
    }

    fn kind(&self) -> Result<Kind> {
        Kind::of_copies(self.code)
            .ok_or_else(|| Error::invalid(format!("element type {} is not supported here", self.code)))
    }

    /// The tensor. What is in host memory is copied: to the device if it is `backend`'s to compute with.
    pub(super) fn load(&self, backend: &Arc<dyn ComputeBackend>) -> Result<Tensor> {
        let kind = self.kind()?;
        if elements(&self.shape)? == 0 {
            return Tensor::host(kind, self.shape.clone(), Numbers::decode(kind, &[]));
        }
        match self.place {
            Place::Ours(_) => {
                let tensor = MEMORY.lock().read(self.data as u64, kind, &self.shape)?;
                if tensor.kind == kind {
                    return tensor.on(backend);
                }
                // Kept, so that the next run finds it as what it is.
                let tensor = tensor.reinterpreted(kind, self.shape.clone())?;
                if kind != Kind::Raw {
                    self.store(&tensor)?;
                }
                Ok(tensor)
            }
            Place::Host => self.with_bytes(|bytes| self.copy(kind, bytes, backend)),
            Place::Foreign => Err(Error::invalid("a tensor lies on another provider's device")),
        }
    }

    /// The bytes of a tensor in host memory, uploaded as words, of which zeros fill the last.
    pub(super) fn load_words(&self, backend: &Arc<dyn ComputeBackend>) -> Result<Tensor> {
        self.with_bytes(|bytes| {
            let mut words = bytes.to_vec();
            words.resize(bytes.len().next_multiple_of(4), 0);
            Tensor::upload(backend, Kind::U32, vec![words.len() / 4], &words)
        })
    }

    fn copy(&self, kind: Kind, bytes: &[u8], backend: &Arc<dyn ComputeBackend>) -> Result<Tensor> {
        if kind.is_float() && self.shape.iter().product::<usize>() > FEW {
            Tensor::upload(backend, kind, self.shape.clone(), bytes)
        } else {
            Tensor::host(kind, self.shape.clone(), Numbers::decode(kind, bytes))
        }
    }

    /// Makes `tensor` its contents.
    pub(super) fn store(&self, tensor: &Tensor) -> Result<()> {
        let kind = self.kind()?;
        if kind != tensor.kind || self.shape != tensor.shape {
            return Err(Error::invalid(format!(
                "{:?} {:?} is expected, {:?} {:?} was computed",
                kind, self.shape, tensor.kind, tensor.shape
            )));
        }
        if tensor.count() == 0 {
            return Ok(());
        }
        match self.place {
            Place::Ours(_) => {
                let replaced = MEMORY.lock().write(self.data as u64, tensor.clone())?;
                drop(replaced);
                Ok(())
            }
            Place::Host => {
                let bytes = tensor.count() * kind.size();
                // SAFETY: ONNX Runtime allocated the tensor's elements in host memory for us to write, and
                // nobody else uses them during the call.
                let bytes = unsafe { slice::from_raw_parts_mut(self.data.cast::<u8>(), bytes) };
                tensor.read(bytes)
            }
            Place::Foreign => Err(Error::invalid("a tensor lies on another provider's device")),
        }
    }

    fn with_bytes<T>(&self, read: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        let bytes = elements(&self.shape)? * self.kind()?.size();
        if self.data.is_null() {
            return Err(Error::invalid("a tensor without elements"));
        }
        // SAFETY: a tensor in host memory has as many bytes as its shape and type say, which live as long as
        // the tensor, and nobody writes them during the call.
        read(unsafe { slice::from_raw_parts(self.data.cast_const().cast::<u8>(), bytes) })
    }
}

/// Element type and extents.
///
/// # Safety
/// `info` must be valid.
unsafe fn describe(info: *const OrtTensorTypeAndShapeInfo) -> Result<(i32, Vec<usize>)> {
    // SAFETY: the caller's promise.
    let (code, extents) = unsafe { (element_type(info)?, extents(info)?) };
    let shape = extents
        .into_iter()
        .map(|extent| usize::try_from(extent).map_err(|_| Error::invalid("a tensor has a negative extent")))
        .collect::<Result<_>>()?;
    Ok((code, shape))
}

/// The code of the element type.
///
/// # Safety
/// `info` must be valid.
pub(super) unsafe fn element_type(info: *const OrtTensorTypeAndShapeInfo) -> Result<i32> {
    let api = api()?;
    // As a number: a newer ONNX Runtime may have types that the enumeration of `ort-sys` lacks.
    let mut code = 0i32;
    // SAFETY: the enumeration is represented by an i32.
    unsafe { check("GetTensorElementType", (api.GetTensorElementType)(info, (&raw mut code).cast()))? };
    Ok(code)
}

/// The extents, -1 for those that aren't known.
///
/// # Safety
/// `info` must be valid.
pub(super) unsafe fn extents(info: *const OrtTensorTypeAndShapeInfo) -> Result<Vec<i64>> {
    let api = api()?;
    let mut rank = 0;
    // SAFETY: the caller's promise; the list is as long as the count says.
    unsafe {
        check("GetDimensionsCount", (api.GetDimensionsCount)(info, &raw mut rank))?;
        let mut extents = vec![0; rank];
        check("GetDimensions", (api.GetDimensions)(info, extents.as_mut_ptr(), rank))?;
        Ok(extents)
    }
}
