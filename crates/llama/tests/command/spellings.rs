//! Command lines as users of llama.cpp write them.

use std::process::{Command, Output};

use super::{document, failed, llama, model, text};

fn line(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llama"));
    command.args(words).args(["--backend", "cpu"]).output().unwrap()
}

#[test]
fn options_of_llama_cpp_that_mean_the_same_are_read() {
    let model = model();
    let model = model.to_str().unwrap();
    let there = ["--n-predict", "4", "--ctx-size", "64", "-s", "3", "-ctk", "q8_0", "-ctv", "q8_0", "--json"];
    let json = document(&line(&[&["run", "-m", model, "-p", "A kernel"][..], &there].concat()));
    assert_eq!((&json["tokens"], &json["ctx"]), (&4.into(), &64.into()));
    assert_eq!((&json["cache_type"], &json["prompt"]), (&"q8_0".into(), &"A kernel".into()));
    let here = ["-n", "4", "--ctx", "64", "--seed", "3", "--cache-type", "q8_0", "--json"];
    let expected = document(&line(&[&["run", model, "A kernel"][..], &here].concat()));
    assert_eq!(json["text"], expected["text"]);

    let held_out = model.replace("bytes-1m-q8_0.gguf", "held-out.txt");
    let score = document(&line(&["perplexity", "-m", model, "-f", &held_out, "-c", "100", "--json"]));
    assert_eq!(score["ctx"], 100);
    let speed =
        document(&line(&["bench", "-m", model, "--n-prompt", "8", "--n-gen", "0", "-r", "1", "--json"]));
    assert_eq!(speed["tests"][0]["test"], "pp8");
}

#[test]
fn other_options_of_llama_cpp_are_answered_together() {
    let output = llama("run", &["A kernel", "-ngl", "99", "-t", "8", "-no-cnv", "-ctk", "q8_0"]);
    for part in [
        "options that `llama run` doesn't take:",
        "-ngl: a model is on one device as a whole, which --backend chooses",
        "-t: leave it out: --backend cpu computes on all cores that the process may use",
        "-no-cnv: leave it out: `llama run` applies no chat template",
        "-ctk without -ctv: keys and values are kept alike, as --cache-type q8_0 says",
        "Usage: llama run ",
    ] {
        assert_eq!(failed(&output, 2, part), "");
    }
    let there = [
        "-pps",
        "-fit",
        "on",
        "--samplers",
        "top_k",
        "--keep",
        "3",
        "--lora=A",
        "--rope_scale",
        "2",
        "-x",
        "--tokns",
    ];
    let output = llama("run", &there);
    for part in [
        "-pps: options of several letters have two dashes, as --ctx; `llama run --help` lists them; what -p takes is a word of \
         its own",
        "-fit: leave it out: what there is no room for is an error",
        "--samplers: leave it out: the order is repetition penalty, top-k, temperature, top-p, min-p",
        "--keep: leave it out: a text ends where the context is full",
        "--lora: there is no such thing: a model is one file",
        "--rope_scale: leave it out: rotations are scaled as the file says",
        "-x: there is no such option: `llama run --help` lists what there is\n",
        "--tokns: there is no such option: `llama run --help` lists what there is; is --tokens meant?",
    ] {
        failed(&output, 2, part);
    }
    assert!(!text(&output.stderr).contains("tip:"), "{}", text(&output.stderr));
    let output = llama("chat", &["-nope"]);
    failed(&output, 2, "-nope: options of several letters have two dashes, as --ctx; `llama chat --help`");
    failed(&line(&["-m", "MODEL"]), 2, "`llama run MODEL PROMPT`");
    let help = Command::new(env!("CARGO_BIN_EXE_llama")).args(["run", "--help"]).output().unwrap();
    assert!(text(&help.stdout).contains("--cache-type"));
}
