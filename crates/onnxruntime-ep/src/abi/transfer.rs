//! Copies of tensors between host and device, and between devices.

use ort_sys::{OrtStatusPtr, OrtSyncStream, OrtValue};

use super::status::{guard, guard_value};
use super::tables::{API_VERSION, DataTransfer, MemoryDevice};
use super::value::{Place, Value, place};
use crate::devices;
use crate::error::{Error, Result};

/// The table; `release` gives it back.
pub(super) fn create() -> *mut DataTransfer {
    Box::into_raw(Box::new(DataTransfer {
        ort_version_supported: API_VERSION,
        Release: release,
        CanCopy: can_copy,
        CopyTensors: copy_tensors,
    }))
}

unsafe extern "system" fn release(this: *mut DataTransfer) {
    // SAFETY: made by `create`, and released once.
    drop(unsafe { Box::from_raw(this) });
}

unsafe extern "system" fn can_copy(
    _this: *const DataTransfer,
    from: *const MemoryDevice,
    to: *const MemoryDevice,
) -> bool {
    guard_value(false, || {
        // SAFETY: ONNX Runtime passes devices that are valid for the call.
        let (from, to) = unsafe { (place(from)?, place(to)?) };
        let known = |place| place != Place::Foreign;
        Ok(known(from) && known(to) && (from != Place::Host || to != Place::Host))
    })
}

unsafe extern "system" fn copy_tensors(
    _this: *mut DataTransfer,
    from: *const *const OrtValue,
    to: *const *mut OrtValue,
    _streams: *const *mut OrtSyncStream,
    count: usize,
) -> OrtStatusPtr {
    guard(|| {
        for i in 0..count {
            // SAFETY: both lists have `count` valid tensors.
            let (from, to) = unsafe { (Value::new(*from.add(i))?, Value::new(*to.add(i))?) };
            copy(&from, &to)?;
        }
        Ok(())
    })
}

/// On one device, the tensors share their elements; else they go through the host.
fn copy(from: &Value, to: &Value) -> Result<()> {
    let index = match (to.place, from.place) {
        (Place::Ours(index), _) | (Place::Host, Place::Ours(index)) => index,
        _ => return Err(Error::invalid("neither tensor lies on a device of this provider")),
    };
    let backend = devices::at(index as usize)?.backend()?;
    to.store(&from.load(&backend)?)
}
