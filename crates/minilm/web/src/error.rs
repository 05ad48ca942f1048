//! Errors as scripts know them.

/// An `Error` to throw, with every cause in its message. Its name is the kind of the backend's error.
pub(crate) fn thrown(error: &minilm::Error) -> js_sys::Error {
    match error {
        minilm::Error::Backend(error) => web_page::thrown_by_backend(error),
        error => web_page::thrown(error),
    }
}
