//! Parameters of kernels on devices without immediates: slots of uniform buffers.

use std::sync::Arc;

/// Bytes from one slot to the next: the largest alignment that a device may ask for.
const SLOT: usize = 256;

/// Slots of one buffer, and so the most dispatches of a batch.
pub(crate) const SLOTS: usize = 256;

/// A uniform buffer and its bind group, used by one batch at a time.
#[derive(Debug)]
pub(crate) struct ParamsBuffer {
    buffer: wgpu::Buffer,
    pub(crate) group: wgpu::BindGroup,
}

/// Collects the parameters of a batch; they are uploaded when it is submitted.
#[derive(Debug)]
pub(crate) struct Params {
    layout: wgpu::BindGroupLayout,
    free: Vec<Arc<ParamsBuffer>>,
    current: Option<Arc<ParamsBuffer>>,
    bytes: Vec<u8>,
}

impl Params {
    pub(crate) fn new(layout: wgpu::BindGroupLayout) -> Self {
        Self { layout, free: Vec::new(), current: None, bytes: Vec::with_capacity(SLOT * SLOTS) }
    }

    /// Takes a slot for `params`; the bind group and the dynamic offset that show it to a kernel.
    pub(crate) fn push(&mut self, device: &wgpu::Device, params: &[u8]) -> (Arc<ParamsBuffer>, u32) {
        let offset = self.bytes.len();
        self.bytes.extend_from_slice(params);
        self.bytes.resize(offset + SLOT, 0);
        let current = match &self.current {
            Some(current) => Arc::clone(current),
            None => {
                let fresh = self.free.pop().unwrap_or_else(|| Arc::new(self.create(device)));
                Arc::clone(self.current.insert(fresh))
            }
        };
        // At most SLOTS slots of SLOT bytes.
        (current, offset as u32)
    }

    /// Uploads what was collected, to be called just before the batch is submitted. The buffer comes back through
    /// [`recycle`](Self::recycle) when the batch has finished.
    pub(crate) fn upload(&mut self, queue: &wgpu::Queue) -> Option<Arc<ParamsBuffer>> {
        let current = self.current.take()?;
        queue.write_buffer(&current.buffer, 0, &self.bytes);
        self.bytes.clear();
        Some(current)
    }

    pub(crate) fn recycle(&mut self, buffer: Arc<ParamsBuffer>) {
        self.free.push(buffer);
    }

    fn create(&self, device: &wgpu::Device) -> ParamsBuffer {
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("params"),
            size: (SLOT * SLOTS) as u64,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("params"),
            layout: &self.layout,
            entries: &[wgpu::BindGroupEntry {
                binding: 0,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &buffer,
                    offset: 0,
                    size: wgpu::BufferSize::new(SLOT as u64),
                }),
            }],
        });
        ParamsBuffer { buffer, group }
    }
}
