//! Profiling events: when each step of a run was computed, on the timeline of ONNX Runtime's profile.
//!
//! A session has a profiler, and a run may have one of its own. Between the start and the stop of an event of
//! ONNX Runtime's on a thread, the steps that the thread runs are reported to the profiler.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use backend_api::ComputeBackend;
use parking_lot::Mutex;

use crate::error::Result;
use crate::model::Node;

/// Events that a profiler keeps, which is also how many ONNX Runtime keeps of its own.
const MAX_EVENTS: usize = 1_000_000;

/// The started profilers of a session.
#[derive(Debug, Default)]
pub(crate) struct Profilers {
    started: Mutex<Vec<Arc<Profiler>>>,
    /// The length of `started`, for a look without the lock.
    count: AtomicUsize,
}

/// Collects events from its start to its end.
#[derive(Debug, Default)]
pub(crate) struct Profiler(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// When the profiler was started, and how long after the zero of the timeline that was.
    start: Option<(Instant, Duration)>,
    /// Events of ONNX Runtime's that are open on each thread.
    open: HashMap<ThreadId, usize>,
    events: Vec<Event>,
}

/// An event of the profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The node's name; its operator's if it has none.
    pub(crate) name: String,
    /// The operator.
    pub(crate) operator: String,
    /// Since the zero of the timeline.
    pub(crate) start: Duration,
    /// How long it took.
    pub(crate) duration: Duration,
}

impl Profilers {
    /// Starts a profiler `offset` after the zero of the timeline.
    pub(crate) fn start(&self, profiler: &Arc<Profiler>, offset: Duration) {
        profiler.0.lock().start = Some((Instant::now(), offset));
        self.change(|started| started.push(Arc::clone(profiler)));
    }

    /// Ends a profiler, and gives its events.
    pub(crate) fn end(&self, profiler: &Arc<Profiler>) -> Vec<Event> {
        self.change(|started| started.retain(|other| !Arc::ptr_eq(other, profiler)));
        std::mem::take(&mut *profiler.0.lock()).events
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Profiler>>)) {
        let mut started = self.started.lock();
        change(&mut started);
        self.count.store(started.len(), Ordering::Relaxed);
    }

    /// Where this thread's steps are reported; `None` where nobody listens.
    pub(crate) fn listeners(&self) -> Option<Listeners> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut listeners = self.started.lock().clone();
        let thread = thread::current().id();
        listeners.retain(|profiler| profiler.0.lock().open.contains_key(&thread));
        (!listeners.is_empty()).then_some(Listeners(listeners))
    }
}

impl Profiler {
    /// An event of ONNX Runtime's begins on this thread.
    pub(crate) fn open(&self) {
        *self.0.lock().open.entry(thread::current().id()).or_default() += 1;
    }

    /// An event of ONNX Runtime's ends on this thread.
    pub(crate) fn close(&self) {
        let (mut state, thread) = (self.0.lock(), thread::current().id());
        let left = state.open.get(&thread).map_or(0, |count| count - 1);
        if left == 0 {
            state.open.remove(&thread);
        } else {
            state.open.insert(thread, left);
        }
    }
}

/// The profilers that hear of a run's steps.
#[derive(Debug)]
pub(crate) struct Listeners(Vec<Arc<Profiler>>);

impl Listeners {
    /// Computes a step, waits until the device has, and reports it.
    pub(crate) fn step<T>(
        &self,
        node: &Node,
        backend: &dyn ComputeBackend,
        compute: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let start = Instant::now();
        let outputs = compute()?;
        backend.synchronize()?;
        let duration = start.elapsed();
        let name = if node.name.is_empty() { &node.operator } else { &node.name };
        for profiler in &self.0 {
            let mut state = profiler.0.lock();
            // One that has ended meanwhile has handed over its events.
            let Some((zero, offset)) = state.start else { continue };
            if state.events.len() < MAX_EVENTS {
                let start = offset + start.saturating_duration_since(zero);
                let (name, operator) = (name.clone(), node.operator.clone());
                state.events.push(Event { name, operator, start, duration });
            }
        }
        Ok(outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend_cpu::CpuBackend;

    fn node(name: &str) -> Node {
        Node { name: name.to_owned(), operator: "Relu".to_owned(), ..Node::default() }
    }

    #[test]
    fn a_profiler_hears_of_the_threads_whose_events_are_open() {
        let (all, backend) = (Profilers::default(), CpuBackend::new());
        let [first, second] = [(); 2].map(|()| Arc::new(Profiler::default()));
        first.open();
        assert!(all.listeners().is_none(), "not started");
        all.start(&first, Duration::from_secs(1));
        all.start(&second, Duration::from_secs(2));
        let listeners = all.listeners().unwrap();
        listeners.step(&node("a"), &backend, || Ok(())).unwrap();
        second.open();
        second.open();
        second.close();
        first.close();
        all.listeners().unwrap().step(&node(""), &backend, || Ok(())).unwrap();
        thread::scope(|scope| scope.spawn(|| assert!(all.listeners().is_none())).join().unwrap());
        second.close();
        assert!(all.listeners().is_none());
        let ends = [all.end(&first), all.end(&second)];
        let names: [Vec<&str>; 2] =
            ends.each_ref().map(|events| events.iter().map(|event| event.name.as_str()).collect());
        assert_eq!(names, [vec!["a"], vec!["Relu"]]);
        assert!(ends[0][0].start >= Duration::from_secs(1) && ends[1][0].start >= Duration::from_secs(2));
        listeners.step(&node("late"), &backend, || Ok(())).unwrap();
        assert_eq!(all.end(&first), []);
    }

    #[test]
    fn a_step_that_fails_is_no_event() {
        let (all, backend, profiler) = (Profilers::default(), CpuBackend::new(), Arc::default());
        all.start(&profiler, Duration::ZERO);
        profiler.open();
        let failed: Result<()> =
            all.listeners().unwrap().step(&node("a"), &backend, || Err(crate::error::Error::Uncapturable));
        assert!(failed.is_err());
        assert_eq!(all.end(&profiler), []);
    }
}
