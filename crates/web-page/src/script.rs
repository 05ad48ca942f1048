//! Values between Rust and scripts: JSON, errors to throw, and functions that hear of progress.

use backend_api::BackendError;
use js_sys::Function;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wasm_bindgen::JsValue;

/// Writes panics to the browser's console.
pub fn show_panics() {
    console_error_panic_hook::set_once();
}

/// An `Error` to throw, with every cause in its message.
#[must_use]
pub fn thrown(error: &dyn std::error::Error) -> js_sys::Error {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        message.push_str(": ");
        message.push_str(&error.to_string());
        cause = error.source();
    }
    js_sys::Error::new(&message)
}

/// A backend's error to throw, with every cause in its message. Its name is its kind, such as `"DeviceLost"`.
#[must_use]
pub fn thrown_by_backend(error: &BackendError) -> js_sys::Error {
    let thrown = thrown(error);
    thrown.set_name(&format!("{:?}", error.kind()));
    thrown
}

/// A value as JSON.
///
/// # Errors
/// An `Error` to throw if it can't be written.
pub fn json(value: &impl Serialize) -> Result<String, js_sys::Error> {
    serde_json::to_string(value).map_err(|error| js_sys::Error::new(&error.to_string()))
}

/// A value from JSON.
///
/// # Errors
/// An `Error` to throw if it isn't one.
pub fn parsed<T: DeserializeOwned>(json: &str) -> Result<T, js_sys::Error> {
    serde_json::from_str(json).map_err(|error| js_sys::Error::new(&error.to_string()))
}

/// A script's function that is called with what is done and the total. What it throws is the script's affair.
pub fn on_progress(progress: Function) -> impl Fn(f64, f64) {
    move |done, total| {
        _ = progress.call2(&JsValue::NULL, &JsValue::from(done), &JsValue::from(total));
    }
}
