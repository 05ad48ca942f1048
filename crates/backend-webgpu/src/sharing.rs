//! The device, its queue and its buffers, shared with work of the caller's own.

use backend_api::{BackendError, BackendResult, Diagnostic};

use crate::WebGpuBackend;
use crate::recorder::VECTOR_BYTES;

impl WebGpuBackend {
    /// The wgpu device, if the backend is open, for work of the caller's own beside the backend's. Its uncaptured-error
    /// and lost callbacks are the backend's. An error scope that a thread holds open while it calls the backend takes
    /// errors which the call would return; only a device of [`from_wgpu`](Self::from_wgpu) may have one then.
    ///
    /// A clone of the device, of its queue or of one of its buffers that outlives the backend keeps the device open, and the
    /// last one closes it. Drop them before the backend, or while no other thread opens a device or compiles, on which
    /// NVIDIA's driver 580.159 hangs: the backend keeps these apart only where it closes the device itself.
    #[must_use]
    pub fn device(&self) -> Option<&wgpu::Device> {
        Some(&self.opened()?.device().gpu.device)
    }

    /// The wgpu queue, if the backend is open. What the backend has recorded runs before work that is
    /// submitted here only after [`flush`](Self::flush).
    #[must_use]
    pub fn queue(&self) -> Option<&wgpu::Queue> {
        Some(&self.opened()?.device().gpu.queue)
    }

    /// Submits what has been recorded, without waiting for the device to do it.
    ///
    /// # Errors
    /// [`DeviceLost`](BackendError::DeviceLost), [`NotInitialized`](BackendError::NotInitialized);
    /// [`Timeout`](BackendError::Timeout) where a driver works off earlier submissions before it takes this
    /// one, which follows then.
    pub fn flush(&self) -> BackendResult<()> {
        let op = "flush";
        let call = self.context(op)?;
        let device = call.device();
        let newest = {
            let mut recorder = device.recorder.lock();
            recorder.submit()?;
            recorder.newest()
        };
        newest.map_or(Ok(()), |newest| device.submitter.wait_until_submitted(&newest, &device.deadline(op)))
    }

    /// The buffer behind a handle, with the handle's byte offset and length in it. The buffer may be read and
    /// written by work submitted after [`flush`](Self::flush), for as long as the handle lives.
    ///
    /// # Errors
    /// [`InvalidHandle`](BackendError::InvalidHandle); [`Limit`](BackendError::Limit) for a handle of an allocation
    /// that is larger than a buffer may be, and lies in several.
    pub fn export_buffer(&self, ptr: u64) -> BackendResult<(wgpu::Buffer, u64, u64)> {
        let op = "export_buffer";
        let call = self.context(op)?;
        let slice = call.device().memory.export(op, "ptr", ptr)?;
        call.device().recorder.lock().note_shared(&slice.block);
        Ok((slice.block.buffer().clone(), slice.offset as u64, slice.len as u64))
    }

    /// A handle to a buffer of this device that the caller made, of 16 bytes or a multiple, with the usages STORAGE,
    /// COPY_SRC and COPY_DST. It is freed like any handle; the buffer lives as long as the caller or the backend uses it.
    /// A buffer that is imported again, or was exported, is the memory that it is already known as, until its handles and
    /// what was recorded with them are gone: after that its content is the caller's, whether or not a late error kept the
    /// backend from writing it. While the handle lives, the caller must not map or destroy the buffer: what is recorded
    /// with it would be lost, and the next read or synchronize says so.
    ///
    /// # Errors
    /// [`Unsupported`](BackendError::Unsupported) for another size, if a usage is missing or the buffer is mapped;
    /// [`Driver`](BackendError::Driver) if it is of another device or destroyed. In a browser these two are
    /// told later, by the next read or synchronize. Two things can't be seen here and must not be: a buffer
    /// of another `wgpu::Instance`, and a mapped one of which the caller still holds a view.
    pub fn import_buffer(&self, buffer: wgpu::Buffer) -> BackendResult<u64> {
        let op = "import_buffer";
        let call = self.context(op)?;
        let device = call.device();
        let needed =
            wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let unsupported = |need| Err(BackendError::Unsupported { op, need });
        // Kernels read whole vectors, of the last of which only a part may be an operand's.
        let is_whole = buffer.size() > 0 && buffer.size().is_multiple_of(VECTOR_BYTES);
        if !buffer.usage().contains(needed) || !is_whole {
            return unsupported(format!(
                "a buffer of one or more whole {VECTOR_BYTES}-byte vectors with the usages {needed:?}"
            ));
        }
        if buffer.get_mapped_range(..).is_ok() {
            return unsupported("a buffer that is not mapped".to_owned());
        }
        device
            .pipelines
            .check_buffer(&buffer)
            .map_err(|error| BackendError::Driver { op, source: Diagnostic::new(error.to_string()) })?;
        device.memory.import(op, buffer)
    }
}
