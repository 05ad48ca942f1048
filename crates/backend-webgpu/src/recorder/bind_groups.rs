//! Bind groups, made once for each set of buffers.

use std::ops::Range;

use arrayvec::ArrayVec;
use rustc_hash::FxHashMap;

use super::Window;
use crate::device::MAX_BINDINGS;
use crate::kernels::{Layout, Signature};
use crate::memory::BufferId;

/// Entries of one generation. Two generations of bind groups cost a few hundred bytes each.
const GENERATION: usize = 2048;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct BindKey {
    signature: Signature,
    /// Buffer and bytes of each binding: a binding shows a kernel its own bytes only.
    windows: ArrayVec<(BufferId, Range<u64>), MAX_BINDINGS>,
}

impl BindKey {
    pub(super) fn new(layout: &Layout, windows: &[Window]) -> Self {
        let windows = windows.iter().take(MAX_BINDINGS);
        let windows = windows.map(|window| (window.block.id(), window.bound.clone())).collect();
        Self { signature: layout.signature, windows }
    }
}

/// A cache that forgets what has not been used for a while: when the young generation is full, it becomes the
/// old one, and what was old is dropped. A hit in the old one moves to the young.
#[derive(Debug, Default)]
pub(crate) struct BindGroups {
    young: FxHashMap<BindKey, wgpu::BindGroup>,
    old: FxHashMap<BindKey, wgpu::BindGroup>,
}

impl BindGroups {
    /// The bind group of these windows, read-only bindings first.
    pub(crate) fn get(
        &mut self,
        device: &wgpu::Device,
        layout: &Layout,
        windows: &[Window],
    ) -> wgpu::BindGroup {
        let key = BindKey::new(layout, windows);
        if let Some(group) = self.young.get(&key) {
            return group.clone();
        }
        let group = self.old.remove(&key).unwrap_or_else(|| create(device, layout, windows));
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, group.clone());
        group
    }

    /// Forgets everything, so that no buffer is kept alive by a bind group.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

/// The bind group of these windows. Errors of wgpu end up in the caller's error scope.
pub(super) fn create(device: &wgpu::Device, layout: &Layout, windows: &[Window]) -> wgpu::BindGroup {
    let entries: Vec<_> = (0..)
        .zip(windows)
        .map(|(binding, window)| wgpu::BindGroupEntry {
            binding,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: window.block.buffer(),
                offset: window.bound.start,
                size: wgpu::BufferSize::new(window.size()),
            }),
        })
        .collect();
    device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &layout.bindings,
        entries: &entries,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WebGpuBackend;
    use crate::kernels::Variant;

    #[test]
    fn what_has_been_used_lately_is_kept() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let ptr = backend_api::ComputeBackend::alloc(&backend, 1 << 16).unwrap();
        let call = backend.context("test").unwrap();
        let fill = |variant: &Variant| variant.kernel() == "memory/fill";
        let variant = crate::ops::all_variants().into_iter().find(fill).unwrap();
        let kernel = call.context.device.pipeline(&variant).unwrap();
        let block = call.context.device.memory.lookup("test", "ptr", ptr).unwrap().block;
        let device = backend.device().unwrap();
        let mut groups = BindGroups::default();
        let get = |groups: &mut BindGroups, number: usize| {
            let window = Window::of_words(block.piece(0, 4 * (number + 1)));
            groups.get(device, &kernel.layout, &[window])
        };
        let [first, second] = [0, 1].map(|number| get(&mut groups, number));
        assert!(first != second && groups.len() == 2);
        assert!(get(&mut groups, 0) == first && groups.len() == 2);
        // The first generation is full.
        (2..GENERATION).for_each(|number| _ = get(&mut groups, number));
        _ = get(&mut groups, GENERATION);
        assert_eq!((groups.young.len(), groups.old.len(), groups.len()), (1, GENERATION, GENERATION + 1));
        assert!(get(&mut groups, 0) == first, "used again");
        // With the second one full, what was not used since is forgotten.
        (GENERATION..2 * GENERATION).for_each(|number| _ = get(&mut groups, number));
        assert_eq!(groups.len(), GENERATION + 1);
        assert!(get(&mut groups, 0) == first && get(&mut groups, 1) != second);
        groups.clear();
        assert!(groups.len() == 0 && get(&mut groups, 0) != first);
    }
}
