//! Kernels compiled before a text needs them.

use backend_api::desc::Matrix;
use backend_api::owned::Buffer;
use backend_api::{BackendResult, ComputeBackend, DType};

use super::chooser::{Choice, Chosen};
use super::decoder::{Key, PAGE};
use super::{Ends, Input, Session, passes};
use crate::activations::Activations;
use crate::cache::{Placement, Run};
use crate::layer::Pass;
use crate::{Result, Sampling};

/// A pass that is planned but not run, of one run.
struct Planned {
    run: Run,
    ends: Option<Ends>,
}

impl Planned {
    /// Whether another pass is likely to take the kernels of this one: of as many rows, behind about as many tokens.
    fn stands_for(&self, run: &Run, has_ends: bool) -> bool {
        let (position, other) = (self.run.position.min(run.position), self.run.position.max(run.position));
        self.run.rows == run.rows && self.ends.is_some() == has_ends && other - position <= position / 4
    }
}

impl Session {
    /// Compiles what sequence 0 needs to take prompts of these lengths, each behind the tokens that the sequence has and at half
    /// of the context, and to go on with them token by token, chosen by `sampling`, up to the end of the context. Where the
    /// backend compiles, it does so on all cores and runs nothing, so that the first token of the first text doesn't
    /// wait for one kernel after the other.
    ///
    /// Kernels depend on sizes: a prompt of another length may need one more, which is compiled at its first use, as all are
    /// without this call.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for a window of the sampling beyond 32,768 tokens;
    /// [`Error::Backend`](crate::Error::Backend).
    pub async fn warm_up_async(&self, prompts: &[usize], sampling: &Sampling) -> Result<()> {
        sampling.check()?;
        let (model, backend) = (&self.model, self.model.backend());
        let choice = Choice::of(sampling);
        let shape = [1, model.config().vocabulary];
        let logits = Buffer::of(backend, DType::F32, &shape)?;
        let (planned, activations) = self.planned(prompts, &logits)?;
        let chosen = Chosen::new(backend, sampling, &[&[]])?;
        let keys = self.keys_of_steps();
        let decoders = keys
            .map(|keys| self.prepared(Key { slot: 0, slots: 1, keys, choice }))
            .collect::<Result<Vec<_>>>()?;
        let all = |backend: &dyn ComputeBackend| -> BackendResult<()> {
            for Planned { run, ends } in &planned {
                let Some(activations) = activations.iter().find(|kept| kept.rows == run.rows) else {
                    continue;
                };
                let runs = std::slice::from_ref(run);
                let pass = Pass { backend, ..self.pass(activations, Placement::Runs(runs)) };
                model.forward(&pass)?;
                if let Some(ends) = ends {
                    ends.record(model, &pass)?;
                }
            }
            model.cap(backend, 1, Matrix::new(logits.ptr(), DType::F32, shape[1]))?;
            chosen.record(backend, sampling, 0, (&logits, shape))?;
            decoders.iter().try_for_each(|decoder| decoder.record_on(self, backend))
        };
        Ok(backend.warm_up_async(&[&all]).await?)
    }

    /// The passes of some prompts, and activations for each number of rows that they have.
    fn planned(&self, prompts: &[usize], logits: &Buffer) -> Result<(Vec<Planned>, Vec<Activations>)> {
        let row = Matrix::new(logits.ptr(), DType::F32, self.model.config().vocabulary);
        let (mut planned, mut activations) = (Vec::new(), Vec::<Activations>::new());
        for position in [self.len(0), self.context() / 2] {
            for &prompt in prompts {
                let tokens = vec![0; prompt.min(self.context().saturating_sub(position))];
                for (_, runs, ends) in passes(&[Input { sequence: 0, tokens: &tokens }], &[position]) {
                    for run in runs {
                        if planned.iter().any(|pass: &Planned| pass.stands_for(&run, !ends.is_empty())) {
                            continue;
                        }
                        if !activations.iter().any(|kept| kept.rows == run.rows) {
                            activations.push(self.model.activations(run.rows)?);
                        }
                        planned.push(Planned { run, ends: Ends::new(&self.model, &ends, row)? });
                    }
                }
            }
        }
        Ok((planned, activations))
    }

    /// How many keys steps of one token look at: of a few pages in each doubling of a text's length, as kernels are chosen by
    /// that.
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
