//! Texts of files and of the standard input.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, anyhow};

use crate::args::RunArgs;

/// What stands for the standard input.
const STDIN: &str = "-";

/// The text that `llama run` goes on with. A file's last line break isn't a part of it, as in llama.cpp: editors end files
/// with one, and a model would begin a new line behind it.
pub(crate) fn prompt(args: &RunArgs) -> anyhow::Result<String> {
    let path = match (&args.file, args.prompt.as_ref().or(args.text.as_ref())) {
        (Some(path), _) => path.as_path(),
        (None, Some(text)) if text == STDIN => Path::new(STDIN),
        (None, text) => return Ok(text.cloned().unwrap_or_default()),
    };
    let mut text = read(path)?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// The text of a file, or of the standard input.
pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    let (name, bytes) = if path == Path::new(STDIN) {
        let mut bytes = Vec::new();
        let read = io::stdin().lock().read_to_end(&mut bytes);
        ("the standard input".to_owned(), read.map(|_| bytes))
    } else {
        (path.display().to_string(), fs::read(path))
    };
    utf8(&name, bytes.with_context(|| format!("can't read {name}"))?)
}

/// The text that bytes are, which have a name in what is told if they are none.
pub(crate) fn utf8(name: &str, bytes: Vec<u8>) -> anyhow::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        anyhow!("{name} isn't text in UTF-8: behind its first {valid} bytes stands something else")
    })
}
