//! A chat with a model: what the caches have of it, and the answer in the making.

use llama::{
    ChatPrompt, ChatTemplate, Generation, Input, Message, Progress, Result, Sampler, Sampling, Session,
    TextStream, Tokenizer,
};
use web_time::{Duration, Instant};

use crate::report::{self, Begun, Next, Options};

/// Greedy tokens are made on the device and read together, as many as take so long: a read costs milliseconds in a
/// browser, and text may come in small pieces.
const PATIENCE: Duration = Duration::from_millis(60);

/// The most tokens that are read together.
const MAX_AHEAD: usize = 64;

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
    ahead: usize,
}

impl Chat {
    pub(crate) fn new(session: Session, tokenizer: Tokenizer, template: Option<ChatTemplate>) -> Self {
        Self { session, tokenizer, template, answer: None }
    }

    /// Makes a token and forgets it.
    pub(crate) async fn warm_up(&mut self) -> Result<()> {
        self.answer = None;
        self.session.truncate(0, 0);
        self.session.step(&[Input { sequence: 0, tokens: &[0] }])?.to_vec_async().await?;
        if self.session.context() > 1 {
            self.session.decode_greedy_async(0, &[0], 1).await?;
        }
        self.session.truncate(0, 0);
        Ok(())
    }

    pub(crate) fn begin(&mut self, messages: Vec<report::Message>, options: &Options) -> Result<Begun> {
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
        self.answer = Some(Answer { generation, stream: TextStream::default(), ahead: 1 });
        Ok(Begun { prompt: tokens.len(), known, forgotten })
    }

    pub(crate) async fn next(&mut self) -> Result<Next> {
        let Some(answer) = &mut self.answer else { return Ok(Next::default()) };
        let start = Instant::now();
        let progress = answer.generation.next(&mut self.session, &self.tokenizer, answer.ahead).await?;
        let (tokens, ended) = match progress {
            Progress::Prompt(read) => return Ok(Next { read: Some(read), ..Next::default() }),
            Progress::Tokens(tokens) => (tokens, None),
            Progress::Ended(tokens, ended) => (tokens, Some(format!("{ended:?}"))),
        };
        let each = start.elapsed().as_secs_f64() / tokens.len().max(1) as f64;
        answer.ahead = ((PATIENCE.as_secs_f64() / each.max(1e-6)) as usize).clamp(1, MAX_AHEAD);
        let mut text: String =
            tokens.iter().map(|&token| answer.stream.push(self.tokenizer.bytes(token))).collect();
        if ended.is_some() {
            text.push_str(&std::mem::take(&mut answer.stream).finish());
        }
        Ok(Next { read: None, text, tokens: tokens.len(), ended })
    }
}
