//! Chat templates: Jinja, as Hugging Face's tokenizers have it, from the file.

mod date;
mod prompt;
mod sandbox;

use date::Moment;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value as Jinja, context};
use serde::Serialize;

pub use prompt::ChatPrompt;

use crate::gguf::Metadata;
use crate::tokenizer::Tokenizer;
use crate::{Error, Result};

const KEY: &str = "tokenizer.chat_template";

/// A template may not go on for longer than this many of its engine's steps, and as many for each message.
const FUEL: [u64; 2] = [200_000, 2_000];

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
///
/// Nothing of a template is trusted: it is parsed when a chat is written, in bounds of length, time and depth. Its lists
/// can still take much memory.
#[derive(Debug)]
pub struct ChatTemplate {
    source: String,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// The template of a file; `None` for a model that wasn't trained to chat. What it asks `strftime_now` for is
    /// the time in UTC.
    ///
    /// # Errors
    /// [`Error::Template`] for one of more than 64 KiB, [`Error::Value`] for one that isn't a text.
    pub fn from_metadata(metadata: &Metadata, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        let Some(value) = metadata.get(KEY) else { return Ok(None) };
        let template = value.text().ok_or_else(|| Error::value(KEY, "a text", "something else"))?;
        let bos = tokenizer.bos().and_then(|bos| tokenizer.spelling(bos)).unwrap_or_default();
        Self::new(template, bos, tokenizer.end_spelling().unwrap_or_default()).map(Some)
    }

    fn new(template: &str, bos: &str, eos: &str) -> Result<Self> {
        sandbox::check(template).map_err(Error::Template)?;
        Ok(Self { source: template.to_owned(), bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// The text of a chat, up to where the assistant's next message begins.
    ///
    /// # Errors
    /// [`Error::Template`] for a template that can't be parsed, or for messages that it refuses.
    pub fn render(&self, messages: &[Message]) -> Result<String> {
        sandbox::on_a_large_stack(|| self.write(messages)).map_err(Error::Template)
    }

    fn write(&self, messages: &[Message]) -> Result<String, minijinja::Error> {
        let environment = environment(messages.len())?;
        let template = environment.template_from_named_str("chat", &self.source)?;
        let messages: Vec<Jinja> = messages
            .iter()
            .map(|Message { role, content }| context! { role => role.as_str(), content => content.as_str() })
            .collect();
        template.render(context! {
            messages => messages,
            add_generation_prompt => true,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        })
    }
}

/// What templates of so many messages find.
fn environment<'source>(messages: usize) -> Result<Environment<'source>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    // Errors would hold values, which may be too deep to be dropped on the caller's stack.
    environment.set_debug(false);
    let [all, each] = FUEL;
    environment.set_fuel(Some(all.saturating_add(each.saturating_mul(messages as u64))));
    environment.set_unknown_method_callback(sandbox::method);
    environment.add_function("raise_exception", |text: String| -> Result<String, minijinja::Error> {
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, text))
    });
    environment.add_function("strftime_now", |format: String| {
        Moment::now().format(&format).map_err(|field| {
            let text = format!("strftime_now doesn't know %{field}");
            minijinja::Error::new(ErrorKind::InvalidOperation, text)
        })
    });
    Ok(environment)
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

    fn render(template: &str) -> Result<String> {
        ChatTemplate::new(template, "", "")?.render(&[Message::new("user", "hello, hello")])
    }

    /// Each would overflow the stack that a program has.
    #[test]
    fn deep_templates_are_bounded() {
        let fill = |before: &str, part: &str, after: &str| {
            let count = (60_000 - before.len() - after.len()) / part.len();
            format!("{before}{}{after}", part.repeat(count))
        };
        assert_eq!(render(&fill("{{ 1", "+1", " }}")).unwrap(), ((60_000 - 7) / 2 + 1).to_string());
        for template in [
            fill("{{ ", "not ", "1 }}"),
            fill("{{ 'a'", "|upper", " }}"),
            fill("{{ [0]", "[0]", " }}"),
            fill("{{ messages", ".a", " }}"),
            fill("{% if 0 %}", "{%elif 0%}", "{% endif %}"),
            "{% set n = namespace() %}{% for i in range(90000) %}{% set n.n = namespace(n=n.n) %}{% endfor %}".to_owned(),
        ] {
            // Some are texts, and some are refused.
            _ = render(&template).is_ok();
        }
        let error = render(&"a".repeat(65_537)).unwrap_err().to_string();
        assert!(error.contains("65537 bytes, expected at most 65536"), "{error}");
        assert_eq!(render(&"a".repeat(65_536)).unwrap().len(), 65_536);
    }

    /// Each would take far more memory than there is.
    #[test]
    fn methods_are_bounded() {
        for (method, template) in [
            ("replace", "{{ ('a' * 100000).replace('a', 'b' * 10000000)|length }}"),
            ("replace", "{{ ('a' * 1000000).replace('', 'b' * 100)|length }}"),
            ("join", "{{ ('a' * 1000000).join([1] * 100000)|length }}"),
            ("join", "{{ ''.join(['a' * 10000000] * 100)|length }}"),
            ("split", "{{ ('a' * 2000000).split('a')|length }}"),
        ] {
            let error = format!("{:?}", render(template).unwrap_err());
            assert!(
                error.contains("would make too much") || error.contains("OutOfFuel"),
                "{method}: {error}"
            );
        }
        assert_eq!(render("{{ messages[0].content.replace('hello', 'a') }}").unwrap(), "a, a");
        assert_eq!(render("{{ '-'.join(messages[0].content.split(', ')) }}").unwrap(), "hello-hello");
    }
}
