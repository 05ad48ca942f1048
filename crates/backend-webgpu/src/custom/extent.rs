//! How long a text may be, and how deeply its expressions and blocks may be nested.
//!
//! Compilers recurse over a text's tree, in the parser, in passes over it and when it is dropped, so its depth is
//! bounded before any of them sees it. A chain such as `a + b + c` is as deep as it is long.

use backend_api::{Diagnostic, DiagnosticKind, SourcePlace};

/// Bytes of a text, at most.
const MAX_BYTES: usize = 1 << 20;

/// Brackets within each other, at most. The WGSL specification asks for 127 blocks.
const MAX_NESTING: usize = 127;

/// Operators that may be operands of each other, at most.
const MAX_OPERATORS: usize = 2000;

/// # Errors
/// [`Limit`](DiagnosticKind::Limit), where the text gets too deep.
pub(super) fn check(source: &str) -> Result<(), Diagnostic> {
    let too = |reason: String, at: usize| {
        let place = SourcePlace::of(source, at..at + 1);
        Err(Diagnostic::new(reason).of_kind(DiagnosticKind::Limit).at(place))
    };
    if source.len() > MAX_BYTES {
        let reason = format!("the text has {} bytes, the limit is {MAX_BYTES}", source.len());
        return Err(Diagnostic::new(reason).of_kind(DiagnosticKind::Limit));
    }
    // For each open bracket and the text outside of all: the operators since the last comma or statement.
    let mut levels = vec![0];
    let mut operators = 0;
    let mut rest = source;
    while let Some(next) = rest.chars().next() {
        let at = source.len() - rest.len();
        if let Some(comment) = comment(rest) {
            rest = &rest[comment..];
            continue;
        }
        if let Some(level) = levels.last_mut() {
            match next {
                '(' | '[' | '{' => {
                    *level += 1;
                    operators += 1;
                    levels.push(0);
                }
                ')' | ']' | '}' => {
                    operators -= *level;
                    levels.pop();
                    if levels.is_empty() {
                        levels.push(0);
                    }
                    // The end of a function or a block is the end of a statement, but for an `else`.
                    if next == '}' && !goes_on(&rest[1..]) {
                        operators -= levels.last_mut().map_or(0, std::mem::take);
                    }
                }
                ',' | ';' => operators -= std::mem::take(level),
                next if next.is_ascii_punctuation() && next != '_' => {
                    *level += 1;
                    operators += 1;
                }
                _ => {}
            }
        }
        if levels.len() > MAX_NESTING {
            return too(format!("more than {MAX_NESTING} brackets are nested here"), at);
        }
        if operators > MAX_OPERATORS {
            return too(format!("more than {MAX_OPERATORS} operators in one expression"), at);
        }
        rest = &rest[next.len_utf8()..];
    }
    Ok(())
}

/// Whether an `if` goes on after its block.
fn goes_on(mut rest: &str) -> bool {
    loop {
        rest = rest.trim_start();
        match comment(rest) {
            Some(bytes) if bytes > 0 => rest = &rest[bytes..],
            _ => return rest.starts_with("else"),
        }
    }
}

/// Bytes of the comment that a text begins with.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if !text.starts_with("/*") {
        return None;
    }
    let (mut depth, mut at) = (0, 0);
    while let Some(next) = text.as_bytes().get(at..at + 2) {
        match next {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
    // It doesn't end, which the parser says better.
    Some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(source: &str) -> bool {
        check(source).is_ok()
    }

    #[test]
    fn depth_is_bounded_and_length_of_lists_is_not() {
        for [open, close] in [["(", ")"], ["[", "]"], ["{", "}"]] {
            assert!(depth(&format!("{}{}", open.repeat(100), close.repeat(100))));
            assert!(!depth(&format!("{}{}", open.repeat(10_000), close.repeat(10_000))));
        }
        for chain in ["a+", "-", "!", "&*", "a.x", "a[0]", "f(1)+", "a<", "if a { } else "] {
            assert!(depth(&chain.repeat(300)), "{chain}");
            assert!(!depth(&chain.repeat(9000)), "{chain}");
        }
        assert!(depth(&"vec4<f32>(1.0, 2.0, 3.0, -4.0),".repeat(10_000)));
        assert!(depth(&"x[i] = y[i] * 2.0;\n".repeat(10_000)));
        assert!(depth(&"fn f() { if a { b(); } }\n".repeat(9000)));
        assert!(depth(&format!("/* {} /* ( */ */ // {}\n", "((".repeat(900), "((".repeat(900))));
        assert!(!depth(&"a ".repeat(MAX_BYTES)));
    }

    #[test]
    fn unbalanced_texts_are_the_parsers_to_refuse() {
        for source in [")", "}}}}", "(", "/*", "/* /* */", "//", "/", "α(β", "\0"] {
            assert!(depth(source), "{source}");
        }
    }
}
