//! WGSL changed by tokens, so that much of it gets through a parser.

use crate::rng::Rng;

/// Literals at which types, sizes and counts end.
const LITERALS: [&str; 24] = [
    "0",
    "0u",
    "-1",
    "1i",
    "127",
    "255u",
    "256",
    "65535u",
    "65536u",
    "2147483647i",
    "-2147483648i",
    "2147483648u",
    "4294967295u",
    "4294967296",
    "9223372036854775807",
    "99999999999999999999",
    "0xffffffffu",
    "0x1p-149f",
    "3.4028234663852886e38f",
    "1e39f",
    "65504h",
    "1e308",
    "0.0f",
    "true",
];

const TYPES: [&str; 26] = [
    "bool",
    "i32",
    "u32",
    "f32",
    "f16",
    "f64",
    "i64",
    "vec2<f32>",
    "vec3<u32>",
    "vec4<f16>",
    "vec4<bool>",
    "mat2x2<f32>",
    "mat4x3<f32>",
    "mat3x4<f16>",
    "atomic<u32>",
    "atomic<f32>",
    "array<u32>",
    "array<f32, 4>",
    "array<vec3<f32>, 7>",
    "array<u32, 4294967295>",
    "array<array<u32, 65535>, 65535>",
    "ptr<function, u32>",
    "ptr<storage, array<u32>, read_write>",
    "texture_2d<f32>",
    "sampler",
    "binding_array<u32, 4>",
];

const OPERATORS: [&str; 26] = [
    "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "<", ">", "<=", ">=", "==", "!=", "&&", "||", "!",
    "~", "=", "+=", "*=", "<<=", "++", "--",
];

const WORDS: [&str; 44] = [
    "abs",
    "arrayLength",
    "atomicAdd",
    "barrier",
    "bitcast<u32>",
    "bitcast<vec2<f16>>",
    "break",
    "break if true;",
    "case 1u, default: { }",
    "const",
    "const_assert false;",
    "continue",
    "continuing { }",
    "countLeadingZeros",
    "default",
    "determinant",
    "diagnostic(off, derivative_uniformity);",
    "discard;",
    "dot",
    "else",
    "enable f16;",
    "enable subgroups;",
    "extractBits",
    "fma",
    "for",
    "frexp",
    "if",
    "let",
    "loop",
    "modf",
    "override",
    "pow",
    "private",
    "return",
    "select",
    "storageBarrier()",
    "struct",
    "subgroupAdd",
    "switch",
    "unpack2x16float",
    "var",
    "while",
    "workgroup",
    "workgroupBarrier()",
];

/// What isn't expected in a text, and parts of comments.
const STRANGE: [&str; 14] = [
    "\0",
    "é",
    "日本",
    "\u{1f600}",
    "\u{202e}",
    "\u{feff}",
    "\u{2028}",
    "a\u{301}",
    "\r",
    "\t",
    "/*",
    "*/",
    "//",
    "`",
];

/// What ends a line in WGSL, and with it a comment.
const LINE_BREAKS: [char; 7] = ['\n', '\u{b}', '\u{c}', '\r', '\u{85}', '\u{2028}', '\u{2029}'];

/// Counts around the limits of a parser's depth, and far above.
const DEPTHS: [usize; 9] = [3, 20, 100, 126, 127, 128, 500, 1_500, 30_000];

/// `valid` with a few changes of its tokens that depend on nothing but `seed`.
#[must_use]
pub fn mutated_wgsl(seed: &str, valid: &str) -> String {
    let mut rng = Rng::from_name(seed);
    let mut tokens = tokens(valid);
    // Half of the texts keep to changes that much of the time leave them valid.
    let is_gentle = rng.one_in(2);
    for _ in 0..=rng.below(3) {
        if rng.one_in(12) {
            deepen(&mut rng, &mut tokens);
        } else if is_gentle {
            vary(&mut rng, &mut tokens);
        } else {
            change(&mut rng, &mut tokens);
        }
    }
    tokens.concat()
}

/// Words, numbers and other characters; spaces and comments stay with what they follow.
fn tokens(text: &str) -> Vec<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = |class: &dyn Fn(char) -> bool| rest.find(|c| !class(c)).unwrap_or(rest.len());
        let len = match first {
            _ if rest.starts_with("//") => rest.find(LINE_BREAKS).unwrap_or(rest.len()),
            _ if first.is_whitespace() => end(&char::is_whitespace),
            // A number with its point and its suffix.
            _ if first.is_ascii_digit() => end(&|c| is_word(c) || c == '.'),
            _ if is_word(first) => end(&is_word),
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(len);
        let is_space = first.is_whitespace() || token.starts_with("//");
        match tokens.last_mut() {
            Some(last) if is_space => last.push_str(token),
            _ => tokens.push(token.to_owned()),
        }
        rest = after;
    }
    tokens
}

/// Puts a token of the text in the place of one of its kind, or an operator or a small number in the place of one.
fn vary(rng: &mut Rng, tokens: &mut [String]) {
    let kind = |token: &str| {
        let first = token.chars().next();
        let suffix = token.trim_end().chars().last().filter(|c| c.is_alphabetic());
        match first {
            Some(c) if c.is_ascii_digit() => (0, suffix.filter(|_| !token.starts_with("0x"))),
            Some(c) if c.is_alphabetic() => (1, None),
            Some(c) => (2, Some(c)),
            None => (3, None),
        }
    };
    match rng.below(3) {
        0 => {
            let numbers = |token: &str| token.starts_with(|c: char| c.is_ascii_digit());
            let places: Vec<usize> = (0..tokens.len()).filter(|&i| numbers(&tokens[i])).collect();
            if !places.is_empty() {
                let token = &mut tokens[rng.pick(&places)];
                let digits = token.find(|c: char| !c.is_ascii_digit()).unwrap_or(token.len());
                let numbers =
                    ["0", "1", "2", "3", "7", "63", "64", "255", "1000", "65535", "2147483647", "4294967295"];
                token.replace_range(..digits, rng.pick(&numbers));
            }
        }
        1 => {
            let arithmetic = ["+", "-", "*", "/", "%", "&", "|", "^"];
            replace(rng, tokens, |token| arithmetic.contains(&token.trim_end()), &arithmetic);
        }
        _ if !tokens.is_empty() => {
            let at = rng.below(tokens.len());
            let same: Vec<usize> =
                (0..tokens.len()).filter(|&i| kind(&tokens[i]) == kind(&tokens[at])).collect();
            tokens[at] = tokens[rng.pick(&same)].clone();
        }
        _ => {}
    }
}

fn change(rng: &mut Rng, tokens: &mut Vec<String>) {
    let at = rng.below(tokens.len() + 1);
    let end = (at + 1 + rng.below(6)).min(tokens.len());
    let other = rng.below(tokens.len().max(1));
    let starts = |class: fn(char) -> bool| move |token: &str| token.starts_with(class);
    match rng.below(14) {
        0 => drop(tokens.drain(at.min(end)..end)),
        1 => {
            let copied = tokens[at.min(end)..end].to_vec();
            tokens.splice(other..other, copied);
        }
        2 if at < tokens.len() => tokens.swap(at, other),
        // One token in the place of another, such as a name in the place of a name.
        3 if at < tokens.len() => tokens[at] = tokens[other].clone(),
        4..=6 => replace(rng, tokens, starts(|c| c.is_ascii_digit()), &LITERALS),
        7 => replace(rng, tokens, is_type, &TYPES),
        8 | 9 => replace(rng, tokens, starts(|c| "+-*/%&|^<>=!~".contains(c)), &OPERATORS),
        10 => replace(rng, tokens, starts(|c| c.is_alphabetic()), &WORDS),
        11 => insert(rng, tokens, at, &WORDS),
        12 => insert(rng, tokens, at, &["(", ")", "[", "]", "{", "}", "<", ">", ";", ",", ":", "@", "."]),
        _ => insert(rng, tokens, at, &STRANGE),
    }
}

fn is_type(token: &str) -> bool {
    ["bool", "i32", "u32", "f32", "f16", "vec", "mat", "array", "atomic"]
        .iter()
        .any(|ty| token.starts_with(ty))
}

/// Puts one of `by` in the place of a token of a kind; the space after it stays.
fn replace(rng: &mut Rng, tokens: &mut [String], is_kind: impl Fn(&str) -> bool, by: &[&str]) {
    let places: Vec<usize> = (0..tokens.len()).filter(|&i| is_kind(&tokens[i])).collect();
    if !places.is_empty() {
        let token = &mut tokens[rng.pick(&places)];
        let word = token.find(char::is_whitespace).unwrap_or(token.len());
        token.replace_range(..word, rng.pick(by));
    }
}

fn insert(rng: &mut Rng, tokens: &mut Vec<String>, at: usize, what: &[&str]) {
    tokens.insert(at, format!("{} ", rng.pick(what)));
}

/// What a recursive compiler goes down into, or what grows while it is compiled.
fn deepen(rng: &mut Rng, tokens: &mut Vec<String>) {
    let depth = rng.pick(&DEPTHS);
    let numbers: Vec<usize> =
        (0..tokens.len()).filter(|&i| tokens[i].starts_with(|c: char| c.is_ascii_digit())).collect();
    let around = |tokens: &mut [String], at: usize, before: &str, after: &str| {
        tokens[at] = format!("{}{}{} ", before.repeat(depth), tokens[at].trim_end(), after.repeat(depth));
    };
    match rng.below(11) {
        choice @ 0..=4 if !numbers.is_empty() => {
            let at = rng.pick(&numbers);
            let number = tokens[at].trim_end().to_owned();
            match choice {
                0 => around(tokens, at, "(", ")"),
                1 => around(tokens, at, "-", ""),
                2 => around(tokens, at, "", &format!("+{number}")),
                3 => around(tokens, at, "abs(", ")"),
                _ => around(tokens, at, &format!("max({number}, "), ")"),
            }
        }
        5 => {
            append(tokens, &format!("fn nested() {{ {}{} }}", "if true { ".repeat(depth), "}".repeat(depth)));
        }
        6 => append(tokens, &format!("fn chain() {{ if true {{ }}{} }}", " else if true { }".repeat(depth))),
        7 => append(tokens, &format!("alias Deep = {}u32{};", "array<".repeat(depth), ", 2>".repeat(depth))),
        8 => {
            let structs = (1..depth.min(3_000)).map(|i| format!("struct S{i} {{ x: S{} }}\n", i - 1));
            append(tokens, &format!("struct S0 {{ x: u32 }}\n{}", structs.collect::<String>()));
        }
        9 => calls(rng, tokens, depth.min(3_000)),
        _ => {
            let length = rng.pick(&LITERALS);
            append(tokens, &format!("const big = array<u32, {length}>(); const one = big[1];"));
        }
    }
}

fn append(tokens: &mut Vec<String>, declaration: &str) {
    tokens.push(format!("\n{declaration}\n"));
}

/// Functions of which each calls the one before it once or twice, the last of them called by the first function of
/// the text: compilers that inline every call double the text each time.
fn calls(rng: &mut Rng, tokens: &mut Vec<String>, depth: usize) {
    let twice = if rng.one_in(2) { "+ f" } else { "" };
    let function = |i: usize| {
        let second = if twice.is_empty() { String::new() } else { format!("{twice}{}(x + 1u)", i - 1) };
        format!("fn f{i}(x: u32) -> u32 {{ return f{}(x){second}; }}\n", i - 1)
    };
    let functions: String = (1..=depth).map(function).collect();
    append(tokens, &format!("fn f0(x: u32) -> u32 {{ return x * 3u; }}\n{functions}"));
    let body = tokens.iter().position(|token| token.starts_with("fn"));
    if let Some(at) =
        body.and_then(|from| tokens[from..].iter().position(|token| token.starts_with('{')).map(|n| from + n))
    {
        tokens[at].push_str(&format!(" var called = f{depth}(1u); called += 1u; "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "@compute @workgroup_size(64) fn main() { // says é\n  x[0] = 1.5f + 0x1fu; }\n";

    #[test]
    fn tokens_are_the_text() {
        let tokens = tokens(TEXT);
        assert_eq!(tokens.concat(), TEXT);
        assert!(tokens.contains(&"1.5f ".to_owned()) && tokens.contains(&"0x1fu".to_owned()), "{tokens:?}");
    }

    #[test]
    fn a_seed_gives_one_text() {
        let texts: Vec<String> = (0..500).map(|seed| mutated_wgsl(&seed.to_string(), TEXT)).collect();
        assert_eq!(texts[7], mutated_wgsl("7", TEXT));
        let changed = texts.iter().filter(|text| *text != TEXT).count();
        assert!(changed > 400, "{changed} of 500 texts are changed");
        for extreme in ["4294967295u", "else if", "((((((", "é", "array<array<", "f3(x)"] {
            assert!(texts.iter().any(|text| text.contains(extreme)), "{extreme} is in none");
        }
        assert!(mutated_wgsl("empty", "").len() < 1 << 20);
    }
}
