//! Mapped buffers through which uploads pass.

use std::sync::Arc;

use backend_api::{BackendError, BackendResult, Diagnostic};

use super::{Copier, most_bytes};
use crate::device::{GuardedDevice, guarded};
use crate::sync::{self, Mutex, bound};

/// A few mapped buffers that are filled, copied from by a batch, and mapped again when the batch has
/// finished.
#[derive(Debug)]
pub(crate) struct StagingRing {
    device: GuardedDevice,
    copier: Arc<Copier>,
    /// Bytes of one buffer.
    chunk: usize,
    /// The buffer being filled and the bytes already in it.
    current: Option<(wgpu::Buffer, usize)>,
    /// Full buffers that the open batch copies from.
    full: Vec<wgpu::Buffer>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Mapped and empty.
    free: Vec<wgpu::Buffer>,
    /// Buffers that exist, wherever they are.
    count: usize,
}

impl StagingRing {
    /// Bytes of one buffer, and so of the largest write, where buffers may be so large.
    pub(crate) const CHUNK: usize = bound(4 << 20, 32);

    /// Buffers of the ring.
    const MAX_BUFFERS: usize = bound(8, 3);

    pub(crate) fn new(device: &GuardedDevice, copier: &Arc<Copier>) -> Self {
        Self {
            device: device.clone(),
            copier: Arc::clone(copier),
            chunk: Self::chunk(&device.limits()),
            current: None,
            full: Vec::new(),
            shared: Arc::default(),
        }
    }

    /// Bytes of the largest write on a device with these limits.
    pub(crate) fn chunk(limits: &wgpu::Limits) -> usize {
        most_bytes(limits, Self::CHUNK)
    }

    /// Writes at most [`chunk`](Self::chunk) bytes, a multiple of 4; the buffer and the byte where they
    /// start. `None` if every buffer is waiting for the device.
    pub(crate) fn write(
        &mut self,
        op: &'static str,
        from: &[u8],
    ) -> BackendResult<Option<(wgpu::Buffer, u64)>> {
        let fits = |&(_, used): &(wgpu::Buffer, usize)| used + from.len() <= self.chunk;
        if !self.current.as_ref().is_some_and(fits) {
            let Some(fresh) = self.fresh()? else {
                return Ok(None);
            };
            self.full.extend(self.current.replace((fresh, 0)).map(|(buffer, _)| buffer));
        }
        let Some((buffer, used)) = &mut self.current else {
            return Ok(None);
        };
        let start = *used as u64;
        let mut target = buffer
            .get_mapped_range_mut(start..start + from.len() as u64)
            .map_err(|error| BackendError::Driver { op, source: Diagnostic::new(error.to_string()) })?;
        self.copier.write(target.slice(..), from);
        // Ranges of a mapping start at multiples of 8.
        *used = (*used + from.len()).next_multiple_of(wgpu::MAP_ALIGNMENT as usize);
        Ok(Some((buffer.clone(), start)))
    }

    /// Unmaps what was filled, so that the batch can be submitted; the buffers come back by
    /// [`recycle`](Self::recycle).
    pub(crate) fn close(&mut self) -> Vec<wgpu::Buffer> {
        let mut used = std::mem::take(&mut self.full);
        used.extend(self.current.take().map(|(buffer, _)| buffer));
        used.iter().for_each(wgpu::Buffer::unmap);
        used
    }

    /// Maps a buffer again whose batch has finished.
    pub(crate) fn recycle(&self, buffer: wgpu::Buffer) {
        let (shared, mapped) = (Arc::clone(&self.shared), buffer.clone());
        buffer.map_async(wgpu::MapMode::Write, .., move |result| {
            sync::deliver(move || {
                let mut shared = shared.lock();
                match result {
                    Ok(()) => shared.free.push(mapped),
                    Err(_) => shared.count -= 1,
                }
            });
        });
    }

    /// Bytes of all its buffers.
    pub(crate) fn bytes(&self) -> usize {
        self.shared.lock().count * self.chunk
    }

    /// An empty mapped buffer, unless all are in use.
    fn fresh(&self) -> BackendResult<Option<wgpu::Buffer>> {
        let mut shared = self.shared.lock();
        if let Some(buffer) = shared.free.pop() {
            return Ok(Some(buffer));
        }
        if shared.count >= Self::MAX_BUFFERS {
            return Ok(None);
        }
        let buffer = guarded(&self.device, || {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("upload"),
                size: self.chunk as u64,
                usage: wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: true,
            })
        })
        .map_err(|_| BackendError::OutOfMemory {
            requested: self.chunk,
            in_use: shared.count * self.chunk,
        })?;
        shared.count += 1;
        Ok(Some(buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WebGpuBackend;

    fn ring_of_short_buffers(device: &GuardedDevice) -> StagingRing {
        StagingRing { chunk: 64, ..StagingRing::new(device, &Arc::default()) }
    }

    #[test]
    fn writes_fill_a_buffer_before_the_next_one_is_taken() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let mut ring = ring_of_short_buffers(backend.guarded_device());
        let mut write = |len: usize| ring.write("test", &vec![1; len]).unwrap().unwrap();
        let (first, start) = write(12);
        let usage = wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC;
        assert_eq!((first.size(), first.usage(), start), (64, usage, 0));
        assert_eq!(write(8), (first.clone(), 16), "at a multiple of 8");
        assert_eq!(write(40), (first.clone(), 24), "up to the end");
        let (second, start) = write(4);
        assert!(second != first && start == 0);
        assert_eq!(ring.bytes(), 2 * 64);
        assert_eq!(ring.close(), [first, second]);
        assert_eq!(ring.close(), []);
    }

    #[test]
    fn buffers_come_back_when_their_batch_has_finished() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let device = backend.guarded_device();
        let mut ring = ring_of_short_buffers(device);
        let fill = |ring: &mut StagingRing| {
            (0..100).take_while(|_| ring.write("test", &[1; 64]).unwrap().is_some()).count()
        };
        assert_eq!((fill(&mut ring), ring.bytes()), (8, 8 * 64));
        let used = ring.close();
        assert_eq!((used.len(), fill(&mut ring)), (8, 0), "none has come back");
        used.iter().for_each(|buffer| ring.recycle(buffer.clone()));
        device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
        assert_eq!((fill(&mut ring), ring.bytes()), (8, 8 * 64));
        assert!(ring.close().iter().all(|buffer| used.contains(buffer)));
    }

    #[test]
    fn a_buffer_that_cannot_be_mapped_again_makes_room_for_another() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let device = backend.guarded_device();
        let mut ring = ring_of_short_buffers(device);
        let written = [(); 2].map(|()| ring.write("test", &[1; 64]).unwrap().is_some());
        assert_eq!((written, ring.bytes()), ([true; 2], 2 * 64));
        let used = ring.close();
        used[0].destroy();
        // The error of mapping what is gone is told to the ring, and to nobody else.
        guarded(device, || ring.recycle(used[0].clone())).unwrap_err();
        device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
        assert_eq!(ring.bytes(), 64);
    }
}
