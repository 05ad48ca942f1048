//! llama as a module for pages: [`Engine`], from a script's calls to text that goes on. On other targets there is
//! nothing here.
#![cfg(target_family = "wasm")]
#![allow(missing_docs, reason = "wasm-bindgen's own items")]

mod blob;
mod chat;
mod engine;
mod error;
mod request;

use js_sys::{Error, Function};
use wasm_bindgen::prelude::wasm_bindgen;
use web_page::{json, on_progress, parsed};
use web_sys::Blob;

use error::thrown;

web_page::engine_class! {
    /// A device with a language model on it.
    ///
    /// What fails throws an `Error` whose `name` is the kind of the backend's error, such as `"DeviceLost"`, or
    /// `"File"` where the model's file is to blame. After `"DeviceLost"` the engine is of no more use; open another.
    /// One call at a time: the next one may come when the promise of the last one is settled.
}

#[wasm_bindgen]
impl Engine {
    /// Brings the model of a GGUF file to the device, a layer at a time, in place of the one before. At most
    /// `context` tokens are remembered. `progress` is called with the bytes done and all. Returns the model as
    /// JSON: `name`, `architecture`, `parameters`, `bytes`, `context`, `chats`.
    pub async fn load(&mut self, file: Blob, context: usize, progress: Function) -> Result<String, Error> {
        let progress = on_progress(progress);
        let told = |done: u64, all: u64| progress(done as f64, all as f64);
        let model = self.0.load(&blob::BlobSource(file), context, told).await;
        json(&model.map_err(|error| thrown(&error))?)
    }

    /// Compiles what messages need.
    pub async fn warm_up(&mut self) -> Result<(), Error> {
        self.0.chat().map_err(|error| thrown(&error))?.warm_up().await.map_err(|error| thrown(&error))
    }

    /// Begins an answer to `messages`, JSON of `[{ role, content }]`; `options` is JSON of `temperature`, `seed`
    /// and `tokens`, the most of the answer. Returns JSON: `prompt` tokens, `known` of them from before, messages
    /// `forgotten` for lack of room.
    pub fn begin(&mut self, messages: String, options: String) -> Result<String, Error> {
        let messages: Vec<request::Message> = parsed(&messages)?;
        let options: request::Options = parsed(&options)?;
        let chat = self.0.chat().map_err(|error| thrown(&error))?;
        json(&chat.begin(messages, &options).map_err(|error| thrown(&error))?)
    }

    /// Goes on with the answer. Returns JSON: `read` tokens of the prompt, or `text` of so many `tokens`, and what
    /// it `ended` by, which is null if it didn't.
    #[wasm_bindgen(js_name = next)]
    pub async fn advance(&mut self) -> Result<String, Error> {
        let next = self.0.chat().map_err(|error| thrown(&error))?.next().await;
        json(&next.map_err(|error| thrown(&error))?)
    }

    /// Bytes as JSON: `device` that the backend has allocated, `module` of the module's own memory.
    pub fn memory(&self) -> Result<String, Error> {
        json(&self.0.memory())
    }
}
