//! Each of the first 300 allocations of a workload refused in turn, as a device without memory would.

use std::sync::Arc;

use backend_api::desc::{CumSumDesc, SoftmaxDesc, TopKDesc};
use backend_api::owned::Buffer;
use backend_api::{
    BackendResult, BackendTranspose::NoTrans, ComputeBackend, DType, ErrorKind, MemoryStats, ReduceOp,
};
use backend_webgpu::WebGpuBackend;
use suites::{BackendUnderTest, Sample};

use super::{loss, out_of_memory, program};

/// Allocations that are refused.
const ALLOCATIONS: usize = 300;

/// Times that the workload does everything; it has to make more than [`ALLOCATIONS`].
const ROUNDS: usize = 40;

/// Numbers of the input.
const N: usize = 3000;

pub(crate) fn run(tested: &BackendUnderTest) -> Result<(), String> {
    let device = tested.backend()?.device_info().map_err(|error| error.to_string())?;
    let sample = Sample::of(&device)?;
    let backend = Arc::new(out_of_memory::opened(loss::index(tested)?)?);
    let shared: Arc<dyn ComputeBackend> = Arc::clone(&backend) as _;
    let numbers: Vec<f32> = (0..N).map(|i| (i * 7 % 13) as f32).collect();
    let told = |error| format!("{error:?}");
    let input = Buffer::from_slice(&shared, &numbers).map_err(told)?;
    let expected = workload(&input).map_err(told)?;
    let before = settled(&backend)?;

    let refuse = |after, count| backend.refuse_allocations(after, count).map_err(told);
    let mut refused = 0;
    for after in (0..ALLOCATIONS).filter(|after| sample.has(&after.to_string())) {
        refuse(after, usize::MAX)?;
        match workload(&input) {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => refused += 1,
            other => return Err(format!("allocation {after} was refused, and the workload gave {other:?}")),
        }
        refuse(0, 0)?;
        let now = settled(&backend)?;
        if (now.in_use, now.asked, now.scratch, now.handles)
            != (before.in_use, before.asked, before.scratch, before.handles)
        {
            return Err(format!("allocation {after} was refused, and {before:?} became {now:?}"));
        }
        program::check(&*backend).map_err(|why| format!("after allocation {after}: {why}"))?;
        // Once only: the memory that comes back is enough.
        if after % 20 == 0 {
            refuse(after, 1)?;
            let healed = workload(&input).map_err(|error| format!("allocation {after}, once: {error:?}"))?;
            if healed != expected {
                return Err(format!("allocation {after} was refused once, and the results differ"));
            }
        }
    }
    if input.to_vec::<f32>().map_err(told)? != numbers {
        return Err("the input has changed".to_owned());
    }
    if workload(&input).map_err(told)? != expected {
        return Err("the results differ in the end".to_owned());
    }
    println!("{}: {refused} allocations refused", tested.label);
    Ok(())
}

/// When nothing is on its way any more.
fn settled(backend: &WebGpuBackend) -> Result<MemoryStats, String> {
    backend.synchronize().map_err(|error| format!("{error:?}"))?;
    Ok(backend.memory_stats())
}

/// Operations with memory of their own, uploads of parts of words, a graph.
fn workload(input: &Buffer) -> BackendResult<Vec<u8>> {
    let mut results = Vec::new();
    for round in 0..ROUNDS {
        results = one_round(input, round == 0)?;
    }
    Ok(results)
}

fn one_round(input: &Buffer, captures: bool) -> BackendResult<Vec<u8>> {
    let backend = input.backend();
    let sums = Buffer::new::<f32>(backend, &[N])?;
    backend.cumsum(&CumSumDesc::rows(DType::F32, input.ptr(), sums.ptr(), 1, N))?;
    let order = Buffer::new::<u32>(backend, &[N])?;
    backend.top_k(&TopKDesc::argsort(DType::F32, input.ptr(), order.ptr(), 1, N))?;
    let soft = Buffer::new::<f32>(backend, &[N])?;
    backend.softmax(&SoftmaxDesc::rows(DType::F32, input.ptr(), soft.ptr(), 3, N / 3))?;
    let product = Buffer::new::<f32>(backend, &[4])?;
    let (a, b) = (input.ptr(), sums.ptr());
    backend.gemm(NoTrans, NoTrans, 2, 2, 1500, 1.0, a, 1500, b, 2, 0.0, product.ptr(), 2)?;
    let total = Buffer::new::<f32>(backend, &[1])?;
    backend.reduce(ReduceOp::Sum, sums.ptr(), total.ptr(), &[N], 0)?;
    let odd = Buffer::new::<u8>(backend, &[7])?;
    odd.upload(&[1u8, 2, 3, 4, 5, 6, 7])?;
    if captures {
        let graph = backend.capture(&mut |recorded| {
            recorded.gemm(NoTrans, NoTrans, 2, 2, 1500, 1.0, a, 1500, b, 2, 0.0, product.ptr(), 2)?;
            recorded.reduce(ReduceOp::Sum, sums.ptr(), total.ptr(), &[N], 0)
        })?;
        let replayed = backend.replay(graph);
        backend.free_graph(graph)?;
        replayed?;
    }
    let mut bytes = product.to_vec::<u8>()?;
    for buffer in [&total, &odd, &order, &soft] {
        bytes.extend(buffer.to_vec::<u8>()?);
    }
    Ok(bytes)
}
