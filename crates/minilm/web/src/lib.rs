//! minilm as a module for pages: [`Engine`], from a script's calls to ranked passages. On other targets there
//! is nothing here.
#![cfg(target_family = "wasm")]
#![allow(missing_docs, reason = "wasm-bindgen's own items")]

mod engine;
mod error;

use js_sys::{Error, Function};
use minilm::Tokenizer;
use wasm_bindgen::prelude::wasm_bindgen;
use web_page::{json, on_progress};

use error::thrown;

web_page::engine_class! {
    /// A device with the model on it.
    ///
    /// What fails throws an `Error` whose `name` is the kind of the backend's error, such as `"DeviceLost"`.
    /// After that one the engine is of no more use; open another. A `progress` is called with what is done and
    /// the total.
}

#[wasm_bindgen]
impl Engine {
    /// Brings the model to the device: the contents of config.json, tokenizer.json and model.safetensors.
    /// Progress is in bytes.
    pub async fn load(
        &mut self,
        config: Vec<u8>,
        tokenizer: Vec<u8>,
        weights: Vec<u8>,
        progress: Function,
    ) -> Result<(), Error> {
        let tokenizer = Tokenizer::from_bytes(&tokenizer).map_err(|error| thrown(&error))?;
        self.0.load(&config, tokenizer, &weights, told(progress)).await.map_err(|error| thrown(&error))
    }

    /// Compiles what texts of every length need. Progress is in batches.
    pub async fn warm_up(&self, progress: Function) -> Result<(), Error> {
        self.0.warm_up(told(progress)).await.map_err(|error| thrown(&error))
    }

    /// The passages of `document`, the most similar to `query` first, as JSON. Progress is in passages.
    pub async fn rank(
        &self,
        query: String,
        document: String,
        top: usize,
        progress: Function,
    ) -> Result<String, Error> {
        let ranking = self.0.rank(&query, &document, top, told(progress)).await;
        json(&ranking.map_err(|error| thrown(&error))?)
    }

    /// The vector of one text, of length 1.
    pub async fn embed(&self, text: String) -> Result<Vec<f32>, Error> {
        self.0.embed(&text).await.map_err(|error| thrown(&error))
    }
}

/// A script's function that hears of counts.
fn told(progress: Function) -> impl FnMut(usize, usize) {
    let progress = on_progress(progress);
    move |done, total| progress(done as f64, total as f64)
}
