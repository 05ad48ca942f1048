//! Kernels of the caller's own on every adapter: right ones against results computed here, wrong ones with the
//! line that is wrong, bad launches, and that none of them hurts what comes after.

#[path = "custom/defined.rs"]
mod defined;
#[path = "custom/endless.rs"]
mod endless;
mod forced;
#[path = "custom/launches.rs"]
mod launches;
#[path = "custom/messages.rs"]
mod messages;
#[path = "custom/results.rs"]
mod results;
#[path = "custom/texts.rs"]
mod texts;
#[path = "custom/wrong.rs"]
mod wrong;

use std::process::ExitCode;
use std::sync::Arc;

use backend_api::{BackendResult, ComputeBackend};
use backend_webgpu::WebGpuBackend;
use forced::Device;
use libtest_mimic::Trial;

fn main() -> ExitCode {
    endless::child().unwrap_or_else(|| forced::run(trials))
}

fn trials(device: &Arc<Device>) -> Vec<Trial> {
    vec![
        device.trial("wrong/texts", wrong::texts),
        device.trial("wrong/features", wrong::features),
        device.trial("wrong/constants", |_| wrong::constants()),
        device.trial("wrong/without_a_device", |_| wrong::without_a_device()),
        device.trial("results/parameters", results::parameters),
        device.trial("results/structures", results::structures),
        device.trial("results/workgroups", results::workgroups),
        device.trial("results/constants", results::constants),
        device.trial("results/groups", results::groups),
        device.trial("defined/out_of_bounds", defined::out_of_bounds),
        device.trial("defined/neighbours", defined::neighbours),
        device.trial("defined/divisions", defined::divisions),
        device.trial("defined/conversions", defined::conversions),
        device.trial("defined/layouts", defined::layouts),
        device.trial("results/order", results::order),
        device.trial("results/threads", results::threads),
        device.trial("results/captured", results::captured),
        device.trial("launches/arguments", launches::arguments),
        device.trial("launches/overlaps", launches::overlaps),
        device.trial("launches/views", launches::views),
        device.trial("launches/part_of_a_word", launches::part_of_a_word),
        device.trial("launches/least_bytes", launches::least_bytes),
        device.trial("launches/home", launches::home),
        device.trial("launches/profile", launches::profile),
        device.trial("launches/specs", launches::specs),
        device.trial("endless", endless::parent),
    ]
}

/// Memory with these numbers.
fn upload<T: bytemuck::Pod>(backend: &WebGpuBackend, numbers: &[T]) -> BackendResult<u64> {
    let bytes: &[u8] = bytemuck::cast_slice(numbers);
    let ptr = backend.alloc(bytes.len())?;
    backend.copy_htod(ptr, bytes)?;
    Ok(ptr)
}

fn read<T: bytemuck::Pod>(backend: &WebGpuBackend, ptr: u64, count: usize) -> BackendResult<Vec<T>> {
    let mut numbers = vec![T::zeroed(); count];
    backend.copy_dtoh(bytemuck::cast_slice_mut(&mut numbers), ptr)?;
    Ok(numbers)
}

/// Compares exactly.
fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what} is {found:?}, not {expected:?}")) }
}

/// A built-in operation is right, after whatever came before.
fn still_works(backend: &WebGpuBackend) -> Result<(), String> {
    let check = || {
        let x = upload(backend, &[1.0_f32, -2.0, 3.0])?;
        backend.unary(backend_api::UnaryOp::Neg, x, x, 3)?;
        let found = read::<f32>(backend, x, 3)?;
        backend.free(x)?;
        Ok(found)
    };
    let found = check().map_err(|error: backend_api::BackendError| format!("a later call: {error}"))?;
    expect("a later result", &found, &vec![-1.0, 2.0, -3.0])
}
