//! A device that takes longer than a caller waits.

use std::time::Duration;

use backend_api::{BackendError, BackendTranspose, ComputeBackend};
use backend_webgpu::WebGpuBackend;
use suites::BackendUnderTest;

use super::{loss, program};

/// Rows and columns of a product that takes any device some time.
const N: usize = 256;

pub(crate) fn run(tested: &BackendUnderTest) -> Result<(), String> {
    let told = |error| format!("{error:?}");
    let mut backend = WebGpuBackend::select(loss::index(tested)?);
    backend.init().map_err(told)?;
    let alloc = |value: f32| {
        let ptr = backend.alloc(4 * N * N)?;
        backend.copy_htod(ptr, bytemuck::cast_slice(&vec![value; N * N]))?;
        Ok(ptr)
    };
    let (a, c) = (alloc(1.0).map_err(told)?, alloc(0.0).map_err(told)?);
    backend.synchronize().map_err(told)?;

    backend.set_timeout(Duration::ZERO).map_err(told)?;
    let no = BackendTranspose::NoTrans;
    let mut timeouts = 0;
    for _ in 0..20 {
        backend.gemm(no, no, N, N, N, 1.0, a, N, a, N, 0.0, c, N).map_err(told)?;
        match backend.synchronize() {
            Err(BackendError::Timeout { .. }) => timeouts += 1,
            Ok(()) => {}
            Err(error) => return Err(format!("synchronize: {error:?}")),
        }
    }
    // Mesa's OpenGL on a CPU computes while it is given the work, so there is nothing left to wait for.
    let computes_at_once = backend.device_info().is_ok_and(|device| device.api == "Gl");
    if timeouts == 0 && !computes_at_once {
        return Err("no wait of no time was too short for 20 products".to_owned());
    }
    backend.set_timeout(Duration::from_secs(120)).map_err(told)?;
    backend.synchronize().map_err(told)?;
    let mut got = vec![0f32; N * N];
    backend.copy_dtoh(bytemuck::cast_slice_mut(&mut got), c).map_err(told)?;
    if got.iter().any(|&x| x != N as f32) {
        return Err(format!("the product after {timeouts} timeouts has {}", got[0]));
    }
    program::check(&backend)
}
