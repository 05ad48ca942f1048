//! Decoding: texts of neighbouring sequences that go on token by token, on the device.

use backend_api::BackendResult;
use backend_api::owned::Buffer;

use super::chooser::{Choice, check_finite};
use super::decoder::Decoder;
use super::{Session, at_least_one};
use crate::{Error, Result, Sampler};

/// Texts in the making.
#[derive(Debug)]
struct Texts {
    choice: Choice,
    /// What each has so far, as far as it matters; the last token is the one that is added next.
    tokens: Vec<Vec<u32>>,
    /// What follows those that were there first.
    made: Vec<Vec<u32>>,
    /// Tokens that each still gets.
    left: usize,
    /// The place of the next random number.
    drawn: u64,
}

impl Texts {
    fn new(choice: Choice, drawn: u64, texts: &[&[u32]], count: usize) -> Result<Self> {
        if let Choice::Sampled(sampling) = choice {
            sampling.check()?;
        }
        for text in texts {
            at_least_one("a text's number of tokens", text.len())?;
        }
        let kept = choice.window().max(1);
        let tokens = texts.iter().map(|text| text[text.len().saturating_sub(kept)..].to_vec()).collect();
        Ok(Self { choice, tokens, made: vec![Vec::new(); texts.len()], left: count, drawn })
    }

    fn last(&self) -> Vec<u32> {
        self.tokens.iter().filter_map(|text| text.last().copied()).collect()
    }
}

impl Session {
    /// Adds the last token of `texts[i]` to sequence `sequence + i`, and then those that `sampler` chooses, until
    /// each has `count` tokens more. Returns the tokens chosen after each of those, `count` for each sequence: the
    /// last one hasn't been added. What stands in the texts before their last token matters to repetition
    /// penalties alone.
    ///
    /// Tokens are chosen on the device, go from one step to the next there, and are read once. How many are
    /// made by one call doesn't change them: each step draws the next of the seed's random numbers, one for each
    /// sequence in turn. A call that fails adds and draws nothing.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that isn't there, an empty text, a last token outside the vocabulary, or a
    /// window beyond 32,768 tokens; [`Error::TooLong`]; [`Error::NotFinite`]; [`Error::Backend`].
    pub fn decode_sampled(
        &mut self,
        sequence: usize,
        texts: &[&[u32]],
        sampler: &mut Sampler,
        count: usize,
    ) -> Result<Vec<Vec<u32>>> {
        let mut texts = Texts::new(Choice::of(sampler.sampling()), sampler.drawn(), texts, count)?;
        self.make(sequence, &mut texts)?;
        sampler.seek(texts.drawn);
        Ok(texts.made)
    }

    /// [`decode_sampled`](Self::decode_sampled) that waits without blocking.
    ///
    /// # Errors
    /// As [`decode_sampled`](Self::decode_sampled).
    pub async fn decode_sampled_async(
        &mut self,
        sequence: usize,
        texts: &[&[u32]],
        sampler: &mut Sampler,
        count: usize,
    ) -> Result<Vec<Vec<u32>>> {
        let mut texts = Texts::new(Choice::of(sampler.sampling()), sampler.drawn(), texts, count)?;
        self.make_async(sequence, &mut texts).await?;
        sampler.seek(texts.drawn);
        Ok(texts.made)
    }

    /// [`decode_sampled`](Self::decode_sampled) of always the most probable token, after `first[i]` in sequence
    /// `sequence + i`.
    ///
    /// # Errors
    /// As [`decode_sampled`](Self::decode_sampled).
    pub fn decode_greedy(&mut self, sequence: usize, first: &[u32], count: usize) -> Result<Vec<Vec<u32>>> {
        let first: Vec<&[u32]> = first.chunks(1).collect();
        let mut texts = Texts::new(Choice::Greedy, 0, &first, count)?;
        self.make(sequence, &mut texts)?;
        Ok(texts.made)
    }

    fn make(&mut self, sequence: usize, texts: &mut Texts) -> Result<()> {
        let before = self.lengths.clone();
        let made = self.make_pages(sequence, texts);
        // Pages that were made before the failing one.
        made.inspect_err(|_| self.lengths = before)
    }

    fn make_pages(&mut self, sequence: usize, texts: &mut Texts) -> Result<()> {
        while let Some((decoder, buffers)) = self.replay_page(sequence, texts)? {
            let mut made = Vec::with_capacity(buffers.len());
            for [tokens, largest] in &buffers {
                made.push(tokens.to_vec()?);
                check_finite(&largest.to_vec()?)?;
            }
            self.keep(sequence, decoder, texts, made);
        }
        Ok(())
    }

    async fn make_async(&mut self, sequence: usize, texts: &mut Texts) -> Result<()> {
        let before = self.lengths.clone();
        let made = self.make_pages_async(sequence, texts).await;
        made.inspect_err(|_| self.lengths = before)
    }

    async fn make_pages_async(&mut self, sequence: usize, texts: &mut Texts) -> Result<()> {
        while let Some((decoder, buffers)) = self.replay_page(sequence, texts)? {
            let mut made = Vec::with_capacity(buffers.len());
            for [tokens, largest] in &buffers {
                made.push(tokens.to_vec_async().await?);
                check_finite(&largest.to_vec_async().await?)?;
            }
            self.keep(sequence, decoder, texts, made);
        }
        Ok(())
    }

    /// Steps within a page, and what they have [made](Decoder::made) of each sequence. `None` if there are enough.
    fn replay_page(&mut self, sequence: usize, texts: &Texts) -> Result<Option<(Decoder, Vec<[Buffer; 2]>)>> {
        let Texts { left, drawn, .. } = *texts;
        let last = texts.last();
        self.check_decode(sequence, &last, left)?;
        // A step counts random numbers in 32 bits.
        let numbers = (u32::MAX - drawn as u32) as usize / last.len().max(1);
        let steps = left.min(self.steps_in_page(sequence, last.len())).min(numbers.saturating_add(1));
        if steps == 0 || last.is_empty() {
            return Ok(None);
        }
        let decoder = self.decoder(sequence, &last, texts.choice)?;
        let starts = self.place(&decoder, &last)?;
        decoder.place_texts(drawn, &texts.tokens, &self.lengths[sequence..])?;
        for _ in 0..steps {
            decoder.replay()?;
        }
        let made = starts.iter().map(|&start| decoder.made(start, steps)).collect::<BackendResult<_>>()?;
        Ok(Some((decoder, made)))
    }

    /// Takes over what steps have made.
    fn keep(&mut self, sequence: usize, decoder: Decoder, texts: &mut Texts, made: Vec<Vec<u32>>) {
        let steps = made.first().map_or(0, Vec::len);
        self.finish_decode(sequence, made.len(), steps, decoder);
        texts.left -= steps;
        texts.drawn = texts.drawn.wrapping_add((steps * made.len()) as u64);
        for ((all, text), new) in texts.made.iter_mut().zip(&mut texts.tokens).zip(made) {
            text.extend(&new);
            all.extend(new);
        }
    }

    /// Adds `tokens[i]` to sequence `sequence + i`, and returns the logits of the tokens that follow,
    /// `[sequences, vocabulary]`. It is [`step`](Session::step) of one token each, captured and replayed.
    ///
    /// # Errors
    /// As [`decode_sampled`](Self::decode_sampled).
    pub fn decode(&mut self, sequence: usize, tokens: &[u32]) -> Result<Vec<f32>> {
        let Some(decoder) = self.replay_once(sequence, tokens)? else { return Ok(Vec::new()) };
        let logits = decoder.logits().to_vec()?;
        self.finish_decode(sequence, tokens.len(), 1, decoder);
        Ok(logits)
    }

    /// [`decode`](Self::decode) that waits without blocking.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub async fn decode_async(&mut self, sequence: usize, tokens: &[u32]) -> Result<Vec<f32>> {
        let Some(decoder) = self.replay_once(sequence, tokens)? else { return Ok(Vec::new()) };
        let logits = decoder.logits().to_vec_async().await?;
        self.finish_decode(sequence, tokens.len(), 1, decoder);
        Ok(logits)
    }

    fn replay_once(&mut self, sequence: usize, tokens: &[u32]) -> Result<Option<Decoder>> {
        self.check_decode(sequence, tokens, 1)?;
        if tokens.is_empty() {
            return Ok(None);
        }
        let decoder = self.decoder(sequence, tokens, Choice::Caller)?;
        self.place(&decoder, tokens)?;
        decoder.replay()?;
        Ok(Some(decoder))
    }

    fn finish_decode(&mut self, sequence: usize, sequences: usize, steps: usize, decoder: Decoder) {
        self.decoder = Some(decoder);
        for i in 0..sequences {
            self.advance(sequence + i, steps);
        }
    }

    fn check_decode(&self, sequence: usize, tokens: &[u32], count: usize) -> Result<()> {
        let end = sequence.saturating_add(tokens.len());
        let Some(lengths) = self.lengths.get(sequence..end) else {
            let expected = format!("at most {}", self.lengths.len());
            return Err(Error::Argument { what: "the end of the sequences", expected, got: end });
        };
        self.check_tokens(tokens)?;
        match lengths.iter().map(|length| length.saturating_add(count)).max() {
            Some(tokens) if tokens > self.context() => {
                Err(Error::TooLong { tokens, capacity: self.context() })
            }
            _ => Ok(()),
        }
    }
}
