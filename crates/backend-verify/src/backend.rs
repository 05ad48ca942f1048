//! The contract, each call made on both backends.

use std::any::Any;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use backend_api::support::alloc_set;
use backend_api::{
    BackendError, BackendFuture, BackendResult, Capabilities, Command, ComputeBackend, DeviceInfo, ErrorKind,
    MemoryStats, Operation, forward,
};
use parking_lot::Mutex;

use crate::factory::NAME;
use crate::mirror::{Mirror, Twin};
use crate::step::is_of_the_device;

/// Two backends as one, which compares the second's results with the first's.
#[derive(Debug)]
pub struct VerifyBackend {
    pub(crate) first: Box<dyn ComputeBackend>,
    pub(crate) second: Box<dyn ComputeBackend>,
    /// How errors call the two devices.
    pub(crate) devices: [String; 2],
    /// Held while a call changes memory, so that the two are compared in the same state.
    pub(crate) mirror: Mutex<Mirror>,
}

impl VerifyBackend {
    /// Of two opened backends.
    ///
    /// # Errors
    /// [`Unsupported`](BackendError::Unsupported) where nothing may block, as comparing has to wait, and what
    /// the backends return when asked for their devices.
    pub fn new(first: Box<dyn ComputeBackend>, second: Box<dyn ComputeBackend>) -> BackendResult<Self> {
        for backend in [&first, &second] {
            if !backend.capabilities()?.blocking {
                let need = "calls that may block, to compare results".to_owned();
                return Err(BackendError::Unsupported { op: "create", need });
            }
        }
        let label = |info: DeviceInfo| format!("{} ({}, {})", info.selector, info.name, info.api);
        let devices = [label(first.device_info()?), label(second.device_info()?)];
        Ok(Self { first, second, devices, mirror: Mutex::default() })
    }

    /// The backend whose results callers get.
    #[must_use]
    pub fn first(&self) -> &dyn ComputeBackend {
        &*self.first
    }

    /// The backend that the first is compared with.
    #[must_use]
    pub fn second(&self) -> &dyn ComputeBackend {
        &*self.second
    }

    /// Makes the handle of new memory known, or takes it back.
    fn pair(
        &self,
        op: &'static str,
        bytes: usize,
        ptr: u64,
        second: BackendResult<u64>,
    ) -> BackendResult<u64> {
        match self.agree(op, || format!("{op} of {bytes} bytes"), Ok(ptr), second) {
            Ok((ptr, twin)) => {
                self.mirror.lock().twins.insert(ptr, Twin { ptr: twin, len: bytes });
                Ok(ptr)
            }
            Err(error) => {
                self.first.free(ptr)?;
                Err(error)
            }
        }
    }
}

/// Memory of bytes that are equal on every backend: 0xFF, which no number is.
fn alloc_poisoned(backend: &dyn ComputeBackend, bytes: usize) -> BackendResult<u64> {
    alloc_set(backend, "alloc", bytes, 0xFF)
}

impl ComputeBackend for VerifyBackend {
    fn name(&self) -> &str {
        NAME
    }

    /// Opens again what was lost. Whichever of the two it was, every earlier handle is invalid.
    fn init(&mut self) -> BackendResult<()> {
        let was_open = [self.first.is_initialized(), self.second.is_initialized()];
        self.first.init()?;
        self.second.init()?;
        if was_open == [true; 2] {
            return Ok(());
        }
        let lost = std::mem::take(self.mirror.get_mut());
        // One that is open may have been opened by an earlier call, which failed with the other.
        let unless_gone = |freed: BackendResult<()>| match freed {
            Err(error) if error.kind() == ErrorKind::InvalidHandle => Ok(()),
            freed => freed,
        };
        for (&ptr, twin) in &lost.twins {
            if was_open[0] {
                unless_gone(self.first.free(ptr))?;
            }
            if was_open[1] {
                unless_gone(self.second.free(twin.ptr))?;
            }
        }
        for &graph in lost.graphs.keys().filter(|_| was_open[0]) {
            unless_gone(self.first.free_graph(graph))?;
        }
        Ok(())
    }

    fn is_initialized(&self) -> bool {
        self.first.is_initialized() && self.second.is_initialized()
    }

    fn execute(&self, op: &'static str, command: Command<'_>) -> BackendResult<()> {
        self.step(&mut self.mirror.lock(), op, command)
    }

    fn synchronize(&self) -> BackendResult<()> {
        self.first.synchronize()?;
        self.agree("synchronize", String::new, Ok(()), self.second.synchronize()).map(drop)
    }

    fn synchronize_async(&self) -> BackendFuture<'_, ()> {
        Box::pin(async move {
            self.first.synchronize_async().await?;
            let second = self.second.synchronize_async().await;
            self.agree("synchronize_async", String::new, Ok(()), second).map(drop)
        })
    }

    fn alloc(&self, bytes: usize) -> BackendResult<u64> {
        let ptr = alloc_poisoned(&*self.first, bytes)?;
        self.pair("alloc", bytes, ptr, alloc_poisoned(&*self.second, bytes))
    }

    fn alloc_zeroed(&self, bytes: usize) -> BackendResult<u64> {
        let ptr = self.first.alloc_zeroed(bytes)?;
        self.pair("alloc_zeroed", bytes, ptr, self.second.alloc_zeroed(bytes))
    }

    fn view(&self, ptr: u64, byte_offset: usize, byte_len: usize) -> BackendResult<u64> {
        let twin = self.mirror.lock().twin(ptr);
        let view = self.first.view(ptr, byte_offset, byte_len)?;
        self.pair("view", byte_len, view, self.second.view(twin, byte_offset, byte_len))
    }

    fn free(&self, ptr: u64) -> BackendResult<()> {
        let mut mirror = self.mirror.lock();
        self.first.free(ptr)?;
        match mirror.twins.remove(&ptr) {
            Some(twin) => {
                self.agree("free", || format!("{ptr:#x}"), Ok(()), self.second.free(twin.ptr)).map(drop)
            }
            None => Ok(()),
        }
    }

    fn copy_htod(&self, dst: u64, src: &[u8]) -> BackendResult<()> {
        let op = "copy_htod";
        let mut mirror = self.in_step()?;
        let first = self.first.copy_htod(dst, src);
        if let Err(error) = &first
            && is_of_the_device(error.kind())
        {
            // A part of it may have been written.
            mirror.is_out_of_step = true;
            return first;
        }
        let second = self.second.copy_htod(mirror.twin(dst), src);
        mirror.is_out_of_step = first.is_ok() != second.is_ok();
        self.agree(op, || format!("{} bytes to {dst:#x}", src.len()), first, second).map(drop)
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: u64) -> BackendResult<()> {
        let op = "copy_dtoh";
        let mut mirror = self.in_step()?;
        let first = self.first.copy_dtoh(dst, src);
        if let Err(error) = &first
            && is_of_the_device(error.kind())
        {
            return first;
        }
        let mut other = vec![0; dst.len()];
        let second = self.second.copy_dtoh(&mut other, mirror.twin(src));
        let call = || format!("{} bytes of {src:#x}", other.len());
        self.agree(op, call, first, second)?;
        let compared = self.compare_reads(op, call, [dst, &other]);
        mirror.is_out_of_step = compared.is_err();
        compared
    }

    fn copy_dtoh_async<'a>(&'a self, dst: &'a mut [u8], src: u64) -> BackendFuture<'a, ()> {
        let op = "copy_dtoh_async";
        Box::pin(async move {
            // One of the two may be ready when the other one is cancelled.
            let [mut own, mut other] = [(); 2].map(|()| vec![0; dst.len()]);
            let (first, second) = {
                let mut reads = {
                    let mirror = self.in_step()?;
                    let first = self.first.copy_dtoh_async(&mut own, src);
                    let mut reads =
                        Both::of(first, self.second.copy_dtoh_async(&mut other, mirror.twin(src)));
                    // Both begin before another thread's call changes memory. They are polled again below, where they
                    // get a waker.
                    reads.go_on(&mut Context::from_waker(Waker::noop()));
                    reads
                };
                poll_fn(|context| reads.poll(context)).await
            };
            if let Err(error) = &first
                && is_of_the_device(error.kind())
            {
                return first;
            }
            let call = || format!("{} bytes of {src:#x}", other.len());
            self.agree(op, call, first, second)?;
            dst.copy_from_slice(&own);
            let compared = self.compare_reads(op, call, [dst, &other]);
            if compared.is_err() {
                self.mirror.lock().is_out_of_step = true;
            }
            compared
        })
    }

    /// Warms the first backend up; the second compiles at its first use.
    fn warm_up_async<'a>(&'a self, operations: &'a [Operation<'a>]) -> BackendFuture<'a, ()> {
        self.first.warm_up_async(operations)
    }

    fn capture(
        &self,
        record: &mut dyn FnMut(&dyn ComputeBackend) -> BackendResult<()>,
    ) -> BackendResult<u64> {
        self.capture_graph(record)
    }

    fn replay(&self, graph: u64) -> BackendResult<()> {
        self.replay_graph(graph)
    }

    fn free_graph(&self, graph: u64) -> BackendResult<()> {
        self.release_graph(graph)
    }

    /// What both can do.
    fn capabilities(&self) -> BackendResult<Capabilities> {
        let (mut first, second) = (self.first.capabilities()?, self.second.capabilities()?);
        first.f16 &= second.f16;
        first.max_alloc_bytes = first.max_alloc_bytes.min(second.max_alloc_bytes);
        first.max_binding_bytes = first.max_binding_bytes.min(second.max_binding_bytes);
        Ok(first)
    }

    /// The first device, with the second in its name.
    fn device_info(&self) -> BackendResult<DeviceInfo> {
        let (first, second) = (self.first.device_info()?, self.second.device_info()?);
        let selector = format!("{NAME}:{},{}", first.selector, second.selector);
        let name = format!("{}, compared with {}", first.name, second.name);
        Ok(DeviceInfo { selector, name, ..first })
    }

    /// The first backend's; handles of this backend's own aren't counted.
    fn memory_stats(&self) -> MemoryStats {
        let mut stats = self.first.memory_stats();
        stats.handles = stats.handles.saturating_sub(self.mirror.lock().held);
        stats
    }

    fn trim(&self) -> BackendResult<usize> {
        self.second.trim()?;
        self.first.trim()
    }

    forward!(this => *this.first; set_memory_budget);

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

/// Two futures that are polled together, and what they have given.
struct Both<'a, T>([(BackendFuture<'a, T>, Option<BackendResult<T>>); 2]);

impl<'a, T> Both<'a, T> {
    fn of(first: BackendFuture<'a, T>, second: BackendFuture<'a, T>) -> Self {
        Self([(first, None), (second, None)])
    }

    /// Polls the reads that have given nothing yet.
    fn go_on(&mut self, context: &mut Context<'_>) {
        for (future, result) in &mut self.0 {
            if result.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *result = Some(ready);
            }
        }
    }

    /// What both give, when both are ready.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<(BackendResult<T>, BackendResult<T>)> {
        self.go_on(context);
        let [(_, first), (_, second)] = &mut self.0;
        match (first.take(), second.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            waiting => {
                (*first, *second) = waiting;
                Poll::Pending
            }
        }
    }
}
