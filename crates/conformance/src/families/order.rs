//! Results are as if each call had finished before the next, however operations, uploads and copies mix.

use backend_api::desc::{BinaryDesc, CopyDesc, ReduceDesc, TensorDesc, UnaryDesc};
use backend_api::{BackendTranspose, BinaryOp, ComputeBackend, DType, Operation, ReduceOp, UnaryOp};

use super::copy_dtod::{expect_bytes, free, text, upload};
use crate::case::Case;
use crate::device::Device;
use crate::element::encode;
use crate::rng::Rng;

/// Numbers in each buffer of a random program.
const N: usize = 65;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::script("order", "an_upload_waits_for_earlier_reads", |device| Box::pin(upload_after(device))),
        Case::script("order", "a_chain_of_2000_operations", |device| Box::pin(long_chain(device))),
        Case::script("order", "a_read_sees_everything_before_it", |device| Box::pin(read_between(device))),
        Case::script("order", "an_accumulated_product", |device| Box::pin(accumulated(device))),
        Case::script("order", "synchronize_twice", |device| Box::pin(synchronized(device))),
        Case::script("order", "a_warm_up_runs_nothing", |device| Box::pin(warmed_up(device))),
        Case::script("order", "nothing_of_huge_tensors", |device| Box::pin(nothing_of_huge_tensors(device))),
    ];
    cases.extend((0..40).map(program));
    cases
}

/// A warm-up leaves memory as it is, returns the errors of its operations, and changes no later result.
async fn warmed_up(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let x = upload(device, &f32s(&[1.0; 20]))?;
    let double = |backend: &dyn ComputeBackend| backend.binary(BinaryOp::Add, x, x, x, 20);
    let negate = |backend: &dyn ComputeBackend| backend.unary(UnaryOp::Neg, x, x, 20);
    let operations: [Operation<'_>; 3] = [&double, &negate, &double];
    device.warm_up(&operations).await.map_err(text)?;
    expect_bytes(device, "x", x, &f32s(&[1.0; 20])).await?;
    double(backend).map_err(text)?;
    negate(backend).map_err(text)?;
    expect_bytes(device, "x", x, &f32s(&[-2.0; 20])).await?;
    free(device, &[x])
}

/// A tensor without elements may have extents whose product is no number of the host.
async fn nothing_of_huge_tensors(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let [x, y] = [upload(device, &f32s(&[1.0; 4]))?, upload(device, &f32s(&[2.0; 4]))?];
    let shape = [0, usize::MAX / 2, usize::MAX / 2];
    let tensor = |ptr| TensorDesc::packed(ptr, DType::F32, &shape);
    backend.unary_ext(&UnaryDesc::new(UnaryOp::Neg, tensor(x), tensor(y))).map_err(text)?;
    backend.binary_ext(&BinaryDesc::new(BinaryOp::Add, tensor(x), tensor(x), tensor(y))).map_err(text)?;
    backend.copy(&CopyDesc::new(tensor(x), tensor(y))).map_err(text)?;
    backend.reduce_ext(&ReduceDesc::new(ReduceOp::Max, tensor(x), &[1], y)).map_err(text)?;
    expect_bytes(device, "y", y, &f32s(&[2.0; 4])).await?;
    free(device, &[x, y])
}

fn f32s(values: &[f64]) -> Vec<u8> {
    encode(DType::F32, values)
}

async fn upload_after(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let x = upload(device, &f32s(&[0.0; 100]))?;
    let sum = upload(device, &f32s(&[0.0; 100]))?;
    for round in 1..=50 {
        backend.copy_htod(x, &f32s(&[f64::from(round); 100])).map_err(text)?;
        backend.binary(BinaryOp::Add, x, sum, sum, 100).map_err(text)?;
    }
    expect_bytes(device, "the sum", sum, &f32s(&[1275.0; 100])).await?;
    free(device, &[x, sum])
}

async fn long_chain(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let one = upload(device, &f32s(&[1.0; 33]))?;
    let x = upload(device, &f32s(&[0.0; 33]))?;
    for step in 0..2000 {
        match step % 4 {
            3 => backend.unary(UnaryOp::Neg, x, x, 33).map_err(text)?,
            _ => backend.binary(BinaryOp::Add, x, one, x, 33).map_err(text)?,
        }
    }
    // Every 8 steps add 3, negate, add 3, negate: nothing remains.
    expect_bytes(device, "x", x, &f32s(&[-0.0; 33])).await.or(
        // −(−3 + 3) is −0, and a device may drop the sign of a zero.
        expect_bytes(device, "x", x, &f32s(&[0.0; 33])).await,
    )?;
    free(device, &[one, x])
}

async fn read_between(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let x = upload(device, &f32s(&[1.0; 7]))?;
    for round in 1..=30 {
        backend.binary(BinaryOp::Add, x, x, x, 7).map_err(text)?;
        expect_bytes(device, "x", x, &f32s(&[2f64.powi(round); 7])).await?;
    }
    free(device, &[x])
}

async fn accumulated(device: &Device<'_>) -> Result<(), String> {
    let (backend, n) = (device.backend, 9);
    let a = upload(device, &f32s(&[1.0; 81]))?;
    let c = upload(device, &f32s(&[0.0; 81]))?;
    let no = BackendTranspose::NoTrans;
    for _ in 0..20 {
        backend.gemm(no, no, n, n, n, 1.0, a, n, a, n, 1.0, c, n).map_err(text)?;
    }
    expect_bytes(device, "c", c, &f32s(&[180.0; 81])).await?;
    backend.reduce(ReduceOp::Sum, c, a, &[9, 9], 0).map_err(text)?;
    let sums = f32s(&[1620.0; 9]);
    expect_bytes(device, "the sums", a, &sums).await?;
    free(device, &[a, c])
}

async fn synchronized(device: &Device<'_>) -> Result<(), String> {
    device.synchronize().await.map_err(text)?;
    let x = upload(device, &f32s(&[3.0; 5]))?;
    device.backend.unary(UnaryOp::Square, x, x, 5).map_err(text)?;
    device.synchronize().await.map_err(text)?;
    device.synchronize().await.map_err(text)?;
    expect_bytes(device, "x", x, &f32s(&[9.0; 5])).await?;
    free(device, &[x])
}

/// A random program over a few buffers of small integers, compared with the same program on the host.
fn program(number: usize) -> Case {
    Case::random_script("order", format!("program_{number}"), move |device, mut rng| {
        Box::pin(async move {
            let mut host: Vec<Vec<f64>> = (0..4).map(|_| integers(&mut rng)).collect();
            let mut ptrs = Vec::new();
            for values in &host {
                ptrs.push(upload(device, &f32s(values))?);
            }
            for _ in 0..60 {
                step(device, &mut rng, &mut host, &ptrs).await?;
            }
            for (ptr, values) in ptrs.iter().zip(&host) {
                expect_bytes(device, "a buffer at the end", *ptr, &f32s(values)).await?;
            }
            free(device, &ptrs)
        })
    })
}

fn integers(rng: &mut Rng) -> Vec<f64> {
    (0..N).map(|_| 1.0 + rng.below(9) as f64).collect()
}

async fn step(device: &Device<'_>, rng: &mut Rng, host: &mut [Vec<f64>], ptrs: &[u64]) -> Result<(), String> {
    let backend = device.backend;
    let (a, b, out) = (rng.below(4), rng.below(4), rng.below(4));
    match rng.below(7) {
        0 => {
            host[out] = integers(rng);
            backend.copy_htod(ptrs[out], &f32s(&host[out])).map_err(text)
        }
        1 => {
            host[out] = vec![7.0; N];
            backend.fill(ptrs[out], DType::F32, N, 7.0).map_err(text)
        }
        2 if a != out => {
            let part = 1 + rng.below(N);
            let source = host[a].clone();
            host[out][..part].copy_from_slice(&source[..part]);
            backend.copy_dtod(ptrs[out], ptrs[a], part * 4).map_err(text)
        }
        3 => expect_bytes(device, "a buffer", ptrs[a], &f32s(&host[a])).await,
        4 => {
            // Magnitudes stay below 2²⁴, so that sums are exact.
            host[out] = host[a].iter().zip(&host[b]).map(|(a, b)| a.min(*b)).collect();
            backend.binary(BinaryOp::Min, ptrs[a], ptrs[b], ptrs[out], N).map_err(text)
        }
        5 if host[a].iter().chain(&host[b]).all(|x| x.abs() < 1e6) => {
            host[out] = host[a].iter().zip(&host[b]).map(|(a, b)| a + b).collect();
            backend.binary(BinaryOp::Add, ptrs[a], ptrs[b], ptrs[out], N).map_err(text)
        }
        _ => {
            host[out] = host[a].iter().map(|x| x.abs()).collect();
            backend.unary(UnaryOp::Abs, ptrs[a], ptrs[out], N).map_err(text)
        }
    }
}
