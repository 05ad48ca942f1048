//! Prompts that come from files and from the standard input.

use std::path::{Path, PathBuf};

use super::{document, failed, llama, llama_with, model, text};

/// A file that goes when the test ends.
struct Given(PathBuf);

impl Given {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("llama-{name}-{}.txt", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn prompts_are_read() {
    let options = ["--json", "--temp", "0", "-n", "8"];
    let expected = document(&llama("run", &[&["A\nkernel\n"][..], &options].concat()));
    assert_eq!(expected["prompt"], "A\nkernel\n");
    // The last line break belongs to the file.
    let text = "A\nkernel\n\n";
    let file = Given::new("prompt", text.as_bytes());
    for (given, input) in [(&["-f", file.path()][..], ""), (&["--file", "-"], text), (&["-"], text)] {
        let json = document(&llama_with(&model(), "run", &[given, &options].concat(), input));
        assert_eq!((&json["prompt"], &json["text"]), (&expected["prompt"], &expected["text"]), "{given:?}");
    }
    let dashed = document(&llama("run", &[&["-p", "-5 kernels"][..], &options].concat()));
    assert_eq!(dashed["prompt"], "-5 kernels");
    let whole = document(&llama_with(&model(), "run", &[&["-"][..], &options].concat(), "A\nkernel"));
    assert_eq!(whole["prompt"], "A\nkernel");
}

#[test]
fn prompts_that_cannot_be_read_are_told() {
    let wrong = Given::new("bytes", b"A kernel \xff");
    let said = "isn't text in UTF-8: byte 9, counted from 0, is none";
    failed(&llama("run", &["-f", wrong.path()]), 1, said);
    failed(&llama("perplexity", &[wrong.path()]), 1, said);
    failed(&llama("run", &["-f", "/no/such/file"]), 1, "can't read /no/such/file");
    // A prompt is read before a model is.
    failed(&llama_with(Path::new("/no/such/model"), "run", &["-f", wrong.path()], ""), 1, said);
    failed(&llama("run", &["A kernel", "-f", wrong.path()]), 2, "cannot be used with");
    failed(&llama("run", &["A kernel", "-p", "A kernel"]), 2, "cannot be used with");
    let missing = "give one behind the model, a file with -f FILE, or the standard input with -";
    failed(&llama("run", &[]), 2, missing);
    let nothing = llama_with(&model(), "run", &["-"], "");
    // The model begins texts with a token of its own.
    assert_eq!(nothing.status.code(), Some(0), "{}", text(&nothing.stderr));
}
