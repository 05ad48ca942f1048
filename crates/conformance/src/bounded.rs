//! Much work without a pause, and memory that doesn't grow.

use backend_api::{BackendResult, BinaryOp, ComputeBackend, DType, MemoryStats, UnaryOp};

/// The most that a scenario may grow after its warm-up, in bytes; one with a budget may fill that besides.
pub const GROWTH_LIMIT: usize = 16 << 20;

/// The most that staging buffers may hold, in bytes. How much of it a warm-up fills depends on how far the
/// device falls behind the host.
pub const STAGING_LIMIT: usize = 32 << 20;

/// How often a scenario is repeated until one repetition stays within the limit. A leak grows in each of
/// them; a driver that takes memory in blocks of 128 MiB takes the next one once, in whichever repetition the
/// device falls furthest behind.
const REPETITIONS: usize = 3;

/// Something done over and over.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// What is done.
    pub name: &'static str,
    /// How often.
    pub rounds: usize,
    /// Bytes of the budget meanwhile.
    budget: Option<usize>,
    /// The most that it may grow, beside what a budget allows to be kept.
    limit: usize,
    step: fn(&mut State<'_>, usize) -> BackendResult<()>,
}

/// The scenarios, each with the number of rounds that it must stand.
pub const SCENARIOS: [Scenario; 7] = [
    Scenario {
        name: "small operations without a read",
        rounds: 100_000,
        budget: None,
        limit: GROWTH_LIMIT,
        step: small_operation,
    },
    Scenario {
        name: "allocations given back at once",
        rounds: 100_000,
        budget: None,
        limit: GROWTH_LIMIT,
        step: alloc_and_free,
    },
    Scenario {
        name: "allocations used and given back",
        rounds: 20_000,
        budget: None,
        limit: GROWTH_LIMIT,
        step: use_and_free,
    },
    Scenario {
        name: "larger and larger ones within a budget",
        rounds: 200,
        budget: Some(64 << 20),
        limit: GROWTH_LIMIT,
        step: use_larger,
    },
    Scenario {
        name: "uploads of 4 KiB without a wait",
        rounds: 10_000,
        budget: None,
        limit: GROWTH_LIMIT,
        step: upload,
    },
    Scenario {
        name: "operations on views that all live",
        rounds: 2_000,
        budget: None,
        limit: GROWTH_LIMIT,
        step: live_view,
    },
    // Less than what 32 words for each of the threads would be.
    Scenario {
        name: "threads that come and go",
        rounds: 40_000,
        budget: None,
        limit: 4 << 20,
        step: use_thread,
    },
];

/// Elements of the buffers, in f32.
const ELEMENTS: usize = 4096;

/// What a scenario works on.
struct State<'a> {
    backend: &'a dyn ComputeBackend,
    x: u64,
    y: u64,
    views: Vec<u64>,
}

/// Memory before and after.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// Resident bytes of the process, where they can be told.
    pub resident: Option<(usize, usize)>,
    /// The backend's own account.
    pub stats: (MemoryStats, MemoryStats),
}

impl Scenario {
    /// Runs the scenario after a warm-up of a tenth of its rounds. `resident` tells the process's resident
    /// bytes.
    ///
    /// # Errors
    /// A failed call, or what grew.
    pub fn run(
        &self,
        backend: &dyn ComputeBackend,
        resident: &dyn Fn() -> Option<usize>,
    ) -> Result<Growth, String> {
        let failed = |error| format!("{error:?}");
        let mut state = State::new(backend).map_err(failed)?;
        backend.set_memory_budget(self.budget).map_err(failed)?;
        state.rounds(self.rounds / 10, self.step).map_err(failed)?;
        let mut outcome = Err(String::new());
        for _ in 0..REPETITIONS {
            let before = (resident(), backend.memory_stats());
            state.rounds(self.rounds, self.step).map_err(failed)?;
            let after = (resident(), backend.memory_stats());
            let growth = Growth { resident: before.0.zip(after.0), stats: (before.1, after.1) };
            self.check_account(&growth)?;
            outcome = self.check_resident(&growth).map(|()| growth);
            if outcome.is_ok() {
                break;
            }
        }
        backend.set_memory_budget(None).map_err(failed)?;
        state.free().map_err(failed)?;
        outcome
    }

    /// Checks the backend's own account, which has to be right in each repetition.
    fn check_account(&self, growth: &Growth) -> Result<(), String> {
        let (before, after) = growth.stats;
        for (what, before, after) in
            [("handles", before.handles, after.handles), ("bytes in use", before.in_use, after.in_use)]
        {
            if before != after {
                return Err(format!("{before} {what} before, {after} after"));
            }
        }
        if after.staging > before.staging && after.staging > STAGING_LIMIT {
            return Err(format!("staging bytes grew from {} to {}", before.staging, after.staging));
        }
        if after.pooled > before.pooled + self.growth_limit() {
            return Err(format!("pooled bytes grew from {} to {}", before.pooled, after.pooled));
        }
        Ok(())
    }

    /// Checks the process's memory, in which staging buffers may have become more.
    fn check_resident(&self, growth: &Growth) -> Result<(), String> {
        let (stats_before, stats_after) = growth.stats;
        let staged = stats_after.staging.saturating_sub(stats_before.staging);
        match growth.resident {
            Some((before, after)) if after > before + self.growth_limit() + staged => {
                Err(format!("resident bytes grew from {before} to {after}"))
            }
            _ => Ok(()),
        }
    }

    /// How many bytes memory may grow by: what is kept for reuse may be anything up to the budget.
    fn growth_limit(&self) -> usize {
        self.limit + self.budget.unwrap_or(0)
    }
}

impl<'a> State<'a> {
    fn new(backend: &'a dyn ComputeBackend) -> BackendResult<Self> {
        let zeros = [0; 4 * ELEMENTS];
        let [x, y] = [backend.alloc(zeros.len())?, backend.alloc(zeros.len())?];
        for ptr in [x, y] {
            backend.copy_htod(ptr, &zeros)?;
        }
        Ok(Self { backend, x, y, views: Vec::new() })
    }

    fn free(self) -> BackendResult<()> {
        self.backend.free(self.x)?;
        self.backend.free(self.y)
    }

    fn rounds(
        &mut self,
        rounds: usize,
        step: fn(&mut Self, usize) -> BackendResult<()>,
    ) -> BackendResult<()> {
        for round in 0..rounds {
            step(self, round)?;
        }
        for view in self.views.drain(..) {
            self.backend.free(view)?;
        }
        self.backend.synchronize()
    }
}

fn small_operation(state: &mut State<'_>, round: usize) -> BackendResult<()> {
    let n = 1 + round % 64;
    match round % 3 {
        0 => state.backend.unary(UnaryOp::Relu, state.x, state.x, n),
        1 => state.backend.unary(UnaryOp::Neg, state.x, state.y, n),
        _ => state.backend.binary(BinaryOp::Add, state.x, state.y, state.y, n),
    }
}

fn alloc_and_free(state: &mut State<'_>, round: usize) -> BackendResult<()> {
    let bytes = (round * 37) % 65_536;
    let ptr = state.backend.alloc(bytes)?;
    state.backend.free(ptr)
}

fn use_and_free(state: &mut State<'_>, round: usize) -> BackendResult<()> {
    let numbers = 1 + (round * 37) % 16_384;
    use_once(state.backend, numbers)
}

/// Each of another size than all before, so that no freed one can be used again.
fn use_larger(state: &mut State<'_>, round: usize) -> BackendResult<()> {
    use_once(state.backend, (1 << 20) + (round << 14))
}

/// A kernel writes an allocation, which is given back before the kernel has run.
fn use_once(backend: &dyn ComputeBackend, numbers: usize) -> BackendResult<()> {
    let ptr = backend.alloc(4 * numbers)?;
    let used = backend.fill(ptr, DType::F32, numbers, 1.0);
    backend.free(ptr)?;
    used
}

fn upload(state: &mut State<'_>, round: usize) -> BackendResult<()> {
    state.backend.copy_htod(state.x, &[(round % 100) as u8; 4096])
}

fn live_view(state: &mut State<'_>, round: usize) -> BackendResult<()> {
    let view = state.backend.view(state.x, 4 * (round % ELEMENTS), 4)?;
    state.views.push(view);
    state.backend.unary(UnaryOp::Abs, view, view, 1)
}

/// A thread of its own makes a graph: drivers make something at once then, and may keep who asked.
fn use_thread(state: &mut State<'_>, round: usize) -> BackendResult<()> {
    let (backend, x, n) = (state.backend, state.x, 1 + round % 64);
    let work = || {
        let graph = backend.capture(&mut |recorded| recorded.fill(x, DType::F32, n, 1.0))?;
        backend.free_graph(graph)
    };
    #[cfg(target_family = "wasm")]
    return work();
    #[cfg(not(target_family = "wasm"))]
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
