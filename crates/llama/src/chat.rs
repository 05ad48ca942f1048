//! Chat templates: Jinja, as Hugging Face's tokenizers have it, from the file.

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value as Jinja, context};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Serialize;

use crate::gguf::{Metadata, Value};
use crate::tokenizer::Tokenizer;
use crate::{Error, Result};

const KEY: &str = "tokenizer.chat_template";

/// A template may not go on for longer than this many of its engine's steps.
const FUEL: u64 = 10_000_000;

/// A message of a chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// A message of a role.
    #[must_use]
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// Writes a chat as the text that a model was trained on.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// The template of a file; `None` for a model that wasn't trained to chat.
    ///
    /// # Errors
    /// [`Error::Template`] for one that can't be parsed.
    pub fn from_metadata(metadata: &Metadata, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        let Some(template) = metadata.get(KEY).and_then(Value::text) else { return Ok(None) };
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(Error::Template)?);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.add_function("raise_exception", |text: String| -> Result<String, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, text))
        });
        environment.add_template_owned("chat", template.to_owned()).map_err(Error::Template)?;
        let bos = tokenizer.bos().and_then(|bos| tokenizer.spelling(bos)).unwrap_or_default().to_owned();
        let eos = tokenizer.end_spelling().unwrap_or_default().to_owned();
        Ok(Some(Self { environment, bos, eos }))
    }

    /// Sets what templates are told of the day: `today` is asked for a text by a format of `strftime`.
    #[must_use]
    pub fn with_today(mut self, today: fn(&str) -> String) -> Self {
        self.environment.add_function("strftime_now", move |format: String| today(&format));
        self
    }

    /// The text of a chat, up to where the assistant's next message begins.
    ///
    /// # Errors
    /// [`Error::Template`] for messages that the template refuses.
    pub fn render(&self, messages: &[Message]) -> Result<String> {
        let template = self.environment.get_template("chat").map_err(Error::Template)?;
        let messages: Vec<Jinja> = messages
            .iter()
            .map(|Message { role, content }| context! { role => role.as_str(), content => content.as_str() })
            .collect();
        let context = context! {
            messages => messages,
            add_generation_prompt => true,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        };
        template.render(context).map_err(Error::Template)
    }
}
