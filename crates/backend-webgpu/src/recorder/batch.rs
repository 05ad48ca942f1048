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
