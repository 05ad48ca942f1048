//! Declarations of a WGSL text in an order that depends on their uses alone.

use std::collections::HashMap;

/// What comes before all declarations.
const DIRECTIVES: [&str; 3] = ["enable", "requires", "diagnostic"];

/// What begins a declaration that has a name.
const KINDS: [&str; 6] = ["fn", "struct", "alias", "const", "override", "var"];

/// The text with its directives, its entry points, and each declaration where it is first used, without comments.
/// Declarations that no entry point uses are left out.
pub(crate) fn by_first_use(text: &str) -> String {
    let bare = without_comments(text);
    let declarations = split(&bare);
    let names: HashMap<&str, usize> =
        declarations.iter().enumerate().filter_map(|(i, it)| Some((name_of(it)?, i))).collect();
    // Unlike an attribute, which begins with @.
    let is_directive = |text: &str| DIRECTIVES.iter().any(|directive| text.starts_with(directive));
    let mut ordered: Vec<&str> = declarations.iter().copied().filter(|text| is_directive(text)).collect();
    let mut is_written = vec![false; declarations.len()];
    // Last in, first out: what a declaration uses comes behind it, the first one first.
    let mut next: Vec<usize> =
        (0..declarations.len()).rev().filter(|&i| declarations[i].contains("@compute")).collect();
    while let Some(i) = next.pop() {
        if !std::mem::replace(&mut is_written[i], true) {
            ordered.push(declarations[i]);
            let used: Vec<usize> =
                uses(declarations[i]).filter_map(|word| names.get(word).copied()).collect();
            next.extend(used.into_iter().rev());
        }
    }
    ordered.join("\n")
}

/// The text with a space in the place of each comment.
fn without_comments(text: &str) -> String {
    let (mut bare, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('/') {
        let (before, from) = rest.split_at(at);
        bare.push_str(before);
        rest = if from.starts_with("//") {
            from.find('\n').map_or("", |end| &from[end..])
        } else if from.starts_with("/*") {
            bare.push(' ');
            from.split_once("*/").map_or("", |(_, after)| after)
        } else {
            bare.push('/');
            &from[1..]
        };
    }
    bare + rest
}

/// The declarations and directives of a text without comments.
fn split(text: &str) -> Vec<&str> {
    let (mut all, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && matches!(c, ';' | '}') {
            all.push(text[start..=i].trim());
            start = i + 1;
        }
    }
    all.retain(|declaration| *declaration != ";");
    all
}

/// What a declaration declares.
fn name_of(declaration: &str) -> Option<&str> {
    let (at, kind) = words(declaration).find(|(_, word)| KINDS.contains(word))?;
    let mut behind = &declaration[at + kind.len()..];
    if behind.starts_with('<') {
        behind = behind.split_once('>')?.1;
    }
    words(behind).next().map(|(_, word)| word)
}

/// Words that may be names of other declarations: all but members that are accessed.
fn uses(declaration: &str) -> impl Iterator<Item = &str> {
    words(declaration).filter_map(|(at, word)| (!declaration[..at].ends_with('.')).then_some(word))
}

/// Names, keywords and numbers, with their places.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    std::iter::from_fn(move || {
        at += text[at..].find(is_part)?;
        let rest = &text[at..];
        let word = &rest[..rest.find(|c: char| !is_part(c)).unwrap_or(rest.len())];
        let place = at;
        at += word.len();
        Some((place, word))
    })
}

#[cfg(test)]
mod tests {
    use super::by_first_use;

    #[test]
    fn what_is_used_comes_behind_its_first_use() {
        let text = "
            enable f16;
            fn unused() { main_like(); }
            struct Params { n: u32 /* rows */, x: u32 };
            @group(0) @binding(0) var<storage, read> x: array<u32>; // x
            const WIDTH = 4u / 2u;
            @diagnostic(off, derivative_uniformity) fn twice(n: u32) -> u32 { return WIDTH * n; }
            var<immediate> params: Params;
            @compute @workgroup_size(WIDTH) fn main() { let a = params.x; _ = twice(a) / x[0]; }";
        let first_words: Vec<String> = by_first_use(text)
            .lines()
            .map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
            .collect();
        let expected = [
            "enable f16;",
            "@compute @workgroup_size(WIDTH) fn",
            "const WIDTH =",
            "var<immediate> params: Params;",
            "struct Params {",
            "@group(0) @binding(0) var<storage,",
            "@diagnostic(off, derivative_uniformity) fn",
        ];
        assert_eq!(first_words, expected);
    }
}
