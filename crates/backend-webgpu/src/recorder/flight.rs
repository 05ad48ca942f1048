//! Batches that were submitted and have not finished.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backend_api::{BackendError, BackendResult};

use super::params::ParamsBuffer;
use crate::device::Health;

/// A submitted batch and what may be used again when it has finished.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) batch: u64,
    pub(crate) index: wgpu::SubmissionIndex,
    pub(crate) params: Option<Arc<ParamsBuffer>>,
    pub(crate) staging: Vec<wgpu::Buffer>,
}

/// The submitted batches in order.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    submissions: VecDeque<Submission>,
    /// The last batch that has finished, written by a callback of the queue.
    finished: Arc<AtomicU64>,
}

impl Flight {
    /// Follows a batch that was just submitted.
    pub(crate) fn launch(&mut self, queue: &wgpu::Queue, submission: Submission) {
        let (batch, finished) = (submission.batch, Arc::clone(&self.finished));
        queue.on_submitted_work_done(move || {
            finished.fetch_max(batch, Ordering::Release);
        });
        self.submissions.push_back(submission);
    }

    /// Removes the batches that have finished.
    pub(crate) fn landed(&mut self) -> impl Iterator<Item = Submission> {
        let finished = self.finished.load(Ordering::Acquire);
        let count = self.submissions.iter().take_while(|submission| submission.batch <= finished).count();
        self.submissions.drain(..count)
    }

    pub(crate) fn len(&self) -> usize {
        self.submissions.len()
    }

    /// The batch that finishes next.
    pub(crate) fn oldest(&self) -> Option<wgpu::SubmissionIndex> {
        self.submissions.front().map(|submission| submission.index.clone())
    }

    /// The batch that finishes last.
    pub(crate) fn newest(&self) -> Option<wgpu::SubmissionIndex> {
        self.submissions.back().map(|submission| submission.index.clone())
    }
}

/// Blocks until the device has finished `index`.
///
/// # Errors
/// [`Timeout`](BackendError::Timeout); [`DeviceLost`](BackendError::DeviceLost) where wgpu no longer knows the
/// submission, which is how it answers after a loss; [`WouldBlock`](BackendError::WouldBlock) in a browser.
pub(crate) fn wait(
    op: &'static str,
    device: &wgpu::Device,
    health: &Health,
    index: wgpu::SubmissionIndex,
    timeout: Duration,
) -> BackendResult<()> {
    if cfg!(target_family = "wasm") {
        return Err(BackendError::WouldBlock { op });
    }
    health.check()?;
    let _span = tracing::trace_span!("wait", op).entered();
    match device.poll(wgpu::PollType::Wait { submission_index: Some(index), timeout: Some(timeout) }) {
        Ok(_) => health.check(),
        Err(wgpu::PollError::Timeout) => {
            health.check()?;
            Err(BackendError::Timeout { op, waited: timeout })
        }
        Err(error) => {
            health.lose(&error.to_string());
            health.check()
        }
    }
}
