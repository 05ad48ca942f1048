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
    let mut seen = prompt.to_vec();
    let mut next = vec![sampler.choose(&logits, &seen)];
    let mut made = Vec::new();
    loop {
        let before = session.len(0);
        // The last of `next` isn't in the cache yet, those before it are.
        for (i, &token) in next.iter().enumerate() {
            let kept = before - (next.len() - 1 - i);
            let ended = if tokenizer.is_end(token) {
                Some(Ended::End)
            } else if made.len() == count {
                Some(Ended::Count)
            } else {
                made.push(token);
                seen.push(token);
                (!show(token)).then_some(Ended::Stopped)
            };
            if let Some(ended) = ended {
                session.truncate(0, kept);
                return Ok((made, ended));
            }
        }
        let room = session.context() - before;
        let Some(&last) = next.last().filter(|_| room > 0) else { return Ok((made, Ended::Context)) };
        next = if sampler.sampling().is_greedy() {
            session.decode_greedy(0, &[last], AHEAD.min(room))?.pop().unwrap_or_default()
        } else {
            let logits = session.decode(0, &[last])?;
            vec![sampler.choose(&logits, &seen)]
        };
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
    }
}
