//! Chat templates: Jinja, as Hugging Face's tokenizers have it, from the file.

mod date;
mod prompt;

use date::Moment;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value as Jinja, context};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Serialize;

pub use prompt::ChatPrompt;

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
    /// The template of a file; `None` for a model that wasn't trained to chat. What it asks `strftime_now` for is
    /// the time in UTC.
    ///
    /// # Errors
    /// [`Error::Template`] for one that can't be parsed.
    pub fn from_metadata(metadata: &Metadata, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        let Some(template) = metadata.get(KEY).and_then(Value::text) else { return Ok(None) };
        let bos = tokenizer.bos().and_then(|bos| tokenizer.spelling(bos)).unwrap_or_default();
        Self::new(template, bos, tokenizer.end_spelling().unwrap_or_default()).map(Some)
    }

    fn new(template: &str, bos: &str, eos: &str) -> Result<Self> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(Error::Template)?);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.add_function("raise_exception", |text: String| -> Result<String, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, text))
        });
        environment.add_function("strftime_now", |format: String| {
            Moment::now().format(&format).map_err(|field| {
                let text = format!("strftime_now doesn't know %{field}");
                minijinja::Error::new(ErrorKind::InvalidOperation, text)
            })
        });
        environment.add_template_owned("chat", template.to_owned()).map_err(Error::Template)?;
        Ok(Self { environment, bos: bos.to_owned(), eos: eos.to_owned() })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Llama 3's template calls it without asking whether it is there.
    #[test]
    fn templates_are_told_the_day() {
        let template = "{{ bos_token }}Today: {{ strftime_now('%d %b %Y') }}\n{{ messages[0].content }}";
        let template = ChatTemplate::new(template, "<s>", "</s>").unwrap();
        let day = || Moment::now().format("%d %b %Y").unwrap();
        let before = day();
        let text = template.render(&[Message::new("user", "hello")]).unwrap();
        let days = [before, day()].map(|day| format!("<s>Today: {day}\nhello"));
        assert!(days.contains(&text), "{text:?} isn't one of {days:?}");

        let unknown = ChatTemplate::new("{{ strftime_now('%Q') }}", "", "").unwrap();
        let error = unknown.render(&[]).unwrap_err().to_string();
        assert!(error.contains("%Q"), "{error}");
    }
}
