//! One dispatch of a kernel.

use std::sync::Arc;

use arrayvec::ArrayVec;
use backend_api::{BackendError, BackendResult};

use super::Window;
use crate::device::MAX_BINDINGS;
use crate::kernels::{Kernel, MAX_IMMEDIATES, MAX_PARAMS};

/// Workgroups along one dimension of a dispatch, on every WebGPU device.
pub(crate) const MAX_GROUPS: u32 = 65_535;

/// A dispatch with everything that it needs, checked and not yet recorded.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(super) kernel: Arc<Kernel>,
    /// What is bound, read-only bindings first.
    pub(super) windows: ArrayVec<Window, MAX_BINDINGS>,
    pub(super) params: ArrayVec<u8, { MAX_IMMEDIATES as usize }>,
    pub(super) grid: [u32; 3],
    /// Whether what was recorded before is submitted first.
    pub(crate) begins_batch: bool,
    /// Whether the kernel may also read what it writes and make some of its outputs of others, as one of the caller's may.
    pub(crate) mixes_outputs: bool,
    /// How long the device should take for it and those before it that have none, as far as it is estimated;
    /// of captured commands only.
    pub(crate) seconds: f64,
}

impl Command {
    /// # Errors
    /// [`Limit`](BackendError::Limit) for a grid that no device launches: wgpu would refuse it when the batch
    /// is submitted, and everything recorded with it.
    pub(crate) fn new(
        op: &'static str,
        kernel: Arc<Kernel>,
        windows: impl IntoIterator<Item = Window>,
        params: &[u8],
        grid: [u32; 3],
    ) -> BackendResult<Self> {
        if let Some(groups) = grid.into_iter().find(|&groups| groups > MAX_GROUPS) {
            return Err(BackendError::Limit {
                op,
                what: "workgroups along a dimension",
                requested: groups as usize,
                max: MAX_GROUPS as usize,
            });
        }
        let mut command = Self {
            kernel,
            windows: ArrayVec::new(),
            params: ArrayVec::new(),
            grid,
            begins_batch: false,
            mixes_outputs: false,
            seconds: 0.0,
        };
        command.windows.extend(windows.into_iter().take(MAX_BINDINGS));
        command.params.extend(params.iter().copied().take(MAX_PARAMS as usize));
        #[cfg(feature = "count-out-of-bounds")]
        if let Some(watch) = &command.kernel.watch {
            watch.count(&mut command.windows, &mut command.params);
        }
        Ok(command)
    }

    /// Whether nothing tells how long it takes.
    pub(super) fn is_untimed(&self) -> bool {
        self.seconds <= 0.0
    }

    /// Whether each binding that the kernel writes is of another buffer.
    pub(crate) fn writes_are_apart(&self) -> bool {
        let (_, writes) = self.reads_and_writes();
        (1..writes.len()).all(|i| writes[..i].iter().all(|before| !before.shares_buffer(&writes[i])))
    }

    /// The bindings of whose content the kernel may make what it writes.
    pub(super) fn sources(&self) -> &[Window] {
        if self.mixes_outputs { &self.windows } else { self.reads_and_writes().0 }
    }

    /// The bindings that the kernel only reads, and those that it writes.
    pub(super) fn reads_and_writes(&self) -> (&[Window], &[Window]) {
        let reads = (self.kernel.layout.signature.reads as usize).min(self.windows.len());
        self.windows.split_at(reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WebGpuBackend;
    use crate::memory::Block;

    #[test]
    fn a_grid_is_no_larger_than_devices_launch() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let device = backend.opened().unwrap().device();
        let variant = |name: &str| {
            let all = crate::ops::all_variants();
            all.into_iter().find(|variant| variant.kernel() == name).unwrap()
        };
        let kernel = device.pipeline(&variant("memory/fill")).unwrap();
        let command = |grid| Command::new("test", Arc::clone(&kernel), [], &[], grid);
        assert_eq!(command([1, 65_535, 65_535]).unwrap().grid, [1, 65_535, 65_535]);
        for grid in [[65_536, 1, 1], [1, 65_537, 1], [1, 1, u32::MAX]] {
            let error = command(grid).unwrap_err();
            let requested = grid.into_iter().max().unwrap() as usize;
            assert!(
                matches!(error, BackendError::Limit { requested: r, max: 65_535, .. } if r == requested),
                "{grid:?}: {error:?}"
            );
        }
    }

    #[test]
    fn bindings_that_are_written_are_told_apart_by_their_buffers() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let device = backend.opened().unwrap().device();
        let all = crate::ops::all_variants();
        let variant = all.iter().find(|variant| variant.kernel() == "tokens/rope_append").unwrap();
        let kernel = device.pipeline(variant).unwrap();
        let [read, x, y] =
            [(); 3].map(|()| Window::of_words(Block::of_test(backend.device().unwrap(), 16).piece(0, 16)));
        let command = |written: [&Window; 2]| {
            let windows = [&read; 4].into_iter().chain(written).cloned();
            Command::new("test", Arc::clone(&kernel), windows, &[], [1; 3]).unwrap()
        };
        let apart = command([&x, &y]);
        let (reads, writes) = apart.reads_and_writes();
        assert_eq!((reads.len(), writes.len()), (4, 2));
        assert!(apart.writes_are_apart() && command([&read, &y]).writes_are_apart());
        assert!(!command([&x, &x]).writes_are_apart());
    }
}
