//! Values of options: which are wrong, which is known before a model is read, and what -1 and 0 mean.

use std::path::Path;
use std::process::Command;

use super::{document, failed, llama, llama_with, model, succeeded, text};

#[test]
fn numbers_of_the_sampler_are_finite() {
    for option in ["--temp", "--top-p", "--min-p", "--repeat-penalty"] {
        for number in ["-1", "nan", "inf", "warm"] {
            failed(&llama("run", &["A kernel", &format!("{option}={number}")]), 2, option);
        }
    }
    for (option, number, said) in [
        ("--temp", "-1", "not a finite number ≥ 0"),
        ("--top-p", "7", "not a number from 0 to 1"),
        ("--min-p", "1.5", "not a number from 0 to 1"),
        ("--repeat-penalty", "0", "not a finite number > 0"),
        ("--seed", "-2", "not a whole number ≥ 0, nor -1 for one at random"),
        ("--top-k", "-1", "not a whole number ≥ 0"),
        ("-n", "abc", "not a whole number ≥ 0"),
        ("-n", "-2", "not a whole number ≥ 0, nor -1 for as many as there is room for"),
        ("--ctx", "-1", "not a whole number ≥ 0"),
    ] {
        failed(&llama("run", &["A kernel", option, number]), 2, said);
    }
    failed(&llama("bench", &["-r", "0"]), 2, "not a whole number ≥ 1");
    failed(&llama("bench", &["--parallel", "0"]), 2, "not a whole number ≥ 1");
}

#[test]
fn wrong_values_are_told_before_a_model_is_read() {
    let nowhere = Path::new("/no/such/model");
    for (task, more, said) in [
        ("bench", &["-p", "0", "-n", "0"][..], "nothing to measure"),
        ("bench", &["-d", "18446744073709551615"], "-d, -p and -n are too large"),
        (
            "bench",
            &["-p", "60", "-n", "8", "-d", "4", "--ctx", "32"],
            "a test takes 64 tokens (-d, and -p or -n), the context holds 32; give a larger --ctx",
        ),
        ("perplexity", &["-", "--ctx", "2"], "give 3 or more"),
        (
            "chat",
            &["--cache-type", "f32", "--precision", "mixed"],
            "--cache-type f32 needs activations of f32",
        ),
    ] {
        let output = llama_with(nowhere, task, more, "");
        assert_eq!(failed(&output, 2, said), "");
        failed(&output, 2, &format!("Usage: llama {task} "));
    }
    for backend in ["nowhere", "nowhere:1", "auto:1"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_llama"));
        command.arg("run").arg(nowhere).args(["A", "--backend", backend]);
        let known = format!("no backend is called {backend:?} (known: auto, cpu, webgpu, verify)");
        failed(&command.output().unwrap(), 2, &known);
    }
}

#[test]
fn minus_one_is_as_many_tokens_as_there_is_room_for() {
    let json = document(&llama("run", &["A kernel", "-n", "-1", "--ctx", "20", "--json"]));
    // The last token isn't added to the nine before.
    assert_eq!((&json["ended"], &json["tokens"]), (&"context".into(), &12.into()), "{json}");
    let json = document(&llama_with(&model(), "chat", &["-n", "-1", "--ctx", "40", "--json"], "A kernel\n"));
    assert_eq!(json["messages"][1]["ended"], "context", "{json}");
    failed(&llama("bench", &["-n", "-1"]), 2, "not a whole number ≥ 0");
}

#[test]
fn a_context_of_zero_is_the_trained_one() {
    let json = document(&llama("run", &["A kernel", "-n", "1", "-c", "0", "--json"]));
    assert_eq!(json["ctx"], 256);
    let json = document(&llama("bench", &["-p", "0", "-n", "1", "-r", "1", "-c", "0", "--json"]));
    assert_eq!(json["ctx"], 256);
    // What the model was trained with is known with the model.
    failed(
        &llama("bench", &["-p", "257", "-c", "0"]),
        1,
        "a test takes 257 tokens (-d, and -p or -n), the context",
    );
}

#[test]
fn a_seed_that_is_drawn_is_told() {
    let options = ["A kernel", "-n", "30", "--temp", "1.2", "--json"];
    let [one, other] = [(); 2].map(|()| document(&llama("run", &[&options[..], &["--seed", "-1"]].concat())));
    assert_ne!((&one["seed"], &one["text"]), (&other["seed"], &other["text"]));
    let again = document(&llama("run", &[&options[..], &["--seed", &one["seed"].to_string()]].concat()));
    assert_eq!((&one["seed"], &one["text"]), (&again["seed"], &again["text"]));
    let json = document(&llama_with(&model(), "chat", &["--seed", "7", "--json"], ""));
    assert_eq!(json["seed"], 7);

    for (seed, is_told) in [("-1", true), ("7", false)] {
        let output = llama("run", &["A kernel", "-n", "1", "--seed", seed]);
        succeeded(&output);
        assert_eq!(text(&output.stderr).contains(" was drawn"), is_told, "{}", text(&output.stderr));
    }
}

#[test]
fn one_has_no_plural() {
    let output = llama("run", &["", "-n", "1"]);
    succeeded(&output);
    let said = text(&output.stderr);
    assert!(said.contains("1 token of the prompt in") && said.contains(", 1 token in"), "{said}");
    let output = llama("run", &["A", "--ctx", "1"]);
    failed(&output, 1, "the prompt has 2 tokens, the context holds 1");
}

/// A text that is as long as was asked for ends for that reason, also where there is no room for more.
#[test]
fn a_count_that_fills_the_context_is_a_count() {
    for (count, ended) in [("2", "count"), ("3", "context")] {
        let json = document(&llama("run", &["A", "-c", "3", "-n", count, "--json"]));
        assert_eq!((&json["tokens"], &json["ended"]), (&2.into(), &ended.into()), "{json}");
    }
}

/// Editors end files with one.
#[test]
fn a_line_break_at_the_end_is_no_part_of_a_text() {
    let tokens = |text: &str| {
        let output = llama_with(&model(), "perplexity", &["-", "--json", "--ctx", "16"], text);
        document(&output)["text_tokens"].clone()
    };
    let text = "a text of some words";
    for end in ["\n", "\r\n"] {
        assert_eq!(tokens(&format!("{text}{end}")), tokens(text), "{end:?}");
    }
    assert_ne!(tokens(&format!("{text}\n\n")), tokens(text));
}
