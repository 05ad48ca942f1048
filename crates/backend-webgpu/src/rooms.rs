//! The rooms of this crate import one another in one direction, and few files within one.

mod cycles;

use std::fs;
use std::path::{Path, PathBuf};

/// The rooms, each of which imports none that comes later. `compute` and what follows are the backend's own
/// API.
const ROOMS: [&str; 24] = [
    "sync",
    "unchecked",
    "device",
    "cache",
    "kernels",
    "memory",
    "transfer",
    "recorder",
    "context",
    "ops",
    "opened",
    "uniformity",
    "custom",
    "backend",
    "sharing",
    "kernel_choice",
    "warm_up",
    "capture",
    "compute",
    "custom_api",
    "tune",
    "tuning",
    "factory",
    "lib",
];

/// Code of tests, and of features that only tests turn on, which looks into every room.
const EXEMPT: [&str; 9] = [
    "interleavings",
    "out_of_bounds",
    "memory/pool/tests.rs",
    "recorder/tests.rs",
    "ops/plans",
    "rooms",
    "test_hooks",
    "tests.rs",
    "tests/",
];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// The code of a file, without comments and without its tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// How many modules a file is inside of, its own one included.
fn depth(file: &str) -> usize {
    let folders = file.matches('/').count();
    if file.ends_with("/mod.rs") { folders } else { folders + 1 }
}

/// The names behind each `crate::` of a text, of a group all of them.
fn imports(code: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for after in code.split("crate::").skip(1) {
        let group = after.strip_prefix('{').map(|group| group.split(';').next().unwrap_or_default());
        let items: Vec<&str> = match group {
            Some(group) => group.split([',', '}']).map(str::trim).collect(),
            None => vec![after],
        };
        let names_of_items = items.into_iter().map(|item| {
            let end = item.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(item.len());
            &item[..end]
        });
        // Nothing stands between a group's last brace and its semicolon.
        names.extend(names_of_items.filter(|name| !name.is_empty()));
    }
    names
}

#[test]
fn modules_are_counted() {
    assert_eq!(["lib.rs", "ops/mod.rs", "ops/gather.rs", "ops/conv/mod.rs"].map(depth), [1, 1, 2, 2]);
    assert_eq!(imports("use crate::{memory::Block, ops}; crate::sync::Mutex"), ["memory", "ops", "sync"]);
}

#[test]
fn rooms_import_in_one_direction() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    files(&source, &mut all);
    let mut checked = 0;
    for path in all {
        let file = path.strip_prefix(&source).unwrap().to_string_lossy().replace('\\', "/");
        if EXEMPT.iter().any(|exempt| file.starts_with(exempt)) {
            continue;
        }
        let room = file.split(['/', '.']).next().unwrap();
        let place = |room: &str| ROOMS.iter().position(|&known| known == room);
        let own = place(room).unwrap_or_else(|| panic!("the room of {file} is not in the list"));
        let text = fs::read_to_string(&path).unwrap();
        // As many steps up as there are modules lead to the crate, where the rooms are.
        let code = code(&text).replace(&"super::".repeat(depth(&file)), "crate::");
        for import in imports(&code) {
            // Features of tests are called where they look.
            if EXEMPT.contains(&import) {
                continue;
            }
            let room = match import {
                "WebGpuBackend" => "backend",
                "WebGpuFactory" | "register" => "factory",
                "variants" => "lib",
                room => room,
            };
            let other = place(room).unwrap_or_else(|| panic!("{file} imports from {room}, which is no room"));
            assert!(other <= own, "{file} imports from {room}, a room further up");
            checked += 1;
        }
    }
    assert!(checked > 300, "only {checked} imports were found");
}
