//! Errors as scripts know them.

use js_sys::Error;

/// An `Error` to throw. Its name is the kind of the backend's error, or `"File"` for one of the model's file.
pub(crate) fn thrown(error: &llama::Error) -> Error {
    let mut message = error.to_string();
    let name = match error {
        llama::Error::Backend(error) => {
            let mut cause = std::error::Error::source(error);
            while let Some(error) = cause {
                message.push_str(": ");
                message.push_str(&error.to_string());
                cause = error.source();
            }
            format!("{:?}", error.kind())
        }
        llama::Error::TooLong { .. } | llama::Error::Argument { .. } | llama::Error::CacheType { .. } => {
            String::from("Error")
        }
        _ => String::from("File"),
    };
    let thrown = Error::new(&message);
    thrown.set_name(&name);
    thrown
}
