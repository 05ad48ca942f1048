//! Kernels compiled before a text needs them.

use backend_api::desc::Matrix;
use backend_api::owned::Buffer;
use backend_api::{BackendError, BackendResult, ComputeBackend, DType, ErrorKind};

use super::chooser::{Choice, Chosen};
use super::decoder::PAGE;
use super::{Ends, Input, Session, passes};
use crate::cache::{Placement, Run};
use crate::layer::Pass;
use crate::{Result, Sampling};

/// How many tokens a text has when it goes on, if the context has room for twice as many.
const LATER: usize = 2048;

/// A pass that is planned but not run.
struct Planned {
    run: Run,
    /// The rows that logits follow.
    ends: Vec<u32>,
}

impl Planned {
    /// Whether another pass is likely to take the kernels of this one: of as many rows, behind about as many tokens.
    fn stands_for(&self, run: &Run, has_ends: bool) -> bool {
        let (position, other) = (self.run.position.min(run.position), self.run.position.max(run.position));
        self.run.rows == run.rows && self.ends.is_empty() != has_ends && other - position <= position / 4
    }
}

impl Session {
    /// Compiles what sequence 0 is likely to need to take prompts of these lengths, each behind the tokens that it has and as a
    /// later part of a text, and to go on with them token by token, chosen by `sampling`, up to the end of the context. Where the
    /// backend compiles, it does so on all cores and runs none of that, so that the first token of the first text doesn't wait for one
    /// kernel after the other. The session stays as it is.
    ///
    /// Kernels depend on sizes: a prompt of another length, or a length that a text passes, may need one more, which is
    /// compiled at its first use, as all are without this call. What the device has no room for is left out.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for a window of the sampling beyond 32,768 tokens;
    /// [`Error::Backend`](crate::Error::Backend).
    pub async fn warm_up_async(&self, prompts: &[usize], sampling: &Sampling) -> Result<()> {
        sampling.check()?;
        let (model, backend) = (&self.model, self.model.backend());
        let shape = [1, model.config().vocabulary];
        let logits = Buffer::of(backend, DType::F32, &shape)?;
        let chosen = Chosen::new(backend, sampling, &[&[]])?;
        let planned = self.planned(prompts);
        let all = |planner: &dyn ComputeBackend| -> BackendResult<()> {
            // One after the other, so that the memory of one is free for the next.
            for pass in &planned {
                possible(self.plan_pass(planner, pass, &logits))?;
            }
            model.cap(planner, 1, Matrix::new(logits.ptr(), DType::F32, shape[1]))?;
            chosen.record(planner, sampling, 0, (&logits, shape))?;
            self.keys_of_steps().try_for_each(|keys| possible(self.plan_step(planner, keys, sampling)))
        };
        backend.warm_up_async(&[&all]).await?;
        // What planning uploaded is on its way, so that a device that is lost afterwards loses none of it.
        Ok(backend.synchronize_async().await?)
    }

    fn plan_pass(&self, planner: &dyn ComputeBackend, pass: &Planned, logits: &Buffer) -> BackendResult<()> {
        let model = &self.model;
        let activations = model.activations(pass.run.rows, &self.cache)?;
        let row = Matrix::new(logits.ptr(), DType::F32, model.config().vocabulary);
        let ends = Ends::new(model, &pass.ends, row)?;
        let placement = Placement::Runs(std::slice::from_ref(&pass.run));
        let pass = Pass { backend: planner, ..self.pass(&activations, placement) };
        model.forward(&pass)?;
        ends.map_or(Ok(()), |ends| ends.record(model, &pass))
    }

    fn plan_step(&self, planner: &dyn ComputeBackend, keys: usize, sampling: &Sampling) -> BackendResult<()> {
        let step = self.prepared(0, 1, keys, Choice::of(sampling))?;
        step.record_on(self, planner)
    }

    /// The passes of some prompts.
    fn planned(&self, prompts: &[usize]) -> Vec<Planned> {
        let mut planned: Vec<Planned> = Vec::new();
        for position in [self.len(0), (self.context() / 2).min(LATER)] {
            for &prompt in prompts {
                let tokens = vec![0; prompt.min(self.context().saturating_sub(position))];
                for (_, runs, ends) in passes(&[Input { sequence: 0, tokens: &tokens }], &[position]) {
                    // Of one sequence, there is one.
                    for run in runs {
                        if !planned.iter().any(|pass| pass.stands_for(&run, !ends.is_empty())) {
                            planned.push(Planned { run, ends: ends.clone() });
                        }
                    }
                }
            }
        }
        planned
    }

    /// How many keys steps of one token look at: of some four pages in each doubling of a text's length, as kernels are
    /// chosen by that.
    fn keys_of_steps(&self) -> impl Iterator<Item = usize> + use<> {
        let context = self.context();
        let first = self.len(0).min(context - 1) / PAGE;
        let pages = std::iter::successors(Some(first), |page| Some(page + (page / 4).max(1)));
        let last = (context - 1) / PAGE;
        pages
            .take_while(move |&page| page < last)
            .chain([last])
            .map(move |page| ((page + 1) * PAGE).min(context))
    }
}

/// Leaves out what the device has no room for: a text may never come to it.
fn possible(planned: BackendResult<()>) -> BackendResult<()> {
    let has_no_room = |error: &BackendError| {
        matches!(error.kind(), ErrorKind::Limit | ErrorKind::OutOfMemory | ErrorKind::Overflow)
    };
    planned.or_else(|error| if has_no_room(&error) { Ok(()) } else { Err(error) })
}
