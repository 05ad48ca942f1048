//! A small mixed program with a known result.

use backend_api::desc::SoftmaxDesc;
use backend_api::{BackendResult, BackendTranspose, BinaryOp, ComputeBackend, DType, UnaryOp};

use super::every_method::BYTES;

/// Elements of each buffer that the program works on.
const N: usize = 16;

type Step = fn(&dyn ComputeBackend, [u64; 4]) -> BackendResult<()>;

/// The program in steps, over four buffers.
pub(crate) const STEPS: [Step; 8] = [
    |b, [x, ..]| b.copy_htod(x, bytemuck::cast_slice(&[2f32; N])),
    |b, [_, y, ..]| b.fill(y, DType::F32, N, 3.0),
    |b, [x, y, z, _]| b.binary(BinaryOp::Mul, x, y, z, N),
    |b, [_, _, z, _]| b.unary(UnaryOp::Neg, z, z, N),
    |b, [_, _, z, w]| b.copy_dtod(w, z, 4 * N),
    |b, [x, y, z, w]| {
        let no = BackendTranspose::NoTrans;
        _ = z;
        b.gemm(no, no, 4, 4, 4, 1.0, x, 4, y, 4, 1.0, w, 4)
    },
    |b, [_, _, z, _]| b.softmax(&SoftmaxDesc::rows(DType::F32, z, z, 4, 4)),
    |b, [x, ..]| {
        let view = b.view(x, 16, 16)?;
        b.copy_htod(view, bytemuck::cast_slice(&[9f32; 4]))?;
        b.free(view)
    },
];

/// Four buffers of zeros.
pub(crate) fn buffers(backend: &dyn ComputeBackend) -> BackendResult<[u64; 4]> {
    let mut ptrs = [0; 4];
    for ptr in &mut ptrs {
        *ptr = backend.alloc(BYTES)?;
        backend.copy_htod(*ptr, &[0; BYTES])?;
    }
    Ok(ptrs)
}

/// Runs the whole program on new buffers and checks what it leaves in them.
pub(crate) fn check(backend: &dyn ComputeBackend) -> Result<(), String> {
    let told = |error| format!("the program failed: {error:?}");
    let ptrs = buffers(backend).map_err(told)?;
    for step in STEPS {
        step(backend, ptrs).map_err(told)?;
    }
    let mut x = [2.0; N];
    x[4..8].fill(9.0);
    // −2·3 copied, plus four products of 2 and 3.
    let expected = [x, [3.0; N], [0.25; N], [-6.0 + 4.0 * 6.0; N]];
    for (i, (ptr, expected)) in ptrs.into_iter().zip(expected).enumerate() {
        let mut got = [0f32; N];
        backend.copy_dtoh(bytemuck::cast_slice_mut(&mut got), ptr).map_err(told)?;
        if got.iter().zip(&expected).any(|(a, b)| (a - b).abs() > 1e-5) {
            return Err(format!("buffer {i} of the program is {got:?}, expected {expected:?}"));
        }
        backend.free(ptr).map_err(told)?;
    }
    Ok(())
}
