//! Windows into buffers of their own, for tests of what the parts of a call read and write.

use std::sync::Arc;

use backend_api::DType;

use crate::device::LastHandle;
use crate::memory::{Block, DeviceSlice, Storage};
use crate::recorder::{BindingLimits, Window};

/// Windows of f32 into one buffer for each operand, from byte 4, 8, … on, of which a binding may show `max_bytes`.
pub(in crate::ops) fn windows<const N: usize>(device: &wgpu::Device, max_bytes: u64) -> [Window; N] {
    let last = Arc::new(LastHandle::new(device));
    std::array::from_fn(|operand| {
        let offset = 4 * (operand + 1);
        let usage = wgpu::BufferUsages::STORAGE;
        let descriptor =
            wgpu::BufferDescriptor { label: None, size: 1 << 14, usage, mapped_at_creation: false };
        let storage = Storage::new(device.create_buffer(&descriptor), Some(Arc::clone(&last)));
        let block = Arc::new(Block::outside(Arc::new(storage)));
        let slice = DeviceSlice { block, offset, len: (1 << 14) - offset };
        Window::new(&slice, DType::F32, BindingLimits { max_bytes, alignment: 256 })
    })
}

/// The byte of a window's buffer at which an element begins, which must be bound.
pub(in crate::ops) fn address(window: &Window, element: usize) -> u64 {
    let address = window.start + (u64::from(window.offset) + element as u64) * u64::from(window.item);
    assert!((window.start..window.start + window.size).contains(&address), "bound");
    address
}
