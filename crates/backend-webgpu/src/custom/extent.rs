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
    // For each open bracket and the text outside of all, and what they sum up to.
    let mut levels = vec![Level::default()];
    let mut operators = 0;
    let (mut rest, mut before) = (source, ' ');
    while let Some(next) = rest.chars().next() {
        let at = source.len() - rest.len();
        if let Some(comment) = comment(rest) {
            rest = &rest[comment..];
            continue;
        }
        rest = &rest[next.len_utf8()..];
        if let Some(level) = levels.last_mut() {
            operators -= level.operators();
            level.add(next, before, rest);
            operators += level.operators();
        }
        match next {
            '(' | '[' | '{' => levels.push(Level::default()),
            ')' | ']' | '}' => {
                operators -= levels.pop().map_or(0, |level| level.operators());
                if levels.is_empty() {
                    levels.push(Level::default());
                }
                // The end of a function or a block is the end of a statement, but for an `else`.
                if next == '}' && !goes_on(rest) {
                    operators -= levels.last_mut().map_or(0, |level| std::mem::take(level).operators());
                }
            }
            _ => {}
        }
        if levels.len() > MAX_NESTING {
            return too(format!("more than {MAX_NESTING} brackets are nested here"), at);
        }
        if operators > MAX_OPERATORS {
            return too(format!("more than {MAX_OPERATORS} operators in one expression"), at);
        }
        if !next.is_whitespace() {
            before = next;
        }
    }
    Ok(())
}

/// What is between two brackets since the last comma or statement: how deep its tree may be.
#[derive(Default)]
struct Level {
    /// Operators of two operands and of one.
    chain: usize,
    /// Members, elements and calls of the operand that is being read, one of the other.
    postfix: usize,
    /// The most that an operand has.
    most_postfix: usize,
    /// Angle brackets that are open, if they are brackets: commas within them separate no expressions.
    angles: usize,
}

impl Level {
    fn operators(&self) -> usize {
        self.chain + self.most_postfix
    }

    /// Counts a character, with the one before it and the text behind it.
    fn add(&mut self, next: char, before: char, rest: &str) {
        match next {
            ';' => *self = Self::default(),
            ',' if self.angles == 0 => *self = Self::default(),
            ')' | ']' | '}' | '_' => {}
            // The point of a number.
            '.' if rest.starts_with(|c: char| c.is_ascii_digit()) => {}
            '(' | '[' | '{' | '.' => {
                self.postfix += 1;
                self.most_postfix = self.most_postfix.max(self.postfix);
            }
            next if next.is_ascii_punctuation() => {
                self.chain += 1;
                self.postfix = 0;
                let is_name = before.is_alphanumeric() || before == '_';
                match next {
                    '<' if is_name && !rest.starts_with(['<', '=']) => self.angles += 1,
                    '>' => self.angles = self.angles.saturating_sub(1),
                    '&' | '|' if before == next => self.angles = 0,
                    _ => {}
                }
            }
            _ => {}
        }
    }
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

/// What ends a line in WGSL, and with it a comment.
const LINE_BREAKS: [char; 7] = ['\n', '\u{b}', '\u{c}', '\r', '\u{85}', '\u{2028}', '\u{2029}'];

/// The text with as many spaces in the place of its comments.
pub(super) fn without_comments(text: &str) -> String {
    let (mut code, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(next) = rest.chars().next() {
        let bytes = if let Some(bytes) = comment(rest) {
            code.extend(std::iter::repeat_n(' ', bytes));
            bytes
        } else {
            code.push(next);
            next.len_utf8()
        };
        rest = &rest[bytes..];
    }
    code
}

/// Bytes of the comment that a text begins with.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find(LINE_BREAKS).unwrap_or(text.len()));
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
        // A comma between angle brackets separates no expressions.
        assert!(!depth(&"array<u32,1>(1)[0]+".repeat(9000)));
        assert!(!depth(&"array<vec2<u32>,1>(1)[0]+".repeat(9000)));
        // What is within an operand adds nothing to the chain of operators that it is in.
        assert!(depth(&format!("{}1.5;", "out[1].x*f(1.5)+".repeat(900))));
        assert!(depth(&"(a < b), f(c, d < e, g > h),".repeat(900)));
        assert!(depth(&"vec4<f32>(1.0, 2.0, 3.0, -4.0),".repeat(10_000)));
        assert!(depth(&"x[i] = y[i] * 2.0;\n".repeat(10_000)));
        assert!(depth(&"fn f() { if a { b(); } }\n".repeat(9000)));
        assert!(depth(&format!("/* {} /* ( */ */ // {}\n", "((".repeat(900), "((".repeat(900))));
        assert!(!depth(&"a ".repeat(MAX_BYTES)));
    }

    /// What stands behind a line's end is code to the compiler, whichever of WGSL's line breaks it is.
    #[test]
    fn comments_end_where_the_compiler_says() {
        for end in LINE_BREAKS {
            assert!(!depth(&format!("//{end}{}", "a+".repeat(9000))), "{end:?}");
            let text = format!("override a = 1; // (((({end}override b = 2;");
            let module = naga::front::wgsl::parse_str(&text).unwrap();
            assert_eq!(module.overrides.len(), 2, "{end:?}");
        }
        for inside in ['\t', ' ', '\u{a0}', '\u{2003}', '\u{200b}'] {
            let text = format!("override a = 1; // {inside}override b = 2;");
            assert_eq!(naga::front::wgsl::parse_str(&text).unwrap().overrides.len(), 1, "{inside:?}");
            assert!(depth(&format!("//{inside}{}", "a+".repeat(9000))), "{inside:?}");
        }
    }

    #[test]
    fn unbalanced_texts_are_the_parsers_to_refuse() {
        for source in [")", "}}}}", "(", "/*", "/* /* */", "//", "/", "α(β", "\0"] {
            assert!(depth(source), "{source}");
        }
    }
}
