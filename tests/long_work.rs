//! Work that takes long, on every adapter: right in as many parts as it has, submitted part by part, and
//! refused where it would have no end.

mod forced;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backend_api::desc::{
    AttentionDesc, AttentionShape, ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvShape,
    HeadLayout, ImageLayout, ImageShape, IndexShape, MatmulDesc, Matrix, PoolDesc, PoolOp, PoolShape,
    ReduceDesc, ScatterDesc, TensorDesc, Window,
};
use backend_api::{BackendResult, ComputeBackend, DType, DeviceKind, ErrorKind, ReduceOp, ScatterOp};
use backend_cpu::CpuBackend;
use backend_webgpu::WebGpuBackend;
use conformance::{Case, cases};
use forced::Device;
use libtest_mimic::{Failed, Trial};
use suites::Sample;

/// One in so many conformance cases runs, and at least one of an operation; `EVERY=1` runs them all.
const EVERY: usize = 192;

/// How often every operation is halved: up to eight parts.
const HALVINGS: u32 = 3;

/// The longest that a submission may take on average, on a GPU: what Windows allows one. Nothing ends the
/// work of a software adapter, whose speed is that of a machine which other tests share.
const LONGEST: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    forced::run(trials)
}

fn trials(device: &Arc<Device>) -> Vec<Trial> {
    let families: BTreeSet<&'static str> = cases().iter().map(|case| case.family).collect();
    let mut trials: Vec<Trial> = families
        .into_iter()
        .map(|family| device.trial(&format!("parts/{family}"), move |backend| in_parts(backend, family)))
        .collect();
    trials.extend([
        device.trial("parts/rows_of_padding", rows_of_padding),
        device.trial("submissions/matmul", long_product),
        device.trial("submissions/attention", long_attention),
        device.trial("endless/any_device", |backend| endless(backend)),
        device.trial("endless/slow_device", endless_on_a_slow_device),
        device.trial("endless/cpu", |_| endless(&CpuBackend::new())),
        device.trial("nothing/any_device", |backend| rows_without_columns(backend)),
        device.trial("nothing/cpu", |_| rows_without_columns(&CpuBackend::new())),
    ]);
    trials
}

/// The family's cases with every call in parts.
fn in_parts(backend: &WebGpuBackend, family: &str) -> Result<(), Failed> {
    let sample = Sample::nested(&backend.device_info()?, EVERY)?;
    let all = cases().into_iter().filter(|case| case.family == family);
    let (mut cases, others): (Vec<Case>, Vec<Case>) = all.partition(|case| sample.has(&case.path()));
    if cases.is_empty() {
        cases.extend(others.into_iter().next());
    }
    backend.pretend(1.0, HALVINGS)?;
    let (outcome, plan) = (forced::check(backend, &cases), explain(backend));
    backend.pretend(1.0, 0)?;
    let plan = plan?;
    if plan.ends_with(", in 8 parts") { outcome } else { Err(format!("a product is made by {plan}").into()) }
}

/// The second half of a result has as many rows as the source, and is made of the padding behind it.
fn rows_of_padding(backend: &WebGpuBackend) -> Result<(), Failed> {
    let window = Window::new([1, 1]).with_asymmetric_padding([0, 0], [4, 0]);
    let padded = ConvShape::new(ImageShape::nchw([1, 1, 4, 1]), 1, window);
    let strided = ConvShape::new(ImageShape::nchw([1, 1, 2, 1]), 1, Window::new([1, 1]).with_stride([2, 1]));
    for layout in [ImageLayout::Nchw, ImageLayout::Nhwc] {
        let [ahead, back] = with_memory(backend, [16, 4, 32], |[x, filter, y]| {
            backend.fill(x, DType::F32, 4, 3.0)?;
            backend.fill(filter, DType::F32, 1, 2.0)?;
            backend.pretend(1.0, 1)?;
            let numbers = |n: usize| {
                let mut numbers = vec![0f32; n];
                backend.copy_dtoh(bytemuck::cast_slice_mut(&mut numbers), y).map(|()| numbers)
            };
            backend.conv2d(&ConvDesc::new(DType::F32, x, filter, y, padded.with_layout(layout)))?;
            let ahead = numbers(8)?;
            let strided = strided.with_layout(layout);
            backend.conv2d_backward_data(&ConvBackwardDataDesc::new(DType::F32, filter, x, y, strided))?;
            Ok([ahead, numbers(2)?])
        })?;
        backend.pretend(1.0, 0)?;
        if ahead != [6.0, 6.0, 6.0, 6.0, 0.0, 0.0, 0.0, 0.0] || back != [6.0, 0.0] {
            return Err(format!("{layout:?}: {ahead:?}, gradient {back:?}").into());
        }
    }
    Ok(())
}

fn explain(backend: &WebGpuBackend) -> BackendResult<String> {
    with_memory(backend, [4 * 64 * 64; 3], |[a, b, c]| {
        let matrix = |ptr| Matrix::new(ptr, DType::F32, 64);
        backend.explain_matmul(&MatmulDesc::new(64, 64, 64, matrix(a), matrix(b), matrix(c)))
    })
}

/// Calls `work` with memory of so many bytes, which is freed.
fn with_memory<const N: usize, R>(
    backend: &dyn ComputeBackend,
    bytes: [usize; N],
    work: impl FnOnce([u64; N]) -> BackendResult<R>,
) -> BackendResult<R> {
    let mut ptrs = [0; N];
    for (ptr, bytes) in ptrs.iter_mut().zip(bytes) {
        *ptr = backend.alloc(bytes)?;
    }
    let result = work(ptrs);
    ptrs.iter().try_for_each(|&ptr| backend.free(ptr))?;
    result
}

fn is_software(backend: &WebGpuBackend) -> bool {
    backend.device_info().is_ok_and(|info| info.kind == DeviceKind::SoftwareAdapter)
}

/// `by`, by which operands are shorter on a software adapter, which takes a minute for those of a GPU.
fn shorter(backend: &WebGpuBackend, by: usize) -> usize {
    if is_software(backend) { by } else { 1 }
}

/// Has the device taken for one that makes some 10¹⁰ floating-point operations in a second, or for one as much slower as the
/// work is `less` than a GPU's.
fn slow_down(backend: &WebGpuBackend, less: usize) -> BackendResult<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let slower = if is_software(backend) { (cores / 2.0).max(1.0) } else { 300.0 };
    backend.pretend(slower * less as f64, 0)
}

/// Runs `work`, which is so much `less` than a GPU's and says how many parts it has, and looks at how it was submitted.
fn expect_submissions(
    backend: &WebGpuBackend,
    less: usize,
    work: impl FnOnce() -> BackendResult<usize>,
) -> Result<(), Failed> {
    backend.synchronize()?;
    slow_down(backend, less)?;
    let (before, start) = (backend.cuts(), Instant::now());
    let parts = work();
    let (took, submissions) = (start.elapsed(), backend.cuts() - before + 1);
    backend.pretend(1.0, 0)?;
    let parts = parts?;
    println!("{parts} parts in {submissions} submissions in {took:?}");
    if submissions < 4 || submissions + 1 < parts as u64 / 2 {
        return Err(format!("{submissions} submissions of {parts} parts").into());
    }
    if !is_software(backend) && took > LONGEST * submissions as u32 {
        return Err(format!("{submissions} submissions took {took:?}").into());
    }
    Ok(())
}

fn parts_in(plan: &str) -> usize {
    let count = plan.rsplit_once(", in ").and_then(|(_, parts)| parts.split(' ').next());
    count.and_then(|count| count.parse().ok()).unwrap_or(1)
}

fn check_all(backend: &WebGpuBackend, ptr: u64, count: usize, expected: f32) -> Result<(), Failed> {
    let mut got = vec![0f32; count];
    backend.copy_dtoh(bytemuck::cast_slice_mut(&mut got), ptr)?;
    match got.iter().position(|&x| x != expected) {
        Some(at) => Err(format!("element {at} is {}, not {expected}", got[at]).into()),
        None => Ok(()),
    }
}

fn long_product(backend: &WebGpuBackend) -> Result<(), Failed> {
    let shorter = shorter(backend, 2);
    let n = 2048 / shorter;
    let [a, b, c] = [backend.alloc(4 * n * n)?, backend.alloc(4 * n * n)?, backend.alloc(4 * n * n)?];
    backend.fill(a, DType::F32, n * n, 1.0)?;
    backend.fill(b, DType::F32, n * n, 2.0)?;
    let matrix = |ptr| Matrix::new(ptr, DType::F32, n);
    let desc = MatmulDesc::new(n, n, n, matrix(a), matrix(b), matrix(c));
    let outcome = expect_submissions(backend, shorter.pow(3), || {
        let plan = backend.explain_matmul(&desc)?;
        backend.matmul(&desc)?;
        backend.synchronize()?;
        Ok(parts_in(&plan))
    })
    .and_then(|()| check_all(backend, c, n * n, 2.0 * n as f32));
    [a, b, c].iter().try_for_each(|&ptr| backend.free(ptr))?;
    outcome
}

fn long_attention(backend: &WebGpuBackend) -> Result<(), Failed> {
    let shorter = shorter(backend, 4);
    let tokens = 2048 / shorter;
    let shape = AttentionShape { batch: 1, heads: 8, seq_q: tokens, seq_kv: tokens, head_dim: 64 };
    let elements = 8 * tokens * 64;
    let ptrs = [(); 4].map(|()| backend.alloc(4 * elements));
    let [q, k, v, o] = ptrs;
    let ptrs = [q?, k?, v?, o?];
    for ptr in &ptrs[..3] {
        backend.fill(*ptr, DType::F32, elements, 1.0)?;
    }
    let [q, k, v, o] = ptrs;
    let desc = AttentionDesc::new(DType::F32, q, k, v, o, shape);
    let outcome = expect_submissions(backend, shorter.pow(2), || {
        let plan = backend.explain_attention(&desc)?;
        backend.attention_ext(&desc)?;
        backend.synchronize()?;
        Ok(parts_in(&plan))
    })
    .and_then(|()| check_all(backend, ptrs[3], elements, 1.0));
    ptrs.iter().try_for_each(|&ptr| backend.free(ptr))?;
    outcome
}

/// What a call said that ought to be refused.
fn refused(name: &str, outcome: BackendResult<()>) -> Result<(), Failed> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::Limit => Ok(()),
        other => Err(format!("{name}: {other:?}").into()),
    }
}

/// Strides of 0, with which a few megabytes name work of hours on any device.
fn endless(backend: &dyn ComputeBackend) -> Result<(), Failed> {
    let reduced = with_memory(backend, [4, 4 << 20], |[x, y]| {
        let shape = [1 << 20, u32::MAX as usize];
        let input = TensorDesc::strided(x, DType::F32, &shape, &[0, 0]);
        let outcomes = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::LogSumExp]
            .map(|op| backend.reduce_ext(&ReduceDesc::new(op, input, &[1], y)));
        Ok(outcomes)
    })?;
    for outcome in reduced {
        refused("reduce", outcome)?;
    }
    let attended = with_memory(backend, [64, 64, 64, 4 << 24], |ptrs| {
        let mut desc = AttentionDesc::new(
            DType::F32,
            ptrs[0],
            ptrs[1],
            ptrs[2],
            ptrs[3],
            AttentionShape { batch: 1, heads: 1, seq_q: 1 << 22, seq_kv: 1 << 29, head_dim: 4 },
        );
        let still = HeadLayout { offset: 0, batch: 0, head: 0, token: 0 };
        (desc.q_layout, desc.k_layout, desc.v_layout) = (Some(still), Some(still), Some(still));
        Ok(backend.attention_ext(&desc))
    })?;
    refused("attention", attended)
}

/// Windows over half a billion rows of an image without columns, which have nothing to look at.
fn rows_without_columns(backend: &dyn ComputeBackend) -> Result<(), Failed> {
    const ROWS: usize = 1 << 29;
    const LIMIT: Duration = Duration::from_secs(1);
    with_memory(backend, [4, 4], |[x, y]| {
        let pooled = |op, rows| {
            let window = Window::new([rows, 2]).with_padding([0, 1]);
            let shape = PoolShape::new(ImageShape::nchw([1, 1, rows, 0]), [1, 1], window);
            let mut result = [f32::NAN];
            backend.pool2d(&PoolDesc::new(op, DType::F32, x, y, shape))?;
            backend.copy_dtoh(bytemuck::cast_slice_mut(&mut result), y).map(|()| result[0])
        };
        let mut outcomes = Vec::new();
        for (op, expected) in [(PoolOp::Max, f32::NEG_INFINITY), (PoolOp::AverageWithPadding, 0.0)] {
            // Compiles the kernel.
            pooled(op, 1)?;
            let start = Instant::now();
            let result = pooled(op, ROWS)?;
            outcomes.push((op, result, expected, start.elapsed()));
        }
        Ok(outcomes)
    })?
    .into_iter()
    .try_for_each(|(op, result, expected, took)| {
        let is_right = result == expected && took < LIMIT;
        if is_right { Ok(()) } else { Err(format!("{op:?}: {result} after {took:?}").into()) }
    })
}

/// Every family that can be told to do much with little memory, on a device that is taken for a millionth of
/// its speed.
fn endless_on_a_slow_device(backend: &WebGpuBackend) -> Result<(), Failed> {
    const SIDE: usize = 1024;
    const FILTER: usize = 256;
    const OUTPUT: usize = SIDE - FILTER + 1;
    let bytes = 4 << 20;
    let outcomes = with_memory(backend, [bytes; 4], |[a, b, c, d]| {
        backend.fill(c, DType::F32, bytes / 4, 7.0)?;
        backend.pretend(1e6, 0)?;
        let matrix = |ptr, stride| Matrix::new(ptr, DType::F32, 1 << 20).with_batch_stride(stride);
        let product =
            MatmulDesc::new(1, 1, 1 << 20, matrix(a, 0), Matrix::new(b, DType::F32, 1), matrix(c, 1));
        let shape = ConvShape::new(ImageShape::nchw([1, 1, SIDE, SIDE]), 1, Window::new([FILTER; 2]));
        let to_input = ConvBackwardDataDesc::new(DType::F32, b, a, c, shape);
        let to_filter = ConvBackwardFilterDesc::new(DType::F32, a, b, c, shape);
        let window = Window::new([SIDE / 2; 2]);
        let pooling = PoolShape::new(ImageShape::nchw([1, 1, SIDE, SIDE]), [SIDE / 2 + 1; 2], window);
        let still = HeadLayout { offset: 0, batch: 0, head: 0, token: 0 };
        let mut attention = AttentionDesc::new(
            DType::F32,
            a,
            b,
            d,
            c,
            AttentionShape { batch: 1, heads: 1, seq_q: 1 << 14, seq_kv: 1 << 20, head_dim: 1 },
        );
        (attention.k_layout, attention.v_layout) = (Some(still), Some(still));
        let reduced = [1 << 16, 1 << 20];
        let input = TensorDesc::strided(a, DType::F32, &reduced, &[0, 1]);
        let mut elements = ScatterDesc::new(
            ScatterOp::Add,
            DType::F32,
            c,
            a,
            b,
            IndexShape { rows: 1 << 18, columns: 4, count: 1 << 18 },
        );
        elements.per_element = true;
        let outcomes = vec![
            ("matmul", backend.matmul(&product.with_batch(1 << 16))),
            ("conv2d", backend.conv2d(&ConvDesc::new(DType::F32, a, b, c, shape))),
            ("conv2d_backward_data", backend.conv2d_backward_data(&to_input)),
            ("conv2d_backward_filter", backend.conv2d_backward_filter(&to_filter)),
            ("pool2d", backend.pool2d(&PoolDesc::new(PoolOp::Max, DType::F32, a, c, pooling))),
            ("attention", backend.attention_ext(&attention)),
            ("reduce", backend.reduce_ext(&ReduceDesc::new(ReduceOp::Sum, input, &[1], c))),
            ("scatter", backend.scatter(&elements)),
        ];
        backend.pretend(1.0, 0)?;
        Ok((outcomes, check_all(backend, c, OUTPUT, 7.0)))
    });
    backend.pretend(1.0, 0)?;
    let (outcomes, unchanged) = outcomes?;
    for (name, outcome) in outcomes {
        refused(name, outcome)?;
    }
    unchanged
}
