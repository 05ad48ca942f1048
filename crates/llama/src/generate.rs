//! Text that goes on, token by token.

use web_time::{Duration, Instant};

use crate::session::Input;
use crate::{Result, Sampler, Session, Tokenizer};

/// How long a reader waits for the next piece of a text: tokens are made on the device and read together, as a read
/// costs much of a small model's token, and milliseconds in a browser.
const PATIENCE: Duration = Duration::from_millis(60);

/// The most tokens that are read together.
const MAX_AHEAD: usize = 64;

/// How many tokens are made before they are read: one at first, then as many as take 60 ms.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    ahead: usize,
    since: Instant,
}

impl Pace {
    /// Begins to make tokens; how many is told.
    pub fn begin(&mut self) -> usize {
        self.since = Instant::now();
        self.ahead
    }

    /// Ends a batch of tokens, whose number and time decide how many the next batch has.
    pub fn end(&mut self, tokens: usize) {
        let each = self.since.elapsed().as_secs_f64() / tokens.max(1) as f64;
        self.ahead = ((PATIENCE.as_secs_f64() / each.max(1e-6)) as usize).clamp(1, MAX_AHEAD);
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self { ahead: 1, since: Instant::now() }
    }
}

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

    /// The text of pending bytes when no more come: U+FFFD in place of a character's beginning, so that all texts
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
    /// The number of tokens that was asked for is reached.
    Count,
    /// The context is full.
    Context,
    /// The caller of [`generate`] said so.
    Stopped,
}

/// Adds `prompt` to sequence 0, which may have its first tokens already, and lets the model go on for at most `count`
/// tokens. `show` is given each token and says whether to go on. What the sequence has matters to repetition penalties,
/// so that `prompt` is the whole text.
///
/// Tokens are chosen on the device, and read some at a time; what is made beyond the end is forgotten.
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
    let rest = prompt.get(session.len(0)..).unwrap_or_default();
    let logits = session.step(&[Input { sequence: 0, tokens: rest }])?;
    let mut text = Text { seen: prompt.to_vec(), made: Vec::new(), count };
    let mut next = logits.sample(sampler, &[prompt])?;
    let mut pace = Pace::default();
    loop {
        if let Some(ended) = text.take(session, tokenizer, sampler, &next, &mut show) {
            return Ok((text.made, ended));
        }
        let ahead = text.ahead(session, pace.begin());
        if ahead == 0 {
            let ended = text.ended_by_room();
            return Ok((text.made, ended));
        }
        next = session.decode_sampled(0, &[&text.seen], sampler, ahead)?.pop().unwrap_or_default();
        pace.end(next.len());
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
    /// How many tokens to make, of so many that would be welcome; 0 if the context is full.
    fn ahead(&self, session: &Session, welcome: usize) -> usize {
        let room = session.context().saturating_sub(session.len(0));
        // One more than is asked for tells whether the text ends there by itself.
        welcome.clamp(1, self.count.saturating_sub(self.made.len()).saturating_add(1)).min(room)
    }

    /// Why a text ends where the context is full.
    const fn ended_by_room(&self) -> Ended {
        if self.made.len() == self.count { Ended::Count } else { Ended::Context }
    }

    /// Shows and keeps tokens, of which the session has all but the last, until one ends the text: then the
    /// session and the sampler forget what follows.
    fn take(
        &mut self,
        session: &mut Session,
        tokenizer: &Tokenizer,
        sampler: &mut Sampler,
        next: &[u32],
        mut show: impl FnMut(u32) -> bool,
    ) -> Option<Ended> {
        let before = session.len(0);
        for (i, &token) in next.iter().enumerate() {
            let behind = next.len() - 1 - i;
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
                session.truncate(0, before - behind);
                sampler.seek(sampler.drawn().wrapping_sub(behind as u64));
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
    /// Whether the prompt has been added and the token after it was made.
    is_begun: bool,
    ended: Option<Ended>,
}

/// What [`Generation::next`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// This many tokens of the prompt have been added, and there are more.
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
        Self { sampler, text, read: session.len(0), prompt: tokens.len(), is_begun: false, ended: None }
    }

    /// Adds a part of the prompt, or makes at most `ahead` tokens, which are chosen on the device and read at once.
    /// Texts don't depend on how many these are. A text that has ended says so again, and a call that failed may be
    /// made again.
    ///
    /// # Errors
    /// As [`Session::step`].
    pub async fn next(
        &mut self,
        session: &mut Session,
        tokenizer: &Tokenizer,
        ahead: usize,
    ) -> Result<Progress> {
        if let Some(ended) = self.ended {
            return Ok(Progress::Ended(Vec::new(), ended));
        }
        let next = if self.is_begun {
            let ahead = self.text.ahead(session, ahead);
            if ahead == 0 {
                let ended = self.text.ended_by_room();
                self.ended = Some(ended);
                return Ok(Progress::Ended(Vec::new(), ended));
            }
            let made = session.decode_sampled_async(0, &[&self.text.seen], &mut self.sampler, ahead).await?;
            made.into_iter().next().unwrap_or_default()
        } else {
            match self.add_prompt(session).await? {
                Some(first) => first,
                None => return Ok(Progress::Prompt(self.read)),
            }
        };
        self.is_begun = true;
        let mut shown = Vec::new();
        let ended = self.text.take(session, tokenizer, &mut self.sampler, &next, |token| {
            shown.push(token);
            true
        });
        self.ended = ended;
        Ok(match ended {
            Some(ended) => Progress::Ended(shown, ended),
            None => Progress::Tokens(shown),
        })
    }

    /// The token after the prompt, if the session has all of that now.
    async fn add_prompt(&mut self, session: &mut Session) -> Result<Option<Vec<u32>>> {
        let rest = self.text.seen.get(self.read..self.prompt).unwrap_or_default();
        let tokens = &rest[..rest.len().min(PROMPT)];
        // A call that failed behind the step, or that nobody waited for, has left its part there.
        session.truncate(0, self.read);
        let logits = session.step(&[Input { sequence: 0, tokens }])?;
        if self.read + tokens.len() < self.prompt {
            self.read += tokens.len();
            // Bounds the work on its way.
            session.model().backend().synchronize_async().await?;
            return Ok(None);
        }
        let next = logits.sample_async(&mut self.sampler, &[&self.text.seen]).await?;
        self.read = self.prompt;
        Ok(Some(next))
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
        for bytes in (0..=text.len()).map(|end| &text[..end]).chain([&[0xe2, 0x82, 0xf0][..], &[0xf0, 0x9f]])
        {
            let mut stream = TextStream::default();
            let mut shown: String = bytes.iter().map(|byte| stream.push(&[*byte])).collect();
            shown.push_str(&stream.finish());
            assert_eq!(shown, String::from_utf8_lossy(bytes));
        }
    }
}
