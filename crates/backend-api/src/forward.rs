//! Backends that hand calls on: [`forward!`](crate::forward), and the pointers that are backends themselves.

use std::sync::Arc;

use crate::{BackendError, BackendResult, ComputeBackend};

/// Methods of [`ComputeBackend`] that hand their call to another backend, for an implementation that changes
/// only some: `forward!(this => this.inner; name, alloc, free)`. All that aren't required have defaults, mostly
/// [`Unsupported`](BackendError::Unsupported), so a method that is left out compiles.
///
/// What is called within a forwarded `capture` goes to the inner backend, and so do replays: a backend that should see
/// those calls has a `capture` of its own, which hands `record` a backend that wraps the inner one's. A forwarded
/// `device_info` tells the inner device's selector, and `as_any` gives the inner backend to a downcast.
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
    (@name $($to:tt)+) => { $crate::forward!(@to $($to)+; name() -> &str); };
    (@is_initialized $($to:tt)+) => { $crate::forward!(@to $($to)+; is_initialized() -> bool); };
    (@execute $($to:tt)+) => {
        $crate::forward!(@to $($to)+; execute(
            op: &'static str, command: $crate::Command<'_>,
        ) -> $crate::BackendResult<()>);
    };
    (@synchronize $($to:tt)+) => { $crate::forward!(@to $($to)+; synchronize() -> $crate::BackendResult<()>); };
    (@synchronize_async $($to:tt)+) => {
        $crate::forward!(@to $($to)+; synchronize_async() -> $crate::BackendFuture<'_, ()>);
    };
    (@alloc $($to:tt)+) => { $crate::forward!(@to $($to)+; alloc(bytes: usize) -> $crate::BackendResult<u64>); };
    (@alloc_zeroed $($to:tt)+) => {
        $crate::forward!(@to $($to)+; alloc_zeroed(bytes: usize) -> $crate::BackendResult<u64>);
    };
    (@free $($to:tt)+) => { $crate::forward!(@to $($to)+; free(ptr: u64) -> $crate::BackendResult<()>); };
    (@view $($to:tt)+) => {
        $crate::forward!(@to $($to)+; view(
            ptr: u64, byte_offset: usize, byte_len: usize,
        ) -> $crate::BackendResult<u64>);
    };
    (@copy_htod $($to:tt)+) => {
        $crate::forward!(@to $($to)+; copy_htod(dst: u64, src: &[u8]) -> $crate::BackendResult<()>);
    };
    (@copy_dtoh $($to:tt)+) => {
        $crate::forward!(@to $($to)+; copy_dtoh(dst: &mut [u8], src: u64) -> $crate::BackendResult<()>);
    };
    (@capture $($to:tt)+) => {
        $crate::forward!(@to $($to)+; capture(
            record: &mut dyn FnMut(&dyn $crate::ComputeBackend) -> $crate::BackendResult<()>,
        ) -> $crate::BackendResult<u64>);
    };
    (@replay $($to:tt)+) => { $crate::forward!(@to $($to)+; replay(graph: u64) -> $crate::BackendResult<()>); };
    (@free_graph $($to:tt)+) => {
        $crate::forward!(@to $($to)+; free_graph(graph: u64) -> $crate::BackendResult<()>);
    };
    (@capabilities $($to:tt)+) => {
        $crate::forward!(@to $($to)+; capabilities() -> $crate::BackendResult<$crate::Capabilities>);
    };
    (@device_info $($to:tt)+) => {
        $crate::forward!(@to $($to)+; device_info() -> $crate::BackendResult<$crate::DeviceInfo>);
    };
    (@memory_stats $($to:tt)+) => { $crate::forward!(@to $($to)+; memory_stats() -> $crate::MemoryStats); };
    (@trim $($to:tt)+) => { $crate::forward!(@to $($to)+; trim() -> $crate::BackendResult<usize>); };
    (@set_memory_budget $($to:tt)+) => {
        $crate::forward!(@to $($to)+; set_memory_budget(
            bytes: ::core::option::Option<usize>,
        ) -> $crate::BackendResult<()>);
    };
    (@as_any $($to:tt)+) => {
        $crate::forward!(@to $($to)+; as_any() -> ::core::option::Option<&dyn ::core::any::Any>);
    };
    // A method as the trait declares it, of `&self` and without lifetimes.
    (@to $this:ident $inner:expr; $method:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty) => {
        fn $method(&self, $($arg: $type),*) -> $result {
            let $this = self;
            $crate::ComputeBackend::$method(&$inner, $($arg),*)
        }
    };
    (@init $this:ident $inner:expr) => {
        fn init(&mut self) -> $crate::BackendResult<()> {
            let $this = self;
            $crate::ComputeBackend::init(&mut $inner)
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
    (@copy_dtoh_async $this:ident $inner:expr) => {
        fn copy_dtoh_async<'a>(&'a self, dst: &'a mut [u8], src: u64) -> $crate::BackendFuture<'a, ()> {
            let $this = self;
            $crate::ComputeBackend::copy_dtoh_async(&$inner, dst, src)
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
