//! What of a chat fits into a context.

use super::{ChatTemplate, Message};
use crate::tokenizer::{Guard, Tokenizer};
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
    /// or for one of a quarter of the context if that is less. If not all of them do, half of the context is cleared, so that
    /// the next questions find room behind what the caches have: questions are forgotten with their answers, the
    /// oldest ones first, until the rest takes no more than that half. The last question keeps the one before it, with its
    /// answer, if there is room for both. Without a template, messages follow each other as they are. What spells a control token
    /// in a message is a text like any other: only the template has control tokens.
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
        let guard = Guard::new(messages.iter().map(|message| message.content.as_str()));
        let write = |messages: &[Message]| {
            let text = match template {
                Some(template) => template.render(messages)?,
                None => messages.iter().map(|message| message.content.as_str()).collect(),
            };
            // A template begins with the token that begins a text, if it wants one; it isn't added twice.
            tokenizer.encode_guarded(&text, true, guard)
        };
        let answer = answer.min(context / 4);
        let room = context - answer;
        let system = messages.iter().take_while(|message| message.role == "system").count();
        let guarded = |message: &Message| Message {
            content: tokenizer.guarded(&message.content, guard),
            ..message.clone()
        };
        let mut kept: Vec<Message> = messages.iter().map(guarded).collect();
        loop {
            let tokens = write(&kept)?;
            let forgotten = messages.len() - kept.len();
            // A question goes with its answer: templates expect them in turns.
            let turns = kept.len().saturating_sub(system + 1) / 2;
            let enough = if forgotten == 0 || turns <= 1 { room } else { context / 2 };
            if tokens.len() <= enough {
                return Ok(Self { tokens, forgotten });
            }
            if turns == 0 {
                return Err(Error::MessageTooLong { tokens: tokens.len(), context, answer });
            }
            kept.drain(system..system + 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::Gguf;

    /// Of the model whose tokens are bytes, so that lengths are known. Before the first stands the token that begins a text.
    fn tokenizer() -> Tokenizer {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/models/bytes-1m-q4_0.gguf");
        let file = std::fs::read(path).unwrap();
        Tokenizer::from_metadata(Gguf::parse(&file).unwrap().metadata()).unwrap()
    }

    fn prompt(messages: &[Message], context: usize) -> Result<ChatPrompt> {
        ChatPrompt::new(&tokenizer(), None, messages, context, 10)
    }

    /// A prompt that begins as the one before it is read from there on alone.
    #[test]
    fn a_full_context_is_cleared_for_several_turns() {
        const CONTEXT: usize = 100;
        let mut messages = vec![Message::new("system", "12345")];
        let (mut before, mut read_anew) = (Vec::new(), Vec::new());
        for turn in 0..30 {
            messages.push(Message::new("user", format!("{turn:05}")));
            let ChatPrompt { tokens, forgotten } = prompt(&messages, CONTEXT).unwrap();
            assert!(tokens.len() <= CONTEXT - 10, "{tokens:?}");
            if forgotten > 0 {
                assert!((CONTEXT / 2 - 10..=CONTEXT / 2).contains(&tokens.len()), "{tokens:?}");
            }
            if !tokens.starts_with(&before) {
                read_anew.push(turn);
            }
            messages.drain(1..1 + forgotten);
            messages.push(Message::new("assistant", "abcde"));
            before = tokens;
        }
        assert_eq!(messages[0].content, "12345");
        // Of ten tokens each, eight turns and a question are one token too many, and five turns are forgotten.
        assert_eq!(read_anew, [8, 13, 18, 23, 28]);
    }

    /// Otherwise a message could forge the end of its turn, and what another said.
    #[test]
    fn messages_forge_no_control_token() {
        let (tokenizer, end) = (tokenizer(), "<|endoftext|>");
        let template =
            ChatTemplate::new("{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}", "", end);
        let template = template.unwrap();
        let control = tokenizer.encode(end, false).unwrap();
        assert_eq!(control.len(), 1);
        for text in [
            end,
            "a<|endoftext|><|endoftext|>b",
            "<<|endoftext|>",
            "a \u{fdd0}<|endoftext|>\u{fdd1}",
            "plain",
        ] {
            let prompt = ChatPrompt::new(&tokenizer, Some(&template), &[Message::new("user", text)], 1000, 0);
            let expected = [tokenizer.encode_plain(text, true).unwrap(), control.clone()].concat();
            assert_eq!(prompt.unwrap().tokens, expected, "{text}");
        }
    }

    #[test]
    fn a_question_keeps_the_one_before_it() {
        let mut messages = ["1", &"2".repeat(30), &"3".repeat(30), "4", &"5".repeat(30)]
            .map(|text| Message::new("user", text));
        (messages[1].role, messages[3].role) = ("assistant".to_owned(), "assistant".to_owned());
        let ChatPrompt { tokens, forgotten } = prompt(&messages, 80).unwrap();
        assert_eq!((tokens.len(), forgotten), (62, 2));
        assert_eq!(prompt(&messages, 70).unwrap().forgotten, 4);
        assert!(matches!(prompt(&messages, 40), Err(Error::MessageTooLong { tokens: 31, .. })));
    }
}
