//! The runtime behind the module.

use std::sync::Arc;

use backend_api::BackendError;
use js_sys::{ArrayBuffer, WebAssembly};
use llama::gguf::{Index, Source, Value};
use llama::{ChatTemplate, Error, Model, Precision, Result, Session, SessionOptions, Tokenizer};
use serde::Serialize;
use wasm_bindgen::JsCast;
use web_page::Device;

use crate::chat::Chat;

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) device: Device,
    chat: Option<Chat>,
}

/// The model that was loaded, for a page.
#[derive(Debug, Serialize)]
pub(crate) struct Loaded {
    /// What the file calls it.
    name: String,
    architecture: &'static str,
    parameters: u64,
    /// Of all tensors in the file.
    bytes: u64,
    /// Tokens that are remembered.
    context: usize,
    /// Whether the file says how a chat is written; else texts are gone on with.
    chats: bool,
}

/// Bytes in use, for a page.
#[derive(Debug, Serialize)]
pub(crate) struct Memory {
    device: usize,
    module: u32,
}

impl Engine {
    pub(crate) fn new(device: Device) -> Self {
        Self { device, chat: None }
    }

    pub(crate) fn memory(&self) -> Memory {
        let memory: WebAssembly::Memory = wasm_bindgen::memory().unchecked_into();
        let buffer: ArrayBuffer = memory.buffer().unchecked_into();
        Memory { device: self.device.backend.memory_stats().in_use, module: buffer.byte_length() }
    }

    pub(crate) async fn load(
        &mut self,
        file: &impl Source,
        context: usize,
        progress: impl FnMut(u64, u64),
    ) -> Result<Loaded> {
        // There may not be room for both.
        self.chat = None;
        let index = Index::read(file).await?;
        let tokenizer = Tokenizer::from_metadata(index.metadata())?;
        let template = ChatTemplate::from_metadata(index.metadata(), &tokenizer)?;
        let model = Model::load_from(&self.device.backend, file, &index, Precision::F32, progress).await?;
        let context = context.min(model.config().context_length);
        let name = index.metadata().get("general.name").and_then(Value::text).unwrap_or_default();
        let loaded = Loaded {
            name: name.to_owned(),
            architecture: model.config().architecture.name(),
            parameters: index.parameters(),
            bytes: index.bytes(),
            context,
            chats: template.is_some(),
        };
        #[cfg_attr(
            target_family = "wasm",
            expect(
                clippy::arc_with_non_send_sync,
                reason = "a page has one thread, and sessions share models"
            )
        )]
        let model = Arc::new(model);
        let session = Session::new(&model, SessionOptions::new(context))?;
        self.chat = Some(Chat::new(session, tokenizer, template));
        Ok(loaded)
    }

    pub(crate) fn chat(&mut self) -> Result<&mut Chat> {
        self.chat.as_mut().ok_or(Error::Backend(BackendError::NotInitialized { op: "load" }))
    }
}
