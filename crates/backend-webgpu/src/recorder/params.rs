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
pub(crate) struct ParamsTable {
    groups: Vec<wgpu::BindGroup>,
    /// Slots of each buffer but the last one.
    slots: usize,
}

impl ParamsTable {
    /// Slots of one buffer of 1 MiB, where buffers may be so large.
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
        let largest = usize::try_from(device.limits().max_buffer_size).unwrap_or(usize::MAX);
        let slots = Self::SLOTS.min(largest / SLOT).max(1);
        let groups = bytes.chunks(slots * SLOT).map(|chunk| {
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
        Self { groups: groups.collect(), slots }
    }

    /// The bind group and the dynamic offset that show the `index`th parameters to a kernel.
    pub(crate) fn slot(&self, index: usize) -> (&wgpu::BindGroup, u32) {
        (&self.groups[index / self.slots], (index % self.slots * SLOT) as u32)
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

#[cfg(test)]
mod tests {
    use backend_api::ComputeBackend as _;

    use super::*;
    use crate::WebGpuBackend;

    #[test]
    fn each_dispatch_of_a_batch_has_a_slot_of_its_own() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let device = backend.device().unwrap();
        let call = backend.context("test").unwrap();
        let mut params = Params::new(call.device().pipelines.params_layout().clone());
        let (group, first) = params.push(device, &[1, 2, 3]);
        let (same, second) = params.push(device, &[4; 8]);
        assert_eq!((first, second, &same), (0, 256, &group));
        let filled = params.close().unwrap();
        assert_eq!(filled.bytes.len(), 2 * SLOT);
        assert_eq!(
            (&filled.bytes[..4], &filled.bytes[256..265]),
            (&[1, 2, 3, 0][..], &[4, 4, 4, 4, 4, 4, 4, 4, 0][..])
        );
        let buffer = filled.buffer().buffer.clone();
        assert_eq!(buffer.size(), 256 * 256);
        assert_eq!(buffer.usage(), BufferUsages::UNIFORM | BufferUsages::COPY_DST);
        assert!(params.close().is_none(), "an empty batch");
        // The first batch has its buffer until it has finished.
        assert!(params.push(device, &[5]) != (group.clone(), 0));
        params.recycle(filled.buffer().clone());
        assert!(params.close().is_some());
        assert_eq!(params.push(device, &[6]), (group, 0));
        assert_eq!(params.close().unwrap().bytes[0], 6);
    }

    #[test]
    fn parameters_that_stay_lie_in_as_many_buffers_as_they_need() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let call = backend.context("test").unwrap();
        let layout = call.device().pipelines.params_layout();
        let table = ParamsTable::new(backend.device().unwrap(), layout, (0..4098).map(|_| &[7_u8; 12][..]));
        let [first, last, next, end] = [0, 4095, 4096, 4097].map(|index| table.slot(index));
        assert_eq!([first.1, last.1, next.1, end.1], [0, 4095 * 256, 0, 256]);
        assert!(first.0 == last.0 && next.0 == end.0 && first.0 != next.0 && table.groups.len() == 2);
    }

    #[test]
    fn parameters_that_stay_lie_in_buffers_as_large_as_the_device_has() {
        let limits = wgpu::Limits { max_buffer_size: 64 << 10, ..wgpu::Limits::default() };
        let mut backend = WebGpuBackend::new();
        backend.init_with_limits(|of_adapter| *of_adapter = limits.or_worse_values_from(of_adapter)).unwrap();
        let call = backend.context("test").unwrap();
        let (device, layout) = (backend.device().unwrap(), call.device().pipelines.params_layout());
        let table = ParamsTable::new(device, layout, (0..257).map(|_| &[7_u8; 12][..]));
        let [last, next] = [255, 256].map(|index| table.slot(index));
        assert_eq!((last.1, next.1, table.groups.len()), (255 * 256, 0, 2));
        assert!(last.0 != next.0);
        backend.synchronize().expect("no late error of a buffer");
    }
}
