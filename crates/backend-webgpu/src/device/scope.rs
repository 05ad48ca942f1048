//! Errors of the driver given to the call that caused them.

#[cfg(not(target_family = "wasm"))]
use std::task::Poll;

/// Runs `work` and returns the first error that wgpu raised in it, out of memory before validation before
/// internal.
///
/// Error scopes belong to a thread and can be popped at once, except in a browser: there the answer comes
/// later, so the work runs without a scope and its errors become late errors.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn guarded<T>(device: &wgpu::Device, work: impl FnOnce() -> T) -> Result<T, wgpu::Error> {
    let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
    let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let value = work();
    // Scopes are a stack: every one must be popped, the last pushed first.
    let errors = [memory, validation, internal].map(|scope| pollster::block_on(scope.pop()));
    match errors.into_iter().flatten().next() {
        Some(error) => Err(error),
        None => Ok(value),
    }
}

/// Runs `work`; in a browser its errors become late errors.
#[cfg(target_family = "wasm")]
pub(crate) fn guarded<T>(_device: &wgpu::Device, work: impl FnOnce() -> T) -> Result<T, wgpu::Error> {
    Ok(work())
}

/// [`guarded`] for who can wait: the errors are given to this call in a browser too.
#[cfg(target_family = "wasm")]
pub(crate) async fn guarded_async<T>(
    device: &wgpu::Device,
    work: impl FnOnce() -> T,
) -> Result<T, wgpu::Error> {
    let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
    let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let value = work();
    // Popped before anything else can run, awaited after: the answers come when the device has done the work.
    let answers = (memory.pop(), validation.pop(), internal.pop());
    match (answers.0.await, answers.1.await, answers.2.await) {
        (None, None, None) => Ok(value),
        (Some(error), ..) | (None, Some(error), _) | (None, None, Some(error)) => Err(error),
    }
}

/// [`guarded`] that lets other tasks of the executor go on before it returns.
#[cfg(not(target_family = "wasm"))]
pub(crate) async fn guarded_async<T>(
    device: &wgpu::Device,
    work: impl FnOnce() -> T,
) -> Result<T, wgpu::Error> {
    let result = guarded(device, work);
    let mut paused = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut paused, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    result
}
