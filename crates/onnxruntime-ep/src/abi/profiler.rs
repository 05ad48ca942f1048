//! Profilers, which ONNX Runtime asks for from version 1.25 on.

use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use ort_sys::OrtStatusPtr;

use super::api::profiling_api;
use super::status::{check, guard, guard_value};
use super::tables::{
    EpProfiler, PROFILING_VERSION, ProfilingApi, ProfilingEvent, ProfilingEventCategory,
    ProfilingEventsContainer,
};
use crate::error::{Error, Result};
use crate::options::NAME;
use crate::profile::{Event, Profiler, Profilers};

/// ONNX Runtime's table, and what it doesn't look at behind it.
#[repr(C)]
struct Handle {
    table: EpProfiler,
    profiler: Arc<Profiler>,
    all: Arc<Profilers>,
}

/// A profiler, which ONNX Runtime releases.
pub(super) fn create(all: &Arc<Profilers>) -> *mut EpProfiler {
    let table = EpProfiler {
        ort_version_supported: PROFILING_VERSION,
        Release: release,
        StartProfiling: start_profiling,
        StartEvent: start_event,
        StopEvent: stop_event,
        EndProfiling: end_profiling,
    };
    Box::into_raw(Box::new(Handle { table, profiler: Arc::default(), all: Arc::clone(all) })).cast()
}

/// # Safety
/// `profiler` must be one of `create`'s, not yet released.
unsafe fn handle<'a>(profiler: *const EpProfiler) -> &'a Handle {
    // SAFETY: the table is the first field of what `create` made.
    unsafe { &*profiler.cast::<Handle>() }
}

unsafe extern "system" fn release(this: *mut EpProfiler) {
    guard_value((), || {
        // SAFETY: ONNX Runtime passes the profiler back, and doesn't use it afterwards.
        let handle = unsafe { Box::from_raw(this.cast::<Handle>()) };
        handle.all.end(&handle.profiler);
        Ok(())
    });
}

unsafe extern "system" fn start_profiling(this: *mut EpProfiler, offset_ns: i64) -> OrtStatusPtr {
    guard(|| {
        // SAFETY: ONNX Runtime passes the profiler back.
        let handle = unsafe { handle(this) };
        handle.all.start(&handle.profiler, Duration::from_nanos(offset_ns.try_into().unwrap_or(0)));
        Ok(())
    })
}

unsafe extern "system" fn start_event(this: *mut EpProfiler, _id: u64) -> OrtStatusPtr {
    guard(|| {
        // SAFETY: ONNX Runtime passes the profiler back.
        unsafe { handle(this) }.profiler.open();
        Ok(())
    })
}

unsafe extern "system" fn stop_event(
    this: *mut EpProfiler,
    _id: u64,
    _event: *const ProfilingEvent,
) -> OrtStatusPtr {
    guard(|| {
        // SAFETY: ONNX Runtime passes the profiler back.
        unsafe { handle(this) }.profiler.close();
        Ok(())
    })
}

unsafe extern "system" fn end_profiling(
    this: *mut EpProfiler,
    container: *mut ProfilingEventsContainer,
) -> OrtStatusPtr {
    guard(|| {
        // SAFETY: ONNX Runtime passes the profiler back.
        let handle = unsafe { handle(this) };
        let events = handle.all.end(&handle.profiler);
        let mut made = Events { api: profiling_api()?, events: Vec::with_capacity(events.len()) };
        for event in &events {
            made.add(event)?;
        }
        // SAFETY: the container is valid for the call, and the list as long as the call says; events are copied.
        let status = unsafe {
            (made.api.ProfilingEventsContainer_AddEvents)(container, made.events.as_ptr(), made.events.len())
        };
        check("ProfilingEventsContainer_AddEvents", status)
    })
}

/// Events as ONNX Runtime has them, released with the value.
struct Events {
    api: &'static ProfilingApi,
    events: Vec<*const ProfilingEvent>,
}

impl Events {
    fn add(&mut self, event: &Event) -> Result<()> {
        let text = |text: &str| {
            CString::new(text.replace('\0', " ")).map_err(|_| Error::invalid("a name with a zero in it"))
        };
        let (name, values) = (text(&event.name)?, [text(&event.operator)?, text(NAME)?]);
        let keys: [*const c_char; 2] = [c"op_name".as_ptr(), c"provider".as_ptr()];
        let values = values.each_ref().map(|value| value.as_ptr());
        let microseconds = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        // Ends are rounded down as well, so that no event reaches into the next one.
        let start = microseconds(event.start);
        let duration = microseconds(event.start + event.duration) - start;
        let process = i32::try_from(std::process::id()).unwrap_or(-1);
        let mut made = ptr::null_mut();
        // SAFETY: the texts end with 0 and are copied; both lists have as many as the call says.
        let status = unsafe {
            (self.api.CreateProfilingEvent)(
                ProfilingEventCategory::Kernel,
                process,
                // No thread of the host's: the device's row of the timeline.
                -1,
                name.as_ptr(),
                start,
                duration,
                keys.as_ptr(),
                values.as_ptr(),
                keys.len(),
                &raw mut made,
            )
        };
        check("CreateProfilingEvent", status)?;
        self.events.push(made);
        Ok(())
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        for event in self.events.drain(..) {
            // SAFETY: an event that `add` made, which nobody uses any more.
            unsafe { (self.api.ReleaseProfilingEvent)(event.cast_mut()) };
        }
    }
}
