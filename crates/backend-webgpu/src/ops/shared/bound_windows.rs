//! Windows into buffers of their own, for tests of what the parts of a call read and write.

use backend_api::DType;

use crate::memory::{Block, DeviceSlice};
use crate::recorder::{BindingLimits, Window};

/// Windows of f32 into one buffer for each operand, from byte 4, 8, … on, of which a binding may show `max_bytes`.
pub(in crate::ops) fn windows<const N: usize>(device: &wgpu::Device, max_bytes: u64) -> [Window; N] {
    std::array::from_fn(|operand| {
        let offset = 4 * (operand + 1);
        let slice = DeviceSlice { block: Block::of_test(device, 1 << 14), offset, len: (1 << 14) - offset };
        Window::new(&slice, DType::F32, BindingLimits { max_bytes, alignment: 256 })
    })
}

/// The byte of a window's buffer at which an element begins, which must be bound.
pub(in crate::ops) fn address(window: &Window, element: usize) -> u64 {
    let address = window.bound.start + (u64::from(window.offset) + element as u64) * u64::from(window.item);
    assert!(window.bound.contains(&address), "bound");
    address
}
