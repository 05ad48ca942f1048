//! Strides that lead nowhere, because there is one row or there are no columns, may be any number.

use backend_api::desc::{ExpertMatmulDesc, Matrix, QuantMatrix, QuantizeRowsDesc};
use backend_api::kv::KvFormat;
use backend_api::quant::QuantFormat;
use backend_api::{BackendResult, ComputeBackend, DType};
use suites::BackendUnderTest;

pub(crate) fn run(tested: &BackendUnderTest) -> Result<(), String> {
    let backend = tested.backend()?;
    experts_without_columns(backend)
        .and_then(|()| a_row_of_a_cache(backend))
        .map_err(|error| error.to_string())
}

/// Products without columns are 0.
fn experts_without_columns(backend: &dyn ComputeBackend) -> BackendResult<()> {
    let [a, b, indices] = [(); 3].map(|()| backend.alloc_zeroed(64));
    let (a, b, indices, c) = (a?, b?, indices?, backend.alloc(24)?);
    backend.copy_htod(c, &[0xff; 24])?;
    let matrix = |ptr, ld| Matrix::new(ptr, DType::F32, ld);
    let stack = QuantMatrix::new(b, QuantFormat::Q4_0, 4, 0);
    backend.expert_matmul(&ExpertMatmulDesc::new(
        [3, 1, 2],
        matrix(a, usize::MAX),
        stack,
        indices,
        matrix(c, 2),
    ))?;
    let mut bytes = [1; 24];
    backend.copy_dtoh(&mut bytes, c)?;
    assert_eq!(bytes, [0; 24]);
    [a, b, indices, c].into_iter().try_for_each(|ptr| backend.free(ptr))
}

/// Ones have the scale 1/127 and quants of 127.
fn a_row_of_a_cache(backend: &dyn ComputeBackend) -> BackendResult<()> {
    let (source, cache) = (backend.alloc(4 * 32)?, backend.alloc(KvFormat::BLOCK_BYTES)?);
    backend.fill(source, DType::F32, 32, 1.0)?;
    let source_rows = Matrix::new(source, DType::F32, usize::MAX);
    backend
        .quantize_rows(&QuantizeRowsDesc::new(source_rows, cache, 1, 32, 1).with_stride(usize::MAX - 31))?;
    let mut bytes = [0; KvFormat::BLOCK_BYTES];
    backend.copy_dtoh(&mut bytes, cache)?;
    assert_eq!(bytes.iter().filter(|&&byte| byte == 127).count(), 32);
    [source, cache].into_iter().try_for_each(|ptr| backend.free(ptr))
}
