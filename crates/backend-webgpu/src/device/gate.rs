//! One call at a time where the interface can't take more.

use std::ops::Deref;

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

use crate::context::Context;

/// Lets one thread at a time through to an OpenGL device, and any number to others.
///
/// An OpenGL context belongs to one thread at a time; wgpu hands it over, but panics in a thread that has to wait for it
/// for some seconds, as a long compilation in another may well take.
#[derive(Debug)]
pub(crate) struct Gate(Option<ReentrantMutex<()>>);

/// A turn at the device, until it is dropped. The same thread may take another meanwhile.
#[derive(Debug)]
pub(crate) struct Turn<'a>(
    #[expect(dead_code, reason = "held for its drop")] Option<ReentrantMutexGuard<'a, ()>>,
);

impl Gate {
    pub(crate) fn new(adapter: &wgpu::Adapter) -> Self {
        Self((adapter.get_info().backend == wgpu::Backend::Gl).then(ReentrantMutex::default))
    }

    pub(crate) fn enter(&self) -> Turn<'_> {
        Turn(self.0.as_ref().map(ReentrantMutex::lock))
    }
}

/// An opened device whose turn it is.
#[derive(Debug)]
pub(crate) struct Entered<'a> {
    context: &'a Context,
    _turn: Turn<'a>,
}

impl<'a> Entered<'a> {
    pub(crate) fn new(context: &'a Context) -> Self {
        Self { context, _turn: context.gate.enter() }
    }
}

impl Deref for Entered<'_> {
    type Target = Context;

    fn deref(&self) -> &Context {
        self.context
    }
}
