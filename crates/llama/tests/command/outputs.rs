//! What is written: documents with their settings, and outputs that nobody reads.

use std::io::Read as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{document, failed, llama, model, text};

/// Without them, a number can't be compared with another one.
#[test]
fn documents_have_the_settings() {
    let held_out = model().with_file_name("held-out.txt");
    let settings =
        ["--cache-type", "q8_0", "--math", "int8", "--precision", "mixed", "--ctx", "100", "--json"];
    for (task, given) in [
        ("perplexity", &[held_out.to_str().unwrap()][..]),
        ("bench", &["-p", "8", "-n", "4", "-d", "2", "-r", "3"]),
        ("run", &["A kernel", "-n", "2"]),
        ("chat", &[]),
    ] {
        let json = document(&llama(task, &[given, &settings].concat()));
        assert_eq!(json["file"], model().to_str().unwrap());
        assert_eq!((&json["backend"], &json["api"]), (&"cpu".into(), &"host".into()));
        assert_eq!((&json["cache_type"], &json["math"]), (&"q8_0".into(), &"int8".into()));
        assert_eq!((&json["precision"], &json["ctx"]), (&"mixed".into(), &100.into()));
        if task == "bench" {
            let test = &json["tests"][1];
            assert_eq!((&json["repetitions"], test["samples_ts"].as_array().unwrap().len()), (&3.into(), 3));
            assert_eq!(["n_prompt", "n_gen", "n_depth"].map(|name| test[name].as_u64()), [0, 4, 2].map(Some));
        }
    }
    // What is in effect unless something else is asked for, and the room that the tests need.
    let json = document(&llama("bench", &["-p", "8", "-n", "4", "-d", "2", "-r", "1", "--json"]));
    assert_eq!((&json["cache_type"], &json["math"]), (&"f16".into(), &"standard".into()));
    assert_eq!((&json["precision"], &json["ctx"]), (&"f32".into(), &10.into()));
}

/// As behind `| head -c 4`.
#[cfg(unix)]
#[test]
fn an_output_that_is_closed_ends_a_command_quietly() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_llama"))
        .arg("run")
        .arg(model())
        .args(["A kernel is", "--backend", "cpu", "--ctx", "100000", "-n", "90000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut read = [0; 4];
    child.stdout.take().unwrap().read_exact(&mut read).unwrap();
    assert_eq!(&read, b"A ke");
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("pipe"), "{said}");
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_stops_a_text_and_leaves_its_document() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_llama"))
        .arg("run")
        .arg(model())
        .args(["A kernel is", "--backend", "cpu", "--ctx", "100000", "-n", "90000", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Before the text begins, Ctrl-C ends the process.
    let status = format!("/proc/{}/status", child.id());
    let catches_interrupts = || {
        let status = std::fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & 0b10 != 0
    };
    while !catches_interrupts() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    let json: Value = serde_json::from_str(&failed(&output, 130, "")).unwrap();
    assert_eq!((&json["ended"], &json["prompt"]), (&"stopped".into(), &"A kernel is".into()), "{json}");
    assert!((1..90000).contains(&json["tokens"].as_u64().unwrap()), "{json}");
}

/// Whether anybody can read the notes doesn't matter to a text, nor to an error's code.
#[cfg(target_os = "linux")]
#[test]
fn a_standard_error_that_takes_nothing_ends_no_command() {
    let with_full_log = |args: &[&str]| {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_llama"));
        command.args(args).args(["--backend", "cpu"]).stderr(full).output().unwrap()
    };
    let model = model();
    let model = model.to_str().unwrap();
    let spoken = with_full_log(&["run", model, "A kernel", "-n", "3", "--ctx", "1000"]);
    assert_eq!(spoken.status.code(), Some(0));
    assert!(text(&spoken.stdout).starts_with("A kernel"));
    assert_eq!(with_full_log(&["run", "nowhere.gguf", "A"]).status.code(), Some(1));
}
