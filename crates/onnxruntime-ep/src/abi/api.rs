//! ONNX Runtime's tables of functions, as it handed them over.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use ort_sys::{OrtApi, OrtApiBase};

use super::tables::{API_VERSION, EpApi, PROFILING_VERSION, ProfilingApi};
use crate::error::{Error, Result};

static API: OnceLock<Tables> = OnceLock::new();

/// ONNX Runtime's functions, those for providers, and those for profiles where it has them.
type Tables = (&'static OrtApi, &'static EpApi, Option<&'static ProfilingApi>);

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
    // SAFETY: a function of the process's table, whose text lives as long.
    let version = unsafe { text((base.GetVersionString)()) };
    // SAFETY: the caller's promise.
    let profiling_api = if has_profiling_api(&version) { unsafe { profiling_table(base) } } else { None };
    API.get_or_init(|| (api, ep_api, profiling_api));
    true
}

/// The functions for profiles, of the first version of the API that has them.
///
/// # Safety
/// `base` must be ONNX Runtime's own table.
unsafe fn profiling_table(base: &OrtApiBase) -> Option<&'static ProfilingApi> {
    // SAFETY: the caller's promise; the table that `ProfilingApi` declares is that of the version asked for.
    unsafe { ((base.GetApi)(PROFILING_VERSION).as_ref()?.GetEpApi)().cast::<ProfilingApi>().as_ref() }
}

/// Whether a version of ONNX Runtime, such as `1.23.2`, has the API's version for profiles. It is asked by its
/// text, as asking for an API that it doesn't have makes it write to the standard error.
fn has_profiling_api(version: &str) -> bool {
    let mut numbers = version.split('.').map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return false };
    (major, minor) >= (1, PROFILING_VERSION)
}

/// ONNX Runtime's functions.
pub(super) fn api() -> Result<&'static OrtApi> {
    tables().map(|tables| tables.0)
}

/// Its functions for providers.
pub(super) fn ep_api() -> Result<&'static EpApi> {
    tables().map(|tables| tables.1)
}

/// Its functions for profiles, which versions before 1.25 don't have.
pub(super) fn profiling_api() -> Result<&'static ProfilingApi> {
    tables()?.2.ok_or_else(|| Error::invalid("this version of ONNX Runtime has no profiles of providers"))
}

fn tables() -> Result<&'static Tables> {
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

#[cfg(test)]
mod tests {
    use super::has_profiling_api;

    #[test]
    fn profiles_are_asked_for_from_1_25_on() {
        assert!(["1.25.0", "1.32.0", "1.100.0-dev", "2.0"].into_iter().all(has_profiling_api));
        assert!(!["1.23.2", "1.24.4", "1", "", "x.30"].into_iter().any(has_profiling_api));
    }
}
