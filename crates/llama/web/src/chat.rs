//! A chat with a model: what the caches have of it, and the answer in the making.

use llama::{
    ChatPrompt, ChatTemplate, Generation, Message, Pace, Progress, Result, Sampler, Sampling, Session,
    TextStream, Tokenizer,
};
use serde::Serialize;

use crate::request::{self, Options};

/// Tokens of messages whose kernels are compiled ahead, of which a generation takes 128 at a time. One is left where a message
/// comes again.
const MESSAGES: [usize; 4] = [1, 8, 32, 128];

#[derive(Debug)]
pub(crate) struct Chat {
    session: Session,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    answer: Option<Answer>,
}

#[derive(Debug)]
struct Answer {
    generation: Generation,
    stream: TextStream,
    pace: Pace,
}

/// A prompt whose answer begins, for a page.
#[derive(Debug, Serialize)]
pub(crate) struct Begun {
    /// Its tokens.
    prompt: usize,
    /// Of these, the ones that the caches have from before.
    known: usize,
    /// Messages that there was no room for.
    forgotten: usize,
}

/// The next part of an answer, for a page.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Next {
    /// Tokens of the prompt in the caches, as long as there are more.
    read: Option<usize>,
    text: String,
    /// How many tokens it is.
    tokens: usize,
    /// `"End"` by the model, `"Count"`, `"Context"`.
    ended: Option<String>,
}

impl Chat {
    pub(crate) fn new(session: Session, tokenizer: Tokenizer, template: Option<ChatTemplate>) -> Self {
        Self { session, tokenizer, template, answer: None }
    }

    /// Compiles what messages need whose answers are the most probable text, or one at random.
    pub(crate) async fn warm_up(&self) -> Result<()> {
        self.session.warm_up_async(&MESSAGES, &Sampling::default()).await?;
        self.session.warm_up_async(&[], &Sampling::greedy()).await
    }

    pub(crate) fn begin(&mut self, messages: Vec<request::Message>, options: &Options) -> Result<Begun> {
        let messages: Vec<Message> =
            messages.into_iter().map(|message| Message::new(message.role, message.content)).collect();
        let (template, context) = (self.template.as_ref(), self.session.context());
        let ChatPrompt { tokens, forgotten } =
            ChatPrompt::new(&self.tokenizer, template, &messages, context, options.tokens)?;
        let cached = self.answer.take().map_or(0, |answer| {
            let had = answer.generation.tokens().iter().zip(&tokens).take_while(|(a, b)| a == b).count();
            had.min(self.session.len(0))
        });
        // The last token has to be run again for what follows it.
        self.session.truncate(0, cached.min(tokens.len().saturating_sub(1)));
        let known = self.session.len(0);

        let mut sampling = Sampling::default();
        (sampling.temperature, sampling.seed) = (options.temperature, options.seed);
        let generation = Generation::new(&self.session, Sampler::new(sampling), &tokens, options.tokens);
        self.answer = Some(Answer { generation, stream: TextStream::default(), pace: Pace::default() });
        Ok(Begun { prompt: tokens.len(), known, forgotten })
    }

    pub(crate) async fn next(&mut self) -> Result<Next> {
        let Some(answer) = &mut self.answer else { return Ok(Next::default()) };
        let ahead = answer.pace.begin();
        let progress = answer.generation.next(&mut self.session, &self.tokenizer, ahead).await?;
        let (tokens, ended) = match progress {
            Progress::Prompt(read) => return Ok(Next { read: Some(read), ..Next::default() }),
            Progress::Tokens(tokens) => (tokens, None),
            Progress::Ended(tokens, ended) => (tokens, Some(format!("{ended:?}"))),
        };
        answer.pace.end(tokens.len());
        let mut text: String =
            tokens.iter().map(|&token| answer.stream.push(self.tokenizer.bytes(token))).collect();
        if ended.is_some() {
            text.push_str(&std::mem::take(&mut answer.stream).finish());
        }
        Ok(Next { read: None, text, tokens: tokens.len(), ended })
    }
}
