//! The place of what naga's parser refuses without telling where, such as an index into a number.
//!
//! It reads parts of the text again: the first statement with which the fault appears is at fault.

use std::ops::Range;

use super::extent;

/// Bytes of a text, at most, of which parts are parsed again: those of one take as long as parsing twenty of it.
const MAX_BYTES: usize = 1 << 16;

/// The bytes of the statement at fault, of a text that the parser refuses without a place.
pub(super) fn find(text: &str) -> Option<Range<usize>> {
    if text.len() > MAX_BYTES {
        return None;
    }
    let code = extent::without_comments(text);
    let bodies = bodies(&code);
    // The number of the first function with whose body the fault appears.
    let faulty = first(bodies.len(), |count| is_unplaced(&without(&code, &bodies[count..])))?;
    let body = bodies.get(faulty)?.clone();
    let ends = ends(&code, &body);
    let until = |end: &(usize, usize)| {
        let (at, open) = *end;
        let mut cut = without(&code, &bodies[faulty + 1..]);
        let rest = at..body.end;
        // The brackets that are open there, without the one that ends the body, which stays.
        let closed = format!("{:<width$}", "}".repeat(open), width = rest.len());
        cut.replace_range(rest, &closed);
        is_unplaced(&cut)
    };
    let statement = first(ends.len(), |count| count > 0 && until(&ends[count - 1]))?;
    let start = statement.checked_sub(1).map_or(body.start, |before| ends[before].0);
    let end = ends.get(statement)?.0;
    let found = code.get(start..end)?;
    let start = start + found.len() - found.trim_start().len();
    Some(start..end)
}

/// The number of the first of `count` parts with which a fault appears that all of them have, and none of them hasn't.
fn first(count: usize, has_fault: impl Fn(usize) -> bool) -> Option<usize> {
    if has_fault(0) || !has_fault(count) {
        return None;
    }
    let (mut without, mut with) = (0, count);
    while with - without > 1 {
        let middle = without.midpoint(with);
        if has_fault(middle) { with = middle } else { without = middle }
    }
    Some(without)
}

fn is_unplaced(code: &str) -> bool {
    naga::front::wgsl::parse_str(code).is_err_and(|error| error.labels().next().is_none())
}

/// What is between the outer brackets of functions.
fn bodies(code: &str) -> Vec<Range<usize>> {
    let (mut bodies, mut depth, mut start, mut declaration) = (Vec::new(), 0_usize, 0, 0);
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' => {
                if depth == 0 {
                    start = at + 1;
                }
                depth += 1;
            }
            b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    let header = code.get(declaration..start).unwrap_or_default();
                    if header.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "fn") {
                        bodies.push(start..at);
                    }
                    declaration = at + 1;
                }
            }
            b';' if depth == 0 => declaration = at + 1,
            _ => {}
        }
    }
    bodies
}

/// The text with spaces in place of some bodies.
fn without(code: &str, bodies: &[Range<usize>]) -> String {
    let mut code = code.to_owned();
    for body in bodies {
        code.replace_range(body.clone(), &" ".repeat(body.len()));
    }
    code
}

/// Where statements of a body end, or blocks begin, with the number of blocks that are open behind.
fn ends(code: &str, body: &Range<usize>) -> Vec<(usize, usize)> {
    let (mut ends, mut open, mut round) = (Vec::new(), 0_usize, 0_usize);
    for (at, byte) in code.bytes().enumerate().take(body.end).skip(body.start) {
        match byte {
            b'(' | b'[' => round += 1,
            b')' | b']' => round = round.saturating_sub(1),
            b'{' => open += 1,
            b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        // The closing brackets have to fit in what is left out.
        if matches!(byte, b';' | b'{' | b'}') && round == 0 && open <= body.end - (at + 1) {
            ends.push((at + 1, open));
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(body: &str) -> Option<String> {
        let text = format!(
            "struct S {{ a: f32 }} // fn {{ (
            @group(0) @binding(0) var<storage, read_write> out: array<S>;
            fn before(x: f32) -> f32 {{ /* }} */ return x; }}
            @compute @workgroup_size(1) fn main(@builtin(local_invocation_index) i: u32) {{ {body} }}
            fn behind() {{ for (var k = 0; k < 3; k++) {{ before(1.0); }} }}"
        );
        assert!(is_unplaced(&text), "{body}");
        find(&text).map(|range| text[range].to_owned())
    }

    #[test]
    fn the_statement_is_found() {
        let cases = [
            ("let s = out[i]; let x = 2.0; out[0].a = s[i]; out[1].a = x;", "out[0].a = s[i];"),
            (
                "if i > 2u { let x = out[0].a; for (var k = 0u; k < x[i]; k++) { out[k].a = x; } }",
                "for (var k = 0u; k < x[i]; k++) {",
            ),
            (
                "switch i { case 0u: { out[0].a = before(out[0].a)[i]; } default: {} }",
                "out[0].a = before(out[0].a)[i];",
            ),
            ("let x = 2.0;\n\n let y = x[i]; ", "let y = x[i];"),
        ];
        for (body, statement) in cases {
            assert_eq!(found(body).as_deref(), Some(statement), "{body}");
        }
    }

    #[test]
    fn what_has_no_statement_has_no_place() {
        for text in
            ["", "}}}{{{", "fn", "const a = array(1, 2)[3u][4];", "fn f() { let x = 1", "fn é() { 日本; }"]
        {
            assert_eq!(find(text), None, "{text}");
        }
    }
}
