//! Backends of which one call fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, ensure};
use backend_api::{BackendError, BackendFuture, BackendResult, Command, ComputeBackend, forward};
use candle_core::quantized::GgmlDType;
use llama::gguf::Gguf;
use llama::{Error, Input, Model, Sampler, Sampling, Session, SessionOptions};

use crate::random::RandomModel;
use crate::recipes::recipe;

/// What the failing call reports to have in use.
const MARK: usize = 0xfa11;

/// Hands calls on, but for one that fails.
#[derive(Debug)]
struct Failing<B> {
    inner: B,
    /// Calls up to the one that fails, which none does at 0.
    left: Arc<AtomicUsize>,
}

impl<B> Failing<B> {
    fn count(&self) -> BackendResult<()> {
        let count = |left: usize| Some(left.saturating_sub(1));
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) {
            Ok(1) => Err(BackendError::OutOfMemory { requested: 0, in_use: MARK }),
            _ => Ok(()),
        }
    }
}

impl<B: ComputeBackend> ComputeBackend for Failing<B> {
    fn execute(&self, op: &'static str, command: Command<'_>) -> BackendResult<()> {
        self.count()?;
        self.inner.execute(op, command)
    }

    fn alloc(&self, bytes: usize) -> BackendResult<u64> {
        self.count()?;
        self.inner.alloc(bytes)
    }

    fn alloc_zeroed(&self, bytes: usize) -> BackendResult<u64> {
        self.count()?;
        self.inner.alloc_zeroed(bytes)
    }

    fn view(&self, ptr: u64, byte_offset: usize, byte_len: usize) -> BackendResult<u64> {
        self.count()?;
        self.inner.view(ptr, byte_offset, byte_len)
    }

    fn copy_htod(&self, dst: u64, src: &[u8]) -> BackendResult<()> {
        self.count()?;
        self.inner.copy_htod(dst, src)
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: u64) -> BackendResult<()> {
        self.count()?;
        self.inner.copy_dtoh(dst, src)
    }

    fn copy_dtoh_async<'a>(&'a self, dst: &'a mut [u8], src: u64) -> BackendFuture<'a, ()> {
        match self.count() {
            Ok(()) => self.inner.copy_dtoh_async(dst, src),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn capture(
        &self,
        record: &mut dyn FnMut(&dyn ComputeBackend) -> BackendResult<()>,
    ) -> BackendResult<u64> {
        self.count()?;
        self.inner.capture(&mut |inner| record(&Failing { inner, left: Arc::clone(&self.left) }))
    }

    fn replay(&self, graph: u64) -> BackendResult<()> {
        self.count()?;
        self.inner.replay(graph)
    }

    forward!(this => this.inner; name, init, is_initialized, synchronize, synchronize_async, warm_up_async);
    forward!(this => this.inner; free, free_graph, capabilities, device_info, memory_stats, trim);
    forward!(this => this.inner; set_memory_budget, as_any);
}

/// A model and calls that fail.
struct Subject {
    backend: Arc<dyn ComputeBackend>,
    left: Arc<AtomicUsize>,
}

impl Subject {
    fn new(inner: &Arc<dyn ComputeBackend>) -> Self {
        let left = Arc::new(AtomicUsize::new(0));
        let backend = Arc::new(Failing { inner: Arc::clone(inner), left: Arc::clone(&left) });
        Self { backend, left }
    }

    /// Runs something with its first call failing, then its second, until it comes to its end, and checks each time what it leaves.
    fn fail_each_call<S, T>(
        &self,
        state: &mut S,
        run: impl Fn(&mut S) -> llama::Result<T>,
        check: impl Fn(&S) -> anyhow::Result<()>,
    ) -> anyhow::Result<T> {
        for call in 1.. {
            self.left.store(call, Ordering::Relaxed);
            let made = run(state);
            let is_over = self.left.swap(0, Ordering::Relaxed) > 0;
            match made {
                Ok(made) if is_over => {
                    ensure!(call > 3, "only {} calls can fail", call - 1);
                    return Ok(made);
                }
                Ok(_) => anyhow::bail!("call {call} failed, and nothing was said of it"),
                Err(Error::Backend(BackendError::OutOfMemory { in_use: MARK, .. })) => {}
                Err(error) => return Err(error).with_context(|| format!("call {call}")),
            }
            check(state).with_context(|| format!("after call {call} failed"))?;
        }
        unreachable!("numbers end");
    }
}

/// Loading and the first steps tell of each call that fails, and leave no memory behind.
pub(crate) fn nothing_is_left_behind(inner: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    for (architecture, kind) in [("llama", GgmlDType::Q4_0), ("qwen3moe", GgmlDType::F16)] {
        let file = RandomModel::new(recipe(architecture, 64), kind, None)?.file;
        let parsed = Gguf::parse(&file)?;
        let subject = Subject::new(inner);
        let before = inner.memory_stats();
        let run = |(): &mut ()| {
            let model = Arc::new(Model::load(&subject.backend, &parsed, |_, _| ())?);
            let mut session = Session::new(&model, SessionOptions::new(16))?;
            session.step(&[Input { sequence: 0, tokens: &[1, 2, 3] }])?;
            session.decode_sampled(0, &[&[4]], &mut Sampler::new(Sampling::default()), 3)?;
            session.log_probabilities(0, &[1, 2])
        };
        let check = |(): &()| {
            let after = inner.memory_stats();
            let are_equal = (after.handles, after.in_use) == (before.handles, before.in_use);
            ensure!(are_equal, "{architecture}: left behind: {after:?}");
            Ok(())
        };
        subject.fail_each_call(&mut (), run, check)?;
    }
    Ok(())
}

/// A session of which a call fails goes on as if that had not been asked for.
pub(crate) fn sessions_go_on(inner: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    let file = RandomModel::new(recipe("llama", 64), GgmlDType::Q8_0, None)?.file;
    let subject = Subject::new(inner);
    let model = Arc::new(Model::load(&subject.backend, &Gguf::parse(&file)?, |_, _| ())?);
    let begun = || -> llama::Result<Session> {
        let mut session = Session::new(&model, SessionOptions::new(24))?;
        session.step(&[Input { sequence: 0, tokens: &[1, 2, 3] }])?;
        Ok(session)
    };
    let decode =
        |session: &mut Session| session.decode_sampled(0, &[&[4]], &mut Sampler::new(Sampling::default()), 5);
    let score = |session: &mut Session| session.log_probabilities(0, &[5, 6]);
    let has_length = |length: usize| {
        move |session: &Session| {
            let now = session.len(0);
            ensure!(now == length, "the length is {now} and was {length}");
            Ok(())
        }
    };

    let mut unharmed = begun()?;
    let (text, scores) = (decode(&mut unharmed)?, score(&mut unharmed)?);
    let mut session = begun()?;
    let got = subject.fail_each_call(&mut session, decode, has_length(3))?;
    ensure!(got == text, "{got:?} after failures, {text:?} without");
    let got = subject.fail_each_call(&mut session, score, has_length(8))?;
    ensure!(got == scores, "{got:?} after failures, {scores:?} without");
    Ok(())
}
