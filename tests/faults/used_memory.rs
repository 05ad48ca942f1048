//! A budget bounds what the process really holds: also of memory that kernels have used and that was freed
//! since.

use std::time::Duration;

use backend_api::{BackendResult, ComputeBackend, DType};
use suites::BackendUnderTest;

use super::{child, loss, out_of_memory, program};

const MIB: usize = 1 << 20;

/// Bytes of the budget.
const BUDGET: usize = 256 * MIB;

/// What may be resident beside the budget: staging buffers, the driver's own, and the buffer that is being
/// made while another one goes.
const BESIDE: usize = 128 * MIB;

/// Blocks, each larger than the last.
const ROUNDS: usize = 8;

pub(crate) fn run(tested: &BackendUnderTest) -> Result<(), String> {
    for task in ["within_a_budget", "unsubmitted"] {
        let task = format!("{task} {}", loss::index(tested)?);
        let printed = child::expect_success(&task, child::this_program()?, Duration::from_secs(120))
            .map_err(|why| format!("{task}: {why}"))?;
        print!("{}: {printed}", tested.label);
    }
    Ok(())
}

/// In the child: each block is waited for before the next.
pub(crate) fn within_a_budget(selector: &str) -> Result<(), String> {
    use_blocks(selector, |backend| backend.synchronize())
}

/// In the child: blocks are used by calls that nobody waits for.
pub(crate) fn unsubmitted(selector: &str) -> Result<(), String> {
    use_blocks(selector, |_| Ok(()))
}

fn use_blocks(
    selector: &str,
    after_each: impl Fn(&dyn ComputeBackend) -> BackendResult<()>,
) -> Result<(), String> {
    let backend = out_of_memory::opened(selector)?;
    let used = || {
        backend.set_memory_budget(Some(BUDGET))?;
        for round in 0..ROUNDS {
            let bytes = (96 + 8 * round) * MIB;
            let block = backend.alloc(bytes)?;
            fill(&backend, block, bytes)?;
            backend.free(block)?;
            after_each(&backend)?;
        }
        backend.synchronize()
    };
    let before = peak_resident_bytes()?;
    used().map_err(|error| format!("{error:?}, with {:?}", backend.memory_stats()))?;
    let grown = peak_resident_bytes()? - before;
    println!("resident memory grew by {} MiB at most, of a budget of {}", grown / MIB, BUDGET / MIB);
    if grown > BUDGET + BESIDE {
        return Err(format!("more than the budget, with {:?}", backend.memory_stats()));
    }
    backend.set_memory_budget(None).map_err(|error| format!("{error:?}"))?;
    program::check(&backend)
}

/// Has kernels write a whole block, in parts that every device can bind.
fn fill(backend: &dyn ComputeBackend, block: u64, bytes: usize) -> BackendResult<()> {
    let part = 32 * MIB;
    (0..bytes).step_by(part).try_for_each(|start| {
        let view = backend.view(block, start, part.min(bytes - start))?;
        let filled = backend.fill(view, DType::F32, part.min(bytes - start) / 4, 1.0);
        backend.free(view)?;
        filled
    })
}

/// The most bytes that were resident at a time.
fn peak_resident_bytes() -> Result<usize, String> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| "no VmHWM in /proc/self/status".to_owned())
}
