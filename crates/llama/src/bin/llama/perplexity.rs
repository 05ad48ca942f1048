//! `llama perplexity`: how well a model predicts a text.

use std::time::Instant;

use anyhow::{Context, ensure};
use serde::Serialize;

use crate::args::PerplexityArgs;
use crate::loaded;
use crate::report::{self, About};

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    about: About,
    tokens: usize,
    perplexity: f64,
    /// Bits for each byte of the text that was predicted.
    bits_per_byte: f64,
    seconds: f64,
}

pub(crate) fn run(args: &PerplexityArgs) -> anyhow::Result<()> {
    let loaded = loaded::load(&args.common)?;
    let mut session = loaded.session(&args.common)?;
    let path = args.file.display();
    let text = std::fs::read_to_string(&args.file).with_context(|| format!("can't read {path}"))?;
    let start = Instant::now();
    let tokens = loaded.tokenizer.encode_plain(&text, true)?;
    let score = llama::perplexity(&mut session, &loaded.tokenizer, &tokens)?;
    ensure!(score.tokens > 0, "{path} has too little text: two tokens or more are needed");
    let seconds = start.elapsed().as_secs_f64();
    let report = Report {
        about: About::new(&loaded),
        tokens: score.tokens,
        perplexity: score.perplexity(),
        bits_per_byte: score.bits_per_byte(),
        seconds,
    };
    if args.common.json {
        return report::json(&report);
    }
    report::device(&loaded);
    report::line(format_args!(
        "perplexity {:.4} of {} tokens, {:.4} bits per byte, in {seconds:.1} s",
        report.perplexity, report.tokens, report.bits_per_byte,
    ))
}
