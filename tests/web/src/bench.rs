//! Times for the comparison with other libraries in the same page.

use backend_api::BackendTranspose::NoTrans;
use backend_api::{BackendResult, ComputeBackend};
use web_time::Instant;

/// Milliseconds of each product, from the call to the arrival of a number of its result.
pub(crate) async fn matmul(n: usize, rounds: usize) -> BackendResult<Vec<f64>> {
    let selection = super::open("webgpu").await?;
    let backend = selection.backend.as_ref();
    let ones: Vec<u8> = std::iter::repeat_n(1f32.to_le_bytes(), n * n).flatten().collect();
    let [a, b, c] = [backend.alloc(4 * n * n)?, backend.alloc(4 * n * n)?, backend.alloc(4 * n * n)?];
    backend.copy_htod(a, &ones)?;
    backend.copy_htod(b, &ones)?;
    product(backend, n, [a, b, c]).await?;
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        product(backend, n, [a, b, c]).await?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

async fn product(backend: &dyn ComputeBackend, n: usize, [a, b, c]: [u64; 3]) -> BackendResult<()> {
    backend.gemm(NoTrans, NoTrans, n, n, n, 1.0, a, n, b, n, 0.0, c, n)?;
    backend.copy_dtoh_async(&mut [0; 4], c).await
}
