//! Text that goes on, token by token.

use crate::session::Input;
use crate::{Result, Sampler, Session, Tokenizer};

/// Tokens that greedy text runs ahead of what is shown.
const AHEAD: usize = 8;

/// Text as it comes: whole characters of tokens that may end within one.
#[derive(Debug, Default)]
pub struct TextStream {
    pending: Vec<u8>,
}

impl TextStream {
    /// The characters that `bytes` complete. What can't become UTF-8 any more is U+FFFD.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend(bytes);
        let mut text = String::new();
        loop {
            let (valid, wrong) = match std::str::from_utf8(&self.pending) {
                Ok(valid) => (valid.len(), 0),
                Err(error) => (error.valid_up_to(), error.error_len().unwrap_or(0)),
            };
            text.push_str(&String::from_utf8_lossy(&self.pending[..valid]));
            self.pending.drain(..valid + wrong);
            if wrong == 0 {
                return text;
            }
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }

    /// What is left when no more bytes come: U+FFFD in place of a character's beginning, so that all texts
    /// together are what [`Tokenizer::decode`] makes of the bytes.
    #[must_use]
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The model said so.
    End,
    /// So many tokens were asked for.
    Count,
    /// The context is full.
    Context,
    /// The caller of [`generate`] said so.
    Stopped,
}

/// Adds `prompt` to sequence 0 and lets the model go on for at most `count` tokens. `show` is given each token
/// and says whether to go on.
///
/// Greedy text is made some tokens at a time, on the device; what is made beyond the end is forgotten.
///
/// # Errors
/// As [`Session::step`].
pub fn generate(
    session: &mut Session,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    prompt: &[u32],
    count: usize,
    mut show: impl FnMut(u32) -> bool,
) -> Result<(Vec<u32>, Ended)> {
    let logits = session.step(&[Input { sequence: 0, tokens: prompt }])?.to_vec()?;
    let mut text = Text { seen: prompt.to_vec(), made: Vec::new(), count };
    let mut next = vec![sampler.choose(&logits, &text.seen)];
    loop {
        if let Some(ended) = text.take(session, tokenizer, &next, &mut show) {
            return Ok((text.made, ended));
        }
        let room = session.context() - session.len(0);
        let Some(&last) = next.last().filter(|_| room > 0) else { return Ok((text.made, Ended::Context)) };
        next = if sampler.sampling().is_greedy() {
            session.decode_greedy(0, &[last], AHEAD.min(room))?.pop().unwrap_or_default()
        } else {
            let logits = session.decode(0, &[last])?;
            vec![sampler.choose(&logits, &text.seen)]
        };
    }
}

/// What there is of a text.
#[derive(Clone, Debug)]
struct Text {
    /// The prompt and what follows it.
    seen: Vec<u32>,
    /// What follows the prompt.
    made: Vec<u32>,
    /// How much of that is asked for.
    count: usize,
}

impl Text {
    /// Shows and keeps tokens, of which the session has all but the last, until one ends the text: then the
    /// session forgets what follows.
    fn take(
        &mut self,
        session: &mut Session,
        tokenizer: &Tokenizer,
        next: &[u32],
        mut show: impl FnMut(u32) -> bool,
    ) -> Option<Ended> {
        let before = session.len(0);
        for (i, &token) in next.iter().enumerate() {
            let kept = before - (next.len() - 1 - i);
            let ended = if tokenizer.is_end(token) {
                Some(Ended::End)
            } else if self.made.len() == self.count {
                Some(Ended::Count)
            } else {
                self.made.push(token);
                self.seen.push(token);
                (!show(token)).then_some(Ended::Stopped)
            };
            if let Some(ended) = ended {
                session.truncate(0, kept);
                return Some(ended);
            }
        }
        None
    }
}

/// Tokens of a prompt that a [`Generation`] adds at a time.
const PROMPT: usize = 128;

/// A text of sequence 0 that goes on as it is asked to: [`generate`] for callers that can't block, and that may
/// stop whenever they like. What the sequence has of it stays.
#[derive(Clone, Debug)]
pub struct Generation {
    sampler: Sampler,
    text: Text,
    /// Tokens of the prompt that the session has.
    read: usize,
    /// How long the prompt is.
    prompt: usize,
    /// The token that is added next, once the prompt has been.
    last: Option<u32>,
}

/// What [`Generation::next`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So many tokens of the prompt have been added, and there are more.
    Prompt(usize),
    /// Tokens were made.
    Tokens(Vec<u32>),
    /// Tokens were made, and no more follow.
    Ended(Vec<u32>, Ended),
}

impl Generation {
    /// Goes on with `tokens`, of which the session has the first ones already, for at most `count` tokens.
    #[must_use]
    pub fn new(session: &Session, sampler: Sampler, tokens: &[u32], count: usize) -> Self {
        let text = Text { seen: tokens.to_vec(), made: Vec::new(), count };
        Self { sampler, text, read: session.len(0), prompt: tokens.len(), last: None }
    }

    /// Adds a part of the prompt, or makes tokens: greedy text at most `ahead` of them, which are made on the
    /// device and read at once, any other text one.
    ///
    /// # Errors
    /// As [`Session::step`].
    pub async fn next(
        &mut self,
        session: &mut Session,
        tokenizer: &Tokenizer,
        ahead: usize,
    ) -> Result<Progress> {
        let next = match self.last {
            None => match self.add_prompt(session).await? {
                Some(first) => vec![first],
                None => return Ok(Progress::Prompt(self.read)),
            },
            Some(last) => {
                let room = session.context().saturating_sub(session.len(0));
                if room == 0 {
                    return Ok(Progress::Ended(Vec::new(), Ended::Context));
                }
                self.decode(session, last, ahead.clamp(1, room)).await?
            }
        };
        self.last = next.last().copied();
        let mut shown = Vec::new();
        let ended = self.text.take(session, tokenizer, &next, |token| {
            shown.push(token);
            true
        });
        Ok(match ended {
            Some(ended) => Progress::Ended(shown, ended),
            None => Progress::Tokens(shown),
        })
    }

    /// The token after the prompt, if the session has all of that now.
    async fn add_prompt(&mut self, session: &mut Session) -> Result<Option<u32>> {
        let rest = self.text.seen.get(self.read..self.prompt).unwrap_or_default();
        let tokens = &rest[..rest.len().min(PROMPT)];
        let logits = session.step(&[Input { sequence: 0, tokens }])?;
        self.read += tokens.len();
        if self.read < self.prompt {
            // Bounds the work on its way.
            session.model().backend().synchronize_async().await?;
            return Ok(None);
        }
        let logits = logits.to_vec_async().await?;
        Ok(Some(self.sampler.choose(&logits, &self.text.seen)))
    }

    async fn decode(&mut self, session: &mut Session, last: u32, count: usize) -> Result<Vec<u32>> {
        if self.sampler.sampling().is_greedy() {
            return Ok(session.decode_greedy_async(0, &[last], count).await?.pop().unwrap_or_default());
        }
        let logits = session.decode_async(0, &[last]).await?;
        Ok(vec![self.sampler.choose(&logits, &self.text.seen)])
    }

    /// The prompt and what has been made.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        &self.text.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_come_whole() {
        let mut stream = TextStream::default();
        let bytes = "aé€".as_bytes();
        let texts: Vec<String> = bytes.iter().map(|byte| stream.push(&[*byte])).collect();
        assert_eq!(texts, ["a", "", "é", "", "", "€"]);
        assert_eq!(stream.push(&[0xe2, 0x82, b'x']), "\u{fffd}x");
        assert_eq!(stream.push(&[0xff, 0xff]), "\u{fffd}\u{fffd}");
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn a_stream_ends_as_its_bytes_decode() {
        let text = "aé€😀".as_bytes();
        for bytes in (0..=text.len()).map(|end| &text[..end]).chain([&[0xe2, 0x82, 0xf0][..], &[0xf0, 0x9f]]) {
            let mut stream = TextStream::default();
            let mut shown: String = bytes.iter().map(|byte| stream.push(&[*byte])).collect();
            shown.push_str(&stream.finish());
            assert_eq!(shown, String::from_utf8_lossy(bytes));
        }
    }
}
