//! Chats: what a line can be besides a message, and what documents tell of answers.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{document, failed, llama_with, model, succeeded, text};

#[test]
fn lines_that_begin_with_a_slash_are_commands() {
    let options = ["--temp", "0", "-n", "6", "--json"];
    let talk = |lines: &str| {
        let output = llama_with(&model(), "chat", &[&options[..], &["--system", "Texts."]].concat(), lines);
        (document(&output), text(&output.stderr))
    };
    let (cleared, said) = talk("The device is lost\n/clear\nA kernel is\n");
    assert!(said.contains("the conversation is forgotten"), "{said}");
    let (fresh, _) = talk("A kernel is\n");
    // All that was said is in the document, and the system's message is remembered.
    assert_eq!(cleared["messages"][4]["content"], fresh["messages"][2]["content"]);
    assert_eq!(cleared["messages"].as_array().unwrap().len(), 5);

    for end in ["/exit", "/quit", " /bye "] {
        let (json, _) = talk(&format!("A kernel is\n{end}\nnever read\n"));
        assert_eq!(json["messages"].as_array().unwrap().len(), 3, "{end}");
    }
    let (json, said) = talk("/help\n/etc/passwd\n");
    assert!(said.contains("/clear ") && said.contains("/exit, /quit, /bye "), "{said}");
    assert_eq!(json["messages"][1]["content"], "/etc/passwd");
}

#[test]
fn documents_tell_how_answers_came_about() {
    let lines = "A kernel is compiled.\nThe buffers\nThe device is lost.\nA matrix\n";
    let options = ["--temp", "0", "-n", "8", "--ctx", "48", "--json"];
    let json = document(&llama_with(&model(), "chat", &options, lines));
    assert!(json["warm_up_seconds"].as_f64().is_some(), "{json}");
    let messages = json["messages"].as_array().unwrap();
    let mut forgotten = 0;
    for pair in messages.chunks(2) {
        let [question, answer] = pair else { panic!("{json}") };
        assert!(question.get("ended").is_none() && question.get("tokens").is_none(), "{question}");
        assert!(
            answer["tokens"].as_u64().unwrap() <= 8 && answer["prompt_tokens"].as_u64() > Some(0),
            "{answer}"
        );
        assert!(
            ["prompt_seconds", "seconds"].iter().all(|name| answer[name].as_f64() >= Some(0.0)),
            "{answer}"
        );
        assert!(["end", "count"].iter().any(|ended| &answer["ended"] == ended), "{answer}");
        forgotten += answer["forgotten"].as_u64().unwrap();
    }
    assert!(forgotten > 0, "{json}");
    // The whole context is used up by what an answer may take.
    let options = ["--temp", "0", "-n", "100000", "--ctx", "40", "--json"];
    let json = document(&llama_with(&model(), "chat", &options, "A kernel\n"));
    assert_eq!(json["messages"][1]["ended"], "context", "{json}");
    let shown = succeeded(&llama_with(&model(), "chat", &["-n", "2"], "A kernel\n"));
    assert!(!shown.contains("> "), "{shown:?}");
}

#[test]
fn a_line_that_is_not_text_is_refused_and_the_chat_goes_on() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_llama"))
        .arg("chat")
        .arg(model())
        .args(["--backend", "cpu", "-n", "2", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"A kernel\nno\xff\xfe\nThe buffers\r\nca\xe9").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = "the message isn't text in UTF-8: byte 2, counted from 0, is none";
    let json: Value = serde_json::from_str(&failed(&output, 1, said)).unwrap();
    failed(&output, 1, "messages that were refused, and have no answer: 2");
    let messages = json["messages"].as_array().unwrap();
    assert_eq!((messages.len(), &messages[2]["content"]), (4, &"The buffers".into()), "{json}");
}

/// At a terminal, which the command `script` is here: it passes Ctrl-C and Ctrl-D on as a terminal does.
#[cfg(target_os = "linux")]
mod at_a_terminal {
    use std::io::{Read as _, Write as _};
    use std::process::{Child, ChildStdout, Command, Stdio};

    use super::model;

    const CTRL_C: &str = "\u{3}";
    const CTRL_D: &str = "\u{4}";

    struct Terminal {
        child: Child,
        output: ChildStdout,
        shown: String,
    }

    impl Terminal {
        fn chat(options: &str) -> Self {
            let llama = env!("CARGO_BIN_EXE_llama");
            // Ctrl-C would reach a shell that isn't replaced, too, and some shells end with 130 then.
            let line = format!("exec {llama} chat {} --backend cpu {options}", model().display());
            let mut child = Command::new("script")
                .args(["-qefc", &line, "/dev/null"])
                .env("SHELL", "/bin/sh")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("`script` of util-linux");
            let output = child.stdout.take().unwrap();
            Self { child, output, shown: String::new() }
        }

        fn write(&mut self, text: &str) {
            self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
        }

        /// Reads on until a text has been shown, and forgets what came before.
        #[track_caller]
        fn wait_for(&mut self, text: &str) {
            let mut bytes = [0; 1024];
            while !self.shown.contains(text) {
                let count = self.output.read(&mut bytes).unwrap();
                assert!(count > 0, "{text:?} isn't in {:?}", self.shown);
                self.shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
            let end = self.shown.find(text).unwrap() + text.len();
            self.shown.drain(..end);
        }

        /// Reads to the end.
        #[track_caller]
        fn succeeds(mut self) {
            let mut bytes = Vec::new();
            _ = self.output.read_to_end(&mut bytes);
            let status = self.child.wait().unwrap();
            assert_eq!(status.code(), Some(0), "{:?}", String::from_utf8_lossy(&bytes));
            assert!(bytes.ends_with(b"\n"), "{:?}", String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn ctrl_c_stops_an_answer_and_then_the_chat() {
        // An answer of minutes.
        let mut terminal = Terminal::chat("--temp 0 -n 100000 --ctx 100000");
        terminal.wait_for("> ");
        terminal.write("A kernel is\n");
        terminal.wait_for("A kernel is");
        // Something of the answer, behind the line that the terminal shows.
        terminal.wait_for("\n");
        terminal.wait_for("e");
        terminal.write(CTRL_C);
        terminal.wait_for("tokens of the prompt");
        terminal.wait_for("> ");
        terminal.write(CTRL_C);
        terminal.succeeds();
    }

    #[test]
    fn ctrl_d_ends_a_chat() {
        let mut terminal = Terminal::chat("-n 4");
        terminal.wait_for("/help lists");
        terminal.wait_for("> ");
        terminal.write("A kernel is\n");
        terminal.wait_for("tokens of the prompt");
        terminal.wait_for("> ");
        terminal.write(CTRL_D);
        terminal.succeeds();
    }
}
