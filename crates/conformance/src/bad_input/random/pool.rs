//! The few small buffers of the random calls, good and bad handles to them.

use backend_api::support::{Operand, Region, check};
use backend_api::{BackendResult, ComputeBackend};

use super::RandomReport;
use crate::rng::Rng;

/// Handles with what is known of the memory behind them.
pub(super) struct Pool<'a> {
    backend: &'a dyn ComputeBackend,
    handles: Vec<(u64, Option<Region>)>,
}

/// Bytes of each allocation.
const ALLOCATIONS: [usize; 6] = [1024, 1024, 1024, 256, 4, 0];

/// Views as (allocation, offset, length); the last two are misaligned.
const VIEWS: [(usize, usize, usize); 6] =
    [(0, 4, 512), (0, 516, 508), (1, 0, 1024), (3, 0, 128), (0, 2, 64), (3, 1, 9)];

impl<'a> Pool<'a> {
    pub(super) fn new(backend: &'a dyn ComputeBackend) -> BackendResult<Self> {
        let mut pool = Self { backend, handles: Vec::new() };
        for (allocation, len) in ALLOCATIONS.into_iter().enumerate() {
            let ptr = backend.alloc(len)?;
            backend.copy_htod(ptr, &vec![0; len])?;
            pool.add(ptr, allocation, 0, len);
        }
        for (allocation, offset, len) in VIEWS {
            let view = backend.view(pool.handles[allocation].0, offset, len)?;
            pool.add(view, allocation, offset, len);
        }
        let freed = backend.alloc(64)?;
        backend.free(freed)?;
        pool.handles.extend([0, freed, 0x7fff_fff1_00ff_fff0].map(|ptr| (ptr, None)));
        Ok(pool)
    }

    /// All bytes of all allocations; `None`, and a failure, if they can't be read.
    pub(super) fn bytes(&self, report: &mut RandomReport) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        for (&(ptr, _), len) in self.handles.iter().zip(ALLOCATIONS) {
            let mut bytes = vec![0; len];
            if let Err(error) = self.backend.copy_dtoh(&mut bytes, ptr) {
                report.failures.push(format!("reading what the calls left: {error:?}"));
                return None;
            }
            all.append(&mut bytes);
        }
        Some(all)
    }

    fn add(&mut self, ptr: u64, allocation: usize, offset: usize, len: usize) {
        let allocation = allocation as u64;
        self.handles.push((ptr, Some(Region { allocation, offset, len })));
    }

    /// A handle: one of the large allocations most of the time, so that calls have a chance.
    pub(super) fn pick(&self, rng: &mut Rng) -> u64 {
        let among = if rng.one_in(6) { self.handles.len() } else { 3 };
        self.handles[rng.below(among)].0
    }

    pub(super) fn region(&self, ptr: u64) -> Option<Region> {
        self.handles.iter().find(|(known, _)| *known == ptr).and_then(|(_, region)| *region)
    }

    /// The contract's verdict on operands over these buffers.
    pub(super) fn check<const N: usize>(
        &self,
        op: &'static str,
        operands: BackendResult<[Operand; N]>,
    ) -> BackendResult<()> {
        check(op, &operands?, |ptr| self.region(ptr))
    }
}

impl Drop for Pool<'_> {
    fn drop(&mut self) {
        for &(ptr, region) in &self.handles {
            if region.is_some() {
                _ = self.backend.free(ptr);
            }
        }
    }
}
