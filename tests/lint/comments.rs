//! Comments that can be read alone: none begins with words that only the comment before it explains.

use std::fs;
use std::path::{Path, PathBuf};

/// First words that stand for a noun of some other comment.
const WITHOUT_NOUN: [&str; 9] = [
    "The same",
    "Those",
    "That of",
    "So many",
    "What is left",
    "Likewise",
    "They",
    "All of them",
    "None of them",
];

/// Objects of a first verb that stand for a noun of some other comment: "Puts them into …".
const PRONOUNS: [&str; 3] = ["them", "those", "these"];

/// Files with comments that begin with `//`.
const EXTENSIONS: [&str; 4] = ["rs", "wgsl", "js", "mjs"];

/// Whether a comment's first words need the comment before it.
fn needs_its_neighbour(comment: &str) -> bool {
    let begins = |words: &&str| {
        comment.strip_prefix(*words).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    let mut words = comment.split(|c: char| !c.is_alphanumeric());
    let (verb, object) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    WITHOUT_NOUN.iter().any(begins) || (verb.ends_with('s') && PRONOUNS.contains(&object))
}

/// The text of a line that is a comment and nothing else.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.strip_prefix(['/', '!']).unwrap_or(text).trim())
}

/// The first line of each comment, and of each section of one, with the number of the line.
fn first_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut follows = false;
    text.lines().zip(1..).filter_map(move |(line, number)| {
        let comment = comment(line);
        let begins = !follows;
        follows = comment.is_some_and(|comment| !comment.starts_with("# "));
        comment.filter(|_| begins).map(|comment| (number, comment))
    })
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries.map(Result::unwrap) {
        let (path, name, kind) = (entry.path(), entry.file_name(), entry.file_type().unwrap());
        let name = name.to_string_lossy();
        let built = name.starts_with('.') || name == "target" || name == "node_modules";
        if kind.is_dir() && !built {
            files(&path, found);
        } else if kind.is_file() && path.extension().is_some_and(|of| EXTENSIONS.iter().any(|&e| of == e)) {
            found.push(path);
        }
    }
}

#[test]
fn comments_can_be_read_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    files(&root, &mut all);
    assert!(all.len() > 500, "only {} files were found", all.len());
    let mut found = Vec::new();
    for path in all {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.strip_prefix(&root).unwrap().display();
        let leaning = first_lines(&text).filter(|(_, comment)| needs_its_neighbour(comment));
        found.extend(leaning.map(|(line, comment)| format!("{name}:{line}: {comment}")));
    }
    assert!(found.is_empty(), "say the noun of what these comments are about:\n{}", found.join("\n"));
}

#[test]
fn a_comment_that_needs_its_neighbour_is_seen() {
    for text in [
        "/// The same of queries.\nfn f() {}",
        "  // Those beyond the last row are 0.",
        "//! That of a convolution.",
        "/// So many tokens.",
        "x();\n// What is left at the end.",
        "/// Likewise.",
        "/// Puts them into workgroup memory.",
        "/// Fetches those of the next block.",
        "/// Reads a row.\n///\n/// # Errors\n/// Those of the descriptor.",
    ] {
        assert!(first_lines(text).any(|(_, comment)| needs_its_neighbour(comment)), "{text}");
    }
    for text in [
        "/// The samples of a row.",
        "/// What is leftover.",
        "/// Copies rows.\n/// The same rows may be copied twice.",
        "let a = \"// The same\";",
        "// This kernel fetches those rows.",
    ] {
        assert!(!first_lines(text).any(|(_, comment)| needs_its_neighbour(comment)), "{text}");
    }
}
