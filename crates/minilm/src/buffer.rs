//! Device memory that frees itself.

use std::fmt;
use std::sync::Arc;

use backend_api::{BackendResult, ComputeBackend, DType};
use bytemuck::{NoUninit, Pod};

/// A handle of a backend, freed on drop. The backend lives as long as its last buffer.
pub struct Buffer {
    backend: Arc<dyn ComputeBackend>,
    ptr: u64,
    bytes: usize,
}

impl Buffer {
    /// Memory for a packed tensor of `T`, holding arbitrary bytes.
    ///
    /// # Errors
    /// [`Overflow`](backend_api::BackendError::Overflow), and what [`ComputeBackend::alloc`] returns.
    pub fn new<T>(backend: &Arc<dyn ComputeBackend>, shape: &[usize]) -> BackendResult<Self> {
        Self::of_elements(backend, size_of::<T>(), shape)
    }

    /// Memory for a tensor of `dtype`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of(backend: &Arc<dyn ComputeBackend>, dtype: DType, shape: &[usize]) -> BackendResult<Self> {
        Self::of_elements(backend, dtype.size(), shape)
    }

    fn of_elements(backend: &Arc<dyn ComputeBackend>, size: usize, shape: &[usize]) -> BackendResult<Self> {
        let elements = backend_api::checked_product("alloc", "elements", shape)?;
        let bytes = backend_api::checked_product("alloc", "bytes", &[elements, size])?;
        let ptr = backend.alloc(bytes)?;
        Ok(Self { backend: Arc::clone(backend), ptr, bytes })
    }

    /// Memory that holds a copy of `data`.
    ///
    /// # Errors
    /// As [`new`](Self::new), and what [`ComputeBackend::copy_htod`] returns.
    pub fn from_slice<T: NoUninit>(backend: &Arc<dyn ComputeBackend>, data: &[T]) -> BackendResult<Self> {
        let buffer = Self::new::<T>(backend, &[data.len()])?;
        backend.copy_htod(buffer.ptr, bytemuck::cast_slice(data))?;
        Ok(buffer)
    }

    /// A view of `bytes` bytes from byte `offset` on. The memory lives until its last view is dropped.
    ///
    /// # Errors
    /// What [`ComputeBackend::view`] returns.
    pub fn view(&self, offset: usize, bytes: usize) -> BackendResult<Self> {
        let ptr = self.backend.view(self.ptr, offset, bytes)?;
        Ok(Self { backend: Arc::clone(&self.backend), ptr, bytes })
    }

    /// The handle, for the backend's operations.
    #[must_use]
    pub const fn ptr(&self) -> u64 {
        self.ptr
    }

    /// Its size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reads the first elements, as many as fit in `into`, waiting for the work before.
    ///
    /// # Errors
    /// What [`ComputeBackend::copy_dtoh`] returns.
    pub fn read<T: Pod>(&self, into: &mut [T]) -> BackendResult<()> {
        self.backend.copy_dtoh(bytemuck::cast_slice_mut(into), self.ptr)
    }

    /// [`read`](Self::read) that waits without blocking.
    ///
    /// # Errors
    /// What [`ComputeBackend::copy_dtoh_async`] returns.
    pub async fn read_async<T: Pod>(&self, into: &mut [T]) -> BackendResult<()> {
        self.backend.copy_dtoh_async(bytemuck::cast_slice_mut(into), self.ptr).await
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Fails only when the device was lost and with it the memory: nothing is left to give back.
        if let Err(error) = self.backend.free(self.ptr) {
            tracing::debug!(%error, "a buffer was gone before it was dropped");
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("backend", &self.backend.name())
            .field("ptr", &self.ptr)
            .field("bytes", &self.bytes)
            .finish()
    }
}
