//! A named case and how it is run.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use backend_api::ComputeBackend;

use crate::arena::Arena;
use crate::device::{Device, Wait};
use crate::failure::{Detail, Failure};
use crate::rng::Rng;
use crate::run;
use crate::trial::Trial;

type Build = Box<dyn Fn(&mut Rng) -> Trial + Send + Sync>;
type ScriptFuture<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + 'a>>;
type Script = Box<dyn for<'a> Fn(&'a Device<'a>) -> ScriptFuture<'a> + Send + Sync>;

/// One test of the contract. Its inputs depend on nothing but its name.
pub struct Case {
    /// The operation, such as `"gemm"`.
    pub family: &'static str,
    /// What is special about it, such as `"m3_n17_k0_nt_ld0-1-5_a1_b0_uniform"`. Unique within the family.
    pub name: String,
    body: Body,
}

enum Body {
    /// One call on guarded operands.
    Call(Build),
    /// Several calls that check what they see themselves.
    Script(Script),
}

/// How a case went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The results are right.
    Right,
    /// The device has no f16, and the call was refused as
    /// [`Unsupported`](backend_api::BackendError::Unsupported) with nothing changed.
    Refused,
    /// Within an [`Arena`], what the call needs to bind is larger than the device allows, and it was refused
    /// as [`Limit`](backend_api::BackendError::Limit) with nothing changed.
    Limited,
}

impl Case {
    pub(crate) fn new(
        family: &'static str,
        name: impl Into<String>,
        build: impl Fn(&mut Rng) -> Trial + Send + Sync + 'static,
    ) -> Self {
        Self { family, name: name.into(), body: Body::Call(Box::new(build)) }
    }

    pub(crate) fn script(
        family: &'static str,
        name: impl Into<String>,
        script: impl for<'a> Fn(&'a Device<'a>) -> ScriptFuture<'a> + Send + Sync + 'static,
    ) -> Self {
        Self { family, name: name.into(), body: Body::Script(Box::new(script)) }
    }

    /// A script with random numbers, which depend on its name alone.
    pub(crate) fn random_script(
        family: &'static str,
        name: String,
        script: impl for<'a> Fn(&'a Device<'a>, Rng) -> ScriptFuture<'a> + Send + Sync + 'static,
    ) -> Self {
        let seed = name.clone();
        Self::script(family, name, move |device| script(device, Rng::from_name(&seed)))
    }

    /// `family/name`.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{}", self.family, self.name)
    }

    /// Runs the case with blocking reads.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn run(&self, backend: &dyn ComputeBackend) -> Result<Outcome, Failure> {
        self.run_blocking(Device { backend, wait: Wait::Blocking, arena: None })
    }

    /// Whether the case is a single call, whose operands can be placed anywhere, and not a script that
    /// allocates.
    #[must_use]
    pub const fn is_one_call(&self) -> bool {
        matches!(self.body, Body::Call(_))
    }

    /// Runs a case of [one call](Self::is_one_call) with operands inside of `arena`.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn run_within(&self, backend: &dyn ComputeBackend, arena: &Arena) -> Result<Outcome, Failure> {
        self.run_blocking(Device { backend, wait: Wait::Blocking, arena: Some(arena) })
    }

    /// Captures the call of a case of [one call](Self::is_one_call), and replays it with two
    /// sets of numbers.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn run_replayed(&self, backend: &dyn ComputeBackend) -> Result<Outcome, Failure> {
        let device = Device { backend, wait: Wait::Blocking, arena: None };
        self.finish(backend, self.execute_replayed(device))
    }

    /// [`run_replayed`](Self::run_replayed) with operands inside of `arena`.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn run_replayed_within(
        &self,
        backend: &dyn ComputeBackend,
        arena: &Arena,
    ) -> Result<Outcome, Failure> {
        let device = Device { backend, wait: Wait::Blocking, arena: Some(arena) };
        self.finish(backend, self.execute_replayed(device))
    }

    async fn execute_replayed(&self, device: Device<'_>) -> Result<Outcome, Failure> {
        let Body::Call(build) = &self.body else { return self.execute(device).await };
        let mut rng = Rng::from_name(&self.path());
        let outcome = run::replayed(&device, &build(&mut rng), &mut rng).await;
        outcome.map_err(|detail| self.failure(device.backend, detail))
    }

    fn run_blocking(&self, device: Device<'_>) -> Result<Outcome, Failure> {
        self.finish(device.backend, self.execute(device))
    }

    /// Blocking reads are ready at once, so a single poll finishes the future.
    fn finish(
        &self,
        backend: &dyn ComputeBackend,
        future: impl Future<Output = Result<Outcome, Failure>>,
    ) -> Result<Outcome, Failure> {
        let future = pin!(future);
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => Err(self.failure(backend, Detail::Script("a blocking read was pending".into()))),
        }
    }

    /// Runs the case with asynchronous reads, as a browser needs them.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub async fn run_async(&self, backend: &dyn ComputeBackend) -> Result<Outcome, Failure> {
        self.execute(Device { backend, wait: Wait::Async, arena: None }).await
    }

    async fn execute(&self, device: Device<'_>) -> Result<Outcome, Failure> {
        let outcome = match &self.body {
            Body::Call(build) => {
                let mut rng = Rng::from_name(&self.path());
                run::trial(&device, &build(&mut rng), &mut rng).await
            }
            Body::Script(script) => match script(&device).await {
                Ok(()) => Ok(Outcome::Right),
                Err(text) => Err(Detail::Script(text)),
            },
        };
        outcome.map_err(|detail| self.failure(device.backend, detail))
    }

    fn failure(&self, backend: &dyn ComputeBackend, detail: Detail) -> Failure {
        Failure { case: self.path(), backend: backend.name().to_owned(), detail: Box::new(detail) }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
}
