//! Errors as scripts know them.

use js_sys::Error;

/// An `Error` to throw. Its name is the kind of the backend's error, or `"File"` for one of the model's file.
pub(crate) fn thrown(error: &llama::Error) -> Error {
    let thrown = match error {
        llama::Error::Backend(error) => return web_page::thrown_by_backend(error),
        // Its text names the cause.
        error => Error::new(&error.to_string()),
    };
    let of_call = matches!(
        error,
        llama::Error::TooLong { .. }
            | llama::Error::MessageTooLong { .. }
            | llama::Error::Argument { .. }
            | llama::Error::CacheType { .. }
    );
    if !of_call {
        thrown.set_name("File");
    }
    thrown
}
