//! Mapped buffers through which read-backs pass.

use std::sync::Arc;

use backend_api::{BackendError, BackendResult, Diagnostic};

use super::{Copier, most_bytes};
use crate::device::{GuardedDevice, guarded};
use crate::sync::{Mutex, bound};

/// Read-back buffers of powers of two, kept for reuse.
#[derive(Debug)]
pub(crate) struct Readback {
    device: GuardedDevice,
    copier: Arc<Copier>,
    free: Mutex<Vec<wgpu::Buffer>>,
    /// New buffers that are refused.
    #[cfg(test)]
    pub(crate) refusals: Mutex<crate::memory::Refusals>,
}

impl Readback {
    /// Bytes of the largest buffer, and so of one piece of a read, where buffers may be so large.
    pub(crate) const CHUNK: usize = bound(16 << 20, 32);

    const MIN_BYTES: usize = bound(4 << 10, 16);
    const MAX_FREE: usize = bound(4, 2);

    pub(crate) fn new(device: &GuardedDevice, copier: &Arc<Copier>) -> Self {
        Self {
            device: device.clone(),
            copier: Arc::clone(copier),
            free: Mutex::default(),
            #[cfg(test)]
            refusals: Mutex::default(),
        }
    }

    /// Bytes of the largest piece of a read on a device with these limits.
    pub(crate) fn chunk(limits: &wgpu::Limits) -> usize {
        most_bytes(limits, Self::CHUNK)
    }

    /// An unmapped buffer of at least `bytes`, which are at most [`chunk`](Self::chunk).
    pub(crate) fn acquire(&self, bytes: usize) -> BackendResult<wgpu::Buffer> {
        let size = bytes.next_power_of_two().max(Self::MIN_BYTES);
        let mut free = self.free.lock();
        if let Some(i) = free.iter().position(|buffer| buffer.size() == size as u64) {
            return Ok(free.swap_remove(i));
        }
        drop(free);
        #[cfg(test)]
        if self.refusals.lock().next() {
            return Err(BackendError::OutOfMemory { requested: size, in_use: self.bytes() });
        }
        guarded(&self.device, || {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("read-back"),
                size: size as u64,
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        })
        .map_err(|_| BackendError::OutOfMemory { requested: size, in_use: self.bytes() })
    }

    /// Copies out of a mapped buffer and keeps it for reuse.
    pub(crate) fn finish(
        &self,
        op: &'static str,
        buffer: wgpu::Buffer,
        mapped: Result<(), wgpu::BufferAsyncError>,
        skip: usize,
        dst: &mut [u8],
    ) -> BackendResult<()> {
        let driver = |what: String| BackendError::Driver { op, source: Diagnostic::new(what) };
        mapped.map_err(|error| driver(error.to_string()))?;
        let range = skip as u64..(skip + dst.len()) as u64;
        // A mapped range starts at a multiple of 8, so the few bytes before are skipped here.
        let from = range.start / wgpu::MAP_ALIGNMENT * wgpu::MAP_ALIGNMENT;
        let end = range.end.next_multiple_of(4);
        let view = buffer.get_mapped_range(from..end).map_err(|error| driver(error.to_string()))?;
        let first = (range.start - from) as usize;
        match view.get(first..first + dst.len()) {
            Some(read) => self.copier.copy(dst, read),
            None => return Err(driver("the mapped range is too short".to_owned())),
        }
        drop(view);
        buffer.unmap();
        let mut free = self.free.lock();
        if free.len() < Self::MAX_FREE {
            free.push(buffer);
        }
        Ok(())
    }

    /// Bytes kept for reuse.
    pub(crate) fn bytes(&self) -> usize {
        self.free.lock().iter().map(|buffer| buffer.size() as usize).sum()
    }

    /// Drops the buffers kept for reuse.
    pub(crate) fn trim(&self) {
        self.free.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WebGpuBackend;

    /// A mapped buffer with these bytes.
    fn mapped(backend: &WebGpuBackend, readback: &Readback, bytes: &[u8]) -> wgpu::Buffer {
        let buffer = readback.acquire(bytes.len()).unwrap();
        let queue = backend.queue().unwrap();
        queue.write_buffer(&buffer, 0, bytes);
        queue.submit([]);
        buffer.map_async(wgpu::MapMode::Read, .., |result| result.unwrap());
        backend.device().unwrap().poll(wgpu::PollType::wait_indefinitely()).unwrap();
        buffer
    }

    #[test]
    fn a_piece_is_as_large_as_buffers_may_be() {
        let chunk =
            |max_buffer_size| Readback::chunk(&wgpu::Limits { max_buffer_size, ..wgpu::Limits::default() });
        assert_eq!([1 << 20, 1 << 30].map(chunk), [1 << 19, Readback::CHUNK]);
    }

    #[test]
    fn buffers_are_powers_of_two() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let readback = Readback::new(backend.guarded_device(), &Arc::default());
        let sizes = [1, 4096, 4097, 8193].map(|bytes| readback.acquire(bytes).unwrap().size());
        assert_eq!(sizes, [4096, 4096, 8192, 16_384]);
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        assert_eq!(readback.acquire(1).unwrap().usage(), usage);
    }

    #[test]
    fn a_read_may_begin_at_any_byte() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let readback = Readback::new(backend.guarded_device(), &Arc::default());
        let bytes: Vec<u8> = (0..4096).map(|i| (i % 251) as u8).collect();
        for (skip, len) in [(0, 4096), (0, 1), (3, 5), (8, 8), (13, 20), (4095, 1), (1, 4095), (12, 0)] {
            let mut read = vec![255; len];
            let buffer = mapped(&backend, &readback, &bytes);
            readback.finish("test", buffer, Ok(()), skip, &mut read).unwrap();
            assert_eq!(read, bytes[skip..skip + len], "{len} bytes from {skip}");
        }
        let buffer = readback.acquire(4096).unwrap();
        let failed = readback.finish("test", buffer, Err(wgpu::BufferAsyncError), 0, &mut [0; 4]);
        assert!(matches!(failed, Err(BackendError::Driver { op: "test", .. })), "{failed:?}");
    }

    #[test]
    fn a_few_buffers_are_kept_for_the_next_reads() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let readback = Readback::new(backend.guarded_device(), &Arc::default());
        assert_eq!(readback.bytes(), 0);
        let buffers = [(); 5].map(|()| mapped(&backend, &readback, &[1; 16]));
        for buffer in &buffers {
            readback.finish("test", buffer.clone(), Ok(()), 0, &mut [0; 16]).unwrap();
        }
        assert_eq!(readback.bytes(), 4 * 4096);
        assert_eq!(readback.acquire(5000).unwrap().size(), 8192, "none of these");
        assert!(buffers.contains(&readback.acquire(16).unwrap()));
        assert_eq!(readback.bytes(), 3 * 4096);
        readback.trim();
        assert_eq!(readback.bytes(), 0);
        assert!(!buffers.contains(&readback.acquire(16).unwrap()));
    }
}
