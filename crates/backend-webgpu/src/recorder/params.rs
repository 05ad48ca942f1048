//! Parameters of kernels on devices without immediates: slots of uniform buffers.

use wgpu::BufferUsages;

/// Bytes from one slot to the next: the largest alignment that a device may ask for.
const SLOT: usize = 256;

/// Slots of one buffer, and so the most dispatches of a batch.
pub(crate) const SLOTS: usize = 256;

/// A uniform buffer and its bind group, used by one batch at a time.
#[derive(Clone, Debug)]
pub(crate) struct ParamsBuffer {
    buffer: wgpu::Buffer,
    group: wgpu::BindGroup,
}

/// A uniform buffer and what is to be in it when its batch runs.
#[derive(Debug)]
pub(crate) struct Filled {
    params: ParamsBuffer,
    bytes: Vec<u8>,
}

impl Filled {
    /// Uploads the parameters, to be called just before the batch is submitted.
    pub(crate) fn upload(&self, queue: &wgpu::Queue) {
        queue.write_buffer(&self.params.buffer, 0, &self.bytes);
    }

    /// The buffer, for another batch once this one has finished.
    pub(crate) fn buffer(&self) -> &ParamsBuffer {
        &self.params
    }
}

/// Collects the parameters of a batch.
#[derive(Debug)]
pub(crate) struct Params {
    layout: wgpu::BindGroupLayout,
    free: Vec<ParamsBuffer>,
    current: Option<Filled>,
}

impl Params {
    pub(crate) fn new(layout: wgpu::BindGroupLayout) -> Self {
        Self { layout, free: Vec::new(), current: None }
    }

    /// Takes a slot for `params`; the bind group and the dynamic offset that show it to a kernel.
    pub(crate) fn push(&mut self, device: &wgpu::Device, params: &[u8]) -> (wgpu::BindGroup, u32) {
        let current = match &mut self.current {
            Some(current) => current,
            None => {
                let params = self.free.pop().unwrap_or_else(|| create(device, &self.layout));
                self.current.insert(Filled { params, bytes: Vec::new() })
            }
        };
        let offset = current.bytes.len();
        current.bytes.extend_from_slice(params);
        current.bytes.resize(offset + SLOT, 0);
        // At most SLOTS slots of SLOT bytes.
        (current.params.group.clone(), offset as u32)
    }

    /// The parameters of the batch. The buffer comes back through [`recycle`](Self::recycle) when the batch
    /// has finished.
    pub(crate) fn close(&mut self) -> Option<Filled> {
        self.current.take()
    }

    pub(crate) fn recycle(&mut self, buffer: ParamsBuffer) {
        self.free.push(buffer);
    }
}

/// Parameters that don't change, slot after slot in as many buffers as they need.
#[derive(Debug)]
pub(crate) struct ParamsTable(Vec<wgpu::BindGroup>);

impl ParamsTable {
    /// Slots of one buffer of 1 MiB.
    const SLOTS: usize = 4096;

    /// Errors of wgpu end up in the caller's error scope.
    pub(crate) fn new<'a>(
        device: &wgpu::Device,
        layout: &wgpu::BindGroupLayout,
        params: impl Iterator<Item = &'a [u8]>,
    ) -> Self {
        let mut bytes = Vec::new();
        for params in params {
            let offset = bytes.len();
            bytes.extend_from_slice(params);
            bytes.resize(offset + SLOT, 0);
        }
        let groups = bytes.chunks(Self::SLOTS * SLOT).map(|chunk| {
            let buffer = device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("params"),
                size: chunk.len() as u64,
                usage: BufferUsages::UNIFORM,
                mapped_at_creation: true,
            });
            // A buffer that couldn't be made isn't mapped, and its error is on its way.
            if let Ok(mut mapped) = buffer.get_mapped_range_mut(..) {
                mapped.copy_from_slice(chunk);
            }
            buffer.unmap();
            bind(device, layout, &buffer)
        });
        Self(groups.collect())
    }

    /// The bind group and the dynamic offset that show the `index`th parameters to a kernel.
    pub(crate) fn slot(&self, index: usize) -> (&wgpu::BindGroup, u32) {
        (&self.0[index / Self::SLOTS], (index % Self::SLOTS * SLOT) as u32)
    }
}

fn create(device: &wgpu::Device, layout: &wgpu::BindGroupLayout) -> ParamsBuffer {
    let buffer = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("params"),
        size: (SLOT * SLOTS) as u64,
        usage: BufferUsages::UNIFORM | BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let group = bind(device, layout, &buffer);
    ParamsBuffer { buffer, group }
}

/// A bind group that shows one slot at a time.
fn bind(device: &wgpu::Device, layout: &wgpu::BindGroupLayout, buffer: &wgpu::Buffer) -> wgpu::BindGroup {
    device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some("params"),
        layout,
        entries: &[wgpu::BindGroupEntry {
            binding: 0,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer,
                offset: 0,
                size: wgpu::BufferSize::new(SLOT as u64),
            }),
        }],
    })
}
