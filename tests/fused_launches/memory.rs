//! Operands and results in a device's memory, and comparisons.

use backend_api::{BackendResult, ComputeBackend, DType};
use backend_webgpu::WebGpuBackend;
use half::f16;
use libtest_mimic::Failed;

use crate::forced::has_device_scope_barriers;

/// What results have before they are made, and behind them after: a NaN that no kernel makes.
const BEFORE: [u8; 4] = [0xa5, 0x7e, 0xa5, 0x7f];

/// Bytes behind each result.
pub(crate) const GUARD: usize = 64;

pub(crate) fn bytes(dtype: DType, numbers: &[f64]) -> Vec<u8> {
    let of = |&x: &f64| match dtype {
        DType::F16 => f16::from_f64(x).to_le_bytes().to_vec(),
        _ => (x as f32).to_le_bytes().to_vec(),
    };
    numbers.iter().flat_map(of).collect()
}

/// Handles that are freed together.
pub(crate) struct Memory<'a> {
    backend: &'a WebGpuBackend,
    ptrs: Vec<u64>,
}

impl<'a> Memory<'a> {
    pub(crate) const fn new(backend: &'a WebGpuBackend) -> Self {
        Self { backend, ptrs: Vec::new() }
    }

    pub(crate) fn with(&mut self, bytes: &[u8]) -> BackendResult<u64> {
        let ptr = self.backend.alloc(bytes.len())?;
        self.ptrs.push(ptr);
        self.backend.copy_htod(ptr, bytes)?;
        Ok(ptr)
    }

    /// An operand that begins so many elements behind its allocation.
    pub(crate) fn behind(&mut self, dtype: DType, elements: usize, numbers: &[f64]) -> BackendResult<u64> {
        let before = vec![0xff; elements * dtype.size()];
        let ptr = self.with(&[before.clone(), bytes(dtype, numbers)].concat())?;
        self.view(ptr, before.len(), numbers.len() * dtype.size())
    }

    pub(crate) fn view(&mut self, ptr: u64, offset: usize, bytes: usize) -> BackendResult<u64> {
        let view = self.backend.view(ptr, offset, bytes)?;
        self.ptrs.push(view);
        Ok(view)
    }

    /// Room for so many bytes of results, with a guard behind them.
    pub(crate) fn result(&mut self, bytes: usize) -> BackendResult<u64> {
        self.with(&BEFORE.repeat((bytes + GUARD).div_ceil(BEFORE.len())))
    }

    /// Results, whose guard has to be there.
    pub(crate) fn read(&self, ptr: u64, bytes: usize) -> Result<Vec<u8>, Failed> {
        let mut found = vec![0; (bytes + GUARD).next_multiple_of(BEFORE.len())];
        self.backend.copy_dtoh(&mut found, ptr)?;
        let guard = found.split_off(bytes);
        let is_there = |(at, &byte): (usize, &u8)| byte == BEFORE[(bytes + at) % BEFORE.len()];
        if guard.iter().enumerate().all(is_there) { Ok(found) } else { Err("a guard was overwritten".into()) }
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        for &ptr in self.ptrs.iter().rev() {
            // Nothing else frees them.
            self.backend.free(ptr).expect("the handle is there");
        }
    }
}

/// Whether a number is what it should be, or as far from it as its bound; NaN if that is NaN.
pub(crate) fn require(what: &str, found: f64, wanted: f64, bound: f64) -> Result<(), Failed> {
    let is_right = found == wanted || (found - wanted).abs() <= bound || found.is_nan() && wanted.is_nan();
    if is_right { Ok(()) } else { Err(format!("{what} is {found}, not {wanted} within {bound}").into()) }
}

/// Whether a launch may take the place of several on the device: its workgroups can tell each other something, and so many buffers
/// can be bound.
pub(crate) fn is_able(backend: &WebGpuBackend, buffers: u32) -> Result<bool, Failed> {
    let device = backend.device().ok_or("the backend is open")?;
    let has_bindings = device.limits().max_storage_buffers_per_shader_stage >= buffers;
    Ok(has_device_scope_barriers(backend) && has_bindings)
}
