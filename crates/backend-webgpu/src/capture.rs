//! Capturing calls and replaying them.

use std::sync::Arc;

use backend_api::BackendResult;

use crate::WebGpuBackend;
use crate::ops::Capture;

impl WebGpuBackend {
    /// [`capture`](backend_api::ComputeBackend::capture) that hands this type to `record`, so that operations which only
    /// this backend has can be captured, such as [`gemm_f16`](Self::gemm_f16). What is no operation is
    /// [`Capturing`](backend_api::BackendError::Capturing) there.
    ///
    /// # Errors
    /// As [`capture`](backend_api::ComputeBackend::capture).
    pub fn capture_with(&self, record: impl FnOnce(&Self) -> BackendResult<()>) -> BackendResult<u64> {
        let op = "capture";
        let capture = Arc::new(Capture::default());
        // Nobody has to wait for `record` to have a turn at the device.
        let opened = self.context_async(op)?;
        record(&Self::over(opened.capturing(&capture)))?;
        let commands = capture.take();
        if commands.is_empty() {
            tracing::warn!(
                "a graph with nothing to run: only calls on the backend that is handed over are captured"
            );
        }
        self.context(op)?.device().add_graph(op, &commands)
    }

    pub(crate) fn replay_graph(&self, graph: u64) -> BackendResult<()> {
        self.context("replay")?.context.replay("replay", graph)
    }
}
