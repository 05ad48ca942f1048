//! `llama chat`: messages of the standard input, answers on the standard output.

use std::io::{self, IsTerminal};

use anyhow::{Context, bail, ensure};
use llama::{ChatPrompt, ChatTemplate, Error, Message, Session};
use model_cli::note;
use serde::Serialize;

use crate::args::ChatArgs;
use crate::input::{self, Lines};
use crate::loaded::{self, Loaded, Ready};
use crate::report::{self, About};
use crate::run::{Speed, stream};
use crate::sampling::SamplingArgs;
use crate::text;

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    about: About,
    /// For kernels that weren't compiled yet when the model was loaded.
    warm_up_seconds: f64,
    seed: u64,
    messages: Vec<Said>,
}

/// A message of a document.
#[derive(Debug, Serialize)]
struct Said {
    #[serde(flatten)]
    message: Message,
    /// Of a message of the model's.
    #[serde(flatten)]
    answer: Option<Answered>,
}

impl From<Message> for Said {
    fn from(message: Message) -> Self {
        Self { message, answer: None }
    }
}

/// How an answer came about.
#[derive(Debug, Serialize)]
struct Answered {
    /// Messages that were forgotten before it, as the context was full.
    forgotten: usize,
    #[serde(flatten)]
    speed: Speed,
    ended: &'static str,
}

/// A chat in the making.
struct Chat<'a> {
    loaded: &'a Loaded,
    template: &'a ChatTemplate,
    session: Session,
    /// What is still remembered.
    messages: Vec<Message>,
    /// What the caches hold.
    cached: Vec<u32>,
}

/// Tokens of messages whose kernels are compiled before the first. One is left where a message comes again.
const MESSAGES: [usize; 8] = [1, 4, 8, 16, 32, 64, 128, 512];

pub(crate) fn run(args: &ChatArgs) -> anyhow::Result<()> {
    let begin = |loaded: &Loaded| {
        template(loaded)?;
        Ok((loaded.session(&args.common)?, MESSAGES.to_vec()))
    };
    let Ready { loaded, session, warm_up_seconds } =
        loaded::load_and_warm_up(&args.common, &args.sampling, begin)?;
    let template = template(&loaded)?;
    let about = About::new(&loaded, &args.common, &session);
    let messages: Vec<Message> =
        args.system.iter().map(|text| Message::new("system", text.as_str())).collect();
    let mut said = messages.iter().cloned().map(Said::from).collect();
    let shown = !args.common.json;
    if shown {
        report::device(&loaded);
        report::seed(&args.sampling);
    }
    let chat = Chat { loaded: &loaded, template, session, messages, cached: Vec::new() };
    let ended = converse(chat, args, &mut said);
    if !shown {
        // What was said before an error is worth having.
        let seed = args.sampling.seed.number;
        report::json(&Report { about, warm_up_seconds, seed, messages: said })?;
    }
    ended
}

fn template(loaded: &Loaded) -> anyhow::Result<&ChatTemplate> {
    match &loaded.template {
        Ok(Some(template)) => Ok(template),
        Ok(None) => bail!("{} has no chat template: it goes on with texts, by `llama run`", loaded.name),
        Err(error) => bail!("{error}"),
    }
}

/// What `/help` shows.
const HELP: &str = "\
/clear              forgets the conversation, but for --system
/exit, /quit, /bye  ends the chat, as Ctrl-D does
/help               shows this
Ctrl-C stops an answer, which stays in the conversation, and ends the chat where a message is awaited.
Every other line that isn't blank is a message.";

/// Answers the lines of the standard input, and keeps what was said. A message that is too long or isn't text is refused and the
/// chat goes on; whoever isn't there to read that is told at the end.
fn converse(mut chat: Chat<'_>, args: &ChatArgs, said: &mut Vec<Said>) -> anyhow::Result<()> {
    let shown = !args.common.json;
    let is_terminal = io::stdin().is_terminal();
    let prompts = shown && is_terminal;
    let lines = if is_terminal { Lines::interruptible()? } else { Lines::new()? };
    if prompts {
        note(format_args!("llama: /help lists the commands"));
    }
    let mut refused = 0;
    loop {
        input::forget_interrupt();
        if prompts {
            report::text("> ")?;
        }
        let Some(line) = lines.next() else {
            if prompts {
                // What the shell says next begins a line.
                report::line(format_args!(""))?;
            }
            break;
        };
        let line = match text::utf8("the message", line.context("can't read the standard input")?) {
            Ok(line) => line,
            Err(error) => {
                note(format_args!("llama: {error}"));
                refused += 1;
                continue;
            }
        };
        match line.trim() {
            "" => continue,
            "/exit" | "/quit" | "/bye" => break,
            "/clear" => {
                chat.clear();
                note(format_args!("llama: the conversation is forgotten"));
                continue;
            }
            "/help" => {
                note(format_args!("{HELP}"));
                continue;
            }
            _ => {}
        }
        let question = Message::new("user", line);
        match chat.answer(question.clone(), &args.sampling, shown) {
            Ok(answer) => said.extend([question.into(), answer]),
            Err(error) if matches!(error.downcast_ref::<Error>(), Some(Error::MessageTooLong { .. })) => {
                note(format_args!("llama: {error}; give a larger --ctx"));
                refused += 1;
            }
            Err(error) => return Err(error),
        }
    }
    ensure!(is_terminal || refused == 0, "messages that were refused, and have no answer: {refused}");
    Ok(())
}

impl Chat<'_> {
    /// Answers a question. One that can't be answered is forgotten.
    fn answer(&mut self, question: Message, sampling: &SamplingArgs, shown: bool) -> anyhow::Result<Said> {
        self.messages.push(question);
        let answer = self.go_on(sampling, shown);
        match &answer {
            Ok(answer) => self.messages.push(answer.message.clone()),
            Err(_) => _ = self.messages.pop(),
        }
        answer
    }

    /// How many messages come before the conversation.
    fn system(&self) -> usize {
        self.messages.iter().take_while(|message| message.role == "system").count()
    }

    /// Forgets the conversation.
    fn clear(&mut self) {
        self.messages.truncate(self.system());
    }

    fn go_on(&mut self, sampling: &SamplingArgs, shown: bool) -> anyhow::Result<Said> {
        let system = self.system();
        let Self { loaded, template, session, messages, cached } = self;
        let (context, most) = (session.context(), sampling.tokens);
        let ChatPrompt { tokens, forgotten } =
            ChatPrompt::new(&loaded.tokenizer, Some(*template), messages, context, most)?;
        if forgotten > 0 {
            messages.drain(system..system + forgotten);
            if shown {
                note(format_args!(
                    "llama: the context is full; earlier messages that are forgotten now: {forgotten}"
                ));
            }
        }
        let common = cached.iter().zip(&tokens).take_while(|(a, b)| a == b).count();
        // The last token has to be run again for what follows it.
        let common = common.min(tokens.len().saturating_sub(1));
        session.truncate(0, common);
        cached.truncate(common);
        let streamed = stream(loaded, session, &tokens, sampling, shown)?;
        if shown {
            streamed.show_end(session)?;
        }
        let answer = Answered { forgotten, speed: streamed.speed, ended: streamed.ended() };
        let message = Message::new("assistant", loaded.tokenizer.decode(&streamed.tokens));
        *cached = [tokens, streamed.tokens].concat();
        cached.truncate(session.len(0));
        Ok(Said { message, answer: Some(answer) })
    }
}
