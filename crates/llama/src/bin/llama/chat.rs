//! `llama chat`: messages of the standard input, answers on the standard output.

use std::io::{self, BufRead, IsTerminal};

use anyhow::bail;
use llama::Message;
use serde::Serialize;

use crate::args::ChatArgs;
use crate::loaded;
use crate::report::{self, About};
use crate::run::stream;

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    about: About,
    messages: Vec<Message>,
}

pub(crate) fn run(args: &ChatArgs) -> anyhow::Result<()> {
    let loaded = loaded::load(&args.common)?;
    let template = match &loaded.template {
        Ok(Some(template)) => template,
        Ok(None) => bail!("{} has no chat template: it goes on with texts, by `llama run`", loaded.name),
        Err(error) => bail!("{error}"),
    };
    let mut session = loaded.session(&args.common)?;
    let shown = !args.common.json;
    let prompts = shown && io::stdin().is_terminal();
    if shown {
        report::device(&loaded);
    }
    let mut messages: Vec<Message> =
        args.system.iter().map(|text| Message::new("system", text.as_str())).collect();
    // What the caches hold.
    let mut cached: Vec<u32> = Vec::new();
    let mut lines = io::stdin().lock().lines();
    loop {
        if prompts {
            report::text("> ")?;
        }
        let Some(line) = lines.next().transpose()? else { break };
        if line.trim().is_empty() {
            continue;
        }
        messages.push(Message::new("user", line));
        // A template begins with the token that begins a text, if it wants one.
        let tokens = loaded.tokenizer.encode(&template.render(&messages)?, true)?;
        let common = cached.iter().zip(&tokens).take_while(|(a, b)| a == b).count();
        // The last token has to be run again for what follows it.
        let common = common.min(tokens.len().saturating_sub(1));
        session.truncate(0, common);
        let (answer, speed) = stream(&loaded, &mut session, &tokens[common..], &args.sampling, shown)?;
        if shown {
            report::line(format_args!(""))?;
            eprintln!("{}", speed.line());
        }
        messages.push(Message::new("assistant", loaded.tokenizer.decode(&answer)));
        cached = [tokens, answer].concat();
        cached.truncate(session.len(0));
    }
    if shown { Ok(()) } else { report::json(&Report { about: About::new(&loaded), messages }) }
}
