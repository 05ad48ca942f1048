//! Options as llama.cpp spells them: those that mean here what they mean there are read, and others are answered with what
//! takes their place.

use std::ffi::OsString;

use Advice::{For, Leave};

/// The tasks that load a model.
const TASKS: [&str; 4] = ["run", "chat", "bench", "perplexity"];

/// What takes the place of an option.
#[derive(Clone, Copy)]
enum Advice {
    /// Something else.
    For(&'static str),
    /// Nothing: what it asks for is always so, or isn't there to be chosen.
    Leave(&'static str),
}

const ADVICE: [(&[&str], Advice); 20] = [
    (
        &["-ngl", "--gpu-layers", "--n-gpu-layers", "-sm", "--split-mode", "-ts", "--tensor-split", "-nkvo"],
        For(
            "a model is on one device as a whole, which --backend chooses; --backend cpu computes on the CPU",
        ),
    ),
    (
        &["-dev", "--device", "-mg", "--main-gpu"],
        For("--backend chooses a device; `llama devices` lists them"),
    ),
    (&["--list-devices"], For("`llama devices` lists them")),
    (
        &["-t", "--threads", "-tb", "--threads-batch"],
        Leave("--backend cpu computes on all cores that the process may use"),
    ),
    (&["-fa", "--flash-attn"], Leave("the backend chooses a kernel for attention")),
    (&["-b", "--batch-size", "-ub", "--ubatch-size"], Leave("prompts are read 512 tokens at a time")),
    (&["--mlock", "--mmap", "--no-mmap", "-mmp"], Leave("a file is mapped, and read once")),
    (
        &["-cnv", "--conversation", "-i", "--interactive", "-if", "--interactive-first"],
        For("`llama chat` is the conversation"),
    ),
    (
        &["-no-cnv", "--no-conversation"],
        Leave("`llama run` applies no chat template, and `llama chat` always applies the file's"),
    ),
    (&["-st", "--single-turn"], For("`llama chat` ends with its standard input, such as `echo MESSAGE |`")),
    (
        &["-sys", "--system-prompt"],
        For("`llama run` applies no chat template; `llama chat --system TEXT` does"),
    ),
    (&["--jinja", "--no-jinja"], Leave("`llama chat` always applies the file's chat template")),
    (&["--chat-template", "--chat-template-file"], Leave("`llama chat` applies the file's chat template")),
    (
        &["-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-mu", "--model-url", "-dr", "--docker-repo"],
        For("nothing is downloaded; give the path of a GGUF file"),
    ),
    (
        &["-e", "--escape", "--no-escape"],
        Leave("backslashes are characters as others are; -f FILE reads a text of several lines"),
    ),
    (&["--no-display-prompt"], For("--json tells what the model wrote apart from the prompt")),
    (&["--repeat-last-n"], Leave("--repeat-penalty looks at the last 64 tokens")),
    (&["-o", "--output"], For("--json prints a document")),
    (&["-v", "--verbose", "-lv", "--verbosity"], For("the environment variable RUST_LOG=debug logs more")),
    (&["--no-warmup"], Leave("kernels are compiled before they are measured")),
];

/// What a chat's options for a first message are told.
const MESSAGES: &str =
    "messages are the lines of the standard input; --system TEXT is what the model is told before them";

/// Options whose values are texts, which may look like options.
const TEXTS: [&str; 5] = ["-p", "--prompt", "-f", "--file", "--system"];

/// A command line with the options that this command has.
///
/// # Errors
/// What to give instead, a line for each option that isn't here.
pub(crate) fn translated(line: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>, String> {
    let mut line = line.into_iter();
    let mut read: Vec<OsString> = line.by_ref().take(2).collect();
    let task = read.get(1).and_then(|task| task.to_str()).unwrap_or_default().to_owned();
    if !TASKS.contains(&task.as_str()) {
        if task.starts_with('-') && !["-h", "--help", "-V", "--version"].contains(&task.as_str()) {
            return Err(
                "the first word says what to do, as in `llama run MODEL PROMPT` and `llama chat MODEL`"
                    .to_owned(),
            );
        }
        read.extend(line);
        return Ok(read);
    }
    let (mut model, mut text, mut types) = (None, None, [None, None]);
    let mut refused = Vec::new();
    while let Some(word) = line.next() {
        let Some(option) = word.to_str().filter(|word| word.starts_with('-')) else {
            read.push(word);
            continue;
        };
        if option == "--" {
            read.push(word);
            read.extend(line.by_ref());
            break;
        }
        let (name, joined) = match option.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(OsString::from(value))),
            _ => (option, None),
        };
        let place = match (name, task.as_str()) {
            ("-m" | "--model", _) => &mut model,
            ("-f" | "--file", "perplexity") => &mut text,
            ("-ctk" | "--cache-type-k", _) => &mut types[0],
            ("-ctv" | "--cache-type-v", _) => &mut types[1],
            ("-sys" | "--system-prompt", "chat") => {
                read.push("--system".into());
                read.extend(joined.or_else(|| line.next()));
                continue;
            }
            _ => {
                if let Some(advice) = advice(name, &task) {
                    refused.push(format!("{name}: {advice}"));
                } else {
                    let value = TEXTS.contains(&option).then(|| line.next()).flatten();
                    read.push(word);
                    read.extend(value);
                }
                continue;
            }
        };
        *place = joined.or_else(|| line.next());
        if place.is_none() {
            refused.push(format!("{name}: a value is missing"));
        }
    }
    match types {
        [Some(keys), Some(values)] if keys == values => read.extend(["--cache-type".into(), keys]),
        [None, None] => {}
        [keys, values] => refused.push(format!(
            "-ctk, -ctv: keys and values are kept alike, as --cache-type {} says",
            keys.or(values).unwrap_or_default().display()
        )),
    }
    if !refused.is_empty() {
        return Err(format!("options that `llama {task}` doesn't take:\n  {}", refused.join("\n  ")));
    }
    if let Some(model) = model {
        read.insert(2, model);
    }
    read.extend(text);
    Ok(read)
}

/// What to give in place of an option; `None` for one that may be here.
fn advice(name: &str, task: &str) -> Option<String> {
    if task == "chat" && ["-p", "--prompt", "-f", "--file"].contains(&name) {
        return Some(MESSAGES.to_owned());
    }
    if let Some((_, advice)) = ADVICE.iter().find(|(names, _)| names.contains(&name)) {
        return Some(match advice {
            For(advice) => (*advice).to_owned(),
            Leave(reason) => format!("leave it out: {reason}"),
        });
    }
    // Read as -n with the value "oname", it would be answered with the value.
    let mut letters = name.strip_prefix('-')?.chars();
    let is_long = [letters.next()?, letters.next()?].iter().all(char::is_ascii_alphabetic);
    let has_text = name.starts_with("-f") || name.starts_with("-p") && task == "run";
    (is_long && !has_text).then(|| {
        format!("options of several letters have two dashes, as --ctx; `llama {task} --help` lists them")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<String, String> {
        let line = line.split(' ').map(OsString::from);
        Ok(translated(line)?.join(" ".as_ref()).into_string().unwrap())
    }

    #[test]
    fn options_of_one_meaning_are_read() {
        for (there, here) in [
            ("llama run -m M -p A -n 5", "llama run M -p A -n 5"),
            ("llama run -p A --model=M", "llama run M -p A"),
            ("llama run M A -ctk q8_0 -ctv q8_0", "llama run M A --cache-type q8_0"),
            ("llama bench --cache-type-v=f16 -m M --cache-type-k f16", "llama bench M --cache-type f16"),
            ("llama perplexity -m M -f T -c 512", "llama perplexity M -c 512 T"),
            ("llama chat -m M -sys A", "llama chat M --system A"),
            ("llama run M -n5 -fFILE -c512 --temp -1", "llama run M -n5 -fFILE -c512 --temp -1"),
            // Texts, whatever they look like.
            ("llama run M -p -ngl", "llama run M -p -ngl"),
            ("llama chat M --system -ngl", "llama chat M --system -ngl"),
            ("llama run M -- -ngl -m", "llama run M -- -ngl -m"),
            ("llama --help", "llama --help"),
            ("llama devices", "llama devices"),
            ("llama", "llama"),
        ] {
            assert_eq!(of(there).as_deref(), Ok(here), "{there}");
        }
    }

    #[test]
    fn other_options_are_answered_with_what_takes_their_place() {
        for (line, parts) in [
            ("llama run M A -ngl 99 -t 8", &["-ngl: a model is on one device", "-t: leave it out"][..]),
            ("llama run M A --gpu-layers=99", &["--gpu-layers: a model is on one device"]),
            ("llama run M A -no-cnv", &["-no-cnv: leave it out: `llama run` applies no chat template"]),
            ("llama run M A -sys B", &["`llama chat --system TEXT`"]),
            ("llama run M A -ctk q8_0", &["keys and values are kept alike, as --cache-type q8_0 says"]),
            ("llama run M A -ctk q8_0 -ctv f16", &["keys and values are kept alike"]),
            ("llama run M A -nopo", &["-nopo: options of several letters have two dashes"]),
            ("llama chat M -p A", &["-p: messages are the lines of the standard input"]),
            ("llama run -m", &["-m: a value is missing"]),
            ("llama -m M -p A", &["`llama run MODEL PROMPT`"]),
        ] {
            let said = of(line).unwrap_err();
            assert!(parts.iter().all(|part| said.contains(part)), "{line}: {said}");
        }
    }

    #[test]
    fn no_option_is_answered_twice() {
        let names: Vec<_> = ADVICE.iter().flat_map(|(names, _)| *names).collect();
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
    }
}
