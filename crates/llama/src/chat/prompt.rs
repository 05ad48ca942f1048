//! What of a chat fits into a context.

use super::{ChatTemplate, Message};
use crate::tokenizer::Tokenizer;
use crate::{Error, Result};

/// The tokens of a chat that a model answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatPrompt {
    /// Tokens of the messages that there is room for.
    pub tokens: Vec<u32>,
    /// How many messages there is no room for. They follow the system messages that the chat begins with, which
    /// stay.
    pub forgotten: usize,
}

impl ChatPrompt {
    /// Writes the last messages of a chat that leave room for an answer of `answer` tokens in a context of `context`,
    /// or for one of a quarter of the context if that is less. Questions are forgotten with their answers, the
    /// oldest ones first. Without a template, messages follow each other as they are.
    ///
    /// # Errors
    /// [`Error::MessageTooLong`] if there is no room for the last question alone, [`Error::Template`],
    /// [`Error::Tokenizer`].
    pub fn new(
        tokenizer: &Tokenizer,
        template: Option<&ChatTemplate>,
        messages: &[Message],
        context: usize,
        answer: usize,
    ) -> Result<Self> {
        let write = |messages: &[Message]| {
            let text = match template {
                Some(template) => template.render(messages)?,
                None => messages.iter().map(|message| message.content.as_str()).collect(),
            };
            // A template begins with the token that begins a text, if it wants one; it isn't added twice.
            tokenizer.encode(&text, true)
        };
        let answer = answer.min(context / 4);
        let room = context - answer;
        let system = messages.iter().take_while(|message| message.role == "system").count();
        let mut kept = messages.to_vec();
        loop {
            let tokens = write(&kept)?;
            let forgotten = messages.len() - kept.len();
            if tokens.len() <= room {
                return Ok(Self { tokens, forgotten });
            }
            // A question goes with its answer: templates expect them in turns.
            if kept.len() <= system + 2 {
                return Err(Error::MessageTooLong { tokens: tokens.len(), context, answer });
            }
            kept.drain(system..system + 2);
        }
    }
}
