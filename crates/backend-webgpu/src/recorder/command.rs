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

    /// Whether each binding that the kernel writes is of another buffer.
    pub(crate) fn writes_are_apart(&self) -> bool {
        let (_, writes) = self.reads_and_writes();
        (1..writes.len()).all(|i| writes[..i].iter().all(|before| !before.shares_buffer(&writes[i])))
    }

    /// The bindings that the kernel only reads, and those that it writes.
    pub(super) fn reads_and_writes(&self) -> (&[Window], &[Window]) {
        let reads = (self.kernel.layout.signature.reads as usize).min(self.windows.len());
        self.windows.split_at(reads)
    }
}
