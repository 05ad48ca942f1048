//! Errors of the driver given to the call that caused them.

/// Runs `work` and returns the first error that wgpu raised in it, out of memory before validation before internal.
///
/// Error scopes belong to a thread and can be popped at once, except in a browser: there the answer comes later, so
/// the work runs without a scope and its errors become late errors.
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
