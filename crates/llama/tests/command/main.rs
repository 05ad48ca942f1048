//! The command as a user calls it, with the model of this repository on the CPU.

mod chats;
mod devices;
mod outputs;
mod prompts;
mod spellings;
mod values;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/bytes-1m-q8_0.gguf")
}

/// Runs `llama TASK MODEL MORE… --backend cpu` with an input.
fn llama_with(model: &Path, task: &str, more: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_llama"))
        .arg(task)
        .arg(model)
        .args(more)
        .args(["--backend", "cpu"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Refused if the command ends without reading it.
    _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn llama(task: &str, more: &[&str]) -> Output {
    llama_with(&model(), task, more, "")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[track_caller]
fn failed(output: &Output, code: i32, part: &str) -> String {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(part), "{part:?} is not in {said:?}");
    text(&output.stdout)
}

#[track_caller]
fn document(output: &Output) -> Value {
    serde_json::from_str(&succeeded(output)).unwrap()
}

/// What the command writes after "A kernel".
fn run(more: &[&str]) -> String {
    let json = document(&llama("run", &[&["A kernel", "--json", "-n", "40"], more].concat()));
    json["text"].as_str().unwrap().to_owned()
}

#[test]
fn texts_go_on() {
    let greedy = run(&["--temp", "0"]);
    assert_eq!(run(&["--temp", "0", "--seed", "3"]), greedy);
    // As it comes, and as one document.
    let shown = succeeded(&llama("run", &["A kernel", "-n", "40", "--temp", "0"]));
    assert_eq!(shown, format!("A kernel{greedy}\n"));
    let json = document(&llama("run", &["A kernel", "-n", "3", "--json", "--precision", "mixed"]));
    assert_eq!(
        (&json["prompt"], &json["prompt_tokens"], &json["tokens"]),
        (&"A kernel".into(), &9.into(), &3.into())
    );
    assert_eq!(json["backend"], "cpu");
}

#[test]
fn the_arithmetic_can_be_chosen() {
    let greedy = run(&["--temp", "0"]);
    assert_eq!(run(&["--temp", "0", "--math", "standard"]), greedy);
    assert_eq!(run(&["--temp", "0", "--math", "int8"]).len(), greedy.len());
    failed(&llama("run", &["A kernel", "--math", "int4"]), 2, "int4");
    let needs = "--cache-type f32 needs activations of f32, and those of --precision mixed are f16";
    failed(&llama("run", &["A kernel", "--precision", "mixed", "--cache-type", "f32"]), 2, needs);
}

#[test]
fn a_seed_makes_one_text() {
    let texts = ["1", "1", "2"].map(|seed| run(&["--seed", seed, "--temp", "1.2"]));
    assert_eq!(texts[0], texts[1]);
    assert_ne!(texts[0], texts[2]);
    let punished = run(&["--temp", "0", "--repeat-penalty", "1.5"]);
    assert_ne!(punished, run(&["--temp", "0"]));
}

/// Of bytes at random, which end within characters more often than not: both ways of showing them agree.
#[test]
fn characters_that_are_cut_are_shown_alike() {
    let random = ["é", "-n", "7", "--temp", "1000", "--top-k", "0", "--top-p", "1", "--min-p", "0"];
    let mut cut = 0;
    for seed in ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"] {
        let arguments = [&random[..], &["--seed", seed]].concat();
        let shown = succeeded(&llama("run", &arguments));
        let json = document(&llama("run", &[&arguments[..], &["--json"]].concat()));
        assert_eq!(shown, format!("é{}\n", json["text"].as_str().unwrap()));
        cut += usize::from(shown.ends_with("\u{fffd}\n"));
    }
    assert!(cut > 0, "no text ended within a character");
}

#[test]
fn a_context_ends_a_text() {
    let json = document(&llama("run", &["A kernel", "--json", "--ctx", "20"]));
    // The last token isn't added to the nine before.
    assert!(json["tokens"].as_u64().unwrap() <= 12, "{json}");
    let output = llama("run", &["A kernel", "--ctx", "12"]);
    succeeded(&output);
    let said = text(&output.stderr);
    assert!(said.contains("the context of 12 tokens is full; give a larger --ctx"), "{said}");
    let output = llama("run", &[&"A kernel ".repeat(28)[..], "--temp", "0"]);
    succeeded(&output);
    let said = text(&output.stderr);
    assert!(said.contains("the context of 256 tokens is full; the model was trained with no more"), "{said}");
    // Nothing is shown of a prompt that there is no room for.
    let too_long = "llama: the prompt has 21 tokens, the context holds 5; give a larger --ctx";
    assert_eq!(failed(&llama("run", &["A kernel is compiled", "--ctx", "5"]), 1, too_long), "");
    failed(&llama("run", &["A kernel", "--ctx", "many"]), 2, "--ctx");
    let huge = llama("run", &["A kernel", "--ctx", "1000000000000000"]);
    failed(&huge, 1, "no room for a cache of 1000000000000000 tokens; give a smaller --ctx");
}

#[test]
fn a_context_beyond_the_trained_one_is_warned_of() {
    let warning = "the model was trained with 256 tokens; texts get worse beyond them";
    for (ctx, is_warned) in [("256", false), ("257", true)] {
        let output = llama("run", &["A kernel", "-n", "1", "--ctx", ctx]);
        succeeded(&output);
        assert_eq!(text(&output.stderr).contains(warning), is_warned, "{}", text(&output.stderr));
    }
}

#[test]
fn chats_go_on_beyond_the_context() {
    let short = ["--temp", "0", "-n", "8", "--ctx", "48"];
    let lines = "A kernel is compiled.\n\nThe buffers\nThe device is lost.\nA matrix\n";
    let output = llama_with(&model(), "chat", &short, lines);
    succeeded(&output);
    assert!(
        text(&output.stderr).contains("earlier messages that are forgotten now: 2"),
        "{}",
        text(&output.stderr)
    );

    let json = document(&llama_with(&model(), "chat", &[&short[..], &["--json"]].concat(), lines));
    let messages = json["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["user", "assistant"].repeat(4));
    assert_eq!(messages[0]["content"], "A kernel is compiled.");

    // A question that there is no room for is refused, and the chat goes on.
    let lines = format!("A kernel\n{}\nThe buffers\n", "long ".repeat(20));
    let arguments = [&short[..], &["--json", "--system", "Texts."]].concat();
    let output = llama_with(&model(), "chat", &arguments, &lines);
    let refused = "and the context has 48, of which 8 are kept for the answer; give a larger --ctx";
    let json: Value = serde_json::from_str(&failed(&output, 1, refused)).unwrap();
    failed(&output, 1, "messages that were refused, and have no answer: 1");
    let messages = json["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 5, "{json}");
    assert_eq!([&messages[0]["role"], &messages[1]["content"]], ["system", "A kernel"]);
    assert_eq!(messages[3]["content"], "The buffers");
    let output = llama_with(&model(), "chat", &["-n", "1"], "");
    succeeded(&output);
}

/// The template writes messages one after the other. Caches hold what was said before a question, whose tokens
/// are recent all the same.
#[test]
fn chats_punish_what_was_said_before_a_question() {
    let options = ["--temp", "0", "-n", "12", "--repeat-penalty", "4", "--json"];
    let json = document(&llama_with(&model(), "chat", &options, "A kernel is compiled\nfor\n"));
    let contents: Vec<&str> = json["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|message| message["content"].as_str())
        .collect();
    let [first, answer, second, last] = contents[..] else { panic!("{json}") };
    let whole = [first, answer, second].concat();
    let run = document(&llama("run", &[&[whole.as_str()][..], &options].concat()));
    assert_eq!(run["text"], last);
    assert_eq!(run["ended"], "count");
    let seconds = ["load_seconds", "warm_up_seconds", "prompt_seconds", "seconds"];
    assert!(seconds.iter().all(|name| run[name].as_f64().is_some_and(|seconds| seconds >= 0.0)), "{run}");
}

/// A copy of the model with another template.
#[test]
fn templates_are_told_the_day() {
    let shipped = "{% for message in messages %}{{ message.content }}{% endfor %}";
    let template = "{{ strftime_now('%Y-%m-%d')        }}{{ messages[0].content }}";
    assert_eq!(template.len(), shipped.len());
    let mut bytes = std::fs::read(model()).unwrap();
    let at = bytes.windows(shipped.len()).position(|window| window == shipped.as_bytes()).unwrap();
    bytes[at..at + shipped.len()].copy_from_slice(template.as_bytes());
    let path = std::env::temp_dir().join(format!("llama-{}.gguf", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let output = llama_with(&path, "chat", &["-n", "4"], "A kernel\n");
    std::fs::remove_file(path).unwrap();
    succeeded(&output);
    // The one that begins a text, the date, and the message.
    assert!(text(&output.stderr).contains("19 tokens of the prompt"), "{}", text(&output.stderr));
}

#[test]
fn speed_is_measured() {
    let arguments = ["-p", "8", "-n", "4", "-d", "2", "-r", "2"];
    let table = succeeded(&llama("bench", &arguments));
    assert!(table.contains("| pp8 @ d2 |") && table.contains("| tg4 @ d2 |"), "{table}");
    let json = document(&llama("bench", &["-p", "0", "-n", "4", "-r", "2", "--json"]));
    assert_eq!((json["tests"].as_array().unwrap().len(), &json["tests"][0]["test"]), (1, &"tg4".into()));
    assert!(json["tests"][0]["samples_ts"].as_array().unwrap().iter().all(|x| x.as_f64() > Some(0.0)));
    let together = ["-p", "8", "-n", "4", "-d", "2", "-r", "1", "--parallel", "3"];
    let table = succeeded(&llama("bench", &together));
    assert!(table.contains("| pp8 @ d2 |") && table.contains("| tg4 x 3 @ d2 |"), "{table}");
    let json = document(&llama("bench", &[&together[..], &["--json"]].concat()));
    assert_eq!([0, 1].map(|test| json["tests"][test]["n_parallel"].as_u64()), [1, 3].map(Some));
    // The room that the tests need, and what is asked for.
    let warning = "the model was trained with 256 tokens; texts get worse beyond them";
    for (depth, ctx, is_warned) in [("2", &[][..], false), ("255", &[], true), ("2", &["--ctx", "257"], true)]
    {
        let output = llama("bench", &[&["-p", "0", "-n", "2", "-r", "1", "-d", depth], ctx].concat());
        succeeded(&output);
        assert_eq!(text(&output.stderr).contains(warning), is_warned, "{}", text(&output.stderr));
    }
}

#[test]
fn texts_are_predicted() {
    let held_out = model().with_file_name("held-out.txt");
    let file = held_out.to_str().unwrap();
    let json = document(&llama("perplexity", &[file, "--json"]));
    const HELD_OUT: &str = include_str!("../../models/held-out.txt");
    // A token for each byte but the line break at the end, and one before them; of the second half of each chunk, all but the first
    // token.
    let count = 1 + HELD_OUT.trim_end_matches('\n').len();
    assert_eq!(json["tokens"], count / 256 * 127);
    let (perplexity, bits) = (json["perplexity"].as_f64().unwrap(), json["bits_per_byte"].as_f64().unwrap());
    assert!((3.5..4.5).contains(&perplexity) && (perplexity.log2() - bits).abs() < 1e-9, "{json}");
    let shown = succeeded(&llama("perplexity", &[file, "--ctx", "100"]));
    let counted = format!(" of {} tokens, ", count / 100 * 49);
    assert!(shown.starts_with("perplexity ") && shown.contains(&counted), "{shown}");
    let noted = "that all but the first are scored";
    let short = &HELD_OUT[..100];
    for (ctx, scored, tokens, left_out) in [("101", "all", 100, 0), ("60", "second halves", 29, 41)] {
        let output = llama_with(&model(), "perplexity", &["-", "--json", "--ctx", ctx], short);
        let json = document(&output);
        assert_eq!((&json["scored"], &json["tokens"]), (&scored.into(), &tokens.into()));
        assert_eq!((&json["text_tokens"], &json["left_out"]), (&101.into(), &left_out.into()));
        let said = text(&output.stderr);
        assert_eq!(said.contains(noted), scored == "all", "{said}");
        let parts = "29 of the text's 101 tokens are scored, in the second half of each piece of 60 tokens (pieces: 1); left out \
                     at the end, as filling no piece: 41 tokens";
        assert_eq!(said.contains(parts), scored != "all", "{said}");
    }
    failed(&llama("perplexity", &["/no/such/file"]), 1, "can't read /no/such/file");
}

/// A download that ended early.
#[test]
fn a_file_that_is_cut_names_the_tensor() {
    let mut bytes = std::fs::read(model()).unwrap();
    bytes.truncate(100_000);
    let path = std::env::temp_dir().join(format!("llama-cut-{}.gguf", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let output = llama_with(&path, "run", &["A"], "");
    std::fs::remove_file(path).unwrap();
    failed(&output, 1, "the file ends at byte 100000, but the tensor \"");
    failed(&output, 1, "\" needs bytes up to ");
    failed(&output, 1, "it is cut short, or damaged; is the download complete?");
}

#[test]
fn wrong_models_and_devices_are_told() {
    let output = llama_with(Path::new("/no/such/model"), "run", &["A"], "");
    failed(&output, 1, "can't read /no/such/model");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    failed(&llama_with(folder, "run", &["A"], ""), 1, "it is a directory; a model must be a regular file");
    // The standard input is a pipe.
    let pipe = Path::new("/dev/stdin");
    if pipe.exists() {
        failed(
            &llama_with(pipe, "run", &["A"], ""),
            1,
            "it is not a regular file; a model must be a regular file",
        );
    }
    let model = folder.join("README.md");
    failed(&llama_with(&model, "run", &["A"], ""), 1, "README.md");
    let mut beyond = Command::new(env!("CARGO_BIN_EXE_llama"));
    beyond.arg("run").arg(self::model()).args(["A", "--backend", "cpu:7"]);
    failed(&beyond.output().unwrap(), 1, "\"cpu:7\": there is no such device; there are: cpu = host CPU");
    let mut named = Command::new(env!("CARGO_BIN_EXE_llama"));
    named.arg("run").arg(self::model()).arg("A").env("COMPUTE_BACKEND", "cpu:7");
    let said = "\"cpu:7\" that COMPUTE_BACKEND names: there is no such device; there are: cpu = host CPU";
    failed(&named.output().unwrap(), 1, said);
}
