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
        // Other threads may use the device while `record` runs.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use backend_api::{ComputeBackend as _, DType};
    use tracing::{Event, Level, Metadata, Subscriber, span};

    use crate::WebGpuBackend;

    /// Counts warnings.
    struct Warnings(Arc<AtomicUsize>);

    impl Subscriber for Warnings {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.is_event() && *metadata.level() == Level::WARN
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &Event<'_>) {
            if event.metadata().target().ends_with("::capture") {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn a_graph_with_nothing_to_run_is_warned_of() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let ptr = backend.alloc(4).unwrap();
        let warnings = Arc::new(AtomicUsize::new(0));
        tracing::subscriber::with_default(Warnings(Arc::clone(&warnings)), || {
            let full = backend.capture(&mut |backend| backend.fill(ptr, DType::U32, 1, 7.0)).unwrap();
            assert_eq!(warnings.load(Ordering::Relaxed), 0);
            // What a caller does by mistake: the call goes to the backend itself, and runs.
            let empty = backend.capture(&mut |_| Ok(())).unwrap();
            assert_eq!(warnings.load(Ordering::Relaxed), 1);
            for graph in [full, empty] {
                backend.replay(graph).unwrap();
                backend.free_graph(graph).unwrap();
            }
        });
    }
}
