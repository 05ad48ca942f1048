//! `llama run`: a text that goes on.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::ensure;
use llama::{Ended, Sampler, Session, TextStream, generate};
use model_cli::note;
use serde::Serialize;

use crate::args::RunArgs;
use crate::input;
use crate::loaded::{self, Loaded, Ready};
use crate::report::{self, About};
use crate::sampling::SamplingArgs;
use crate::text;

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    about: About,
    prompt: String,
    text: String,
    ended: &'static str,
    /// For kernels that weren't compiled yet when the model was loaded.
    warm_up_seconds: f64,
    seed: u64,
    #[serde(flatten)]
    speed: Speed,
}

/// The speed of a prompt and of the tokens that follow it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Speed {
    prompt_tokens: usize,
    /// Until the first token was there.
    prompt_seconds: f64,
    tokens: usize,
    seconds: f64,
}

impl Speed {
    fn line(&self) -> String {
        let rate = |tokens: usize, seconds: f64| tokens as f64 / seconds.max(1e-9);
        format!(
            "{} of the prompt in {:.2} s ({:.1} tokens/s), {} in {:.2} s ({:.1} tokens/s)",
            report::count(self.prompt_tokens, "token"),
            self.prompt_seconds,
            rate(self.prompt_tokens, self.prompt_seconds),
            report::count(self.tokens, "token"),
            self.seconds,
            rate(self.tokens, self.seconds),
        )
    }
}

/// A text that went on.
pub(crate) struct Streamed {
    pub(crate) tokens: Vec<u32>,
    pub(crate) speed: Speed,
    ended: Ended,
}

impl Streamed {
    /// Why the text ended, as documents say it.
    pub(crate) const fn ended(&self) -> &'static str {
        match self.ended {
            Ended::End => "end",
            Ended::Count => "count",
            Ended::Context => "context",
            Ended::Stopped => "stopped",
        }
    }

    /// Ends the line, and tells the speed on the standard error, and whether the context is full.
    pub(crate) fn show_end(&self, session: &Session) -> anyhow::Result<()> {
        report::line(format_args!(""))?;
        if self.ended == Ended::Context {
            let size = session.context();
            let more = if size < session.model().config().context_length {
                "give a larger --ctx"
            } else {
                "the model was trained with no more"
            };
            let size = report::count(size, "token");
            note(format_args!("llama: the context of {size} is full; {more}"));
        }
        note(format_args!("{}", self.speed.line()));
        Ok(())
    }
}

/// Goes on with a text. A document is also printed if Ctrl-C ends the text, which the exit code then tells.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let given = text::prompt(args)?;
    let mut prompt = Vec::new();
    let begin = |loaded: &Loaded| {
        let session = loaded.session(&args.common)?;
        prompt = loaded.tokenizer.encode(&given, true)?;
        ensure!(!prompt.is_empty(), "there is no text to go on with");
        let (tokens, context) = (prompt.len(), session.context());
        ensure!(
            tokens <= context,
            "the prompt has {}, the context holds {context}; give a larger --ctx",
            report::count(tokens, "token")
        );
        Ok((session, vec![tokens]))
    };
    let Ready { loaded, mut session, warm_up_seconds } =
        loaded::load_and_warm_up(&args.common, &args.sampling, begin)?;
    let shown = !args.common.json;
    if shown {
        report::device(&loaded);
        report::seed(&args.sampling);
        report::text(&given)?;
    } else {
        input::catch_interrupt()?;
    }
    let streamed = stream(&loaded, &mut session, &prompt, &args.sampling, shown)?;
    if shown {
        streamed.show_end(&session)?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_stopped = streamed.ended == Ended::Stopped;
    let text = loaded.tokenizer.decode(&streamed.tokens);
    report::json(&Report {
        about: About::new(&loaded, &args.common, &session),
        prompt: given,
        text,
        ended: streamed.ended(),
        warm_up_seconds,
        seed: args.sampling.seed.number,
        speed: streamed.speed,
    })?;
    Ok(if is_stopped { input::ENDED_BY_INTERRUPT.into() } else { ExitCode::SUCCESS })
}

/// Lets the model go on with a prompt of which the session may have the first tokens, and shows the text as it comes.
pub(crate) fn stream(
    loaded: &Loaded,
    session: &mut Session,
    prompt: &[u32],
    args: &SamplingArgs,
    shown: bool,
) -> anyhow::Result<Streamed> {
    let (start, added) = (Instant::now(), prompt.len().saturating_sub(session.len(0)));
    let (mut first, mut failed) = (None, None);
    let mut text = TextStream::default();
    let mut show = |token| {
        first.get_or_insert_with(|| start.elapsed().as_secs_f64());
        if input::is_interrupted() {
            return false;
        }
        if !shown {
            return true;
        }
        let mut out = io::stdout().lock();
        let written = out.write_all(text.push(loaded.tokenizer.bytes(token)).as_bytes());
        failed = written.and_then(|()| out.flush()).err();
        failed.is_none()
    };
    let mut sampler = Sampler::new(args.sampling());
    let generated = generate(session, &loaded.tokenizer, &mut sampler, prompt, args.tokens, &mut show);
    if shown && generated.is_err() {
        // What is said of it begins a line.
        report::line(format_args!(""))?;
    }
    let (tokens, ended) = generated?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    if shown {
        report::text(&text.finish())?;
    }
    let all = start.elapsed().as_secs_f64();
    let prompt_seconds = first.unwrap_or(all);
    let speed =
        Speed { prompt_tokens: added, prompt_seconds, tokens: tokens.len(), seconds: all - prompt_seconds };
    Ok(Streamed { tokens, speed, ended })
}
