//! `llama devices`: names, and which one is taken.

use std::process::{Command, Output};

use super::{document, succeeded, text};

fn devices(more: &[&str], named: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llama"));
    command.arg("devices").args(more).env("COMPUTE_BACKEND", named).output().unwrap()
}

#[test]
fn devices_are_listed() {
    let output = devices(&[], "cpu");
    let shown = succeeded(&output);
    assert!(shown.lines().any(|line| line.starts_with("cpu") && line.ends_with("(host, Cpu)")), "{shown}");
    let said = text(&output.stderr);
    let taken = "auto, and no --backend, takes cpu (the environment variable COMPUTE_BACKEND names \"cpu\")";
    assert!(said.contains(taken), "{said}");
    let is_webgpu = shown.lines().any(|line| line.starts_with("webgpu:0"));
    assert_eq!(said.contains("as webgpu:"), is_webgpu, "{said}");
}

#[test]
fn devices_are_listed_in_a_document() {
    let json = document(&devices(&["--json"], ""));
    let listed = json["devices"].as_array().unwrap();
    let is_known = |name: &str| listed.iter().any(|device| device["backend"] == name);
    assert!(is_known("cpu") && is_known(json["auto"].as_str().unwrap()), "{json}");
    assert!(json["reason"].as_str().unwrap().starts_with("the best device for \"auto\""), "{json}");
    for device in listed {
        assert!(["device", "api", "driver", "kind"].iter().all(|name| device[name].is_string()), "{device}");
    }
    // What can't be opened is told, and the others are listed.
    let json = document(&devices(&["--json"], "cpu:7"));
    assert!(json["auto"].is_null() && json["reason"].as_str().unwrap().contains("no such device"), "{json}");
    let output = devices(&[], "cpu:7");
    assert_eq!(succeeded(&output).lines().count(), json["devices"].as_array().unwrap().len());
    assert!(
        text(&output.stderr).contains("auto, and no --backend, takes none: "),
        "{}",
        text(&output.stderr)
    );
}
