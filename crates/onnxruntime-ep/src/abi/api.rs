//! ONNX Runtime's tables of functions, as it handed them over.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use ort_sys::{OrtApi, OrtApiBase};

use super::tables::{API_VERSION, EpApi};
use crate::error::{Error, Result};

static API: OnceLock<(&'static OrtApi, &'static EpApi)> = OnceLock::new();

/// Keeps the tables of the process's ONNX Runtime; false if it is older than the library needs.
///
/// # Safety
/// `base` must be ONNX Runtime's own table, which lives as long as the process.
pub(super) unsafe fn set(base: *const OrtApiBase) -> bool {
    // SAFETY: the caller passes ONNX Runtime's table or null.
    let Some(base) = (unsafe { base.as_ref() }) else { return false };
    // SAFETY: a function of that table, which returns null for versions that it doesn't know.
    let Some(api) = (unsafe { (base.GetApi)(API_VERSION).as_ref() }) else { return false };
    // SAFETY: a function of the table of version 23, whose declaration `EpApi` is.
    let Some(ep_api) = (unsafe { (api.GetEpApi)().cast::<EpApi>().as_ref() }) else { return false };
    API.get_or_init(|| (api, ep_api));
    true
}

/// ONNX Runtime's functions.
pub(super) fn api() -> Result<&'static OrtApi> {
    tables().map(|tables| tables.0)
}

/// Its functions for providers.
pub(super) fn ep_api() -> Result<&'static EpApi> {
    tables().map(|tables| tables.1)
}

fn tables() -> Result<&'static (&'static OrtApi, &'static EpApi)> {
    API.get().ok_or_else(|| Error::invalid("ONNX Runtime's API isn't set"))
}

/// A copy of a C string; empty for null.
///
/// # Safety
/// `text` must be null or point to a string that ends with 0.
pub(super) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
