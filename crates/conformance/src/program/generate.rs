//! Random programs, each from a seed.

use std::collections::HashMap;

use backend_api::{ComputeBackend, DType};

use super::invoke::{Returned, invoke};
use super::{Call, Model, Program, Slot};
use crate::rng::Rng;

mod operations;
mod quantised;

/// What kind of programs to generate.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Threads, each with calls of its own.
    pub threads: usize,
    /// The fewest and the most calls of a thread.
    pub calls: (usize, usize),
    /// Whether the device is lost, buffers are destroyed, and time and memory run out.
    pub faults: bool,
    /// Whether the memory budget is lowered now and then.
    pub budget: bool,
}

impl Profile {
    /// One thread.
    #[must_use]
    pub const fn plain() -> Self {
        Self { threads: 1, calls: (5, 60), faults: false, budget: true }
    }

    /// Three threads.
    #[must_use]
    pub const fn threads() -> Self {
        Self { threads: 3, calls: (5, 40), ..Self::plain() }
    }

    /// One thread, and faults between its calls.
    #[must_use]
    pub const fn faults() -> Self {
        Self { calls: (5, 40), faults: true, ..Self::plain() }
    }

    /// Four threads that are never refused anything.
    #[must_use]
    pub const fn soak() -> Self {
        Self { threads: 4, calls: (40, 60), budget: false, ..Self::plain() }
    }
}

/// A program that depends on nothing but `seed` and the profile. Most of its calls are legal.
#[must_use]
pub fn generate(seed: &str, profile: &Profile) -> Program {
    let calls = |thread: usize| Author::new(&format!("{seed}, thread {thread}"), *profile).write();
    Program { threads: (0..profile.threads).map(calls).collect() }
}

/// Variables of each thread.
const SLOTS: usize = 8;

/// Attempts at a legal call before an illegal one is kept.
const TRIES: usize = 12;

/// Writes the calls of one thread, and makes them on a model to know what is legal.
struct Author {
    rng: Rng,
    profile: Profile,
    model: Model,
    ptrs: HashMap<Slot, u64>,
    /// What was written last.
    dtypes: HashMap<Slot, DType>,
    reads: usize,
    lost: bool,
    calls: Vec<Call>,
}

impl Author {
    fn new(seed: &str, profile: Profile) -> Self {
        let mut author = Self {
            rng: Rng::from_name(seed),
            profile,
            model: Model::default(),
            ptrs: HashMap::new(),
            dtypes: HashMap::new(),
            reads: 0,
            lost: false,
            calls: Vec::new(),
        };
        for (slot, ptr, dtype) in super::run::shared_inputs(&author.model).unwrap_or_default() {
            author.ptrs.insert(slot, ptr);
            author.dtypes.insert(slot, dtype);
        }
        author
    }

    fn write(mut self) -> Vec<Call> {
        let (fewest, most) = self.profile.calls;
        let length = fewest + self.rng.below(most - fewest + 1);
        while self.calls.len() < length {
            if self.profile.faults && self.rng.one_in(10) {
                let fault = self.fault();
                self.push(fault);
                continue;
            }
            for last in (0..TRIES).rev() {
                let call = self.candidate();
                let ptrs = &self.ptrs;
                let returned = invoke(&call, &self.model, &|slot| ptrs.get(&slot).copied().unwrap_or(0));
                if returned.is_err() && last > 0 && !self.rng.one_in(40) {
                    continue;
                }
                if let (Ok(Returned::Handle(ptr)), Some(slot)) = (&returned, call.target()) {
                    self.ptrs.insert(slot, *ptr);
                }
                let filled = match call {
                    Call::Alloc { to, bytes } if returned.is_ok() && !self.rng.one_in(6) => Some((to, bytes)),
                    _ => None,
                };
                self.push(call);
                if let Some((dst, bytes)) = filled {
                    let upload = self.upload(dst, bytes);
                    self.push_and_make(upload);
                }
                break;
            }
        }
        self.calls
    }

    fn push_and_make(&mut self, call: Call) {
        let ptrs = &self.ptrs;
        _ = invoke(&call, &self.model, &|slot| ptrs.get(&slot).copied().unwrap_or(0));
        self.push(call);
    }

    fn push(&mut self, call: Call) {
        match call {
            Call::BeginRead { .. } => self.reads += 1,
            Call::FinishRead { .. } | Call::DropRead { .. } => self.reads = self.reads.saturating_sub(1),
            _ => {}
        }
        self.calls.push(call);
    }

    fn len(&self, slot: Slot) -> Option<usize> {
        self.ptrs.get(&slot).and_then(|&ptr| self.model.len(ptr))
    }

    /// A variable of this thread, with a live handle most of the time.
    fn own(&mut self) -> Slot {
        let live: Vec<Slot> = (0..SLOTS).map(Slot).filter(|&slot| self.len(slot).is_some()).collect();
        if live.is_empty() || self.rng.one_in(40) {
            Slot(self.rng.below(SLOTS))
        } else {
            self.rng.pick(&live)
        }
    }

    /// A variable to read from.
    fn input(&mut self) -> Slot {
        if self.rng.one_in(8) {
            return Slot(Slot::SHARED + self.rng.below(Slot::SHARED_COUNT));
        }
        self.own()
    }

    fn vacant(&mut self) -> Slot {
        let vacant: Vec<Slot> = (0..SLOTS).map(Slot).filter(|&slot| self.len(slot).is_none()).collect();
        if vacant.is_empty() { Slot(self.rng.below(SLOTS)) } else { self.rng.pick(&vacant) }
    }

    fn dtype(&mut self, of: Slot) -> DType {
        let known = self.dtypes.get(&of).copied().filter(|_| !self.rng.one_in(10));
        known.unwrap_or_else(|| self.rng.pick(&[DType::F32, DType::F32, DType::F16, DType::I32, DType::U32]))
    }

    /// Elements that all of the operands have, or fewer; now and then one more.
    fn fitting(&mut self, operands: &[(Slot, DType)]) -> usize {
        let most = operands.iter().map(|&(slot, dtype)| self.len(slot).unwrap_or(64) / dtype.size()).min();
        let most = most.unwrap_or(0).min(20_000);
        match self.rng.below(20) {
            0 => most + 1,
            1..=7 => most,
            _ => self.rng.below(most + 1),
        }
    }

    fn upload(&mut self, dst: Slot, most: usize) -> Call {
        let bytes = if self.rng.one_in(3) { self.rng.below(most + 1) } else { most };
        let dtype = self.rng.pick(&[DType::F32, DType::F32, DType::F16, DType::I32, DType::U32]);
        self.dtypes.insert(dst, dtype);
        Call::Upload { dst, dtype, bytes, seed: self.rng.next_u64() % 1000 }
    }

    fn size(&mut self) -> usize {
        match self.rng.below(20) {
            0 => 0,
            1 => self.rng.below(5),
            2 => 40_000 + self.rng.below(40_000),
            3 if self.rng.one_in(4) => self.rng.pick(&[usize::MAX, usize::MAX / 2, 1 << 50]),
            4..=9 => 4 * self.rng.below(1200),
            _ => self.rng.below(700),
        }
    }

    fn fault(&mut self) -> Call {
        match self.rng.below(12) {
            0 if !self.lost => {
                self.lost = true;
                Call::DestroyDevice
            }
            0..=2 => {
                if std::mem::take(&mut self.lost) {
                    self.model.reset();
                    self.reads = 0;
                }
                Call::Init
            }
            3 | 4 => Call::Timeout { millis: self.rng.pick(&[None, None, Some(0)]) },
            5 | 6 => {
                let (to, bytes) = (self.vacant(), 16 * (1 + self.rng.below(75)));
                if self.len(to).is_none()
                    && let Ok(ptr) = self.model.import(bytes)
                {
                    self.ptrs.insert(to, ptr);
                }
                Call::Import { to, bytes }
            }
            7 | 8 => {
                let slot = self.own();
                if let Some(&ptr) = self.ptrs.get(&slot) {
                    self.model.kill(ptr);
                }
                Call::DestroyBuffer { slot }
            }
            9 => self.budget(),
            _ => Call::Flush,
        }
    }

    fn budget(&mut self) -> Call {
        let bytes = 1usize << (6 + self.rng.below(12));
        Call::Budget { bytes: if self.rng.one_in(2) { None } else { Some(bytes) } }
    }

    fn candidate(&mut self) -> Call {
        match self.rng.below(43) {
            40..=42 => self.graph(),
            0..=2 => Call::Alloc { to: self.vacant(), bytes: self.size() },
            3 | 4 => self.view(),
            5 => Call::Free { slot: self.own() },
            6 => {
                let dst = self.own();
                let most = self.len(dst).unwrap_or(8);
                self.upload(dst, most)
            }
            7 | 8 => {
                let src = self.input();
                Call::Read {
                    src,
                    bytes: self
                        .fitting(&[(src, DType::U32)])
                        .saturating_mul(4)
                        .saturating_sub(self.rng.below(4)),
                }
            }
            9 => self.asynchronous(),
            10 => self.seldom(),
            11 | 12 => self.copy_bytes(),
            13 | 14 => self.fill(),
            _ => self.compute(),
        }
    }

    fn graph(&mut self) -> Call {
        let graph = Slot(Slot::GRAPHS + self.rng.below(Slot::GRAPH_COUNT));
        let is_live = self.ptrs.get(&graph).is_some_and(|&ptr| self.model.is_graph(ptr));
        match self.rng.below(8) {
            _ if !is_live => Call::Capture { to: graph, calls: self.operations() },
            0 => Call::FreeGraph { graph },
            _ => Call::Replay { graph },
        }
    }

    /// Operations to capture, most of them legal.
    fn operations(&mut self) -> Vec<Call> {
        let mut calls = Vec::new();
        for _ in 0..=self.rng.below(6) {
            for last in (0..TRIES).rev() {
                let call = match self.rng.below(10) {
                    0 => self.fill(),
                    1 => self.copy_bytes(),
                    2 if self.rng.one_in(20) => Call::Synchronize,
                    _ => self.compute(),
                };
                let alone = Call::Capture { to: Slot(Slot::GRAPHS), calls: vec![call.clone()] };
                let ptrs = &self.ptrs;
                let captured = invoke(&alone, &self.model, &|slot| ptrs.get(&slot).copied().unwrap_or(0));
                if let Ok(Returned::Handle(graph)) = captured {
                    _ = self.model.free_graph(graph);
                } else if last > 0 && !self.rng.one_in(60) {
                    continue;
                }
                calls.push(call);
                break;
            }
        }
        calls
    }

    fn view(&mut self) -> Call {
        let (of, to) = (self.own(), self.vacant());
        let len = self.len(of).unwrap_or(0);
        let step = self.rng.pick(&[1, 2, 4, 4, 4, 4, 16]);
        let offset = self.rng.below(len + 1) / step * step;
        let bytes = self.rng.below(len - offset.min(len) + 1) + self.rng.below(20) / 19;
        if let Some(&dtype) = self.dtypes.get(&of) {
            self.dtypes.insert(to, dtype);
        }
        Call::View { to, of, offset, bytes }
    }

    fn asynchronous(&mut self) -> Call {
        let nth = self.rng.below(4);
        match self.rng.below(5) {
            1 if self.reads > 0 => Call::PollRead { nth },
            2 if self.reads > 0 => Call::FinishRead { nth },
            3 if self.reads > 0 => Call::DropRead { nth },
            _ => {
                let src = self.input();
                Call::BeginRead { src, bytes: self.rng.below(self.len(src).unwrap_or(8) + 1) }
            }
        }
    }

    fn seldom(&mut self) -> Call {
        match self.rng.below(6) {
            0 => Call::Synchronize,
            1 => Call::Flush,
            2 => Call::Trim,
            3 if self.profile.budget => self.budget(),
            4 => {
                let (a, b, dst) = (self.input(), self.input(), self.own());
                let n = self.fitting(&[(a, DType::F32), (b, DType::F32), (dst, DType::F32)]);
                Call::WarmUp { a, b, dst, n }
            }
            _ => Call::Synchronize,
        }
    }

    fn copy_bytes(&mut self) -> Call {
        let (src, dst) = (self.input(), self.own());
        let (from, to) = (self.len(src).unwrap_or(0), self.len(dst).unwrap_or(0));
        let bytes = self.rng.below(from.min(to) + 1);
        if let Some(&dtype) = self.dtypes.get(&src) {
            self.dtypes.insert(dst, dtype);
        }
        Call::CopyBytes { dst, src, bytes }
    }

    fn fill(&mut self) -> Call {
        let dst = self.own();
        let dtype = self.dtype(dst);
        let n = self.fitting(&[(dst, dtype)]);
        self.dtypes.insert(dst, dtype);
        Call::Fill { dst, dtype, n, value: self.rng.below(9) as i64 - 3 }
    }
}
