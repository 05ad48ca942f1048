//! Backends that hand calls on: [`forward!`](crate::forward), and the pointers that are backends themselves.

use std::sync::Arc;

use crate::{BackendError, BackendResult, ComputeBackend};

/// Methods of [`ComputeBackend`] that hand their call to another backend, for an implementation that changes
/// only some: `forward!(this => this.inner; name, alloc, free)`.
///
/// ```
/// use backend_api::{BackendResult, Command, ComputeBackend, forward};
///
/// /// Tells of each operation before it runs.
/// #[derive(Debug)]
/// struct Logged<B>(B);
///
/// impl<B: ComputeBackend> ComputeBackend for Logged<B> {
///     fn execute(&self, op: &'static str, command: Command<'_>) -> BackendResult<()> {
///         eprintln!("{op}: {command:?}");
///         self.0.execute(op, command)
///     }
///
///     forward!(this => this.0; name, init, is_initialized, synchronize, synchronize_async, warm_up_async);
///     forward!(this => this.0; alloc, alloc_zeroed, free, view, copy_htod, copy_dtoh, copy_dtoh_async);
///     forward!(this => this.0; capture, replay, free_graph);
///     forward!(this => this.0; capabilities, device_info, memory_stats, trim, set_memory_budget, as_any);
/// }
/// ```
#[macro_export]
macro_rules! forward {
    ($this:ident => $inner:expr; $($method:ident),+ $(,)?) => {
        $($crate::forward!(@$method $this $inner);)+
    };
    (@name $this:ident $inner:expr) => {
        fn name(&self) -> &str {
            let $this = self;
            $crate::ComputeBackend::name(&$inner)
        }
    };
    (@init $this:ident $inner:expr) => {
        fn init(&mut self) -> $crate::BackendResult<()> {
            let $this = self;
            $crate::ComputeBackend::init(&mut $inner)
        }
    };
    (@is_initialized $this:ident $inner:expr) => {
        fn is_initialized(&self) -> bool {
            let $this = self;
            $crate::ComputeBackend::is_initialized(&$inner)
        }
    };
    (@execute $this:ident $inner:expr) => {
        fn execute(&self, op: &'static str, command: $crate::Command<'_>) -> $crate::BackendResult<()> {
            let $this = self;
            $crate::ComputeBackend::execute(&$inner, op, command)
        }
    };
    (@synchronize $this:ident $inner:expr) => {
        fn synchronize(&self) -> $crate::BackendResult<()> {
            let $this = self;
            $crate::ComputeBackend::synchronize(&$inner)
        }
    };
    (@synchronize_async $this:ident $inner:expr) => {
        fn synchronize_async(&self) -> $crate::BackendFuture<'_, ()> {
            let $this = self;
            $crate::ComputeBackend::synchronize_async(&$inner)
        }
    };
    (@warm_up_async $this:ident $inner:expr) => {
        fn warm_up_async<'a>(
            &'a self,
            operations: &'a [$crate::Operation<'a>],
        ) -> $crate::BackendFuture<'a, ()> {
            let $this = self;
            $crate::ComputeBackend::warm_up_async(&$inner, operations)
        }
    };
    (@alloc $this:ident $inner:expr) => {
        fn alloc(&self, bytes: usize) -> $crate::BackendResult<u64> {
            let $this = self;
            $crate::ComputeBackend::alloc(&$inner, bytes)
        }
    };
    (@alloc_zeroed $this:ident $inner:expr) => {
        fn alloc_zeroed(&self, bytes: usize) -> $crate::BackendResult<u64> {
            let $this = self;
            $crate::ComputeBackend::alloc_zeroed(&$inner, bytes)
        }
    };
    (@free $this:ident $inner:expr) => {
        fn free(&self, ptr: u64) -> $crate::BackendResult<()> {
            let $this = self;
            $crate::ComputeBackend::free(&$inner, ptr)
        }
    };
    (@view $this:ident $inner:expr) => {
        fn view(&self, ptr: u64, byte_offset: usize, byte_len: usize) -> $crate::BackendResult<u64> {
            let $this = self;
            $crate::ComputeBackend::view(&$inner, ptr, byte_offset, byte_len)
        }
    };
    (@copy_htod $this:ident $inner:expr) => {
        fn copy_htod(&self, dst: u64, src: &[u8]) -> $crate::BackendResult<()> {
            let $this = self;
            $crate::ComputeBackend::copy_htod(&$inner, dst, src)
        }
    };
    (@copy_dtoh $this:ident $inner:expr) => {
        fn copy_dtoh(&self, dst: &mut [u8], src: u64) -> $crate::BackendResult<()> {
            let $this = self;
            $crate::ComputeBackend::copy_dtoh(&$inner, dst, src)
        }
    };
    (@copy_dtoh_async $this:ident $inner:expr) => {
        fn copy_dtoh_async<'a>(&'a self, dst: &'a mut [u8], src: u64) -> $crate::BackendFuture<'a, ()> {
            let $this = self;
            $crate::ComputeBackend::copy_dtoh_async(&$inner, dst, src)
        }
    };
    (@capture $this:ident $inner:expr) => {
        fn capture(
            &self,
            record: &mut dyn FnMut(&dyn $crate::ComputeBackend) -> $crate::BackendResult<()>,
        ) -> $crate::BackendResult<u64> {
            let $this = self;
            $crate::ComputeBackend::capture(&$inner, record)
        }
    };
    (@replay $this:ident $inner:expr) => {
        fn replay(&self, graph: u64) -> $crate::BackendResult<()> {
            let $this = self;
            $crate::ComputeBackend::replay(&$inner, graph)
        }
    };
    (@free_graph $this:ident $inner:expr) => {
        fn free_graph(&self, graph: u64) -> $crate::BackendResult<()> {
            let $this = self;
            $crate::ComputeBackend::free_graph(&$inner, graph)
        }
    };
    (@capabilities $this:ident $inner:expr) => {
        fn capabilities(&self) -> $crate::BackendResult<$crate::Capabilities> {
            let $this = self;
            $crate::ComputeBackend::capabilities(&$inner)
        }
    };
    (@device_info $this:ident $inner:expr) => {
        fn device_info(&self) -> $crate::BackendResult<$crate::DeviceInfo> {
            let $this = self;
            $crate::ComputeBackend::device_info(&$inner)
        }
    };
    (@memory_stats $this:ident $inner:expr) => {
        fn memory_stats(&self) -> $crate::MemoryStats {
            let $this = self;
            $crate::ComputeBackend::memory_stats(&$inner)
        }
    };
    (@trim $this:ident $inner:expr) => {
        fn trim(&self) -> $crate::BackendResult<usize> {
            let $this = self;
            $crate::ComputeBackend::trim(&$inner)
        }
    };
    (@set_memory_budget $this:ident $inner:expr) => {
        fn set_memory_budget(&self, bytes: ::core::option::Option<usize>) -> $crate::BackendResult<()> {
            let $this = self;
            $crate::ComputeBackend::set_memory_budget(&$inner, bytes)
        }
    };
    (@as_any $this:ident $inner:expr) => {
        fn as_any(&self) -> ::core::option::Option<&dyn ::core::any::Any> {
            let $this = self;
            $crate::ComputeBackend::as_any(&$inner)
        }
    };
}

/// What a shared backend can do to be open: nothing, so it must be already.
fn require_initialized<B: ComputeBackend + ?Sized>(backend: &B) -> BackendResult<()> {
    if backend.is_initialized() {
        return Ok(());
    }
    let need = "to be called before the backend is shared".to_owned();
    Err(BackendError::Unsupported { op: "init", need })
}

macro_rules! forward_all_but_init {
    () => {
        forward!(this => **this; name, is_initialized, execute, synchronize, synchronize_async);
        forward!(this => **this; warm_up_async, alloc, alloc_zeroed, free, view, copy_htod, copy_dtoh);
        forward!(this => **this; copy_dtoh_async, capture, replay, free_graph, capabilities, device_info);
        forward!(this => **this; memory_stats, trim, set_memory_budget, as_any);
    };
}

impl<B: ComputeBackend + ?Sized> ComputeBackend for Box<B> {
    forward_all_but_init!();
    forward!(this => **this; init);
}

/// [`init`](ComputeBackend::init) opens a backend that nobody else holds; of one that is shared it only tells
/// whether it is open.
impl<B: ComputeBackend + ?Sized> ComputeBackend for Arc<B> {
    forward_all_but_init!();

    fn init(&mut self) -> BackendResult<()> {
        match Self::get_mut(self) {
            Some(backend) => backend.init(),
            None => require_initialized(&**self),
        }
    }
}

/// [`init`](ComputeBackend::init) only tells whether the backend is open.
impl<B: ComputeBackend + ?Sized> ComputeBackend for &B {
    forward_all_but_init!();

    fn init(&mut self) -> BackendResult<()> {
        require_initialized(*self)
    }
}
