//! Errors as scripts know them.

use js_sys::Error;

/// An `Error` to throw, with every cause in its message.
pub(crate) fn thrown(error: &minilm::Error) -> Error {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        message.push_str(": ");
        message.push_str(&error.to_string());
        cause = error.source();
    }
    let thrown = Error::new(&message);
    if let minilm::Error::Backend(error) = error {
        thrown.set_name(&format!("{:?}", error.kind()));
    }
    thrown
}
