//! Room for compilers, which recurse over what they are given.

use std::any::Any;
use std::thread;

use backend_api::Diagnostic;

/// Enough for the nesting that `extent` lets through, with a factor to spare. The system gives the memory as it
/// is used.
const BYTES: usize = 128 << 20;

/// Runs `work` on a thread with a large stack and waits for it.
///
/// # Errors
/// If the system has no thread, or `work` panics: a fault of the compiler's that is no reason to end the process.
pub(super) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Diagnostic> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("webgpu-compile".to_owned()).stack_size(BYTES);
        let running = thread
            .spawn_scoped(scope, work)
            .map_err(|error| Diagnostic::new(format!("no thread to compile on: {error}")))?;
        running
            .join()
            .map_err(|panic| Diagnostic::new(format!("the compiler failed: {}", message(panic.as_ref()))))
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}
