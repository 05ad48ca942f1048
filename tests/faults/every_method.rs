//! Each method of the contract that can fail, called with arguments that would be good.

use std::collections::HashSet;

use backend_api::{BackendResult, Command, ComputeBackend, ErrorKind, UnaryOp};
use conformance::bad_input::{self, Operation};

type Call = fn(&dyn ComputeBackend, [u64; 4]) -> BackendResult<()>;

/// Bytes that each of the four buffers has to have.
pub(crate) const BYTES: usize = 512;

/// The methods that are no operations, over four buffers. `free` comes last.
const METHODS: &[(&str, Call)] = &[
    ("unary of nothing", |b, [x, y, ..]| b.unary(UnaryOp::Neg, x, y, 0)),
    ("synchronize", |b, _| b.synchronize()),
    ("alloc", |b, _| b.alloc(16).map(drop)),
    ("alloc_zeroed", |b, _| b.alloc_zeroed(18).map(drop)),
    ("alloc of nothing", |b, _| b.alloc(0).map(drop)),
    ("copy_htod", |b, [x, ..]| b.copy_htod(x, &[1; 16])),
    ("copy_htod of 3 bytes", |b, [x, ..]| b.copy_htod(x, &[1; 3])),
    ("copy_dtoh", |b, [x, ..]| b.copy_dtoh(&mut [0; 16], x)),
    ("copy_dtoh_async", |b, [x, ..]| pollster::block_on(b.copy_dtoh_async(&mut [0; 16], x))),
    ("synchronize_async", |b, _| pollster::block_on(b.synchronize_async())),
    ("warm_up_async", |b, _| pollster::block_on(b.warm_up_async(&[]))),
    ("view", |b, [x, ..]| b.view(x, 4, 4).map(drop)),
    ("capture", |b, [x, y, ..]| {
        let graph = b.capture(&mut |b| b.unary(UnaryOp::Neg, x, y, 4))?;
        b.replay(graph).and(b.free_graph(graph))
    }),
    ("replay", |b, _| b.replay(1)),
    ("free_graph", |b, _| b.free_graph(1)),
    ("trim", |b, _| b.trim().map(drop)),
    ("set_memory_budget", |b, _| b.set_memory_budget(None)),
    ("free", |b, [x, ..]| b.free(x)),
];

/// A good call of each operation, of those from which bad ones are made.
fn operations() -> Result<Vec<Operation>, String> {
    let mut missing: HashSet<&str> = Command::OPERATIONS.iter().copied().collect();
    let good = bad_input::operations().into_iter().filter(|operation| !operation.may_be_refused());
    let all = good.filter(|operation| missing.remove(operation.name)).collect();
    if missing.is_empty() {
        Ok(all)
    } else {
        Err(format!("no good call of {missing:?} in crates/conformance/src/bad_input"))
    }
}

/// Makes a good call on memory of its own.
fn work(backend: &dyn ComputeBackend, operation: &Operation) -> BackendResult<()> {
    let mut ptrs = Vec::new();
    for slot in &operation.slots {
        let ptr = backend.alloc(slot.content.len())?;
        backend.copy_htod(ptr, &slot.content)?;
        ptrs.push(ptr);
    }
    operation.call_on(backend, ptrs.clone())?;
    ptrs.into_iter().try_for_each(|ptr| backend.free(ptr))
}

/// Whether every method works.
pub(crate) fn all_work(backend: &dyn ComputeBackend, ptrs: [u64; 4]) -> Result<(), String> {
    let left_out = ["free", "alloc", "alloc_zeroed", "view", "replay", "free_graph"];
    for operation in operations()? {
        work(backend, &operation).map_err(|error| format!("{} failed: {error:?}", operation.name))?;
    }
    for (name, call) in METHODS.iter().filter(|(name, _)| !left_out.contains(name)) {
        call(backend, ptrs).map_err(|error| format!("{name} failed: {error:?}"))?;
    }
    Ok(())
}

/// Whether every method fails with `kind`; `before` is told of each.
pub(crate) fn all_fail(
    backend: &dyn ComputeBackend,
    ptrs: [u64; 4],
    kind: ErrorKind,
    before: &dyn Fn(&str),
) -> Result<(), String> {
    let fails = |name: &str, call: &dyn Fn() -> BackendResult<()>| {
        before(name);
        match call() {
            Err(error) if error.kind() == kind => Ok(()),
            other => Err(format!("{name} gave {other:?}, expected {kind:?}")),
        }
    };
    for operation in operations()? {
        let operands = ptrs.into_iter().cycle().take(operation.slots.len());
        fails(operation.name, &|| operation.call_on(backend, operands.clone().collect()))?;
    }
    for &(name, call) in METHODS {
        fails(name, &|| call(backend, ptrs))?;
    }
    for (name, result) in
        [("capabilities", backend.capabilities().map(drop)), ("device_info", backend.device_info().map(drop))]
    {
        match result {
            Err(error) if error.kind() == kind => {}
            // What is known of the device may still be told.
            Ok(()) if kind == ErrorKind::DeviceLost => {}
            other => return Err(format!("{name} gave {other:?}, expected {kind:?}")),
        }
    }
    if backend.is_initialized() {
        return Err("is_initialized() is true".to_owned());
    }
    Ok(())
}
