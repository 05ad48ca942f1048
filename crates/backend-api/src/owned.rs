//! Device memory and captured graphs that free themselves.
//!
//! ```
//! use std::sync::Arc;
//!
//! use backend_api::owned::Buffer;
//! use backend_api::{BackendResult, ComputeBackend, UnaryOp};
//!
//! fn squares(backend: &Arc<dyn ComputeBackend>, numbers: &[f32]) -> BackendResult<Vec<f32>> {
//!     let x = Buffer::from_slice(backend, numbers)?;
//!     backend.unary(UnaryOp::Square, x.ptr(), x.ptr(), numbers.len())?;
//!     x.to_vec()
//! }
//! ```

use std::fmt;
use std::sync::Arc;

use bytemuck::{NoUninit, Pod};

use crate::{BackendError, BackendResult, Bound, ComputeBackend, DType, ErrorKind, checked_product};

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
    /// [`Overflow`](BackendError::Overflow), and what [`ComputeBackend::alloc`] returns.
    pub fn new<T>(backend: &Arc<dyn ComputeBackend>, shape: &[usize]) -> BackendResult<Self> {
        let bytes = tensor_bytes(size_of::<T>(), shape)?;
        Ok(Self::own(backend, backend.alloc(bytes)?, bytes))
    }

    /// Memory for a packed tensor of `dtype`, holding arbitrary bytes.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of(backend: &Arc<dyn ComputeBackend>, dtype: DType, shape: &[usize]) -> BackendResult<Self> {
        let bytes = tensor_bytes(dtype.size(), shape)?;
        Ok(Self::own(backend, backend.alloc(bytes)?, bytes))
    }

    /// Memory for a packed tensor of `dtype`, all of whose elements are 0.
    ///
    /// # Errors
    /// As [`new`](Self::new), and what [`ComputeBackend::alloc_zeroed`] returns.
    pub fn zeroed(backend: &Arc<dyn ComputeBackend>, dtype: DType, shape: &[usize]) -> BackendResult<Self> {
        let bytes = tensor_bytes(dtype.size(), shape)?;
        Ok(Self::own(backend, backend.alloc_zeroed(bytes)?, bytes))
    }

    /// Memory that holds a copy of `data`.
    ///
    /// # Errors
    /// As [`new`](Self::new), and what [`ComputeBackend::copy_htod`] returns.
    pub fn from_slice<T: NoUninit>(backend: &Arc<dyn ComputeBackend>, data: &[T]) -> BackendResult<Self> {
        let buffer = Self::new::<T>(backend, &[data.len()])?;
        buffer.upload(data)?;
        Ok(buffer)
    }

    /// Takes over a handle to `bytes` bytes, such as one of an imported buffer: it is freed on drop.
    #[must_use]
    pub fn own(backend: &Arc<dyn ComputeBackend>, ptr: u64, bytes: usize) -> Self {
        Self { backend: Arc::clone(backend), ptr, bytes }
    }

    /// A view of `bytes` bytes from byte `offset` on. The memory lives until its last view is dropped.
    ///
    /// # Errors
    /// What [`ComputeBackend::view`] returns.
    pub fn view(&self, offset: usize, bytes: usize) -> BackendResult<Self> {
        Ok(Self::own(&self.backend, self.backend.view(self.ptr, offset, bytes)?, bytes))
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

    /// The backend whose memory it is.
    #[must_use]
    pub const fn backend(&self) -> &Arc<dyn ComputeBackend> {
        &self.backend
    }

    /// Writes `data` to the start of the buffer.
    ///
    /// # Errors
    /// What [`ComputeBackend::copy_htod`] returns.
    pub fn upload<T: NoUninit>(&self, data: &[T]) -> BackendResult<()> {
        self.backend.copy_htod(self.ptr, bytemuck::cast_slice(data))
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

    /// All elements, waiting for the work before.
    ///
    /// # Errors
    /// [`Shape`](BackendError::Shape) if the buffer doesn't hold whole elements of `T`,
    /// [`OutOfMemory`](BackendError::OutOfMemory) if the host has no room for them, and what [`ComputeBackend::view`] and
    /// [`ComputeBackend::copy_dtoh`] return: [`BufferTooSmall`](BackendError::BufferTooSmall) for a size that is more
    /// than the handle's.
    pub fn to_vec<T: Pod>(&self) -> BackendResult<Vec<T>> {
        let mut elements = self.vec()?;
        self.read(&mut elements)?;
        Ok(elements)
    }

    /// [`to_vec`](Self::to_vec) that waits without blocking.
    ///
    /// # Errors
    /// As [`to_vec`](Self::to_vec).
    pub async fn to_vec_async<T: Pod>(&self) -> BackendResult<Vec<T>> {
        let mut elements = self.vec()?;
        self.read_async(&mut elements).await?;
        Ok(elements)
    }

    /// As many elements as the buffer has.
    fn vec<T: Pod>(&self) -> BackendResult<Vec<T>> {
        let size = size_of::<T>().max(1);
        if !self.bytes.is_multiple_of(size) {
            let (expected, got) = (Bound::MultipleOf(size), self.bytes);
            return Err(BackendError::Shape { op: "to_vec", what: "size in bytes", expected, got });
        }
        // Whoever called `own` may be wrong about the size, and the host may have no room for it.
        match self.view(0, self.bytes) {
            Err(error) if error.kind() != ErrorKind::Unsupported => return Err(error),
            _ => {}
        }
        let out_of_memory = |_| BackendError::OutOfMemory { requested: self.bytes, in_use: 0 };
        let mut elements = Vec::new();
        elements.try_reserve_exact(self.bytes / size).map_err(out_of_memory)?;
        elements.resize(self.bytes / size, T::zeroed());
        Ok(elements)
    }
}

/// Captured operations of a backend, freed on drop. The backend lives as long as its last graph.
pub struct Graph {
    backend: Arc<dyn ComputeBackend>,
    handle: u64,
}

impl Graph {
    /// Captures the operations that `record` calls on the backend that it is given.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use backend_api::owned::{Buffer, Graph};
    /// use backend_api::{BackendResult, ComputeBackend, UnaryOp};
    ///
    /// /// `x` to the power of 2ⁿ, in place.
    /// fn square_repeatedly(backend: &Arc<dyn ComputeBackend>, x: &Buffer, n: usize) -> BackendResult<()> {
    ///     let length = x.bytes() / size_of::<f32>();
    ///     let graph = Graph::capture(backend, |b| b.unary(UnaryOp::Square, x.ptr(), x.ptr(), length))?;
    ///     (0..n).try_for_each(|_| graph.replay())
    /// }
    /// ```
    ///
    /// # Errors
    /// What [`ComputeBackend::capture`] returns.
    pub fn capture(
        backend: &Arc<dyn ComputeBackend>,
        mut record: impl FnMut(&dyn ComputeBackend) -> BackendResult<()>,
    ) -> BackendResult<Self> {
        let handle = backend.capture(&mut record)?;
        Ok(Self { backend: Arc::clone(backend), handle })
    }

    /// Runs the operations.
    ///
    /// # Errors
    /// What [`ComputeBackend::replay`] returns.
    pub fn replay(&self) -> BackendResult<()> {
        self.backend.replay(self.handle)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // Fails only where the graph is gone already, with a lost device.
        _ = self.backend.free_graph(self.handle);
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("backend", &self.backend.name()).field("handle", &self.handle).finish()
    }
}

fn tensor_bytes(size: usize, shape: &[usize]) -> BackendResult<usize> {
    let elements = checked_product("alloc", "elements", shape)?;
    checked_product("alloc", "bytes", &[elements, size])
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Fails only where the memory is gone already, such as with a lost device: nothing is left to free.
        _ = self.backend.free(self.ptr);
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
