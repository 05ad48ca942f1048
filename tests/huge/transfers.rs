//! Uploads and reads of large operands.

use std::time::{Duration, Instant};

use backend_api::{BackendResult, ComputeBackend};
use rayon::prelude::*;

use super::device::text;
use super::family::Size;

/// Word `i` of what is uploaded.
fn word(i: usize) -> u32 {
    ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 31) as u32
}

/// What the whole takes and what its parts do, of an upload and of a read.
pub(crate) fn transfers(backend: &dyn ComputeBackend, size: &Size) -> Result<[[Duration; 2]; 2], String> {
    let mut host: Vec<u32> = (0..size.numbers()).into_par_iter().map(word).collect();
    let ptr = backend.alloc(4 * host.len()).map_err(text)?;
    let result = timed(backend, size, ptr, &mut host).map_err(text);
    backend.free(ptr).and_then(|()| backend.trim()).map_err(text)?;
    let times = result?;
    match host.par_iter().enumerate().position_first(|(i, &got)| got != word(i)) {
        Some(at) => Err(format!("word {at} was read as {:#x}, uploaded as {:#x}", host[at], word(at))),
        None => Ok(times),
    }
}

fn timed(
    backend: &dyn ComputeBackend,
    size: &Size,
    ptr: u64,
    host: &mut [u32],
) -> BackendResult<[[Duration; 2]; 2]> {
    let within = |index: usize, bytes: usize, then: &mut dyn FnMut(u64) -> BackendResult<()>| {
        let view = backend.view(ptr, index * size.part, bytes)?;
        then(view)?;
        backend.free(view)
    };
    let mut times = [[Duration::MAX; 2]; 2];
    let mut clock = |which: [usize; 2], work: &mut dyn FnMut() -> BackendResult<()>| {
        backend.synchronize()?;
        let start = Instant::now();
        work()?;
        backend.synchronize()?;
        let best = &mut times[which[0]][which[1]];
        *best = start.elapsed().min(*best);
        BackendResult::Ok(())
    };
    let words = size.part / 4;
    for _ in 0..2 {
        clock([0, 1], &mut || {
            host.chunks(words).enumerate().try_for_each(|(i, part)| {
                within(i, 4 * part.len(), &mut |view| backend.copy_htod(view, bytemuck::cast_slice(part)))
            })
        })?;
        clock([0, 0], &mut || backend.copy_htod(ptr, bytemuck::cast_slice(host)))?;
        host.par_iter_mut().for_each(|word| *word = 0);
        clock([1, 1], &mut || {
            host.chunks_mut(words).enumerate().try_for_each(|(i, part)| {
                within(i, 4 * part.len(), &mut |view| backend.copy_dtoh(bytemuck::cast_slice_mut(part), view))
            })
        })?;
        host.par_iter_mut().for_each(|word| *word = 0);
        clock([1, 0], &mut || backend.copy_dtoh(bytemuck::cast_slice_mut(host), ptr))?;
    }
    Ok(times)
}
