//! Options as llama.cpp spells them: those that mean here what they mean there are read, and others are answered with what
//! takes their place.

use std::ffi::OsString;

use crate::advice;
use crate::args::Args;

/// The tasks that load a model.
const TASKS: [&str; 4] = ["run", "chat", "bench", "perplexity"];

/// Options whose values are texts, which may look like options.
const TEXTS: [&str; 5] = ["-p", "--prompt", "-f", "--file", "--system"];

/// A command line with the options that this command has.
///
/// # Errors
/// What to give instead, a line for each option that isn't here.
pub(crate) fn translated(line: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>, String> {
    let mut line = line.into_iter().peekable();
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
    let known = Args::options(&task);
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
            // Of one letter, it is the value of an option that clap reads.
            Some((name, value)) if name.len() > 2 => (name, Some(OsString::from(value))),
            _ => (option, None),
        };
        let (name, joined) =
            apart(name, &task).map_or((name, joined), |(name, value)| (name, Some(value.into())));
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
                if let Some(advice) = answer(name, &task, &known) {
                    refused.push(format!("{name}: {advice}"));
                } else {
                    let value = TEXTS.contains(&option).then(|| line.next()).flatten();
                    read.push(word);
                    read.extend(value);
                }
                continue;
            }
        };
        let is_value = |word: &OsString| word == "-" || !word.as_encoded_bytes().starts_with(b"-");
        let value = joined.or_else(|| line.next_if(is_value));
        if value.is_none() {
            refused.push(format!("{name}: a value is missing"));
        } else if place.is_some() {
            refused.push(format!("{name}: it is given twice"));
        }
        *place = value;
    }
    match types {
        [Some(keys), Some(values)] if keys == values => read.extend(["--cache-type".into(), keys]),
        [None, None] => {}
        [Some(_), Some(_)] => {
            refused.push(
                "-ctk, -ctv: keys and values are kept alike; give one --cache-type for both".to_owned(),
            );
        }
        [keys, values] => refused.push(format!(
            "{}: keys and values are kept alike, as --cache-type {} says",
            if keys.is_some() { "-ctk without -ctv" } else { "-ctv without -ctk" },
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

/// The value of an option that is translated, where it is glued to its letter.
fn apart<'a>(word: &'a str, task: &str) -> Option<(&'a str, &'a str)> {
    let takes = |letter: &str| letter == "-m" || letter == "-f" && task == "perplexity";
    let (letter, value) = word.split_at_checked(2).filter(|&(letter, _)| takes(letter))?;
    match value.strip_prefix('=') {
        Some(value) => Some((letter, value)),
        // Otherwise it may be an option's name of several letters.
        None => (!value.is_empty() && !value.starts_with(|c: char| c.is_ascii_alphabetic()))
            .then_some((letter, value)),
    }
}

/// What to say of an option that a task doesn't have; `None` for one that it has.
fn answer(name: &str, task: &str, known: &[String]) -> Option<String> {
    let mut letters = name.trim_start_matches('-').chars();
    let short = format!("-{}", letters.next()?);
    let is_long = name.starts_with("--");
    let is_glued = !is_long && letters.next().is_some();
    // A number may be a value, or a text.
    if known.iter().any(|known| known == name) || !is_long && short.ends_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let has_short = is_glued && known.contains(&short);
    // Read as -p with the value "ps", another option would be taken for a text.
    let is_name = name.get(2..).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()));
    if has_short && !is_name {
        return None;
    }
    if let Some(advice) = advice::of(name, task) {
        return Some(advice);
    }
    if has_short {
        let apart = if TEXTS.contains(&short.as_str()) {
            format!("; what {short} takes is a word of its own")
        } else {
            String::new()
        };
        return Some(format!(
            "options of several letters have two dashes, as --ctx; `llama {task} --help` lists them{apart}"
        ));
    }
    let meant = nearest(name, known).map(|meant| format!("; is {meant} meant?")).unwrap_or_default();
    Some(format!("there is no such option: `llama {task} --help` lists what there is{meant}"))
}

/// The option of which a name is the beginning, or a misspelling.
fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    let known = || known.iter().map(String::as_str).filter(|known| known.len() > 3);
    // Two letters of three make any word of any other.
    let most = (name.len().saturating_sub(2) / 3).min(2);
    let near =
        || known().map(|known| (strsim::levenshtein(name, known), known)).min().filter(|near| near.0 <= most);
    let begun = || known().find(|known| name.len() > 4 && known.starts_with(name));
    begun().or_else(|| near().map(|near| near.1))
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
            ("llama run M -n5 -f./FILE -c512 --temp -1", "llama run M -n5 -f./FILE -c512 --temp -1"),
            ("llama run -m./M -p A", "llama run ./M -p A"),
            ("llama run -m=M A", "llama run M A"),
            ("llama perplexity M -f./T", "llama perplexity M ./T"),
            ("llama perplexity M -f -", "llama perplexity M -"),
            ("llama bench M -p4 -r1 -d3", "llama bench M -p4 -r1 -d3"),
            ("llama run M A --json --help -h", "llama run M A --json --help -h"),
            // Texts, whatever they look like.
            ("llama run M -5 -p/A", "llama run M -5 -p/A"),
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
            (
                "llama run M A -ctk q8_0",
                &["-ctk without -ctv: keys and values are kept alike, as --cache-type q8_0 says"],
            ),
            (
                "llama run M A -ctk q8_0 -ctv f16",
                &["-ctk, -ctv: keys and values are kept alike; give one --cache-type for both"],
            ),
            ("llama run M A -nope", &["-nope: options of several letters have two dashes"]),
            (
                "llama run M A -pps",
                &["-pps: options of several letters have two dashes", "what -p takes is a word"],
            ),
            ("llama run M A -fit on -ngl99", &["-fit: leave it out", "-ngl99: a model is on one device"]),
            ("llama run M A --n_gpu_layers 9", &["--n_gpu_layers: a model is on one device"]),
            ("llama run M A -x --foo", &["-x: there is no such option", "--foo: there is no such option"]),
            ("llama run M A --ctx-sze 5", &["is --ctx-size meant?"]),
            ("llama run M A --repeat 5", &["is --repeat-penalty meant?"]),
            ("llama bench M --temp 1", &["--temp: there is no such option: `llama bench --help`"]),
            ("llama perplexity M -p A", &["-p: give a file"]),
            ("llama chat M -p A", &["-p: messages are the lines of the standard input"]),
            ("llama run M -please", &["-please: options of several letters have two dashes"]),
            ("llama run M -hello", &["-hello: options of several letters have two dashes"]),
            ("llama run M A -ngl=99", &["-ngl: a model is on one device"]),
            ("llama run M A -ctk=q8_0 -ctv", &["-ctv: a value is missing"]),
            ("llama run M A -ctk -ctv q8_0", &["-ctk: a value is missing"]),
            ("llama bench M -pg5,3", &["-pg5,3: `llama bench` measures"]),
            ("llama chat M -sysf F", &["-sysf: --system TEXT"]),
            ("llama run -m M -m N", &["-m: it is given twice"]),
            ("llama run -m", &["-m: a value is missing"]),
            ("llama -m M -p A", &["`llama run MODEL PROMPT`"]),
        ] {
            let said = of(line).unwrap_err();
            assert!(parts.iter().all(|part| said.contains(part)), "{line}: {said}");
        }
    }

    #[test]
    fn a_name_that_is_like_no_option_is_likened_to_none() {
        for line in ["llama run M A --sampling 1", "llama run M A --foo", "llama bench M --temp 0"] {
            let said = of(line).unwrap_err();
            assert!(!said.contains("meant"), "{said}");
        }
    }
}
