//! Buffers kept for reuse, by size.

use std::sync::Arc;

use backend_api::{BackendError, BackendResult, MemoryStats};

use super::account::{Account, Use};
use super::block::{Block, Storage};
use crate::device::{GuardedDevice, LastHandle, Progress, guarded};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// Bytes of the vectors that kernels read.
pub(crate) const VECTOR_BYTES: usize = 16;

/// The size of the smallest buffer, and what sizes of buffers on the device are multiples of, but for the largest that a
/// device allows: wgpu places buffers one behind the other, at multiples of what the driver asks for, which on NVIDIA's is 16
/// bytes. Behind a buffer of 16 bytes, all others would begin within a cache line, and products of f16 take 3 to 16 % longer
/// on an H200.
pub(crate) const GRANULARITY: usize = 256;
/// From here on sizes are rounded to a multiple of this only: a quarter of waste would be too much.
const LARGE_BYTES: usize = 64 << 20;
const LARGE_STEP: usize = 4 << 20;

/// The most buffers of one allocation.
const MAX_PARTS: usize = 256;

/// Allocates buffers in size classes and keeps the freed ones.
///
/// A buffer can be handed out again at once, even while the device still works on its last use: everything is
/// recorded into one queue, so the new use comes after the old one.
///
/// A buffer that is dropped stays in the device's memory until the batches that use it have finished and no
/// bind group names it. Its bytes count against the budget until then.
#[derive(Debug)]
pub(crate) struct Pool {
    device: GuardedDevice,
    max_bytes: usize,
    /// Bytes of the device's memory, where it tells.
    capacity: Option<u64>,
    progress: Arc<Progress>,
    state: Mutex<State>,
    /// Whether a buffer was dropped that a cached bind group may keep alive.
    has_dropped: Arc<AtomicBool>,
    /// Whether buffers have no memory, as of a device that only plans.
    #[cfg(test)]
    is_hollow: AtomicBool,
    /// Below all that has a handle of the device, as fields are dropped in their order.
    last: Arc<LastHandle>,
}

#[derive(Debug, Default)]
struct State {
    account: Account<Arc<Storage>>,
    /// Dropped buffers that a batch or a bind group may still keep: the last batch that uses them, and their
    /// bytes.
    releasing: Vec<(u64, usize)>,
    budget: Option<usize>,
    refusals: Refusals,
}

/// Allocations that are refused as if the device had no memory, for tests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refusals {
    /// How many allocations succeed before one is refused.
    after: usize,
    /// How many attempts are refused then.
    pub(crate) count: usize,
}

impl Refusals {
    #[cfg(any(test, feature = "test-hooks"))]
    pub(crate) const fn new(after: usize, count: usize) -> Self {
        Self { after, count }
    }

    /// Whether the next attempt is refused.
    pub(crate) fn next(&mut self) -> bool {
        match self.after.checked_sub(1) {
            _ if self.count == 0 => false,
            Some(after) => {
                self.after = after;
                false
            }
            None => {
                self.count -= 1;
                true
            }
        }
    }
}

impl State {
    fn releasing(&self) -> usize {
        self.releasing.iter().map(|&(_, bytes)| bytes).sum()
    }

    /// Whether the budget has no room for `bytes` more.
    fn is_over(&self, bytes: usize) -> bool {
        let held = || self.account.in_use + self.account.pooled + self.releasing();
        self.budget.is_some_and(|budget| held().saturating_add(bytes) > budget)
    }
}

/// What came of asking the pool for a buffer.
#[derive(Debug)]
pub(crate) enum Allocation {
    Done(Arc<Block>),
    /// There is no room before memory comes back that batches and bind groups keep.
    NeedsReclaim(BackendError),
}

impl Pool {
    pub(crate) fn new(
        device: &GuardedDevice,
        capacity: Option<u64>,
        progress: &Arc<Progress>,
        has_dropped: &Arc<AtomicBool>,
        last: &Arc<LastHandle>,
    ) -> Self {
        Self {
            device: device.clone(),
            max_bytes: largest(&device.limits()),
            capacity,
            progress: Arc::clone(progress),
            state: Mutex::default(),
            has_dropped: Arc::clone(has_dropped),
            #[cfg(test)]
            is_hollow: AtomicBool::new(false),
            last: Arc::clone(last),
        }
    }

    /// The bytes of each buffer but the last one of an allocation of `bytes`; `None` where it takes but one.
    ///
    /// # Errors
    /// [`Limit`](BackendError::Limit), and [`OutOfMemory`](BackendError::OutOfMemory) where the device hasn't so much
    /// memory, or what is in use leaves no room in the budget for several.
    pub(crate) fn division(&self, op: &'static str, bytes: usize) -> BackendResult<Option<usize>> {
        if bytes <= self.max_bytes {
            return Ok(None);
        }
        if bytes > self.max_alloc_bytes() {
            let (what, max) = ("bytes of one allocation", self.max_alloc_bytes());
            return Err(BackendError::Limit { op, what, requested: bytes, max });
        }
        let state = self.state.lock();
        let in_use = state.account.in_use;
        // A driver may begin to provide the first buffers before it finds that there is too little for all.
        let is_too_much = self.capacity.is_some_and(|capacity| bytes as u64 > capacity);
        if is_too_much || state.budget.is_some_and(|budget| in_use.saturating_add(bytes) > budget) {
            return Err(BackendError::OutOfMemory { requested: bytes, in_use });
        }
        Ok(Some(part_bytes(self.max_bytes)))
    }

    /// A buffer of at least `of.asked` bytes; its content is arbitrary. `is_last` unless the allocation takes more.
    ///
    /// # Errors
    /// [`Limit`](BackendError::Limit), and [`OutOfMemory`](BackendError::OutOfMemory) where what is in use
    /// leaves no room in the budget.
    pub(crate) fn alloc(
        self: &Arc<Self>,
        op: &'static str,
        of: Use,
        is_last: bool,
    ) -> BackendResult<Allocation> {
        let bytes = of.asked;
        let size = size_class(bytes, self.max_bytes).ok_or(BackendError::Limit {
            op,
            what: "bytes of one buffer",
            requested: bytes,
            max: self.max_bytes,
        })?;
        let mut state = self.state.lock();
        let out_of_memory = |in_use| BackendError::OutOfMemory { requested: size, in_use };
        if state.budget.is_some_and(|budget| state.account.in_use.saturating_add(size) > budget) {
            return Err(out_of_memory(state.account.in_use));
        }
        if state.refusals.next() {
            return Ok(Allocation::NeedsReclaim(out_of_memory(state.account.in_use)));
        }
        if let Some(storage) = state.account.reuse(size) {
            state.account.add(size, of);
            if is_last {
                state.account.settle_peak();
            }
            // A batch on its way may read what was there, and has to know then that it is spoiled.
            if storage.last_use() <= self.progress.finished() {
                storage.renew();
            }
            return Ok(self.done(storage, of));
        }
        self.release_superfluous(&mut state, size);
        if state.is_over(size) {
            self.trim_to(&mut state, size);
            if state.is_over(size) {
                return Ok(Allocation::NeedsReclaim(out_of_memory(state.account.in_use)));
            }
        }
        // Counted before it exists, so that threads can't pass the budget together.
        state.account.add(size, of);
        drop(state);
        let created = self.create(size);
        let mut state = self.state.lock();
        match created {
            Ok(buffer) => {
                if is_last {
                    state.account.settle_peak();
                }
                let storage = Storage::new(buffer, Some(Arc::clone(&self.last)));
                Ok(self.done(Arc::new(storage), of))
            }
            Err(error) => {
                tracing::debug!(%error, size, "the device has no memory for a buffer");
                state.account.remove(size, of);
                Ok(Allocation::NeedsReclaim(out_of_memory(state.account.in_use)))
            }
        }
    }

    fn done(self: &Arc<Self>, storage: Arc<Storage>, of: Use) -> Allocation {
        Allocation::Done(Arc::new(Block::pooled(storage, Arc::downgrade(self), of)))
    }

    /// Takes a buffer back; one that may be used elsewhere is not kept.
    pub(crate) fn recycle(&self, storage: Arc<Storage>, of: Use, reusable: bool) {
        let size = storage.size();
        let mut state = self.state.lock();
        state.account.remove(size, of);
        if !reusable || state.is_over(size) {
            self.release(&mut state, &storage);
            return;
        }
        state.account.keep(size, storage);
        self.release_superfluous(&mut state, 0);
    }

    /// Drops the buffers kept for reuse; how many bytes.
    pub(crate) fn trim(&self) -> usize {
        let mut state = self.state.lock();
        let bytes = state.account.pooled;
        self.trim_all(&mut state);
        bytes
    }

    /// From now on, after `after` attempts, refuses `count` of them as a device without memory would.
    #[cfg(any(test, feature = "test-hooks"))]
    pub(crate) fn refuse(&self, after: usize, count: usize) {
        self.state.lock().refusals = Refusals::new(after, count);
    }

    /// From now on, buffers have no memory. Their device must be one that runs nothing.
    #[cfg(test)]
    pub(crate) fn make_hollow(&self) {
        self.is_hollow.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_budget(&self, budget: Option<usize>) {
        let mut state = self.state.lock();
        state.budget = budget;
        if budget.is_some() {
            self.trim_all(&mut state);
        }
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        let mut state = self.state.lock();
        self.settle(&mut state);
        let mut stats = MemoryStats::default();
        let account = &state.account;
        stats.in_use = account.in_use;
        stats.peak = account.peak;
        stats.asked = account.asked;
        stats.scratch = account.scratch;
        stats.pooled = account.pooled;
        stats.largest_free = account.largest_size().unwrap_or(0);
        stats.releasing = state.releasing();
        stats.budget = state.budget;
        stats
    }

    /// The most bytes that can be asked for.
    pub(crate) fn max_alloc_bytes(&self) -> usize {
        part_bytes(self.max_bytes).saturating_mul(MAX_PARTS).max(self.max_bytes)
    }

    /// The size of the largest buffer.
    pub(crate) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Makes room for `size` bytes of the budget, from the largest kept buffers on.
    fn trim_to(&self, state: &mut State, size: usize) {
        self.settle(state);
        while state.is_over(size)
            && let Some(storage) = state.account.largest()
        {
            self.release(state, &storage);
        }
    }

    /// Drops kept buffers that aren't worth their memory once `size` bytes more are in use.
    fn release_superfluous(&self, state: &mut State, size: usize) {
        while let Some(storage) = state.account.superfluous(size) {
            self.release(state, &storage);
        }
    }

    fn trim_all(&self, state: &mut State) {
        for storage in state.account.take_all() {
            self.release(state, &storage);
        }
    }

    /// Notes that a buffer is dropped by the pool.
    fn release(&self, state: &mut State, storage: &Arc<Storage>) {
        // Nothing keeps a buffer that no batch has used.
        if storage.last_use() == 0 {
            return;
        }
        self.has_dropped.store(true, Ordering::Release);
        // In a browser nothing can wait for a batch, so nothing is gained by counting.
        if !cfg!(target_family = "wasm") {
            state.releasing.push((storage.last_use(), storage.size()));
        }
    }

    /// Forgets dropped buffers whose last batch has finished, once no bind group names them.
    fn settle(&self, state: &mut State) {
        if self.has_dropped.load(Ordering::Acquire) {
            return;
        }
        let finished = self.progress.finished();
        state.releasing.retain(|&(batch, _)| batch > finished);
    }

    fn create(&self, size: usize) -> Result<wgpu::Buffer, wgpu::Error> {
        let descriptor = wgpu::BufferDescriptor {
            label: Some("tensor"),
            size: size as u64,
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        };
        #[cfg(test)]
        if self.is_hollow.load(Ordering::Relaxed) {
            return Ok(crate::unchecked::hollow_buffer(&self.device, &descriptor));
        }
        guarded(&self.device, || self.device.create_buffer(&descriptor))
    }
}

/// A buffer on the device that isn't the pool's, of at least so many bytes: a multiple of [`GRANULARITY`]. Errors of wgpu end
/// up in the caller's error scope.
pub(crate) fn buffer_outside(
    device: &wgpu::Device,
    label: &'static str,
    bytes: usize,
    usage: wgpu::BufferUsages,
) -> wgpu::Buffer {
    let size = bytes.next_multiple_of(GRANULARITY) as u64;
    device.create_buffer(&wgpu::BufferDescriptor {
        label: Some(label),
        size,
        usage,
        mapped_at_creation: false,
    })
}

/// The largest buffer of whole vectors that the device allows: a kernel that reads vectors reads the last one whole.
fn largest(limits: &wgpu::Limits) -> usize {
    usize::try_from(limits.max_buffer_size).unwrap_or(usize::MAX) / VECTOR_BYTES * VECTOR_BYTES
}

/// The size of each buffer but the last one of an allocation in several, where buffers of `max` bytes are possible: a
/// multiple of a large power of two, at which rows of usual lengths end too.
fn part_bytes(max: usize) -> usize {
    let step = (1 << max.max(GRANULARITY).ilog2()) / 8;
    let step = step.max(GRANULARITY);
    (max / step * step).max(step)
}

/// The size of the buffer for `bytes`: four steps to each doubling, so at most a quarter is unused where that is more than
/// [`GRANULARITY`]. `None` past `max`.
pub(super) fn size_class(bytes: usize, max: usize) -> Option<usize> {
    if bytes > max {
        return None;
    }
    if bytes <= GRANULARITY {
        return Some(GRANULARITY);
    }
    let step = if bytes >= LARGE_BYTES { LARGE_STEP } else { (1 << bytes.ilog2()) / 4 }.max(GRANULARITY);
    // The device's largest buffer may lie between two classes.
    Some(bytes.checked_next_multiple_of(step).unwrap_or(max).min(max))
}

#[cfg(test)]
mod tests;
