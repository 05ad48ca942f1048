//! The queue, and where in it a batch is.

use std::sync::{Arc, OnceLock};

use super::batch::{Batch, Flows, Then};
use crate::device::{GuardedDevice, Health, Progress, guarded};
use crate::sync;

/// The queue with what has to be told of it.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) device: GuardedDevice,
    pub(super) queue: wgpu::Queue,
    pub(super) health: Arc<Health>,
    pub(super) progress: Arc<Progress>,
}

/// A batch that was handed over, to wait for.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    pub(crate) batch: u64,
    pub(super) index: Index,
}

/// Where the index of a submission is, once it has one: a batch without commands or one that the driver refused has none,
/// and where a thread of its own submits it isn't known.
pub(super) type Index = Arc<OnceLock<wgpu::SubmissionIndex>>;

impl Ticket {
    /// Nothing to wait for but a callback.
    pub(super) fn finished() -> Self {
        Self::of(0)
    }

    pub(super) fn of(batch: u64) -> Self {
        Self { batch, index: Index::default() }
    }
}

impl Port {
    /// Submits a batch and sets its index.
    pub(super) fn submit(&self, batch: Batch, index: &Index) {
        let Batch { number, encoders, params, written, shared: _shared, flows, then } = batch;
        let _span = tracing::trace_span!("submit", batch = number).entered();
        let submitted = guarded(&self.device, || {
            if let Some(params) = &params {
                params.upload(&self.queue);
            }
            (!encoders.is_empty())
                .then(|| self.queue.submit(encoders.into_iter().map(wgpu::CommandEncoder::finish)))
        });
        match submitted {
            Ok(submission) => {
                // Set once, here.
                _ = submission.map(|submission| index.set(submission));
                if self.health.has_late_errors() {
                    flows.iter().for_each(Flows::spoil);
                }
                then.into_iter().for_each(|then| then.run(&self.queue));
            }
            Err(error) => {
                // On a lost device anything may fail, and the loss is all that there is to say.
                if self.health.probe(&self.device).is_ok() {
                    let error = self.health.report(error);
                    written.iter().for_each(|storage| storage.spoil(error));
                }
                then.into_iter().for_each(Then::fail);
            }
        }
        // Also of a batch that was refused, which is over when those before it are.
        self.progress.submit(number);
        let progress = Arc::clone(&self.progress);
        self.queue.on_submitted_work_done(move || sync::deliver(move || progress.finish(number)));
    }
}
