//! A process whose address space is used up.

use std::time::Duration;

use backend_api::{BackendError, BackendResult, ComputeBackend, DType, ErrorKind};
use backend_webgpu::WebGpuBackend;
use suites::BackendUnderTest;

use super::child::{self, VARIABLE};
use super::{loss, program};

/// Kibibytes of address space: enough to open a software driver, little enough to use up at once.
const ADDRESS_SPACE: usize = 3_000_000;

const BLOCK: usize = 128 << 20;

/// More blocks than fit into the address space.
const MANY: usize = 40;

pub(crate) fn run(tested: &BackendUnderTest) -> Result<(), String> {
    for task in ["allocations", "uploads", "used_blocks"] {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = std::process::Command::new("bash");
        command
            .arg("-c")
            .arg(format!("ulimit -v {ADDRESS_SPACE}; exec \"$0\""))
            .arg(program)
            .env_remove(VARIABLE);
        let task = format!("{task} {}", loss::index(tested)?);
        child::expect_success(&task, command, Duration::from_secs(120))
            .map_err(|why| format!("{task}: {why}"))?;
    }
    Ok(())
}

pub(crate) fn opened(selector: &str) -> Result<WebGpuBackend, String> {
    let mut backend = WebGpuBackend::select(selector);
    backend.init().map_err(|error| format!("init: {error:?}"))?;
    program::check(&backend)?;
    Ok(backend)
}

/// Blocks until there is no memory for another; at least one.
fn all_blocks(backend: &dyn ComputeBackend) -> Result<Vec<u64>, String> {
    let mut blocks = Vec::new();
    for _ in 0..MANY {
        match backend.alloc(BLOCK) {
            Ok(block) => blocks.push(block),
            Err(error) if error.kind() == ErrorKind::OutOfMemory && !blocks.is_empty() => return Ok(blocks),
            Err(error) => return Err(format!("alloc {} gave {error:?}", blocks.len())),
        }
    }
    Err(format!("{MANY} blocks fit into the address space"))
}

/// Has a kernel write the first number of each block.
fn launch_on(backend: &dyn ComputeBackend, blocks: &[u64]) -> Result<(), String> {
    let filled: BackendResult<()> =
        blocks.iter().try_for_each(|&block| backend.fill(block, DType::F32, 1, 1.0));
    filled.map_err(|error| format!("fill: {error:?}"))
}

fn free(backend: &dyn ComputeBackend, blocks: &[u64]) -> Result<(), String> {
    let freed: BackendResult<()> = blocks.iter().try_for_each(|&block| backend.free(block));
    freed.map_err(|error| format!("free: {error:?}"))
}

/// In the child: allocates until memory is out, twice, and goes on.
pub(crate) fn allocations(selector: &str) -> Result<(), String> {
    let backend = opened(selector)?;
    let blocks = all_blocks(&backend)?;
    println!("{} blocks until OutOfMemory", blocks.len());
    let stats = backend.memory_stats();
    if stats.peak != stats.in_use {
        return Err(format!("what was refused counts as in use: {stats:?}"));
    }
    launch_on(&backend, &blocks)?;
    let (kept, given_back) = blocks.split_at(blocks.len() / 2);
    free(&backend, given_back)?;
    program::check(&backend)?;
    let more = all_blocks(&backend)?;
    if more.len() < given_back.len() {
        return Err(format!("{} blocks were given back, only {} fit again", given_back.len(), more.len()));
    }
    launch_on(&backend, &more)?;
    free(&backend, &more)?;
    free(&backend, kept)?;
    program::check(&backend)
}

/// In the child: blocks one after another, each a little larger than the last, written by a kernel and freed.
/// Together they are several times the address space, so what has been freed must be given back before memory
/// is out.
pub(crate) fn used_blocks(selector: &str) -> Result<(), String> {
    let backend = opened(selector)?;
    for round in 0..MANY {
        let bytes = (256 + 4 * round) << 20;
        let used = || {
            let block = backend.alloc(bytes)?;
            let used = backend.fill(block, DType::F32, 1000, 1.0);
            backend.free(block)?;
            used.and_then(|()| backend.synchronize())
        };
        used().map_err(|error: BackendError| {
            format!("block {round} of {bytes} bytes, with {:?}: {error:?}", backend.memory_stats())
        })?;
    }
    program::check(&backend)
}

/// In the child: uploads large slices while memory is nearly out. Each works or is refused, and the device
/// lives.
pub(crate) fn uploads(selector: &str) -> Result<(), String> {
    let backend = opened(selector)?;
    // The host's own memory comes first: it must not be what runs out.
    let (data, mut got) = (vec![1u8; BLOCK / 2], vec![0; BLOCK / 2]);
    let blocks = all_blocks(&backend)?;
    let mut refused = 0;
    for (round, &block) in blocks.iter().cycle().take(2 * MANY).enumerate() {
        match backend.copy_htod(block, &data) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::OutOfMemory => refused += 1,
            Err(error) => return Err(format!("upload {round}: {error:?}")),
        }
    }
    println!("{} blocks, {refused} of {} uploads refused", blocks.len(), 2 * MANY);
    let (kept, given_back) = blocks.split_at(blocks.len() / 2);
    free(&backend, given_back)?;
    program::check(&backend)?;
    let &target = kept.first().ok_or("no block")?;
    backend.copy_htod(target, &data).map_err(|error| format!("an upload with memory again: {error:?}"))?;
    backend.copy_dtoh(&mut got, target).map_err(|error| format!("a read with memory again: {error:?}"))?;
    if got != data {
        return Err("the upload with memory again is not what was read".to_owned());
    }
    free(&backend, kept)
}
