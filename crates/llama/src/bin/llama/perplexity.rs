//! `llama perplexity`: how well a model predicts a text.

use std::time::Instant;

use anyhow::ensure;
use model_cli::note;
use serde::Serialize;

use crate::args::PerplexityArgs;
use crate::report::{self, About};
use crate::{loaded, text};

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    about: About,
    /// Tokens that are scored.
    tokens: usize,
    /// Tokens of the text, with the one that begins it if the model has it.
    text_tokens: usize,
    /// Tokens at the text's end that fill no chunk and are left out.
    left_out: usize,
    /// Which tokens count: those of the second half of each chunk, or all but the first of a short text.
    scored: &'static str,
    perplexity: f64,
    /// Bits for each byte of the text that was predicted.
    bits_per_byte: f64,
    seconds: f64,
}

pub(crate) fn run(args: &PerplexityArgs) -> anyhow::Result<()> {
    let text = text::read(&args.file)?;
    let loaded = loaded::load(&args.common)?;
    let mut session = loaded.session(&args.common)?;
    let start = Instant::now();
    let tokens = loaded.tokenizer.encode_plain(&text, true)?;
    let score = llama::perplexity(&mut session, &loaded.tokenizer, &tokens)?;
    ensure!(score.tokens > 0, "the text is too short: two tokens or more are needed");
    let (text_tokens, context) = (tokens.len(), session.context());
    let are = if score.tokens == 1 { "is" } else { "are" };
    let left_out = if score.is_whole { 0 } else { text_tokens % context };
    if score.is_whole {
        note(format_args!(
            "llama: the text has {} and the context {context}, so that all but the first are scored, and not, as of longer texts, \
             the second half of each piece of --ctx tokens",
            report::count(text_tokens, "token"),
        ));
    } else {
        note(format_args!(
            "llama: {} of the text's {text_tokens} tokens {are} scored, in the second half of each piece of {context} tokens \
             (pieces: {}); left out at the end, as filling no piece: {}",
            score.tokens,
            text_tokens / context,
            report::count(left_out, "token"),
        ));
    }
    let seconds = start.elapsed().as_secs_f64();
    let report = Report {
        about: About::new(&loaded, &args.common, &session),
        tokens: score.tokens,
        text_tokens,
        left_out,
        scored: if score.is_whole { "all" } else { "second halves" },
        perplexity: score.perplexity(),
        bits_per_byte: score.bits_per_byte(),
        seconds,
    };
    if args.common.json {
        return report::json(&report);
    }
    report::device(&loaded);
    report::line(format_args!(
        "perplexity {:.4} of {}, {:.4} bits per byte, in {seconds:.1} s",
        report.perplexity,
        report::count(report.tokens, "token"),
        report.bits_per_byte,
    ))
}
