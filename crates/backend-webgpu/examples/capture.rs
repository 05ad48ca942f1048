//! A chain of small operations, called one by one and replayed from a graph: the same numbers, and the host's
//! time for each.
//!
//! `cargo run --release --example capture`, with an adapter's selector such as `webgpu:0` in COMPUTE_BACKEND
//! if the best device isn't meant.

mod common;

use std::time::{Duration, Instant};

use backend_api::{BackendResult, BinaryOp, ComputeBackend, DType, UnaryOp};

/// Elements of the vector, and operations of the chain.
const N: usize = 256;
const OPERATIONS: usize = 300;
const ROUNDS: usize = 20;

fn main() -> BackendResult<()> {
    let backend = common::select()?;
    let backend = backend.as_ref();

    let (x, state) = (backend.alloc(4 * N)?, backend.alloc(4 * N)?);
    let graph = backend.capture(&mut |recorded| step(recorded, x, state))?;
    let called = rounds(backend, [x, state], || step(backend, x, state))?;
    let replayed = rounds(backend, [x, state], || backend.replay(graph))?;
    assert_eq!(called.0, replayed.0, "a replay is the calls");

    for (name, (_, time)) in [("called", called), ("replayed", replayed)] {
        let each = time.as_secs_f64() * 1e6 / (ROUNDS * OPERATIONS) as f64;
        println!("{name}: {each:.2} µs of the host for an operation");
    }
    backend.free_graph(graph)?;
    [x, state].into_iter().try_for_each(|ptr| backend.free(ptr))
}

/// state = tanh(state + x), over and over.
fn step(backend: &dyn ComputeBackend, x: u64, state: u64) -> BackendResult<()> {
    (0..OPERATIONS / 2).try_for_each(|_| {
        backend.binary(BinaryOp::Add, state, x, state, N)?;
        backend.unary(UnaryOp::Tanh, state, state, N)
    })
}

/// The state after some rounds, each with an input of its own, and the time that `step` took on the host.
fn rounds(
    backend: &dyn ComputeBackend,
    [x, state]: [u64; 2],
    step: impl Fn() -> BackendResult<()>,
) -> BackendResult<(Vec<u8>, Duration)> {
    backend.fill(state, DType::F32, N, 0.0)?;
    let mut time = Duration::ZERO;
    for round in 0..ROUNDS {
        let input = (round as f32 / ROUNDS as f32).to_le_bytes().repeat(N);
        backend.copy_htod(x, &input)?;
        let start = Instant::now();
        step()?;
        time += start.elapsed();
        backend.synchronize()?;
    }
    let mut result = vec![0; 4 * N];
    backend.copy_dtoh(&mut result, state)?;
    Ok((result, time))
}
