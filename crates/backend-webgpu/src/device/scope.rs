//! Errors of the driver given to the call that caused them.

use std::ops::Deref;
use std::sync::Arc;
#[cfg(not(target_family = "wasm"))]
use std::{cell::RefCell, task::Poll};

#[cfg(not(target_family = "wasm"))]
use crate::sync::thread_local;

/// A device, and how the errors of one call are told from those of others.
#[derive(Clone, Debug)]
pub(crate) struct GuardedDevice {
    device: wgpu::Device,
    catcher: Catcher,
}

/// What catches the errors of guarded work.
#[derive(Clone, Debug)]
enum Catcher {
    /// The device's handler of uncaptured errors, which wgpu calls on the thread that raised the error: the innermost
    /// guarded work of that thread with this mark has it.
    #[cfg(not(target_family = "wasm"))]
    Handler(Arc<()>),
    /// wgpu's error scopes. On natively opened devices wgpu-core 30.0.2 keeps an entry for each thread that ever pushed
    /// one, for as long as the device lives.
    Scopes,
}

impl GuardedDevice {
    /// A device that the backend has opened.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn own(device: wgpu::Device) -> Self {
        Self { device, catcher: Catcher::Handler(Arc::default()) }
    }

    /// A device that the backend has opened. In a browser errors come later than the handler could tell whose they are.
    #[cfg(target_family = "wasm")]
    pub(crate) fn own(device: wgpu::Device) -> Self {
        Self { device, catcher: Catcher::Scopes }
    }

    /// A device that the caller has opened: a scope that the caller holds open would take errors before the handler.
    pub(crate) fn of_caller(device: wgpu::Device) -> Self {
        Self { device, catcher: Catcher::Scopes }
    }

    /// Has `report` told of errors that no guarded work has raised. To be called once, before any work is guarded.
    pub(crate) fn on_late_error(&self, report: impl Fn(wgpu::Error) + Send + Sync + 'static) {
        self.device.on_uncaptured_error(Arc::new(self.catcher.handler(report)));
    }
}

impl Deref for GuardedDevice {
    type Target = wgpu::Device;

    fn deref(&self) -> &wgpu::Device {
        &self.device
    }
}

/// Runs `work` and returns the first error that wgpu raised in it, out of memory before validation before
/// internal.
///
/// Errors belong to the thread that raises them, and are known at once, except in a browser: there the answer
/// comes later, so the work runs unguarded and its errors become late errors.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn guarded<T>(device: &GuardedDevice, work: impl FnOnce() -> T) -> Result<T, wgpu::Error> {
    let frame = match &device.catcher {
        Catcher::Handler(mark) => Entered::new(mark),
        Catcher::Scopes => None,
    };
    // Also while the thread's locals are destroyed.
    let Some(frame) = frame else { return scoped(device, work) };
    let value = work();
    frame.leave().map_or(Ok(value), Err)
}

/// [`guarded`] by error scopes.
#[cfg(not(target_family = "wasm"))]
fn scoped<T>(device: &wgpu::Device, work: impl FnOnce() -> T) -> Result<T, wgpu::Error> {
    let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
    let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let value = work();
    // Scopes are a stack: every one must be popped, the last pushed first.
    let errors = [memory, validation, internal].map(|scope| pollster::block_on(scope.pop()));
    match errors.into_iter().flatten().next() {
        Some(error) => Err(error),
        None => Ok(value),
    }
}

/// Runs `work`; in a browser its errors become late errors.
#[cfg(target_family = "wasm")]
pub(crate) fn guarded<T>(_device: &GuardedDevice, work: impl FnOnce() -> T) -> Result<T, wgpu::Error> {
    Ok(work())
}

/// [`guarded`] for who can wait: the errors are given to this call in a browser too.
#[cfg(target_family = "wasm")]
pub(crate) async fn guarded_async<T>(
    device: &GuardedDevice,
    work: impl FnOnce() -> T,
) -> Result<T, wgpu::Error> {
    let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
    let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let value = work();
    // Popped before anything else can run, awaited after: the answers come when the device has done the work.
    let answers = (memory.pop(), validation.pop(), internal.pop());
    match (answers.0.await, answers.1.await, answers.2.await) {
        (None, None, None) => Ok(value),
        (Some(error), ..) | (None, Some(error), _) | (None, None, Some(error)) => Err(error),
    }
}

/// [`guarded`] that lets other tasks of the executor go on before it returns.
#[cfg(not(target_family = "wasm"))]
pub(crate) async fn guarded_async<T>(
    device: &GuardedDevice,
    work: impl FnOnce() -> T,
) -> Result<T, wgpu::Error> {
    let result = guarded(device, work);
    let mut paused = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut paused, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    result
}

impl Catcher {
    /// What wgpu is to call with each error that no scope takes.
    fn handler<R: Fn(wgpu::Error) + Send + Sync + 'static>(
        &self,
        report: R,
    ) -> impl Fn(wgpu::Error) + Send + Sync + 'static + use<R> {
        let catcher = self.clone();
        move |error| match &catcher {
            #[cfg(not(target_family = "wasm"))]
            Self::Handler(mark) => _ = Entered::catch(mark, error).map(&report),
            Self::Scopes => report(error),
        }
    }
}

#[cfg(not(target_family = "wasm"))]
thread_local! {
    /// The guarded work that this thread is in, the innermost last.
    static FRAMES: RefCell<Vec<Frame>> = const { RefCell::new(Vec::new()) };
}

/// Guarded work that is under way.
#[cfg(not(target_family = "wasm"))]
struct Frame {
    /// Of the device that is guarded.
    mark: Arc<()>,
    /// The first error of each kind, in the order in which they are told.
    errors: [Option<wgpu::Error>; 3],
}

/// The innermost frame of this thread, which ends when this is dropped, by a panic of the work too.
#[cfg(not(target_family = "wasm"))]
struct Entered;

#[cfg(not(target_family = "wasm"))]
impl Entered {
    /// `None` on a thread whose locals are destroyed.
    fn new(mark: &Arc<()>) -> Option<Self> {
        let frame = Frame { mark: Arc::clone(mark), errors: [const { None }; 3] };
        FRAMES.try_with(|frames| frames.borrow_mut().push(frame)).ok()?;
        Some(Self)
    }

    /// Gives an error to the innermost frame of its device, or back where there is none.
    fn catch(mark: &Arc<()>, error: wgpu::Error) -> Option<wgpu::Error> {
        let kind = match &error {
            wgpu::Error::OutOfMemory { .. } => 0,
            wgpu::Error::Validation { .. } => 1,
            wgpu::Error::Internal { .. } => 2,
        };
        let mut uncaught = Some(error);
        let spare = FRAMES.try_with(|frames| {
            let mut frames = frames.borrow_mut();
            let frame = frames.iter_mut().rev().find(|frame| Arc::ptr_eq(&frame.mark, mark))?;
            let first = &mut frame.errors[kind];
            // A later error of a kind is dropped after the borrow.
            if first.is_none() { std::mem::replace(first, uncaught.take()) } else { uncaught.take() }
        });
        drop(spare);
        uncaught
    }

    /// Ends the frame; its error.
    fn leave(self) -> Option<wgpu::Error> {
        let errors = FRAMES
            .try_with(|frames| frames.borrow_mut().last_mut().map(|frame| std::mem::take(&mut frame.errors)));
        errors.ok().flatten().into_iter().flatten().flatten().next()
    }
}

#[cfg(not(target_family = "wasm"))]
impl Drop for Entered {
    fn drop(&mut self) {
        // Dropped after the borrow.
        _ = FRAMES.try_with(|frames| frames.borrow_mut().pop());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, Mutex, mpsc};
    use std::thread;

    use super::*;
    use crate::WebGpuBackend;

    fn out_of_memory() -> wgpu::Error {
        wgpu::Error::OutOfMemory { source: "test".into() }
    }

    fn validation(description: &str) -> wgpu::Error {
        wgpu::Error::Validation { source: "test".into(), description: description.to_owned() }
    }

    fn internal() -> wgpu::Error {
        wgpu::Error::Internal { source: "test".into(), description: "internal".to_owned() }
    }

    fn said(error: &wgpu::Error) -> String {
        match error {
            wgpu::Error::OutOfMemory { .. } => "memory".to_owned(),
            wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
                description.clone()
            }
        }
    }

    /// What guarded work returned, in short.
    fn told(result: &Result<(), wgpu::Error>) -> String {
        result.as_ref().err().map_or("nothing".to_owned(), said)
    }

    type Late = Arc<Mutex<Vec<String>>>;

    /// A device with what wgpu calls when work on it raises an error, and the errors that were late.
    fn rig(backend: &WebGpuBackend) -> (GuardedDevice, impl Fn(wgpu::Error) + use<>, Late) {
        let device = GuardedDevice::own(backend.device().unwrap().clone());
        let late = Late::default();
        let kept = Arc::clone(&late);
        let raise = device.catcher.handler(move |error| kept.lock().unwrap().push(said(&error)));
        (device, raise, late)
    }

    /// Has wgpu raise a validation error.
    fn misuse(device: &wgpu::Device) {
        let usage =
            wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::MAP_WRITE;
        let size = device.limits().max_buffer_size + 4;
        drop(device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage,
            mapped_at_creation: false,
        }));
    }

    #[test]
    fn memory_comes_before_validation_before_internal_and_the_first_of_each_kind_is_told() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let (device, raise, late) = rig(&backend);
        type Make = fn() -> wgpu::Error;
        let cases: [(&[Make], &str); 5] = [
            (&[], "nothing"),
            (&[internal], "internal"),
            (&[internal, || validation("first"), || validation("second")], "first"),
            (&[|| validation("first"), out_of_memory, internal, out_of_memory], "memory"),
            (&[internal, || validation("first")], "first"),
        ];
        for (errors, expected) in cases {
            let result = guarded(&device, || errors.iter().for_each(|error| raise(error())));
            assert_eq!(told(&result), expected);
        }
        assert_eq!(*late.lock().unwrap(), [""; 0]);
        raise(out_of_memory());
        assert_eq!(*late.lock().unwrap(), ["memory"], "outside of guarded work");
    }

    #[test]
    fn nested_work_keeps_its_errors_for_itself_and_its_device() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let ((device, raise, late), (other, raise_other, late_other)) = (rig(&backend), rig(&backend));
        let outer = guarded(&device, || {
            let inner = guarded(&device, || raise(out_of_memory()));
            assert_eq!(told(&inner), "memory");
            let inner = guarded(&other, || {
                raise(validation("of the outer device"));
                raise_other(internal());
            });
            assert_eq!(told(&inner), "internal");
            raise_other(validation("late"));
        });
        assert_eq!(told(&outer), "of the outer device");
        assert_eq!(
            (late.lock().unwrap().len(), late_other.lock().unwrap().as_slice()),
            (0, &["late".to_owned()][..])
        );
        let panics = std::panic::AssertUnwindSafe(|| guarded(&device, || panic!("of the work")));
        assert!(std::panic::catch_unwind(panics).is_err());
        raise(internal());
        assert_eq!(*late.lock().unwrap(), ["internal"], "a panic ends the work");
    }

    /// Errors that wgpu raises itself, on threads beside each other.
    #[test]
    fn a_thread_gets_its_own_errors_alone() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let device = backend.guarded_device();
        let health = Arc::clone(&backend.context("test").unwrap().device().gpu.health);
        for _ in 0..20 {
            let begun = Barrier::new(16);
            thread::scope(|scope| {
                for i in 0..16 {
                    let begun = &begun;
                    scope.spawn(move || {
                        let work = || {
                            begun.wait();
                            if i % 2 == 0 {
                                misuse(device);
                            }
                            begun.wait();
                        };
                        assert_eq!(guarded(device, work).is_err(), i % 2 == 0);
                    });
                }
            });
        }
        assert!(!health.has_late_errors());
        misuse(device);
        assert!(health.has_late_errors());
    }

    #[test]
    fn on_a_device_of_the_callers_no_open_scope_takes_errors() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let theirs = GuardedDevice::of_caller(backend.device().unwrap().clone());
        for (device, is_told) in [(&theirs, true), (backend.guarded_device(), false)] {
            let open = device.push_error_scope(wgpu::ErrorFilter::Validation);
            let result = guarded(device, || misuse(device));
            assert_eq!(result.is_err(), is_told);
            assert_eq!(pollster::block_on(open.pop()).is_none(), is_told);
        }
    }

    /// The locals of a thread are destroyed in the reverse order of their first use.
    #[test]
    fn frames_are_gone_without_a_panic_while_a_threads_locals_are_destroyed() {
        struct Last(mpsc::Sender<(bool, String)>);
        impl Drop for Last {
            fn drop(&mut self) {
                let mark = Arc::default();
                let is_entered = Entered::new(&mark).is_some();
                let late = Entered::catch(&mark, internal());
                _ = self.0.send((is_entered, late.as_ref().map_or_else(String::new, said)));
            }
        }
        std::thread_local! {
            static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
        }
        let (sends, sent) = mpsc::channel();
        let thread = thread::spawn(move || {
            LAST.set(Some(Last(sends)));
            drop(Entered::new(&Arc::default()));
        });
        thread.join().unwrap();
        assert_eq!(sent.recv(), Ok((false, "internal".to_owned())));
    }
}
