//! Messages in ONNX Runtime's log.

use std::ffi::CString;

use ort_sys::{OrtLogger, OrtLoggingLevel, os_char};

use super::api::api;
use super::status::check;

/// A session's logger, which outlives the session's provider.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logger(*const OrtLogger);

impl Logger {
    /// # Safety
    /// `logger` must be null or valid for as long as the value is used.
    pub(super) const unsafe fn new(logger: *const OrtLogger) -> Self {
        Self(logger)
    }

    /// Says something that is of interest to who looks for it.
    pub(super) fn info(self, message: &str) {
        self.log(OrtLoggingLevel::ORT_LOGGING_LEVEL_INFO, message);
    }

    /// Says something that a user has to know.
    pub(super) fn warning(self, message: &str) {
        self.log(OrtLoggingLevel::ORT_LOGGING_LEVEL_WARNING, message);
    }

    fn log(self, level: OrtLoggingLevel, message: &str) {
        let (Ok(api), Ok(message)) = (api(), CString::new(message)) else { return };
        if self.0.is_null() {
            return;
        }
        // Wide characters on Windows, bytes elsewhere.
        const FILE: [os_char; 3] = [b'e' as os_char, b'p' as os_char, 0];
        let function = c"provider".as_ptr();
        // SAFETY: the logger is valid by the promise of `new`; the texts end with 0 and are copied.
        let status =
            unsafe { (api.Logger_LogMessage)(self.0, level, message.as_ptr(), FILE.as_ptr(), 0, function) };
        // A message that can't be logged has nowhere else to go.
        _ = check("Logger_LogMessage", status);
    }
}
