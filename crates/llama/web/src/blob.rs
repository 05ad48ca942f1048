//! Files of a page.

use std::io;

use js_sys::Uint8Array;
use llama::gguf::Source;
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::JsFuture;
use web_sys::Blob;

/// A `Blob`, of which slices are read: a `File`, or what was fetched.
pub(crate) struct BlobSource(pub(crate) Blob);

impl Source for BlobSource {
    fn size(&self) -> u64 {
        self.0.size() as u64
    }

    async fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let (start, len) = (offset as f64, into.len() as f64);
        let slice = self.0.slice_with_f64_and_f64(start, start + len).map_err(|error| failed(&error))?;
        let bytes = JsFuture::from(slice.array_buffer()).await.map_err(|error| failed(&error))?;
        let bytes = Uint8Array::new(&bytes);
        if bytes.length() as usize != into.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.copy_to(into);
        Ok(())
    }
}

/// What the browser says, such as that the file has changed since it was chosen.
fn failed(error: &JsValue) -> io::Error {
    io::Error::other(String::from(js_sys::Object::from(error.clone()).to_string()))
}
