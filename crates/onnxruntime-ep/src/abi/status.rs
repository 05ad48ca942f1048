//! Results as ONNX Runtime has them: a pointer that is null for success.

use std::any::Any;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use ort_sys::{OrtErrorCode, OrtStatusPtr};

use super::api::{api, text};
use crate::error::{Error, Result};

/// Runs a callback. An error or a panic becomes a status with its words.
pub(super) fn guard(callback: impl FnOnce() -> Result<()>) -> OrtStatusPtr {
    match caught(callback) {
        Ok(()) => OrtStatusPtr(ptr::null_mut()),
        Err(error) => status(&error),
    }
}

/// Runs a callback that has a value but no status: `otherwise` stands for a failure.
pub(super) fn guard_value<T>(otherwise: T, callback: impl FnOnce() -> Result<T>) -> T {
    caught(callback).unwrap_or(otherwise)
}

fn caught<T>(callback: impl FnOnce() -> Result<T>) -> Result<T> {
    // What a panic leaves half done is behind locks without poisoning or is dropped with the callback.
    catch_unwind(AssertUnwindSafe(callback)).unwrap_or_else(|panic| Err(Error::Panic(message(&*panic))))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}

fn status(error: &Error) -> OrtStatusPtr {
    let words = error.to_string().replace('\0', " ");
    let (Ok(api), Ok(words)) = (api(), CString::new(words)) else { return OrtStatusPtr(ptr::null_mut()) };
    // SAFETY: the text ends with 0 and is copied.
    unsafe { (api.CreateStatus)(OrtErrorCode::ORT_EP_FAIL, words.as_ptr()) }
}

/// The result of a function of ONNX Runtime's, called `call`.
pub(super) fn check(call: &'static str, status: OrtStatusPtr) -> Result<()> {
    if status.0.is_null() {
        return Ok(());
    }
    let api = api()?;
    // SAFETY: a status that isn't null is valid until it is released, which happens here, after its message
    // was copied.
    let message = unsafe {
        let message = text((api.GetErrorMessage)(status.0));
        (api.ReleaseStatus)(status.0);
        message
    };
    Err(Error::Runtime { call, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error() {
        let error = caught(|| -> Result<()> { panic!("of {}", "course") }).unwrap_err();
        assert_eq!(error.to_string(), "internal error: of course");
        assert_eq!(guard_value(3, || panic!("{}", "again")), 3);
    }
}
