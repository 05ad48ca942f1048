//! What is recorded and not yet submitted.

use std::sync::Arc;

use super::Ticket;
use super::params::{Filled, ParamsBuffer};
use super::signal::Signal;
use crate::memory::Storage;
use crate::sync;

/// Commands that are submitted together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) number: u64,
    /// In order; finished when the batch is submitted.
    pub(crate) encoders: Vec<wgpu::CommandEncoder>,
    pub(crate) params: Option<Filled>,
    /// Buffers that the commands write.
    pub(crate) written: Vec<Arc<Storage>>,
    /// Buffers of the caller's too that the commands use. Whoever imports one again, once its handles are gone, has to
    /// find what is known of it.
    pub(crate) shared: Vec<Arc<Storage>>,
    pub(crate) flows: Vec<Flows>,
    pub(crate) then: Vec<Then>,
}

/// A batch that was handed over and what may be used again when it has finished.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) ticket: Ticket,
    pub(super) params: Option<ParamsBuffer>,
    pub(super) staging: Vec<wgpu::Buffer>,
}

/// A buffer that a command reads, and one that it writes.
///
/// Where a thread of its own submits, a batch before may be refused when the command has long been recorded:
/// what it reads was never written then, and what it writes is as stale.
#[derive(Debug)]
pub(crate) struct Flow {
    from: Arc<Storage>,
    to: Arc<Storage>,
}

impl Flow {
    pub(super) fn new(from: &Arc<Storage>, to: &Arc<Storage>) -> Self {
        Self { from: Arc::clone(from), to: Arc::clone(to) }
    }

    pub(super) fn spoil(&self) {
        self.to.spoil(self.from.spoiled());
    }
}

/// Flows in the order of their commands.
#[derive(Debug)]
pub(crate) enum Flows {
    /// Of a command.
    One(Flow),
    /// Of a part of a graph.
    Captured(Arc<[Flow]>),
}

impl Flows {
    pub(super) fn spoil(&self) {
        match self {
            Self::One(flow) => flow.spoil(),
            Self::Captured(flows) => flows.iter().for_each(Flow::spoil),
        }
    }
}

/// The outcome of mapping a buffer.
pub(crate) type Mapped = Result<(), wgpu::BufferAsyncError>;

/// What happens once a batch is submitted.
#[derive(Debug)]
pub(crate) enum Then {
    /// A read-back buffer is mapped.
    Map(wgpu::Buffer, Signal<Mapped>),
    /// The signal is set when the device has finished.
    Tell(Signal<()>),
}

impl Then {
    pub(super) fn run(self, queue: &wgpu::Queue) {
        match self {
            Self::Map(buffer, mapped) => {
                buffer.map_async(wgpu::MapMode::Read, .., move |result| {
                    sync::deliver(move || mapped.set(result));
                });
            }
            Self::Tell(done) => {
                queue.on_submitted_work_done(move || sync::deliver(move || done.set(())));
            }
        }
    }

    /// For a batch that was not submitted: there is nothing to wait for.
    pub(super) fn fail(self) {
        match self {
            Self::Map(_, mapped) => mapped.set(Err(wgpu::BufferAsyncError)),
            Self::Tell(done) => done.set(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use backend_api::ErrorKind;

    use super::*;
    use crate::WebGpuBackend;
    use crate::memory::Block;
    use crate::recorder::Deadline;

    fn storages<const N: usize>(backend: &WebGpuBackend) -> [Arc<Storage>; N] {
        std::array::from_fn(|_| Arc::clone(Block::of_test(backend.device().unwrap(), 16).storage()))
    }

    #[test]
    fn what_is_made_of_something_spoiled_is_spoiled() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let [a, b, c, d] = storages(&backend);
        a.spoil(3);
        Flows::One(Flow::new(&a, &b)).spoil();
        assert_eq!([&a, &b, &c, &d].map(|storage| storage.spoiled()), [3, 3, 0, 0]);
        // In order: what a command writes, the next one reads.
        Flows::Captured([Flow::new(&b, &c), Flow::new(&c, &d)].into()).spoil();
        assert_eq!([&c, &d].map(|storage| storage.spoiled()), [3, 3]);
        let [e, f] = storages(&backend);
        Flows::Captured([Flow::new(&f, &e), Flow::new(&a, &f)].into()).spoil();
        assert_eq!([&e, &f].map(|storage| storage.spoiled()), [0, 3]);
    }

    #[test]
    fn nobody_waits_for_a_batch_that_was_not_submitted() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let call = backend.context("test").unwrap();
        let [storage] = storages(&backend);
        let (mapped, done) = (Signal::default(), Signal::default());
        Then::Map(storage.buffer().clone(), mapped.clone()).fail();
        Then::Tell(done.clone()).fail();
        let deadline = Deadline::new("test", Duration::from_millis(100));
        let submitter = &call.device().submitter;
        assert!(mapped.settle(submitter, &deadline).unwrap().is_err());
        done.settle(submitter, &deadline).unwrap();
        let unanswered = done.settle(submitter, &deadline).unwrap_err();
        assert_eq!(unanswered.kind(), ErrorKind::Timeout);
    }
}
