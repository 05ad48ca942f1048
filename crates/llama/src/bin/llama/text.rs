//! Texts of files and of the standard input.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, anyhow};

use crate::args::RunArgs;

/// What stands for the standard input.
const STDIN: &str = "-";

/// The text that `llama run` goes on with.
pub(crate) fn prompt(args: &RunArgs) -> anyhow::Result<String> {
    match (&args.file, args.prompt.as_ref().or(args.text.as_ref())) {
        (Some(path), _) => read(path),
        (None, Some(text)) if text == STDIN => read(Path::new(STDIN)),
        (None, text) => Ok(text.cloned().unwrap_or_default()),
    }
}

/// The text of a file, or of the standard input, without a line break at its end: editors end files with one, and a model would
/// begin a new line behind it. So has it llama.cpp, but for line breaks of two characters.
pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    let (name, bytes) = if path == Path::new(STDIN) {
        let mut bytes = Vec::new();
        let read = io::stdin().lock().read_to_end(&mut bytes);
        ("the standard input".to_owned(), read.map(|_| bytes))
    } else {
        (path.display().to_string(), fs::read(path))
    };
    let mut text = utf8(&name, bytes.with_context(|| format!("can't read {name}"))?)?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// The text that bytes are, which have a name in what is told if they are none.
pub(crate) fn utf8(name: &str, bytes: Vec<u8>) -> anyhow::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        anyhow!("{name} isn't text in UTF-8: byte {valid}, counted from 0, is none")
    })
}
