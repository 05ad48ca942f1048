//! `llama chat`: messages of the standard input, answers on the standard output.

use std::io::{self, BufRead, IsTerminal};

use anyhow::{Context, bail, ensure};
use llama::{ChatPrompt, ChatTemplate, Error, Message, Session};
use model_cli::note;
use serde::Serialize;

use crate::args::{ChatArgs, SamplingArgs};
use crate::loaded::{self, Loaded};
use crate::report::{self, About};
use crate::run::stream;

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    about: About,
    messages: Vec<Message>,
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
    let loaded = loaded::load(&args.common)?;
    let template = match &loaded.template {
        Ok(Some(template)) => template,
        Ok(None) => bail!("{} has no chat template: it goes on with texts, by `llama run`", loaded.name),
        Err(error) => bail!("{error}"),
    };
    let session = loaded.session(&args.common)?;
    let about = About::new(&loaded, &args.common, &session);
    let messages: Vec<Message> =
        args.system.iter().map(|text| Message::new("system", text.as_str())).collect();
    let mut said = messages.clone();
    let shown = !args.common.json;
    if shown {
        report::device(&loaded);
    }
    loaded::warm_up(&session, &MESSAGES, &args.sampling);
    let chat = Chat { loaded: &loaded, template, session, messages, cached: Vec::new() };
    let ended = converse(chat, args, &mut said);
    if !shown {
        // What was said before an error is worth having.
        report::json(&Report { about, messages: said })?;
    }
    ended
}

/// Answers the lines of the standard input, and keeps what was said. A message that is too long is refused and the chat
/// goes on; whoever isn't there to read that is told at the end.
fn converse(mut chat: Chat<'_>, args: &ChatArgs, said: &mut Vec<Message>) -> anyhow::Result<()> {
    let shown = !args.common.json;
    let prompts = shown && io::stdin().is_terminal();
    let mut lines = io::stdin().lock().lines();
    let mut refused = 0;
    loop {
        if prompts {
            report::text("> ")?;
        }
        let Some(line) = lines.next().transpose().context("can't read the standard input")? else { break };
        if line.trim().is_empty() {
            continue;
        }
        let question = Message::new("user", line);
        match chat.answer(question.clone(), &args.sampling, shown) {
            Ok(answer) => said.extend([question, answer]),
            Err(error) if matches!(error.downcast_ref::<Error>(), Some(Error::MessageTooLong { .. })) => {
                note(format_args!("llama: {error}; give a larger --ctx"));
                refused += 1;
            }
            Err(error) => return Err(error),
        }
    }
    ensure!(prompts || refused == 0, "messages that were too long, and have no answer: {refused}");
    Ok(())
}

impl Chat<'_> {
    /// Answers a question. One that can't be answered is forgotten.
    fn answer(&mut self, question: Message, sampling: &SamplingArgs, shown: bool) -> anyhow::Result<Message> {
        self.messages.push(question);
        let answer = self.go_on(sampling, shown);
        match &answer {
            Ok(answer) => self.messages.push(answer.clone()),
            Err(_) => _ = self.messages.pop(),
        }
        answer
    }

    fn go_on(&mut self, sampling: &SamplingArgs, shown: bool) -> anyhow::Result<Message> {
        let Self { loaded, template, session, messages, cached } = self;
        let (context, most) = (session.context(), sampling.tokens);
        let ChatPrompt { tokens, forgotten } =
            ChatPrompt::new(&loaded.tokenizer, Some(*template), messages, context, most)?;
        if forgotten > 0 {
            let system = messages.iter().take_while(|message| message.role == "system").count();
            messages.drain(system..system + forgotten);
            if shown {
                note(format_args!(
                    "llama: the context is full: {forgotten} more of the earlier messages are forgotten"
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
        let answer = streamed.tokens;
        let message = Message::new("assistant", loaded.tokenizer.decode(&answer));
        *cached = [tokens, answer].concat();
        cached.truncate(session.len(0));
        Ok(message)
    }
}
