//! capture, replay and free_graph.

use backend_api::{BackendError, BackendResult, ComputeBackend, ErrorKind, UnaryOp};

use super::expect::{Expect, INVALID};
use super::memory::without_operands;
use super::{Handles, Operation};

pub(super) fn operations() -> Vec<Operation> {
    let by_handle = [
        ("replay", (|b, graph| b.replay(graph)) as fn(&dyn ComputeBackend, u64) -> BackendResult<()>),
        ("free_graph", |b, graph| b.free_graph(graph)),
    ];
    by_handle.into_iter().map(|(op, call)| of_handle(op, call)).chain([capture(), memory()]).collect()
}

/// A graph of one operation on the first operand, which is freed after `then`.
fn with_graph(
    b: &dyn ComputeBackend,
    h: &Handles,
    then: impl FnOnce(u64) -> BackendResult<()>,
) -> BackendResult<()> {
    let graph = b.capture(&mut |b| b.unary(UnaryOp::Abs, h[0], h[0], 16))?;
    let result = then(graph);
    result.and(b.free_graph(graph))
}

fn good(b: &dyn ComputeBackend, h: &Handles) -> BackendResult<()> {
    with_graph(b, h, |graph| b.replay(graph))
}

fn of_handle(op: &'static str, call: fn(&dyn ComputeBackend, u64) -> BackendResult<()>) -> Operation {
    let invalid = |ptr| Expect::Exactly(BackendError::InvalidHandle { op, arg: "graph", ptr });
    without_operands(op, good)
        .bad("0", invalid(0), move |b, _| call(b, 0))
        .bad("1", invalid(1), move |b, _| call(b, 1))
        .bad("u64::MAX", invalid(u64::MAX), move |b, _| call(b, u64::MAX))
        .bad("an unknown handle", INVALID, move |b, h| call(b, h.unknown))
        .bad("memory", INVALID, move |b, h| call(b, h[0]))
        .bad("freed memory", INVALID, move |b, h| call(b, h.freed))
        .bad("another backend's memory", INVALID, move |b, h| call(b, h.foreign))
        .bad("a freed graph", INVALID, move |b, h| call(b, freed_graph(b, h)?))
        .bad("a freed graph, its slot in use again", INVALID, move |b, h| {
            let freed = freed_graph(b, h)?;
            with_graph(b, h, |_| call(b, freed))
        })
}

/// The handle of a graph that there was.
fn freed_graph(b: &dyn ComputeBackend, h: &Handles) -> BackendResult<u64> {
    let mut freed = 0;
    with_graph(b, h, |graph| {
        freed = graph;
        Ok(())
    })?;
    Ok(freed)
}

/// A graph where memory is expected.
fn memory() -> Operation {
    let mut operation = without_operands("unary", good)
        .bad("a graph for memory", INVALID, |b, h| {
            with_graph(b, h, |graph| b.unary(UnaryOp::Abs, graph, h[0], 16))
        })
        .bad("a view of a graph", INVALID, |b, h| with_graph(b, h, |graph| b.view(graph, 0, 0).map(drop)))
        .bad("a graph freed as memory", INVALID, |b, h| with_graph(b, h, |graph| b.free(graph)))
        .bad("a graph read", INVALID, |b, h| with_graph(b, h, |graph| b.copy_dtoh(&mut [7; 4], graph)));
    operation.label = "graphs for memory".to_owned();
    operation
}

/// The error of the last call that `record` makes must be that of the capture.
fn capture() -> Operation {
    let mut operation = without_operands("capture", good)
        .bad("of an operation on a freed handle", INVALID, |b, h| {
            b.capture(&mut |b| b.unary(UnaryOp::Abs, h.freed, h.freed, 4)).map(drop)
        })
        .bad("of a short operand", Expect::Kind(ErrorKind::BufferTooSmall), |b, h| {
            b.capture(&mut |b| {
                b.unary(UnaryOp::Neg, h[0], h[0], 16)?;
                b.unary(UnaryOp::Neg, h[0], h[0], 17)
            })
            .map(drop)
        })
        .bad("after a good operation", Expect::Kind(ErrorKind::NoAdapter), |b, h| {
            b.capture(&mut |b| {
                b.unary(UnaryOp::Neg, h[0], h[0], 16)?;
                Err(BackendError::NoAdapter { tried: Vec::new() })
            })
            .map(drop)
        });
    for (op, call) in NOT_CAPTURED {
        let expect = Expect::Exactly(BackendError::Capturing { op });
        operation = operation.bad(op, expect, move |b, h| {
            b.capture(&mut |b| {
                b.unary(UnaryOp::Neg, h[0], h[0], 16)?;
                call(b, h)
            })
            .map(drop)
        });
    }
    operation
}

type Call = fn(&dyn ComputeBackend, &Handles) -> BackendResult<()>;

/// What a capture refuses.
const NOT_CAPTURED: [(&str, Call); 16] = [
    ("alloc", |b, _| b.alloc(16).map(drop)),
    ("alloc_zeroed", |b, _| b.alloc_zeroed(16).map(drop)),
    ("free", |b, h| b.free(h[0])),
    ("view", |b, h| b.view(h[0], 0, 4).map(drop)),
    ("copy_htod", |b, h| b.copy_htod(h[0], &[1; 4])),
    ("copy_dtoh", |b, h| b.copy_dtoh(&mut [0; 4], h[0])),
    ("copy_dtoh_async", |b, h| pollster::block_on(b.copy_dtoh_async(&mut [0; 4], h[0]))),
    ("synchronize", |b, _| b.synchronize()),
    ("synchronize_async", |b, _| pollster::block_on(b.synchronize_async())),
    ("warm_up_async", |b, _| pollster::block_on(b.warm_up_async(&[]))),
    ("capture", |b, _| b.capture(&mut |_| Ok(())).map(drop)),
    ("replay", |b, _| b.replay(0)),
    ("free_graph", |b, _| b.free_graph(0)),
    ("trim", |b, _| b.trim().map(drop)),
    ("set_memory_budget", |b, _| b.set_memory_budget(Some(1))),
    ("alloc", |b, _| b.alloc(usize::MAX).map(drop)),
];
